"""The compact table of a hash index: lines of remainders, and a small table for what is left over.

See `kernels/remainders`. Where whole words take 26 to 51 bytes a key, these take 14 to 18. They are for
keys that lie within a domain of 2^D values, D being 32 and the bits of the number of lines: any whole
numbers within a range of 2^47 for 65,536 lines. Words that are hashes of keys lie anywhere and are
not for it: cut to D bits, different ones would become equal.

Lines come in sizes a quarter of a power of two apart: a table that just does not fit in a cache should
not have to be twice as large.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.jit import BRIEF_PROBE
from eddies.core.kernels.remainders import (
    REMAINDERS,
    enter_numbers,
    entries_of,
    insert_left,
    insert_remainders,
    probe_remainders,
    probe_remainders_brief,
    split_remainders,
)
from eddies.core.state.buffers import SHELF
from eddies.core.state.columns import Ids, Words
from eddies.core.state.line_table import LineTable, lines_for
from eddies.core.state.scratch import Scratch
from eddies.core.state.slot_table import Range

__all__ = ["FEWEST_KEYS", "RemainderTable", "domain_of"]

FEWEST_KEYS = 60_000  # a table of fewer words is in the second cache however it is made
_MOST_PER_LINE = 4.5  # keys; a tenth of the lines then have a flag...
_LEFT_OVER = 0.03  # ...and so many of the keys are left over
_REMAINDER_BITS = 32
_WORD_BITS = 64
_NOTHING: Words = np.empty(0, dtype=np.uint64)


def _lines_for(n_keys: int) -> int:
    n_lines = max(64, int(n_keys / _MOST_PER_LINE) + 1)
    step = 1 << max(0, n_lines.bit_length() - 3)
    return -(-n_lines // step) * step


def domain_of(words: Range, n_keys: int) -> tuple[int, int] | None:
    """The spread (base, limit) of a table for `n_keys` keys in a range of words; None if that is too
    wide. The range lies in the middle of the domain, as it may grow to both sides.
    """
    bits = _REMAINDER_BITS + _lines_for(n_keys).bit_length() - 1
    limit = (1 << bits) - 1
    if words.n_words > limit // 2:
        return None
    base = words.lowest - (limit - words.n_words) // 2
    return base % 2**_WORD_BITS, limit


class RemainderTable:
    """Links by word, for the words of one domain. Whoever inserts makes room first (`grow`), and knows
    that the words are of the domain (`contains`).
    """

    __slots__ = ("_halves", "_memory", "_rest", "_spread", "n_left")

    def __init__(self, spread: tuple[int, int], n_keys: int) -> None:
        self._spread: Words = np.array(spread, dtype=np.uint64)
        self._make(_lines_for(n_keys))
        self._rest: LineTable | None = None
        self.n_left = 0  # keys that are left over

    def _make(self, n_lines: int) -> None:
        self._memory = SHELF.take_zeros((n_lines + 1) * 8)
        self._halves: npt.NDArray[np.uint32] = self._memory.view(np.uint32)

    @property
    def n_lines(self) -> int:
        return int(self._halves.shape[0] // 16 - 1)

    @property
    def n_bytes(self) -> int:
        return self._memory.nbytes + (0 if self._rest is None else self._rest.n_bytes)

    def has_room(self, n_keys: int) -> bool:
        """Whether so many keys, in all, fit well."""
        return n_keys <= _MOST_PER_LINE * self.n_lines

    def contains(self, words: Range) -> bool:
        """Whether all words of a range belong to the domain."""
        base, limit = (int(part) for part in self._spread)
        first = (words.lowest - base) % 2**_WORD_BITS
        return bool(first <= limit and words.n_words <= limit + 1 - first)

    def insert(self, words: Words, rows: Ids, chain: Ids, scratch: Scratch) -> int:
        """Enter rows; returns how many have a word that was there before."""
        n_duplicates, n_left = insert_remainders(
            words, rows, self._halves, self._spread, chain, scratch.homes
        )
        if n_left:
            rest = self._rest_with_room(n_left).words
            left = scratch.homes[:n_left]
            n_old = insert_left(words, rows, left, rest, self._spread[0], chain)
            self.n_left += n_left - n_old
            n_duplicates += n_old
        return n_duplicates

    def probe(self, words: Words, scratch: Scratch) -> int:
        """The newest link of every word that is there, left in the scratch; returns how many."""
        rest = _NOTHING if self._rest is None else self._rest.words
        probe = probe_remainders_brief if words.shape[0] <= BRIEF_PROBE else probe_remainders
        return probe(
            words,
            self._halves,
            self._spread,
            rest,
            scratch.homes,
            scratch.positions,
            scratch.rows,
        )

    def grow(self, n_keys: int) -> None:
        """Have room for so many keys, in all."""
        n_lines = _lines_for(n_keys)
        halves, memory = self._halves, self._memory
        self._make(n_lines)
        n_used = np.zeros(n_lines, dtype=np.uint8)
        most = REMAINDERS * (halves.shape[0] // 16)
        numbers, links = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.int32)
        n_left = split_remainders(halves, self._halves, self._spread, n_used, numbers, links)
        SHELF.put(memory)
        rest, self._rest, self.n_left = self._rest, None, 0
        self._leave_over(numbers[:n_left], links[:n_left])
        if rest is not None:
            numbers, links = rest.entries()
            rest.release()
            self._enter(numbers, links, n_used)

    def enter(self, words: Words, links: Ids) -> None:
        """Enter links under words that are not there yet, into an empty table."""
        self._enter(words - self._spread[0], links, np.zeros(self.n_lines, dtype=np.uint8))

    def _enter(self, numbers: Words, links: Ids, n_used: npt.NDArray[np.uint8]) -> None:
        n_left = enter_numbers(numbers, links, self._halves, self._spread, n_used)
        self._leave_over(numbers[:n_left], links[:n_left])

    def entries(self) -> tuple[Words, Ids]:
        """The words that are there, and their links."""
        most = REMAINDERS * self.n_lines
        numbers, links = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.int32)
        n = entries_of(self._halves, self._spread, numbers, links)
        numbers, links = numbers[:n], links[:n]
        if self._rest is not None:
            more, more_links = self._rest.entries()
            numbers, links = np.append(numbers, more), np.append(links, more_links)
        return numbers + self._spread[0], links

    def release(self) -> None:
        """Give the memory back; the table must not be used afterwards."""
        SHELF.put(self._memory)
        self._memory = self._memory[:0]
        self._halves = self._halves[:0]
        if self._rest is not None:
            self._rest.release()

    def _leave_over(self, numbers: Words, links: Ids) -> None:
        """Enter new keys that found their lines full."""
        if not numbers.shape[0]:
            return
        known = self._rest.entries() if self._rest is not None else None
        if known is not None and self._rest is not None:
            self._rest.release()
            numbers, links = np.append(known[0], numbers), np.append(known[1], links)
        self._rest = LineTable(lines_for(numbers.shape[0]))
        self._rest.enter(numbers, links)
        self.n_left = numbers.shape[0]

    def _rest_with_room(self, n_more: int) -> LineTable:
        if self._rest is None:
            # For all that are likely to come: to double it again and again would cost more.
            self._rest = LineTable(lines_for(int(_LEFT_OVER * _MOST_PER_LINE * self.n_lines)))
        needed = lines_for(self.n_left + n_more, self._rest.n_lines)
        if needed > self._rest.n_lines:
            self._rest.grow(needed)
        return self._rest
