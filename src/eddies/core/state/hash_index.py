"""An incremental hash index over some columns of a row store.

The index is *lazy*: rows enter it when someone is about to probe (`catch_up`), not when they are
stored. So a relation nobody probes is never indexed. The table is sized by keys, not by rows: many
rows enter a chunk at a time, and the share of different keys among the chunks seen says how large the
table must be for all of them. NULL keys are never entered: NULL joins nothing.

A filter against misses (`miss_filter`) is made by `catch_up` as well, when probes have found that it
would pay: a probe is timed, and what is made once must not look like the price of every probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.lines import (
    ENTRIES,
    WORDS_PER_LINE,
    expand,
    insert,
    probe,
    rehash,
    rows_of,
    skip_newer,
)
from eddies.core.state.buffers import SHELF
from eddies.core.state.columns import FixedColumn, Ids, Words
from eddies.core.state.heavy_keys import SAMPLED_ROWS, HeavyKeys, find_heavy_keys
from eddies.core.state.keys import key_words
from eddies.core.state.miss_filter import MissFilter
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["HashIndex", "PendingChains"]

_MAX_LOAD = 0.5  # probes lose 15 % at 0.55 and half at 0.7
_FEWEST_LINES = 16
_INSERT_ROWS = 65_536
_SAMPLE_ROWS = 8_192  # rows that enter first, to see how many different keys there are
_ALMOST_UNIQUE = 0.99  # share of different keys above which all rows are believed to have their own
_MOST_GROWTH = 4  # below that share a sample says too little to reserve more than so many times


@dataclass(slots=True)
class PendingChains:
    """Matches whose older duplicates have not been followed yet (a paused probe)."""

    positions: Ids
    links: Ids


def _lines_for(n_keys: int, at_least: int) -> int:
    """Lines of a table for `n_keys` keys; sizes double."""
    n_lines = at_least
    while n_keys > n_lines * ENTRIES * _MAX_LOAD:
        n_lines *= 2
    return n_lines


class HashIndex:
    """Rows of `store` by the key in `columns`; `rows_with` restricts it to rows with that flag set.

    Legal order of calls: `catch_up`, then any number of `probe` and `resume`, then again.
    """

    def __init__(
        self, store: RowStore, columns: Sequence[str], rows_with: str | None = None
    ) -> None:
        self._store = store
        self.columns = tuple(columns)
        self._flag = rows_with
        self._table = SHELF.take_zeros(_FEWEST_LINES * WORDS_PER_LINE)
        self._chain: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._chain_memory: npt.NDArray[np.uint64] | None = None
        self._filter = MissFilter()
        self._wants_filter = False
        self._heavy: HeavyKeys | None = None
        self.n_rows = 0  # rows of the store that were looked at
        self.n_entered = 0
        self.n_duplicates = 0

    @property
    def n_bytes(self) -> int:
        return self._table.nbytes + self._chain.nbytes + self._filter.n_bytes

    @property
    def n_keys(self) -> int:
        """Different keys entered."""
        return self.n_entered - self.n_duplicates

    @property
    def is_behind(self) -> bool:
        """Whether `catch_up` has something to do."""
        return self.n_rows != self._store.n_rows or self._wants_filter

    def catch_up(self, scratch: Scratch) -> int:
        """Enter the rows stored since the last call; returns how many there were. A filter that is
        wanted is made, too, which counts with all keys.
        """
        n_filtered = 0
        if self._wants_filter:
            if (
                not self._filter.n_bytes
            ):  # else another thread, which asked at the same time, made it
                self._filter.make(self.n_keys, self._table, self._words_at_hand())
                n_filtered = self.n_keys
            self._wants_filter = False
        first, last = self.n_rows, self._store.n_rows
        if first == last:
            return n_filtered
        assert self._table.shape[0], "an index that was released is not used again"
        self._make_chain_room(last)
        scratch.reserve(min(_INSERT_ROWS, last - first))
        columns = [self._store.column(name) for name in self.columns]
        is_sampled = first == 0 and last > _INSERT_ROWS
        stop = first
        while stop < last:
            n_rows = _SAMPLE_ROWS if is_sampled and stop == 0 else _INSERT_ROWS
            start, stop = stop, min(stop + n_rows, last)
            self._make_table_room(start, stop, last)
            words, valid = key_words([(column, None) for column in columns], start, stop)
            rows = np.arange(start, stop, dtype=np.int32)
            if self._flag is not None:
                chosen = self._store.column(self._flag).words(None, start, stop) != 0
                valid = chosen if valid is None else chosen & (valid != 0)
            if valid is not None:
                keep = valid.astype(np.bool_)
                words, rows = words[keep], rows[keep]
            if rows.shape[0]:
                self.n_duplicates += insert(words, rows, self._table, self._chain, scratch.homes)
                self.n_entered += rows.shape[0]
                self._filter.entered(words, self._table, self.n_keys)
        self.n_rows = last
        return n_filtered + last - first

    def _make_chain_room(self, n_rows: int) -> None:
        if n_rows > self._chain.shape[0]:
            n_words = (max(n_rows, min(2 * self.n_rows, 2**31 - 1)) + 1) // 2
            lent = SHELF.take(1 << (n_words - 1).bit_length())
            chain = lent.view(np.int32)
            chain[: self.n_rows] = self._chain[: self.n_rows]
            self._give_back_chain()
            self._chain, self._chain_memory = chain, lent

    def _make_table_room(self, seen: int, stop: int, last: int) -> None:
        """Make room for the rows `seen:stop`; if the table must grow, for the keys that the rows up
        to `last` are likely to bring. With nothing seen yet, a few rows find out.
        """
        n_lines = self._table.shape[0] // WORDS_PER_LINE
        needed = _lines_for(self.n_keys + stop - seen, n_lines)
        if needed == n_lines:
            return
        share_new = self.n_keys / seen if seen else 1.0
        if seen:
            likely = _lines_for(int(self.n_keys + share_new * (last - seen)), needed)
            needed = likely if share_new > _ALMOST_UNIQUE else min(likely, _MOST_GROWTH * needed)
        if seen or stop == last:
            # If many more rows are to come, skip a size, for every size is a copy of all entries.
            foreseen = _lines_for(int(self._store.expected_rows * share_new), needed)
            needed = min(foreseen, 2 * needed)
        larger = SHELF.take_zeros(needed * WORDS_PER_LINE)
        if self.n_entered:
            rehash(self._table, larger, np.zeros(needed, dtype=np.uint8))
        SHELF.put(self._table)
        self._table = larger

    def release(self) -> None:
        """Give the table's memory back; the index must not be used afterwards."""
        SHELF.put(self._table)
        self._table = self._table[:0]
        self._give_back_chain()

    def _give_back_chain(self) -> None:
        if self._chain_memory is not None:
            SHELF.put(self._chain_memory)
            self._chain_memory = None
            self._chain = self._chain[:0]

    def probe(self, words: Words, limit: int, scratch: Scratch) -> tuple[int, PendingChains | None]:
        """Matches with row ids below `limit`, left in `scratch.positions` and `scratch.rows`.

        Returns how many there are, and the chains still to follow if they did not all fit; `resume`
        goes on with those. The words of NULL keys must not be among `words`.
        """
        scratch.reserve(words.shape[0])
        worth_a_look = self._filter.passing(words, scratch)
        looked_up = words if worth_a_look is None else worth_a_look[0]
        positions, links = scratch.positions, scratch.rows
        found = probe(looked_up, self._table, scratch.homes, scratch.leftovers, positions, links)
        if worth_a_look is not None:
            positions[:found] = worth_a_look[1][positions[:found]]
        n_growing = self.n_rows if self.n_rows < self._store.expected_rows else 0
        if self._filter.saw(words.shape[0], found, self._table, n_growing):
            self._wants_filter = True
        if limit < self.n_rows:
            found = skip_newer(scratch.positions, scratch.rows, found, limit, self._chain)
        return self._follow(found, 0, scratch)

    def has(self, words: Words, scratch: Scratch) -> npt.NDArray[np.bool_]:
        """Which words have a row here. Words that are hashes may be said to have one that differs."""
        scratch.reserve(words.shape[0])
        positions = scratch.positions
        found = probe(words, self._table, scratch.homes, scratch.leftovers, positions, scratch.rows)
        answer = np.zeros(words.shape[0], dtype=np.bool_)
        answer[positions[:found]] = True
        return answer

    def heavy_keys(self) -> HeavyKeys:
        """Keys that have many more rows than others; found anew when the rows have doubled."""
        known = self._heavy
        if known is None or self.n_rows >= 2 * known.n_rows:
            known = self._heavy = self._find_heavy_keys()
        return known

    def _find_heavy_keys(self) -> HeavyKeys:
        step = max(1, -(-self.n_rows // SAMPLED_ROWS))
        ids = np.arange(0, self.n_rows, step, dtype=np.int32)
        words, valid = key_words([(self._store.column(name), ids) for name in self.columns])
        if self._flag is not None:
            chosen = self._store.column(self._flag).words(ids) != 0
            valid = chosen if valid is None else chosen & (valid != 0)
        kept = words if valid is None else words[valid.astype(np.bool_)]
        found = find_heavy_keys(kept, step, max(1, self.n_rows))
        if self.n_entered:  # then keys are counted
            n_light = max(1, self.n_keys - found.words.shape[0])
            n_rows = max(0.0, self.n_entered - float(found.counts.sum()))
            found = replace(found, usual=n_rows / n_light)
        return found

    def _words_at_hand(self) -> Words | None:
        """The words of all rows, if the store holds them as they are."""
        column = self._store.column(self.columns[0])
        if len(self.columns) > 1 or not isinstance(column, FixedColumn):
            return None
        return column.words(None, 0, self.n_rows) if column.words_are_values else None

    def resume(self, pending: PendingChains, scratch: Scratch) -> tuple[int, PendingChains | None]:
        """The next matches of a paused probe."""
        n = pending.links.shape[0]
        scratch.reserve(n)
        scratch.positions[:n] = pending.positions
        scratch.rows[:n] = pending.links
        return self._follow(n, n, scratch)

    def _follow(
        self, found: int, already_out: int, scratch: Scratch
    ) -> tuple[int, PendingChains | None]:
        """Add older rows to the links in the scratch, then make row ids of them."""
        positions, links = scratch.positions, scratch.rows
        pending = None
        if self.n_duplicates:
            start, found = expand(positions, links, 0, found, self._chain, scratch.marked)
            if start < found:
                pending = PendingChains(positions[start:found].copy(), links[start:found].copy())
        if already_out:
            positions[: found - already_out] = positions[already_out:found].copy()
            links[: found - already_out] = links[already_out:found].copy()
            found -= already_out
        rows_of(links, found)
        return found, pending
