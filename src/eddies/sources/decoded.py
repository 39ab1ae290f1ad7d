"""Decoded columns of files, kept by a process for later queries.

Where the same files are asked again and again, most of a task's time is decoding the same columns.
With `Options(cache=...)` every worker keeps what it has decoded, up to that many bytes. Spark gives a
task to any worker, so each of them comes to keep what it is asked for.

Invariants:

* *Never another file's rows.* What is kept goes by the path, size and time of change that the source
  found when it was made, so a file that was written again is another file; and whoever reads checks
  that the file is still the one that was found (`opening.check_unchanged`).
* *Never more than the budget.* What does not fit is decoded again.
* *A scan larger than the budget does not wash out what it will need next time*: what one of the last
  few runs asked for stays, and what does not fit beside it is not kept.

Known limitations: row groups that are larger than a batch, and files other than Parquet, are not kept.
One task at a time asks, as in Spark's workers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from eddies.sources.paths import DataFile

__all__ = ["ColumnKey", "DecodedColumns", "decoded_columns"]

_RUNS_IN_USE = 4  # a query may run several eddies in a worker, one after another


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """A column of a row group; text may have been decoded to dictionaries."""

    system: str
    file: DataFile
    row_group: int
    name: str
    is_dictionary: bool


class DecodedColumns:
    """What one process keeps. `begin` a run, then `find` and `keep`."""

    def __init__(self) -> None:
        self._budget_bytes = 0
        self._run = 0
        self._kept: OrderedDict[ColumnKey, tuple[pa.Array, int]] = OrderedDict()
        self._last_run: dict[ColumnKey, int] = {}
        self.n_bytes = 0

    def begin(self, budget_bytes: int) -> None:
        """An eddy begins that may keep so much; what is more than that is given back."""
        self._run += 1
        self._budget_bytes = budget_bytes
        while self.n_bytes > budget_bytes:
            self._drop(next(iter(self._kept)))

    def find(self, key: ColumnKey) -> pa.Array | None:
        """The column, if it was kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        self._last_run[key] = self._run
        return found[0]

    def keep(self, key: ColumnKey, array: pa.Array) -> None:
        """Keep a column that was just decoded, if there is room or others are out of use."""
        n_bytes = array.get_total_buffer_size()
        if key in self._kept or n_bytes > self._budget_bytes:
            return
        while self.n_bytes + n_bytes > self._budget_bytes:
            oldest = next(iter(self._kept))
            if self._last_run[oldest] > self._run - _RUNS_IN_USE:
                return
            self._drop(oldest)
        self._kept[key] = array, n_bytes
        self._last_run[key] = self._run
        self.n_bytes += n_bytes

    def _drop(self, key: ColumnKey) -> None:
        self.n_bytes -= self._kept.pop(key)[1]
        del self._last_run[key]


_OF_THIS_PROCESS = DecodedColumns()


def decoded_columns(budget_bytes: int | None) -> DecodedColumns | None:
    """What this process keeps, for an eddy that begins; None if its query keeps nothing."""
    if budget_bytes is None:
        return None
    _OF_THIS_PROCESS.begin(budget_bytes)
    return _OF_THIS_PROCESS
