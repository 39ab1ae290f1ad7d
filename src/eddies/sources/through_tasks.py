"""A DataFrame whose tasks read a source's splits themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.sources.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["dataframe_of"]


def dataframe_of(source: Source, spark: SparkSession) -> DataFrame:
    """The rows of `source`, one task a split. Nothing passes through the driver."""
    from pyspark.sql.pandas.types import from_arrow_schema

    splits = source.splits()
    columns = list(source.schema.names)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from splits[number].read(columns)

    numbers = spark.range(0, len(splits), 1, max(1, len(splits)))
    return numbers.mapInArrow(read, from_arrow_schema(source.schema))
