"""Parquet files as one table.

Footers say everything but the rows: types, how many rows each row group has, what range its columns
lie in. They are read when the source is made. A split is one row group of one file
(`eddies.sources.row_groups`); those in which no row can pass are left out (`eddies.sources.pruning`).

All files must agree on columns and types, as delivered. With `schema`, the caller says what the table
has: columns that a file lacks are NULL there, others it has are ignored, and a file may hold a
narrower type (int for bigint, float for double, decimal with fewer digits, date for timestamp_ntz).

Known limitations: a column whose name has a dot is read together with a nested field of that path, if
a file has both; encrypted files are not supported; INT96 timestamps inside nested types come without
a time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet as arrow_parquet
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.delivered import delivered_schema
from eddies.sources.footers import footers_of
from eddies.sources.partitions import partition_schema, partition_values
from eddies.sources.paths import Files, shown, spark_paths
from eddies.sources.pruning import Pruner
from eddies.sources.ranges import leaf_by_name
from eddies.sources.reachable import Reachable
from eddies.sources.row_groups import ParquetSplit, ranges_of
from eddies.sources.source import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ParquetSource"]

_WIDER_PAIRS = {
    (pa.int8(), pa.float64()),
    (pa.int16(), pa.float64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.date32(), pa.timestamp("us")),
}
_PLAIN_TYPES = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.date32(),
}
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"  # Spark's own word counts more


class ParquetSource(Reachable):
    """See `eddies.read.parquet`."""

    is_direct = True

    def __init__(self, files: Files, schema: pa.Schema | None = None) -> None:
        self.label = f"parquet {shown(files.given)}"
        self._files = files
        footers = footers_of(files.place, files.found)
        self._is_given = schema is not None
        self.schema = self._table_schema(footers, schema)
        self.n_rows = sum(footer.num_rows for footer in footers)
        self.n_bytes = sum(
            footer.row_group(i).total_byte_size
            for footer in footers
            for i in range(footer.num_row_groups)
        )
        for file in files.found:
            partition_values(file, self.schema)  # fails if `schema` gives a key another type

    def __repr__(self) -> str:
        return f"<{self.label}: {self.n_rows} rows in {len(self._files.found)} files>"

    def _table_schema(
        self, footers: Sequence[arrow_parquet.FileMetaData], given: pa.Schema | None
    ) -> pa.Schema:
        partitions = partition_schema(self._files.found, self.label)
        first = _file_schema(footers[0], self._files.found[0].path)
        wanted = first if given is None else delivered_schema(given, "schema=")
        seen = None
        for file, footer in zip(self._files.found, footers, strict=True):
            if seen is not None and _is_same(footer, seen):
                continue
            seen = footer
            found = first if footer is footers[0] else _file_schema(footer, file.path)
            if given is not None:
                _check_narrower(found, wanted, file.path, partitions)
            elif found != wanted:
                _refuse_drift(found, file.path, wanted, self._files.found[0].path)
        for field in partitions:
            position = wanted.get_field_index(field.name)
            if position < 0:
                wanted = wanted.append(field)
            elif given is None:
                wanted = wanted.set(position, field)  # the folder's word counts, as in Spark
        return wanted

    def splits(self, where: tuple[Expr, ...] = ()) -> list[Split]:
        place, pruner = self._files.place, Pruner(where, self.schema)
        found: list[Split] = []
        for file, footer in zip(
            self._files.found, footers_of(place, self._files.found), strict=True
        ):
            constants = partition_values(file, self.schema)
            leaves = leaf_by_name(footer.schema) if where else {}
            for i in range(footer.num_row_groups):
                group = footer.row_group(i)
                if group.num_rows == 0:
                    continue
                if where and not pruner.may_pass(
                    ranges_of(footer, i, leaves, constants, self.schema, pruner.columns)
                ):
                    continue
                found.append(
                    ParquetSplit(place, file, i, group.num_rows, group.total_byte_size, self.schema)
                )
        return found

    def dataframe(self, spark: SparkSession) -> DataFrame:
        # Without a schema, Spark starts a job to read a footer, which we have read.
        reader = spark.read
        if self._is_given or self._is_same_for_spark():
            from pyspark.sql.pandas.types import from_arrow_schema

            reader = reader.schema(from_arrow_schema(self.schema, prefer_timestamp_ntz=True))
        return reader.parquet(*spark_paths(self._files))

    def _is_same_for_spark(self) -> bool:
        """Whether Spark would surely find the columns that we found, with the same types."""
        if any(file.partition for file in self._files.found):
            return False  # their types are Spark's to guess
        seen = None
        for footer in footers_of(self._files.place, self._files.found):
            if seen is not None and _is_same(footer, seen):
                continue
            seen = footer
            if _SPARK_SCHEMA in (footer.metadata or {}):
                return False
            if not all(map(_is_plain, footer.schema.to_arrow_schema())):
                return False
        return True


def _is_plain(field: pa.Field) -> bool:
    """Whether a column has a type of which Spark and Arrow have one notion, whatever the settings."""
    type_ = field.type
    return type_ in _PLAIN_TYPES or kinds.is_decimal128(type_)


def _file_schema(footer: arrow_parquet.FileMetaData, path: str) -> pa.Schema:
    """The columns of one file as delivered."""
    try:
        stored = footer.schema.to_arrow_schema()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(f"{path} has a schema that cannot be read: {error}") from error
    if len(set(stored.names)) < len(stored.names):
        twice = sorted({name for name in stored.names if stored.names.count(name) > 1})
        raise SourceError(f"{path} has several columns named {', '.join(map(repr, twice))}")
    schema = delivered_schema(stored, path)
    for name, leaf in leaf_by_name(footer.schema).items():
        if footer.schema.column(leaf).physical_type == "INT96":
            # Spark's and Impala's old way to write an instant.
            position = schema.get_field_index(name)
            schema = schema.set(position, pa.field(name, pa.timestamp("us", "UTC")))
    return schema


def _is_same(one: arrow_parquet.FileMetaData, other: arrow_parquet.FileMetaData) -> bool:
    """Whether both surely have the same columns; asking is cheaper than working them out."""
    return bool(one.schema.equals(other.schema)) and one.metadata == other.metadata


def _refuse_drift(found: pa.Schema, path: str, first: pa.Schema, first_path: str) -> None:
    """Say how a file differs from the first; the order of columns is no difference."""
    hint = "pass schema=... with the columns the table shall have"
    for one, one_path, two, two_path in (
        (found, path, first, first_path),
        (first, first_path, found, path),
    ):
        if lacking := [name for name in two.names if name not in one.names]:
            raise SourceError(
                f"{one_path} lacks column {', '.join(map(repr, lacking))}, which {two_path} has; "
                f"{hint}: what a file lacks is NULL then"
            )
    for name in first.names:
        types = first.field(name).type, found.field(name).type
        if types[0] != types[1]:
            raise SourceError(
                f"column {name!r} is {types[0]} in {first_path} and {types[1]} in {path}; {hint}"
            )


def _check_narrower(found: pa.Schema, wanted: pa.Schema, path: str, partitions: pa.Schema) -> None:
    for field in wanted:
        if field.name not in found.names or field.name in partitions.names:
            continue
        type_ = found.field(field.name).type
        if type_ != field.type and not _widens(type_, field.type):
            raise SourceError(
                f"column {field.name!r} of {path} is {type_}, which cannot be read as {field.type} "
                "without loss: correct schema=..., or convert the column in the query"
            )


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of `source` is one of `target`, and Spark reads it so."""
    if kinds.is_signed_integer(source) and kinds.is_signed_integer(target):
        return bool(target.bit_width >= source.bit_width)
    if kinds.is_decimal(source) and kinds.is_decimal(target):
        more_scale = target.scale - source.scale
        return bool(0 <= more_scale <= target.precision - source.precision)
    return (source, target) in _WIDER_PAIRS
