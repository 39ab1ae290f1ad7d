"""The table of a hash index: lines of five entries (see `kernels/lines`) in memory from the shelf."""

from __future__ import annotations

import numpy as np

from eddies.core.kernels.lines import (
    ENTRIES,
    WORDS_PER_LINE,
    enter_links,
    insert,
    links_of,
    probe,
    rehash,
)
from eddies.core.state.buffers import SHELF
from eddies.core.state.columns import Ids, Words
from eddies.core.state.scratch import Scratch

__all__ = ["LineTable", "lines_for"]

_MAX_LOAD = 0.5  # probes lose 15 % at 0.55 and half at 0.7
_FEWEST_LINES = 16


def lines_for(n_keys: int, at_least: int = _FEWEST_LINES) -> int:
    """Lines of a table for `n_keys` keys; sizes double."""
    n_lines = at_least
    while n_keys > n_lines * ENTRIES * _MAX_LOAD:
        n_lines *= 2
    return n_lines


class LineTable:
    """Links by word, for any words. Whoever inserts makes room first (`grow`)."""

    __slots__ = ("words",)

    def __init__(self, n_lines: int = _FEWEST_LINES) -> None:
        self.words = SHELF.take_zeros(n_lines * WORDS_PER_LINE)

    @property
    def n_lines(self) -> int:
        return len(self.words) // WORDS_PER_LINE

    @property
    def n_bytes(self) -> int:
        return self.words.nbytes

    def insert(self, words: Words, rows: Ids, chain: Ids, scratch: Scratch) -> int:
        """Enter rows; returns how many have a word that was there before."""
        return insert(words, rows, self.words, chain, scratch.homes)

    def enter(self, words: Words, links: Ids) -> None:
        """Enter links under words that are not there yet, into an empty table with room for them."""
        enter_links(words, links, self.words, np.zeros(self.n_lines, dtype=np.uint8))

    def probe(self, words: Words, scratch: Scratch) -> int:
        """The newest link of every word that is there, left in the scratch; returns how many."""
        return probe(
            words, self.words, scratch.homes, scratch.leftovers, scratch.positions, scratch.rows
        )

    def entries(self) -> tuple[Words, Ids]:
        """The words that are there, and their links."""
        most = ENTRIES * self.n_lines
        words, links = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.int32)
        n = links_of(self.words, words, links)
        return words[:n], links[:n]

    def has_room(self, n_keys: int) -> bool:
        """Whether so many keys, in all, fit well."""
        return lines_for(n_keys, self.n_lines) == self.n_lines

    def grow(self, n_lines: int) -> None:
        """Have so many lines, at least as many as now."""
        larger = SHELF.take_zeros(n_lines * WORDS_PER_LINE)
        rehash(self.words, larger, np.zeros(n_lines, dtype=np.uint8))
        SHELF.put(self.words)
        self.words = larger

    def release(self) -> None:
        """Give the memory back; the table must not be used afterwards."""
        SHELF.put(self.words)
        self.words = self.words[:0]
