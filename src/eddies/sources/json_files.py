"""Files of JSON objects, one a line, as one table.

Types are inferred from the first megabyte of the first file that has rows: numbers are bigint or
double, texts are strings whatever they look like (as in Spark), objects are structs, arrays are arrays.
Columns are in the order in which they first occur; a field that no row of that sample has is not a
column. Whoever knows better gives `schema`. A row that lacks a field has NULL there. A line that is not
an object, or a value of another type, is an error with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import json
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.delivered import delivered_schema
from eddies.sources.file_rows import file_rows
from eddies.sources.partitions import partition_schema, partition_values
from eddies.sources.paths import Files, shown, spark_paths
from eddies.sources.pruning import Pruner
from eddies.sources.ranges import point
from eddies.sources.reachable import Reachable
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split
from eddies.sources.text_files import (
    LineRange,
    begin_of,
    lines_of,
    ranges_of_lines,
    with_position,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JsonSource", "JsonSplit"]

_ROW = re.compile(r"in row (\d+)")
_ONE_A_LINE = "Files must hold one JSON object a line; give the types with schema=... if they vary"


@dataclass(frozen=True, slots=True)
class JsonSplit:
    """Some lines of one file. `schema` is the source's."""

    part: LineRange
    schema: pa.Schema

    @property
    def n_rows(self) -> int | None:
        return None

    @property
    def n_bytes(self) -> int | None:
        return self.part.n_bytes

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        yield from file_rows(self.part.file, self.schema, columns, batch_rows, self._parsed)

    def _parsed(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        lines = lines_of(self.part)
        if not bytes(lines).strip():
            return
        # Without any column nothing would be parsed, and rows could not be counted.
        wanted = names or [self.schema.names[0]]
        schema = pa.schema([(name, _written_type(self.schema.field(name).type)) for name in wanted])
        try:
            table = _read(lines, schema)
        except pa.ArrowInvalid as error:
            raise _broken(self.part, error) from error
        yield from table.to_batches()


def _written_type(type_: pa.DataType) -> pa.DataType:
    """As which type Arrow must parse values of `type_`: JSON has dates and times as text only."""
    return pa.string() if pa.types.is_date(type_) or pa.types.is_time(type_) else type_


def _broken(part: LineRange, error: Exception) -> SourceError:
    found = _ROW.search(str(error))
    return with_position(part, int(found[1]) + 1 if found else None, error, _ONE_A_LINE)


def _read(lines: pa.Buffer | bytes, schema: pa.Schema | None) -> pa.Table:
    return json.read_json(
        pa.BufferReader(lines),
        json.ReadOptions(use_threads=False, block_size=min(len(lines) + 1, 2**31 - 1)),
        json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )


class JsonSource(Reachable):
    """See `eddies.read.json`."""

    is_direct = True
    n_rows: int | None = None

    def __init__(self, files: Files, schema: pa.Schema | None = None) -> None:
        self.label = f"json {shown(files.given)}"
        self._files = files
        self.n_bytes = sum(file.n_bytes for file in files.found)
        columns = self._inferred() if schema is None else delivered_schema(schema, "schema=")
        for field in partition_schema(files.found, self.label):
            if field.name in columns.names:
                raise SourceError(
                    f"{self.label} has column {field.name!r} both in its files and as a partition key"
                )
            columns = columns.append(field)
        if not columns.names:
            raise SourceError(f"{self.label} has no columns; give them by schema=")
        self.schema = columns

    def __repr__(self) -> str:
        return f"<{self.label}: {len(self._files.found)} files>"

    def _inferred(self) -> pa.Schema:
        for file in self._files.found:
            sample = begin_of(self._files.place, file, 1)
            if not sample.strip():
                continue
            try:
                found = _read(sample, None).schema
            except pa.ArrowInvalid as error:
                raise _broken(LineRange(self._files.place, file, 0, None), error) from error
            return delivered_schema(
                pa.schema([(field.name, _as_spark(field.type)) for field in found]), file.path
            )
        raise SourceError(f"{self.label}: all files are empty; give their columns by schema=")

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        pruner = Pruner(where, self.schema)
        found: list[Split] = []
        for part in ranges_of_lines(self._files, whole_files=False):
            constants = partition_values(part.file, self.schema)
            if pruner.may_pass({name: point(value) for name, value in constants.items()}):
                found.append(JsonSplit(part, self.schema))
        return found

    def dataframe(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(self.schema, prefer_timestamp_ntz=True)
        return spark.read.json(spark_paths(self._files), schema=schema, mode="FAILFAST")


def _as_spark(type_: pa.DataType) -> pa.DataType:
    """Arrow sees times in texts, Spark does not; what is always null is text."""
    if kinds.is_null(type_) or kinds.is_timestamp(type_):
        return pa.string()
    if kinds.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return pa.struct([(field.name, _as_spark(field.type)) for field in fields])
    if kinds.is_list(type_):
        return pa.list_(_as_spark(type_.value_type))
    return type_
