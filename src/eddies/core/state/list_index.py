"""A list while it is small, a hash index when it has grown (SteMs, section 3.5: list to hash).

Comparing a batch with a few dozen rows one by one costs less than making a hash table. The switch is
private to the SteM: probes see the same matches before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from eddies.core.state.columns import Ids, Words
from eddies.core.state.hash_index import HashIndex, PendingChains
from eddies.core.state.keys import key_words
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["LONGEST_LIST", "ListIndex"]

LONGEST_LIST = 48  # rows


class ListIndex(HashIndex):
    """As a `HashIndex`, but without a table while the store has few rows."""

    most_matches = inf

    def __init__(
        self, store: RowStore, columns: Sequence[str], rows_with: str | None = None
    ) -> None:
        super().__init__(store, columns, rows_with)
        self._words = np.empty(0, dtype=np.uint64)
        self._rows = np.empty(0, dtype=np.int32)
        self.is_list = True

    def catch_up(self, scratch: Scratch) -> int:
        if not self.is_list:
            return super().catch_up(scratch)
        if self._store.n_rows > LONGEST_LIST:
            self.is_list = False
            n_listed = self.n_rows
            self.n_rows = 0  # the table takes everything from the beginning
            return super().catch_up(scratch) - n_listed
        first, last = self.n_rows, self._store.n_rows
        if first == last:
            return 0
        words, rows = self._listed(first, last)
        self._words = np.concatenate([self._words, words])
        self._rows = np.concatenate([self._rows, rows])
        self.n_rows = last
        return last - first

    def has(self, words: Words, scratch: Scratch) -> npt.NDArray[np.bool_]:
        return np.isin(words, self._words) if self.is_list else super().has(words, scratch)

    def _listed(self, first: int, last: int) -> tuple[Words, Ids]:
        columns = [self._store.column(name) for name in self.columns]
        words, valid = key_words([(column, None) for column in columns], first, last)
        rows = np.arange(first, last, dtype=np.int32)
        keep = np.ones(last - first, dtype=np.bool_)
        if valid is not None:
            keep &= valid != 0
        if self._flag is not None:
            keep &= self._store.column(self._flag).words(None, first, last) != 0
        return words[keep], rows[keep]

    def probe(self, words: Words, limit: int, scratch: Scratch) -> tuple[int, PendingChains | None]:
        if not self.is_list:
            return super().probe(words, limit, scratch)
        is_old = self._rows < limit
        positions, places = np.nonzero(words[:, None] == self._words[is_old][None, :])
        n_found = positions.shape[0]
        scratch.reserve(max(words.shape[0], n_found))
        scratch.positions[:n_found] = positions
        scratch.rows[:n_found] = self._rows[is_old][places]
        return n_found, None
