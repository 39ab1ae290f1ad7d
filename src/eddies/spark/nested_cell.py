"""What one cell answers, as a source of another: both are run by one task.

A subquery over a join is a block of its own, and Spark would run its cell, take its rows, and hand
them to the cells of the block that reads them: a stage more, and a job that waits for it. If the
subquery's only cell gives its answer itself (`whole_groups`), and the block that reads it has one cell
as well, the task of that cell runs the other one when it comes to these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources.reachable import Reachable
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split
from eddies.sources.through_spark import dataframe_of_splits
from eddies.spark.task import EddyTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CellSource"]


@dataclass(frozen=True, slots=True)
class _CellSplit:
    """All rows that a task gives out for its only cell."""

    task: EddyTask
    n_rows: int | None = None
    n_bytes: int | None = None

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        for rows in self.task(iter((pa.record_batch({"id": pa.array([0])}),))):
            for start in range(0, rows.num_rows, batch_rows):
                yield rows.select(list(columns)).slice(start, batch_rows)


class CellSource(Reachable):
    """The answer of a block that has one cell."""

    is_direct = True
    n_rows: int | None = None
    n_bytes: int | None = None

    def __init__(self, task: EddyTask, schema: pa.Schema) -> None:
        self._task = task
        self.schema = schema
        self.label = f"the answer of {task.block}, which the same task makes"

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        return [_CellSplit(self._task)]

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return dataframe_of_splits(spark, self.splits(), self.schema)
