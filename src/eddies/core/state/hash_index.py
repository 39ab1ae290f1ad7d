"""An incremental hash index over some columns of a row store.

The index is *lazy*: rows enter it when someone is about to probe (`catch_up`), not when they are
stored. So a relation nobody probes is never indexed. The table is sized by keys, not by rows: many
rows enter a chunk at a time, and the share of different keys among the chunks seen says how large the
table must be for all of them. NULL keys are never entered: NULL joins nothing.

The table is one of three kinds. Keys that fill most of their range have a slot each (`slot_table`), all
others are hashed: into lines of whole words (`line_table`) while they are few or lie anywhere, into
lines of remainders (`remainder_table`), which take half of the memory, where they are many. Which it is
may change when rows are entered; a probe does not see it.

A filter against misses (`miss_filter`) is made by `catch_up` as well, when probes have found that it
would pay: a probe is timed, and what is made once must not look like the price of every probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.jit import BRIEF_ROWS
from eddies.core.kernels.lines import expand, rows_of, rows_of_brief, skip_newer
from eddies.core.state.buffers import SHELF
from eddies.core.state.columns import Ids, KeyColumn, Words
from eddies.core.state.heavy_keys import SAMPLED_ROWS, HeavyKeys, find_heavy_keys
from eddies.core.state.keys import is_exact, key_words
from eddies.core.state.line_table import LineTable, lines_for
from eddies.core.state.miss_filter import MissFilter
from eddies.core.state.remainder_table import FEWEST_KEYS, RemainderTable, domain_of
from eddies.core.state.scratch import Scratch
from eddies.core.state.slot_table import Range, SlotTable, range_of

__all__ = ["HashIndex", "PendingChains"]

_INSERT_ROWS = 65_536
_COUNT = np.arange(_INSERT_ROWS, dtype=np.int32)
_SAMPLE_ROWS = 8_192  # rows that enter first, to see how many different keys there are
_ALMOST_UNIQUE = 0.99  # share of different keys above which all rows are believed to have their own
_MOST_GROWTH = 4  # below that share a sample says too little to reserve more than so many times
_GUESSED = 1.03  # room for a guess of keys that is a little too low


Entered = tuple[Words, npt.NDArray[np.bool_] | None]
"""The words of some rows, and which of them are entered (None: all)."""


class Rows(Protocol):
    """What an index is made over: numbered rows, of which more may come."""

    @property
    def n_rows(self) -> int: ...

    @property
    def expected_rows(self) -> int:
        """How many there will be; 0 if nobody knows."""
        ...

    @property
    def is_growing(self) -> bool:
        """Whether more are known to come."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether it is known that none will come."""
        ...

    def column(self, name: str) -> KeyColumn: ...


@dataclass(slots=True)
class PendingChains:
    """Matches whose older duplicates have not been followed yet (a paused probe)."""

    positions: Ids
    links: Ids


class HashIndex:
    """Rows of `store` by the key in `columns`; `rows_with` restricts it to rows with that flag set.

    Legal order of calls: `catch_up`, then any number of `probe` and `resume`, then again.
    """

    def __init__(self, store: Rows, columns: Sequence[str], rows_with: str | None = None) -> None:
        self._store = store
        self.columns = tuple(columns)
        self._flag = rows_with
        self._table: LineTable | RemainderTable | SlotTable = LineTable()
        self._range: Range | None = None  # of the words entered, where words are keys
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
        return self._table.n_bytes + self._chain.nbytes + self._filter.n_bytes

    @property
    def n_keys(self) -> int:
        """Different keys entered."""
        return self.n_entered - self.n_duplicates

    @property
    def most_matches(self) -> float:
        """More rows than this do not have the same key; infinite if nobody counts."""
        return 1.0 + self.n_duplicates

    @property
    def is_behind(self) -> bool:
        """Whether `catch_up` has something to do."""
        return self.n_rows != self._store.n_rows or self._wants_filter

    def catch_up(self, scratch: Scratch) -> int:
        """Enter the rows stored since the last call; returns how many there were. A filter that is
        wanted is made, too, which counts with all keys.
        """
        n_filtered = self._make_filter() if self._wants_filter else 0
        first, last = self.n_rows, self._store.n_rows
        if first == last:
            return n_filtered
        assert self._table.n_bytes, "an index that was released is not used again"
        self._make_chain_room(last)
        scratch.reserve(min(_INSERT_ROWS, last - first))
        seen = self._see_range(first, last)
        self._fit_range(last - first)
        is_sampled = first == 0 and last > _INSERT_ROWS
        stop = first
        while stop < last:
            n_rows = _SAMPLE_ROWS if is_sampled and stop == 0 else _INSERT_ROWS
            start, stop = stop, min(stop + n_rows, last)
            if not isinstance(self._table, SlotTable):
                self._make_table_room(self._table, start, stop, last)
            table = self._table
            words, keep = self._entered_words(start, stop) if seen is None else seen
            rows = np.add(_COUNT[: stop - start], start, out=scratch.marked[: stop - start])
            if keep is not None:
                words, rows = words[keep], rows[keep]
            if rows.shape[0]:
                self.n_duplicates += table.insert(words, rows, self._chain, scratch)
                self.n_entered += rows.shape[0]
                self._filter.entered(words)
        self.n_rows = last
        if self._filter.is_crowded(self.n_keys):
            self._filter.make(self.n_keys, self._all_words())
        return n_filtered + last - first

    def _make_filter(self) -> int:
        """Make the filter that is wanted; returns of how many keys."""
        self._wants_filter = False
        # Unless another thread, which asked at the same time, made it.
        if self._filter.n_bytes or isinstance(self._table, SlotTable):
            return 0
        self._filter.make(self.n_keys, self._all_words())
        return self.n_keys

    def _all_words(self) -> Iterator[Words]:
        """The words of all rows that were entered."""
        for start in range(0, self.n_rows, _INSERT_ROWS):
            words, keep = self._entered_words(start, min(start + _INSERT_ROWS, self.n_rows))
            yield words if keep is None else words[keep]

    def _entered_words(self, start: int, stop: int) -> Entered:
        """The words of some rows, and which of them are entered (None: all)."""
        columns = [self._store.column(name) for name in self.columns]
        words, valid = key_words([(column, None) for column in columns], start, stop)
        if self._flag is not None:
            chosen = self._store.column(self._flag).words(None, start, stop) != 0
            valid = chosen if valid is None else chosen & (valid != 0)
        return words, None if valid is None else valid.astype(np.bool_)

    def _see_range(self, first: int, last: int) -> Entered | None:
        """Learn the range of the words of rows that come, as long as it may be of use. If they are one
        chunk, its words are returned: those of tuples are gathered through row ids, which costs as much
        as to enter them.
        """
        if self._range is not None and not self._range.may_be_narrow:
            return None
        if not is_exact([self._store.column(name) for name in self.columns]):
            return None  # hashes lie anywhere
        seen: Entered | None = None
        for start in range(first, last, _INSERT_ROWS):
            seen = words, keep = self._entered_words(start, min(start + _INSERT_ROWS, last))
            part = range_of(words if keep is None else words[keep])
            if part is not None:
                self._range = part | self._range
        return seen if last - first <= _INSERT_ROWS else None

    def _fit_range(self, n_coming: int) -> None:
        """Let the table have a place for the words that come, or go over to one that has."""
        table = self._table
        if isinstance(table, LineTable) or self._range is None or table.contains(self._range):
            return
        n_likely = self.n_keys + n_coming * self.n_keys // max(1, self.n_entered)
        if isinstance(table, SlotTable) and self._range.is_dense(n_likely):
            self._table = table.widened(self._range)
        else:
            self._hash_again(self.n_keys)

    def _hash_again(self, n_room: int) -> None:
        """Go over to the hash table that suits the range, with room for so many keys."""
        table = self._table
        spread = self._domain(n_room)
        self._table = RemainderTable(spread, n_room) if spread else LineTable(lines_for(n_room))
        self._table.enter(*table.entries())
        table.release()

    def _domain(self, n_room: int) -> tuple[int, int] | None:
        """The spread of a table of remainders for so many keys, if there can be one and it pays."""
        if self._range is None or n_room < FEWEST_KEYS:
            return None
        return domain_of(self._range, n_room)

    def _turn_to_slots(self, table: LineTable | RemainderTable) -> None:
        assert self._range is not None
        self._table = SlotTable(self._range)
        self._table.enter(*table.entries())
        self._filter = MissFilter()  # which slots do not need
        self._wants_filter = False
        table.release()

    def _make_chain_room(self, n_rows: int) -> None:
        if n_rows > self._chain.shape[0]:
            n_words = (max(n_rows, min(2 * self.n_rows, 2**31 - 1)) + 1) // 2
            lent = SHELF.take(1 << (n_words - 1).bit_length())
            chain = lent.view(np.int32)
            chain[: self.n_rows] = self._chain[: self.n_rows]
            self._give_back_chain()
            self._chain, self._chain_memory = chain, lent

    def _make_table_room(
        self, table: LineTable | RemainderTable, seen: int, stop: int, last: int
    ) -> None:
        """Make room for the rows `seen:stop`; if the table must grow, for the keys that the rows up
        to `last` are likely to bring, or by turning to slots. With nothing seen yet, a few rows find
        out.
        """
        n_sure = self.n_keys + stop - seen
        if table.has_room(n_sure):
            return
        share_new = self.n_keys / seen if seen else 1.0
        n_likely = int(self.n_keys + share_new * (last - seen))
        if (seen or stop == last) and self._range is not None and self._range.is_dense(n_likely):
            self._turn_to_slots(table)
            return
        n_room = n_sure
        if seen:
            n_room = max(n_sure, int(_GUESSED * n_likely))
            if share_new <= _ALMOST_UNIQUE:
                n_room = min(n_room, _MOST_GROWTH * n_sure)
        is_complete = self._store.is_complete
        if (seen or stop == last) and not is_complete:
            # If many more rows are to come, make room for some, for to grow is to copy all entries.
            foreseen = int(_GUESSED * self._store.expected_rows * share_new)
            n_room = max(n_room, min(foreseen, _MOST_GROWTH * n_room))
        if self.n_keys and not is_complete:
            n_room = max(n_room, 2 * self.n_keys)  # whatever anybody thinks is to come
        if isinstance(table, RemainderTable):
            table.grow(n_room)
        elif self._domain(n_room):
            self._hash_again(n_room)
        else:
            table.grow(lines_for(n_room, table.n_lines))

    def release(self) -> None:
        """Give the table's memory back; the index must not be used afterwards."""
        self._table.release()
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
        found = self._links(words, scratch)
        if limit < self.n_rows:
            found = skip_newer(scratch.positions, scratch.rows, found, limit, self._chain)
        return self._follow(found, 0, scratch)

    def newest(self, words: Words, scratch: Scratch) -> int:
        """`probe` for the newest row of each word only, whatever its row id."""
        found = self._links(words, scratch)
        (rows_of_brief if found <= BRIEF_ROWS else rows_of)(scratch.rows, found)
        return found

    def newest_of_all(self, scratch: Scratch) -> Ids:
        """For each row the newest one with the same key; -1 for those that were not entered."""
        heads: Ids = np.full(self.n_rows, -1, dtype=np.int32)
        for start in range(0, self.n_rows, _INSERT_ROWS):
            stop = min(start + _INSERT_ROWS, self.n_rows)
            words, keep = self._entered_words(start, stop)
            entered = None if keep is None else np.flatnonzero(keep)
            words = words if entered is None else words[entered]
            scratch.reserve(words.shape[0])
            found = self._table.probe(words, scratch)
            rows_of(scratch.rows, found)
            rows = scratch.positions[:found]
            heads[start + (rows if entered is None else entered[rows])] = scratch.rows[:found]
        return heads

    def _links(self, words: Words, scratch: Scratch) -> int:
        """The links of the newest rows, in the scratch; returns how many there are."""
        scratch.reserve(words.shape[0])
        table = self._table
        if isinstance(table, SlotTable):
            return table.probe(words, scratch)
        return self._probe_hashed(table, words, scratch)

    def _probe_hashed(
        self, table: LineTable | RemainderTable, words: Words, scratch: Scratch
    ) -> int:
        """What a hash table has of `words`, with a filter before it where that pays."""
        worth_a_look = self._filter.passing(words, scratch)
        if worth_a_look is None:
            found = table.probe(words, scratch)
        else:
            found = table.probe(worth_a_look[0], scratch)
            positions = scratch.positions
            positions[:found] = worth_a_look[1][positions[:found]]
        if self._filter.saw(words.shape[0], found):
            n_growing = self.n_rows if self._store.is_growing else 0
            self._wants_filter |= self._filter.judge(table.n_bytes, n_growing)
        return found

    def has(self, words: Words, scratch: Scratch) -> npt.NDArray[np.bool_]:
        """Which words have a row here. Words that are hashes may be said to have one that differs."""
        scratch.reserve(words.shape[0])
        found = self._table.probe(words, scratch)
        answer = np.zeros(words.shape[0], dtype=np.bool_)
        answer[scratch.positions[:found]] = True
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
        (rows_of_brief if found <= BRIEF_ROWS else rows_of)(links, found)
        return found, pending
