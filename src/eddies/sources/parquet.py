"""Parquet files, read by row groups inside the task that needs them.

A split is one row group of one file. Its footer says how many rows it has and what range its columns
lie in, so whole row groups are left out before a task is even made (`eddies.sources.pruning`).

Known limitations: a column whose name has a dot is read together with a nested field of that path, if
a file has both; Parquet's own encryption is not supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs
from pyarrow import parquet as arrow_parquet

from eddies.core.expr import Expr
from eddies.sources.delivered import convert, delivered_schema, without_columns
from eddies.sources.footers import cannot_read, check_unchanged, footer_of, footers_of
from eddies.sources.partitions import partition_schema, partition_values
from eddies.sources.paths import DataFile, Files, shown
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ParquetSource", "ParquetSplit"]


@dataclass(frozen=True, slots=True)
class ParquetSplit:
    """Row group `row_group` of `file`. `schema` is the source's."""

    system: fs.FileSystem
    file: DataFile
    row_group: int
    n_rows: int
    n_bytes: int
    schema: pa.Schema

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        check_unchanged(self.system, self.file)
        constants = partition_values(self.file, self.schema)
        footer = footer_of(self.system, self.file)
        stored = set(footer.schema.to_arrow_schema().names)
        in_file = [name for name in columns if name not in constants and name in stored]
        try:
            with arrow_parquet.ParquetFile(
                self.file.path,
                filesystem=self.system,
                memory_map=isinstance(self.system, fs.LocalFileSystem),
                metadata=footer,
                pre_buffer=not isinstance(self.system, fs.LocalFileSystem),
                coerce_int96_timestamp_unit="us",
            ) as opened:
                table = opened.read_row_group(self.row_group, columns=in_file, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise cannot_read(self.file.path, error) from error
        if not in_file:
            yield self._batch(without_columns(self.n_rows), columns, constants)
            return
        for batch in table.to_batches(max_chunksize=batch_rows):
            yield self._batch(batch, columns, constants)

    def _batch(
        self, batch: pa.RecordBatch, columns: Sequence[str], constants: dict[str, pa.Scalar]
    ) -> pa.RecordBatch:
        if not columns:
            return without_columns(batch.num_rows)
        arrays = []
        for name in columns:
            type_ = self.schema.field(name).type
            if name in constants:
                arrays.append(pa.repeat(constants[name], batch.num_rows))
            elif name in batch.schema.names:
                arrays.append(convert(batch.column(name), type_))
            else:
                arrays.append(pa.nulls(batch.num_rows, type_))
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))


class ParquetSource:
    """Parquet files as one table."""

    is_direct = True

    def __init__(self, files: Files, schema: pa.Schema | None = None) -> None:
        self._files = files
        self.label = f"parquet {shown(files.given)}"
        footers = footers_of(files.system, files.found)
        self.schema = schema if schema is not None else self._inferred(footers)
        self.n_rows = sum(footer.num_rows for footer in footers)
        self.n_bytes = sum(
            footer.row_group(i).total_byte_size
            for footer in footers
            for i in range(footer.num_row_groups)
        )

    def _inferred(self, footers: Sequence[arrow_parquet.FileMetaData]) -> pa.Schema:
        schema = delivered_schema(footers[0].schema.to_arrow_schema(), self._files.found[0].path)
        for field in partition_schema(self._files.found, self.label):
            schema = schema.append(field)
        return schema

    def __repr__(self) -> str:
        return f"<{self.label}: {self.n_rows} rows>"

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        found: list[Split] = []
        footers = footers_of(self._files.system, self._files.found)
        for file, footer in zip(self._files.found, footers, strict=True):
            for i in range(footer.num_row_groups):
                group = footer.row_group(i)
                if group.num_rows:
                    found.append(
                        ParquetSplit(
                            self._files.system,
                            file,
                            i,
                            group.num_rows,
                            group.total_byte_size,
                            self.schema,
                        )
                    )
        return found

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(*self._files.given)
