"""CSV files as one table.

Rules, which are Spark's unless said otherwise:

* a field that is empty, in quotes or not, is NULL (with another `null`, "" is an empty string);
* `true` and `false` in any case are booleans; `NaN`, `Inf` and `-Inf` are numbers;
* a time without a zone is an instant in UTC, as in a session with that zone;
* a line break ends a row even inside quotes, unless `multiline=True`;
* files that end in `.gz`, `.bz2`, `.zst` or `.lz4` are decompressed.

Where we differ from Spark: a header is expected unless `header=False`; a quote inside quotes is doubled
(RFC 4180), not preceded by a backslash; a row with too few or too many fields, or a field that is not
of its column's type, is an error with file and line, never a NULL; types are inferred from the first
megabyte of the first file, not from a reading of all files, and whole numbers are bigint. Whoever
knows the types better gives `schema`.

`dataframe` passes the same rules and types to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.delivered import delivered_schema
from eddies.sources.file_rows import file_rows
from eddies.sources.partitions import partition_schema, partition_values
from eddies.sources.paths import DataFile, Files, shown, spark_paths
from eddies.sources.pruning import Pruner
from eddies.sources.ranges import point
from eddies.sources.reachable import Reachable
from eddies.sources.source import DEFAULT_BATCH_ROWS, Split
from eddies.sources.text_files import (
    LineRange,
    begins_of,
    lines_of,
    ranges_of_lines,
    with_position,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CsvFormat", "CsvSource"]

_ROW = re.compile(r"[Rr]ow #(\d+)")
_NAIVE = pa.timestamp("us")
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How the files are written. `null` is a text without quotes that means NULL, as nothing does."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    multiline: bool = False

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote"):
            sign = getattr(self, name)
            if not isinstance(sign, str) or len(sign) != 1 or not sign.isascii():
                raise SourceError(f"{name} must be one ASCII character, not {sign!r}")

    def spark_options(self) -> dict[str, str]:
        """The same for Spark's reader."""
        return {
            "header": str(self.header).lower(),
            "sep": self.delimiter,
            "quote": self.quote,
            "escape": self.quote,
            "nullValue": self.null,
            "multiLine": str(self.multiline).lower(),
            "mode": "FAILFAST",
        }

    def parse_options(self) -> csv.ParseOptions:
        return csv.ParseOptions(
            delimiter=self.delimiter, quote_char=self.quote, newlines_in_values=self.multiline
        )

    def convert_options(self, **settings: object) -> csv.ConvertOptions:
        return csv.ConvertOptions(
            null_values=list({"", self.null}),
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=self.null == "",
            **settings,
        )


@dataclass(frozen=True, slots=True)
class CsvSplit:
    """Some lines of one file. `written` has the file's columns, with the types its fields are parsed
    as; `schema` is the source's.
    """

    part: LineRange
    format: CsvFormat
    written: pa.Schema
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
        # Without any column of the file nothing would be parsed, and rows could not be counted.
        names = names or self.written.names[:1]
        lines = lines_of(self.part)
        skipped = 1 if self.format.header and self.part.start == 0 else 0
        if len(lines) == 0:
            return
        try:
            # The reader's own blocks would be parsed apart, and row numbers would be lost.
            table = csv.read_csv(
                pa.BufferReader(lines),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=min(len(lines) + 1, 2**31 - 1),
                    column_names=self.written.names,
                    skip_rows=skipped,
                ),
                self.format.parse_options(),
                self.format.convert_options(column_types=self.written, include_columns=names),
            )
        except pa.ArrowInvalid as error:
            if skipped and "Empty CSV" in str(error):
                return  # a header and nothing else
            raise _broken(self.part, error) from error
        yield from table.to_batches()


def _broken(part: LineRange, error: Exception) -> SourceError:
    found = _ROW.search(str(error))
    hint = "Correct the line, or give the right types with schema=..."
    return with_position(part, int(found[1]) if found else None, error, hint)


class CsvSource(Reachable):
    """See `eddies.read.csv`."""

    is_direct = True
    n_rows: int | None = None

    def __init__(self, files: Files, format_: CsvFormat, schema: pa.Schema | None = None) -> None:
        self.label = f"csv {shown(files.given)}"
        self._files = files
        self._format = format_
        self.n_bytes = sum(file.n_bytes for file in files.found)
        self._written = self._written_schema(schema)
        columns = self._written if schema is None else delivered_schema(schema, "schema=")
        fields = [_as_spark(field) if schema is None else field for field in columns]
        for field in partition_schema(files.found, self.label):
            if field.name in columns.names:
                raise SourceError(
                    f"{self.label} has column {field.name!r} both in its files and as a partition key"
                )
            fields.append(field)
        self.schema = pa.schema(fields)

    def __repr__(self) -> str:
        return f"<{self.label}: {len(self._files.found)} files>"

    def _written_schema(self, schema: pa.Schema | None) -> pa.Schema:
        begins = begins_of(self._files, 2)
        pairs = zip(self._files.found, begins, strict=True)
        with_rows = [(file, begin) for file, begin in pairs if begin]
        if not with_rows:
            if schema is None:
                raise SourceError(
                    f"{self.label}: all files are empty; give their columns by schema="
                )
            return delivered_schema(schema, "schema=")
        inferred, first_path = None, with_rows[0][0].path
        for file, begin in with_rows:
            found = self._inferred(begin, file, names_only=inferred is not None)
            if schema is not None:
                self._check_names(found.names, schema.names, file.path, "schema=")
            if inferred is None:
                inferred = found
            else:
                self._check_names(found.names, inferred.names, file.path, first_path)
        assert inferred is not None
        if schema is None:
            return inferred
        # A column of instants is parsed as the file writes them: with a zone, or without.
        fields = [
            pa.field(field.name, _NAIVE)
            if kinds.is_timestamp(field.type) and written.type in (_NAIVE, pa.date32())
            else field
            for field, written in zip(delivered_schema(schema, "schema="), inferred, strict=True)
        ]
        return pa.schema(fields)

    def _inferred(self, begin: bytes, file: DataFile, names_only: bool) -> pa.Schema:
        if names_only:
            begin = b"\n".join(begin.split(b"\n", 2)[:2])
        try:
            reader = csv.open_csv(
                pa.BufferReader(begin),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=len(begin) + 1,
                    autogenerate_column_names=not self._format.header,
                ),
                self._format.parse_options(),
                self._format.convert_options(),
            )
        except pa.ArrowInvalid as error:
            raise _broken(LineRange(self._files.place, file, 0, None), error) from error
        names = reader.schema.names
        if not self._format.header:
            names = [f"_c{i}" for i in range(len(names))]  # Spark's names
        if len(set(names)) < len(names):
            raise SourceError(f"the header of {file.path} names a column twice: {', '.join(names)}")
        types = map(_parsed_type, reader.schema.types)
        return pa.schema(list(zip(names, types, strict=True)))

    def _check_names(self, found: list[str], wanted: list[str], path: str, other: str) -> None:
        if self._format.header and found != wanted:
            raise SourceError(
                f"the header of {path} is {', '.join(found)}, but {other} has {', '.join(wanted)}"
            )
        if len(found) != len(wanted):
            raise SourceError(f"{path} has {len(found)} columns, but {other} has {len(wanted)}")

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        pruner = Pruner(where, self.schema)
        found: list[Split] = []
        for part in ranges_of_lines(self._files, whole_files=self._format.multiline):
            constants = partition_values(part.file, self.schema)
            if pruner.may_pass({name: point(value) for name, value in constants.items()}):
                found.append(CsvSplit(part, self._format, self._written, self.schema))
        return found

    def dataframe(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(self.schema, prefer_timestamp_ntz=True)
        reader = spark.read.format("csv").options(**self._format.spark_options()).schema(schema)
        return reader.load(spark_paths(self._files))


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    """What to parse fields as, of which Arrow thinks that they are `type_`."""
    if kinds.is_null(type_) or kinds.is_time(type_) or kinds.is_binary(type_):
        return pa.string()
    if kinds.is_timestamp(type_):
        return _INSTANT if type_.tz else _NAIVE
    return type_


def _as_spark(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _INSTANT if kinds.is_timestamp(field.type) else field.type)
