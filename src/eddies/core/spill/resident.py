"""The part of a SteM that is in memory, and what of it was written out.

Flushing rows renumbers those that stay: row ids of a store are positions. Arrival numbers, which the
stamps are about, are not renumbered. Since rows that stay keep their order, both rise together, so
"arrived before the limit" is still "row id below some number": one binary search a probe.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.modules.stem import SteM
from eddies.core.spill.partitions import Partitions, partitions_of, slices_by_partition
from eddies.core.spill.runs import FlushedRows, index_bytes
from eddies.core.state.rows import Block

__all__ = ["Resident"]

Rows = npt.NDArray[np.int32]
_NONE = np.empty(0, dtype=np.int32)


class Resident:
    """Rows of one relation in memory. `generation` changes when row ids do."""

    def __init__(self, stem: SteM, flushed: FlushedRows) -> None:
        self.stem = stem
        self.flushed = flushed
        self.n_arrived = 0
        self.generation = 0
        self.has_filters = False
        self._partitions: Partitions | None = None  # of all rows, if they are known
        self._kept: Rows = _NONE  # arrival numbers of the rows that stayed at the last flush;
        self._first_since = 0  # rows since then arrived one after the other, from this number on

    def build(self, block: Block) -> None:
        """Store the rows of `block` under the next arrival numbers, in as few bytes as they need."""
        self.stem.build(block.narrowed(self.flushed.relation.stored))
        self.n_arrived += block.n_rows
        if self.has_filters:
            self.flushed.add_keys(block)

    def adopt(self) -> None:
        """Rows that the SteM already has arrived in the order of their ids."""
        self.n_arrived = self.stem.store.n_rows

    def begin_filters(self) -> None:
        """Enter the keys of all rows so far, none of which may be on disk yet, and of all to come."""
        if not self.has_filters:
            self.flushed.add_keys(self.stem.store)
            self.has_filters = True

    @property
    def n_rows(self) -> int:
        """Rows in memory."""
        return self.stem.store.n_rows

    def limit(self, arrival: int) -> int:
        """The row id below which are the rows that arrived before number `arrival`."""
        if arrival >= self._first_since:
            return int(self._kept.shape[0]) + arrival - self._first_since
        return int(np.searchsorted(self._kept, arrival))

    def arrivals(self, rows: Rows) -> Rows:
        """The arrival numbers of rows."""
        n_kept = self._kept.shape[0]
        shifted = rows + np.int32(self._first_since - n_kept)
        if n_kept == 0:
            return shifted
        old = rows < n_kept
        shifted[old] = self._kept[rows[old]]
        return shifted

    def all_arrivals(self) -> Rows:
        """The arrival numbers of all rows in memory."""
        since = np.arange(self._first_since, self.n_arrived, dtype=np.int32)
        return np.concatenate([self._kept, since])

    def flush(self, is_flushed: npt.NDArray[np.bool_]) -> None:
        """Write the rows of these partitions to disk and drop them. At a safe point only."""
        partitions = self.partitions()
        order, starts = slices_by_partition(partitions, self.flushed.n_partitions)
        if not (np.diff(starts) * is_flushed).any():
            return
        arrivals = self.all_arrivals()
        self.flushed.flush(self.stem.store, arrivals, order, starts, is_flushed)
        self._keep_only(np.flatnonzero(~is_flushed[partitions]).astype(np.int32), arrivals)

    def drop(self) -> None:
        """Nobody will ask for the rows in memory again."""
        if self.n_rows:
            self._keep_only(_NONE, self.all_arrivals())

    def _keep_only(self, rows: Rows, arrivals: Rows) -> None:
        self.stem.keep_only(rows)
        self._kept = arrivals[rows]
        self._first_since = self.n_arrived
        self._partitions = None
        self.generation += 1

    def partitions(self) -> Partitions:
        """The partition of every row in memory."""
        known = self._partitions
        if known is None or known.shape[0] != self.n_rows:
            home = self.flushed.home
            if home is None:
                words = self.all_arrivals().astype(np.uint64)
            else:
                words = self.stem.store.column(home).words(None)
            known = self._partitions = partitions_of(words, self.flushed.n_partitions)
        return known

    def rows_by_partition(self) -> npt.NDArray[np.int64]:
        """How many rows of each partition are in memory."""
        return np.bincount(self.partitions(), minlength=self.flushed.n_partitions)

    @property
    def n_bytes_ahead(self) -> int:
        """Memory the rows take, indexes included that the next probe may have to extend."""
        stem, n_rows = self.stem, self.n_rows
        indexed = stem.n_index_bytes
        if self.flushed.keys:
            indexed = max(indexed, stem.n_hash_indexes * index_bytes(n_rows), index_bytes(n_rows))
        return stem.store.n_bytes + indexed + self._kept.nbytes
