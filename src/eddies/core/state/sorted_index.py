"""A sorted index for band joins: a few sorted runs that merge as they multiply.

Rows enter as one sorted run for everything stored since the last look; a run is merged into its older
neighbour once it is half as large, so there are O(log n) runs and every row is sorted O(log n) times.
A probe is a range of values in each run. The ranges are *candidates*: who probes checks the predicate
itself, so bounds may be widened where exactness is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.state.columns import Ids
from eddies.core.state.rows import RowStore

__all__ = ["Bounds", "Positions", "SortedIndex", "Values", "is_sortable", "sort_values"]

Values = npt.NDArray[Any]  # int64 or float64, by the type of the column
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest value wanted by each probe row, both included; None: no bound."""

    lowest: Values | None
    highest: Values | None


def is_sortable(type_: pa.DataType) -> bool:
    """Whether a column of this type can have a sorted index."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_date(type_)
        or pa.types.is_timestamp(type_)
    ) and not pa.types.is_uint64(type_)


def sort_values(array: pa.Array) -> Values:
    """The values of a sortable array, as int64 or float64; NULLs are zero."""
    kind = pa.float64() if pa.types.is_floating(array.type) else pa.int64()
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    array = array.cast(kind)
    return np.asarray(array.fill_null(0) if array.null_count else array)


class SortedIndex:
    """Rows of `store` in the order of `column`. NULLs are left out: no comparison holds for them.
    NaN, which SQL puts above every number, is entered as infinity.
    """

    def __init__(self, store: RowStore, column: str, rows_with: str | None = None) -> None:
        self._store = store
        self.column = column
        self._flag = rows_with
        self._runs: list[tuple[Values, Ids]] = []
        self.n_rows = 0

    @property
    def n_bytes(self) -> int:
        return sum(values.nbytes + rows.nbytes for values, rows in self._runs)

    def catch_up(self) -> int:
        """Enter the rows stored since the last call; returns how many there were."""
        first, last = self.n_rows, self._store.n_rows
        if first == last:
            return 0
        column = self._store.column(self.column)
        rows = np.arange(first, last, dtype=np.int32)
        keep = np.ones(last - first, dtype=np.bool_)
        valid = column.valid(None, first, last)
        if valid is not None:
            keep &= valid != 0
        if self._flag is not None:
            keep &= self._store.column(self._flag).words(None, first, last) != 0
        rows = rows[keep]
        values = sort_values(column.take(rows))
        if values.dtype == np.float64:
            values = np.where(np.isnan(values), np.inf, values)
        order = np.argsort(values, kind="stable")
        self._runs.append((values[order], rows[order]))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][1]) >= len(self._runs[-2][1]):
            self._merge_last_two()
        self.n_rows = last
        return last - first

    def _merge_last_two(self) -> None:
        (old_values, old_rows), (values, rows) = self._runs[-2:]
        merged = np.concatenate([old_values, values])
        merged_rows = np.concatenate([old_rows, rows])
        order = np.argsort(merged, kind="stable")  # timsort: linear on two runs
        self._runs[-2:] = [(merged[order], merged_rows[order])]

    def ranges(self, bounds: Bounds, n: int) -> Iterator[tuple[Positions, Positions, Ids]]:
        """For each run: where each probe's range starts and stops in it, and the run's rows.

        The runs are those of the first call of `next`: whoever pauses between two runs misses no row
        and gets none twice, even if `catch_up` merges runs meanwhile. (Runs are never changed.)
        """
        for values, rows in tuple(self._runs):
            starts = np.zeros(n, dtype=np.int64)
            stops = np.full(n, len(rows), dtype=np.int64)
            if bounds.lowest is not None:
                starts = np.searchsorted(values, bounds.lowest, side="left").astype(np.int64)
            if bounds.highest is not None:
                stops = np.searchsorted(values, bounds.highest, side="right").astype(np.int64)
            yield starts, stops, rows
