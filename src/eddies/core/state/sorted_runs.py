"""Sorted runs: the SteM of a sort-merge join (SteMs, section 3.5).

Rows that were stored since the last probe become a sorted run of key words. Runs of similar size are
merged, so there are at most logarithmically many, and a probe looks into each by binary search.
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

__all__ = ["SortedRuns"]


class SortedRuns(HashIndex):
    """As a `HashIndex`, but words lie sorted in runs instead of a table."""

    most_matches = inf

    def __init__(
        self, store: RowStore, columns: Sequence[str], rows_with: str | None = None
    ) -> None:
        super().__init__(store, columns, rows_with)
        self._runs: list[tuple[Words, Ids]] = []

    @property
    def n_bytes(self) -> int:
        return sum(words.nbytes + rows.nbytes for words, rows in self._runs)

    @property
    def n_runs(self) -> int:
        """Runs that a probe looks into."""
        return len(self._runs)

    def catch_up(self, scratch: Scratch) -> int:
        first, last = self.n_rows, self._store.n_rows
        if first == last:
            return 0
        columns = [self._store.column(name) for name in self.columns]
        words, valid = key_words([(column, None) for column in columns], first, last)
        rows = np.arange(first, last, dtype=np.int32)
        keep = np.ones(last - first, dtype=np.bool_)
        if valid is not None:
            keep &= valid != 0
        if self._flag is not None:
            keep &= self._store.column(self._flag).words(None, first, last) != 0
        self._add(words[keep], rows[keep])
        self.n_rows = last
        return last - first

    def _add(self, words: Words, rows: Ids) -> None:
        """A new run; while the one before it is not twice as long, they become one."""
        order = np.argsort(words, kind="stable")
        run = (words[order], rows[order])
        while self._runs and self._runs[-1][0].shape[0] < 2 * run[0].shape[0]:
            other_words, other_rows = self._runs.pop()
            words = np.concatenate([other_words, run[0]])
            rows = np.concatenate([other_rows, run[1]])
            order = np.argsort(words, kind="stable")  # merges: both halves are sorted already
            run = (words[order], rows[order])
        if run[0].shape[0]:
            self._runs.append(run)

    def probe(self, words: Words, limit: int, scratch: Scratch) -> tuple[int, PendingChains | None]:
        found = []
        for run_words, run_rows in self._runs:
            starts = np.searchsorted(run_words, words, "left")
            counts = np.searchsorted(run_words, words, "right") - starts
            n_found = int(counts.sum())
            if n_found == 0:
                continue
            positions = np.repeat(np.arange(words.shape[0], dtype=np.int32), counts)
            within = np.arange(n_found) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = run_rows[np.repeat(starts, counts) + within]
            is_old = rows < limit
            found.append((positions[is_old], rows[is_old]))
        n_found = sum(rows.shape[0] for _, rows in found)
        scratch.reserve(max(words.shape[0], n_found))
        if found:
            scratch.positions[:n_found] = np.concatenate([positions for positions, _ in found])
            scratch.rows[:n_found] = np.concatenate([rows for _, rows in found])
        return n_found, None

    def has(self, words: Words, scratch: Scratch) -> npt.NDArray[np.bool_]:
        answer = np.zeros(words.shape[0], dtype=np.bool_)
        for run_words, _ in self._runs:
            places = np.minimum(np.searchsorted(run_words, words), run_words.shape[0] - 1)
            answer |= run_words[places] == words
        return answer

    def release(self) -> None:
        """Drop the runs; the index must not be used afterwards."""
        super().release()
        self._runs.clear()
