"""A small Arrow table as a source: its rows travel with whoever reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.core.state.columns import normal_type
from eddies.sources.reachable import Reachable
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["InlineSource"]


@dataclass(frozen=True, slots=True)
class InlineSplit:
    """All rows of an Arrow table."""

    table: pa.Table

    @property
    def n_rows(self) -> int | None:
        return int(self.table.num_rows)

    @property
    def n_bytes(self) -> int | None:
        return int(self.table.nbytes)

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=batch_rows)


class InlineSource(Reachable):
    """An Arrow table, to be copied to every task that needs it. For tables of a few megabytes."""

    is_direct = True

    def __init__(self, table: pa.Table) -> None:
        schema = pa.schema([field.with_type(normal_type(field.type)) for field in table.schema])
        self._table = table.cast(schema).combine_chunks()
        self.schema = schema

    @property
    def label(self) -> str:
        return "Arrow table"

    @property
    def n_rows(self) -> int | None:
        return int(self._table.num_rows)

    @property
    def n_bytes(self) -> int | None:
        return int(self._table.nbytes)

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        return [InlineSplit(self._table)] if self._table.num_rows else []

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self._table)
