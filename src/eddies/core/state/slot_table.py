"""The table of an index whose keys fill most of their range: a slot for each (see `kernels/slots`).

A table of lines takes 26 to 51 bytes a key. With at most eight words of range for a key, four bytes
each, slots take no more, and mostly far less, but for the room that a range which grows is given; they
are also filled and read several times faster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eddies.core.kernels.slots import insert_slots, probe_slots, word_range_brief
from eddies.core.state.buffers import SHELF
from eddies.core.state.columns import Ids, Words
from eddies.core.state.scratch import Scratch

__all__ = ["Range", "SlotTable", "range_of"]

_MOST_WORDS_PER_KEY = 8
_FEWEST_KEYS = 256  # below, every table is in the nearest cache
_MOST_WORDS = 1 << 31
_MOST_NARROW = 1 << 62
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_SMALLEST_SHELVED = 1 << 17  # words; smaller arrays are not kept on the shelf


@dataclass(frozen=True, slots=True)
class Range:
    """The words from `lowest` to `highest`, as signed integers."""

    lowest: int
    highest: int

    @property
    def n_words(self) -> int:
        return self.highest - self.lowest + 1

    @property
    def may_be_dense(self) -> bool:
        """Whether any number of rows could fill it; it only becomes wider."""
        return self.n_words <= _MOST_WORDS

    @property
    def may_be_narrow(self) -> bool:
        """Whether a table of remainders could be for it; it only becomes wider."""
        return self.n_words <= _MOST_NARROW

    def is_dense(self, n_keys: int) -> bool:
        """Whether slots pay for so many keys in this range."""
        most = min(_MOST_WORDS, _MOST_WORDS_PER_KEY * n_keys)
        return n_keys >= _FEWEST_KEYS and self.n_words <= most

    def __or__(self, other: Range | None) -> Range:
        if other is None:
            return self
        return Range(min(self.lowest, other.lowest), max(self.highest, other.highest))

    def contains(self, other: Range) -> bool:
        return self.lowest <= other.lowest and other.highest <= self.highest


def range_of(words: Words) -> Range | None:
    """The range of some words; None if there are none."""
    if not words.shape[0]:
        return None
    lowest, highest = word_range_brief(words)
    return Range(int(lowest), int(highest))


class SlotTable:
    """Links by word, for the words of one range. Whoever inserts makes room first (`widened`)."""

    __slots__ = ("_base", "_memory", "_slots", "range")

    def __init__(self, range_: Range) -> None:
        self.range = range_
        self._base = np.uint64(range_.lowest % 2**64)
        n_slots = range_.n_words + 1  # the last is that of all words outside
        n_words = (n_slots + 1) // 2
        if n_words >= _SMALLEST_SHELVED:  # sizes of powers of two are found on the shelf again
            n_words = 1 << (n_words - 1).bit_length()
        self._memory = SHELF.take(n_words)
        self._slots = self._memory.view(np.int32)[:n_slots]
        self._slots.fill(0)

    @property
    def n_bytes(self) -> int:
        return self._memory.nbytes

    def insert(self, words: Words, rows: Ids, chain: Ids, scratch: Scratch) -> int:
        """Enter rows; returns how many have a word that was there before."""
        return insert_slots(words, rows, self._slots, self._base, chain)

    def probe(self, words: Words, scratch: Scratch) -> int:
        """The newest link of every word that is there, left in the scratch; returns how many."""
        return probe_slots(words, self._slots, self._base, scratch.positions, scratch.rows)

    def contains(self, words: Range) -> bool:
        """Whether all words of a range have a slot."""
        return self.range.contains(words)

    def enter(self, words: Words, links: Ids) -> None:
        """Enter links under words that are not there yet, all of them within the range."""
        self._slots[words - self._base] = links

    def widened(self, needed: Range) -> SlotTable:
        """A table with the same entries that has slots for a range that contains this one's data; this
        one is released. The range doubles, to the side to which it grows, as it may go on growing.
        """
        lowest = min(self.range.lowest, needed.lowest)
        highest = max(self.range.highest, needed.highest)
        if needed.lowest < self.range.lowest:
            lowest = max(_LOWEST, min(lowest, self.range.lowest - self.range.n_words))
        if needed.highest > self.range.highest:
            highest = min(_HIGHEST, max(highest, self.range.highest + self.range.n_words))
        wider = SlotTable(Range(lowest, highest))
        shift = self.range.lowest - lowest
        wider._slots[shift : shift + self.range.n_words] = self._slots[:-1]
        self.release()
        return wider

    def entries(self) -> tuple[Words, Ids]:
        """The words that are there, and their links."""
        used = np.flatnonzero(self._slots)
        return used.astype(np.uint64) + self._base, self._slots[used]

    def release(self) -> None:
        """Give the memory back; the table must not be used afterwards."""
        SHELF.put(self._memory)
        self._memory = self._memory[:0]
        self._slots = self._slots[:0]
