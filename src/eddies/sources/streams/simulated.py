"""A source that misbehaves on command, read as a stream: slow, bursty, late, stalled or failing.

    eddies.read.simulated(table, rows_per_s=1000, delay_s=10)           # late, then steady
    eddies.read.simulated(table, burst_rows=500, pause_s=0.5, seed=3)   # bursts, Pareto pauses
    eddies.read.simulated(table, stall_after=1000, stall_s=30)          # one long gap
    eddies.read.simulated(table, fail_after=1000, fail_times=2)         # fails twice, then goes on

How it is read as a stream: `eddies.sources.streams.scheduled`. Where a query does not stream, the
source is the table behind it, and the schedule is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.access.method import IndexAccess
from eddies.core.expr import Expr
from eddies.sources.reachable import Reachable
from eddies.sources.source import Source, Split
from eddies.sources.streams.schedule import Schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SimulatedSource"]


class SimulatedSource(Reachable):
    """See `eddies.read.simulated`."""

    def __init__(self, source: Source, schedule: Schedule) -> None:
        self.source = source
        self.schedule = schedule
        self.label = f"simulated {source.label}"
        self.key: tuple[str, ...] = tuple(getattr(source, "key", ()))
        self.indexes: tuple[IndexAccess, ...] = tuple(getattr(source, "indexes", ()))

    def __repr__(self) -> str:
        return f"<{self.label}: {self.schedule}>"

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows

    @property
    def n_bytes(self) -> int | None:
        return self.source.n_bytes

    @property
    def is_direct(self) -> bool:
        return self.source.is_direct

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        return self.source.splits(where)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return self.source.dataframe(spark)
