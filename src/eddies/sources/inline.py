"""A small Arrow table as a source: its rows travel with whoever reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources.delivered import convert, delivered_schema
from eddies.sources.reachable import Reachable
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["InlineSource", "delivered_table", "frame_of"]


def delivered_table(table: pa.Table) -> pa.Table:
    """`table` in the types that sources deliver."""
    schema = delivered_schema(table.schema, "the Arrow table")
    columns = [
        pa.chunked_array([convert(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    if not columns:
        return table
    return pa.Table.from_arrays(columns, schema=schema)


def frame_of(table: pa.Table, spark: SparkSession) -> DataFrame:
    """`table`, of delivered types, as a DataFrame: timestamps without a zone stay without one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(table, schema=from_arrow_schema(table.schema))


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
        self._table = delivered_table(table).combine_chunks()
        self.schema = self._table.schema

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
        return frame_of(self._table, spark)
