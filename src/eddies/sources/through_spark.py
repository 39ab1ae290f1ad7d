"""Where Spark and sources meet: files that only Spark can read, splits that Spark's tasks read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.paths import NoFileSystem, shown
from eddies.sources.reachable import Reachable
from eddies.sources.source import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkFiles", "dataframe_of_splits"]

_ROWS_A_BATCH = 65_536


def dataframe_of_splits(
    spark: SparkSession, splits: Sequence[Split], schema: pa.Schema
) -> DataFrame:
    """A DataFrame whose tasks read the splits themselves."""
    from pyspark.sql.pandas.types import from_arrow_schema

    parts, names = list(splits), list(schema.names)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from parts[number].read(names, batch_rows=_ROWS_A_BATCH)

    n_tasks = max(1, min(len(parts), 200))
    numbers = spark.range(0, len(parts), 1, n_tasks)
    return numbers.mapInArrow(read, from_arrow_schema(schema, prefer_timestamp_ntz=True))


class SparkFiles(Reachable):
    """Files on a file system that pyarrow does not know. Spark reads them; tasks cannot.

    Its columns are Spark's to say, so asking for `schema` needs a running session.
    """

    is_direct = False
    n_rows: int | None = None
    n_bytes: int | None = None

    def __init__(
        self,
        format_: str,
        files: NoFileSystem,
        options: dict[str, str],
        schema: pa.Schema | None = None,
    ) -> None:
        self.reason = files.reason
        self.label = f"{format_} {shown(files.given)} (read by Spark: {files.reason})"
        self._format = format_
        self._paths = list(files.given)
        self._options = options
        self._given = schema

    def __repr__(self) -> str:
        return f"<{self.label}>"

    @property
    def schema(self) -> pa.Schema:
        if self._given is not None:
            return self._given
        from pyspark.sql import SparkSession
        from pyspark.sql.pandas.types import to_arrow_schema

        spark = SparkSession.getActiveSession()
        if spark is None:
            raise SourceError(
                f"the columns of {self.label} are known to Spark only, and no session runs: start one "
                "(eddies.session()), or give schema=..."
            )
        return to_arrow_schema(self.dataframe(spark).schema, timezone="UTC")

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        raise SourceError(
            f"{self.label} cannot be read by tasks themselves: {self.reason}. Only Spark reads it"
        )

    def dataframe(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self._format).options(**self._options)
        if self._given is not None:
            from pyspark.sql.pandas.types import from_arrow_schema

            reader = reader.schema(from_arrow_schema(self._given, prefer_timestamp_ntz=True))
        return reader.load(self._paths)
