"""The types a file source delivers: those that Spark gives for the same file.

A query may read one part of its tables through eddies and another through Spark, so both must agree
on what a column is. SQL has no unsigned integers (Spark widens them), no dictionaries, no offset
widths; instants are microseconds in UTC. What Spark cannot read at all gets the nearest type.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.errors import SourceError

__all__ = ["convert", "delivered_schema", "delivered_type", "without_columns"]

_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def delivered_type(type_: pa.DataType) -> pa.DataType:
    """The type in which columns of `type_` are delivered. Raises `SourceError` if there is none."""
    if type_ in _WIDENED:
        return _WIDENED[type_]
    if isinstance(type_, pa.BaseExtensionType):
        return delivered_type(type_.storage_type)
    if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
        return delivered_type(type_.value_type)
    if kinds.is_large_string(type_) or kinds.is_string_view(type_):
        return pa.string()
    if (
        kinds.is_large_binary(type_)
        or kinds.is_binary_view(type_)
        or kinds.is_fixed_size_binary(type_)
    ):
        return pa.binary()
    if kinds.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    if kinds.is_time(type_):
        return pa.time64("ns")
    if kinds.is_duration(type_):
        return pa.int64()  # Parquet keeps the number only
    if kinds.is_decimal(type_):
        if type_.precision > 38:
            raise SourceError(f"{type_} has more digits than SQL's decimals, which end at 38")
        return pa.decimal128(type_.precision, type_.scale)
    return _delivered_nested(type_)


def _delivered_nested(type_: pa.DataType) -> pa.DataType:
    if kinds.is_map(type_):
        return pa.map_(delivered_type(type_.key_type), delivered_type(type_.item_type))
    if kinds.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return pa.struct([_delivered_field(field) for field in fields])
    if kinds.is_nested(type_) and hasattr(type_, "value_field"):
        return pa.list_(_delivered_field(type_.value_field))
    return type_


def _delivered_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, delivered_type(field.type))


def delivered_schema(schema: pa.Schema, label: str) -> pa.Schema:
    """The columns as delivered: all nullable, without metadata."""
    fields = []
    for field in schema:
        try:
            fields.append(_delivered_field(field))
        except SourceError as error:
            raise SourceError(f"column {field.name!r} of {label}: {error}") from error
    return pa.schema(fields)


def convert(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """`array` in the delivered type `type_`; itself if it has that type already.

    Timestamps finer than a microsecond are cut off downwards, as Spark does.
    """
    if array.type == type_:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return convert(array.storage, type_)
    if kinds.is_dictionary(array.type):
        return convert(array.dictionary_decode(), type_)
    if kinds.is_run_end_encoded(array.type):
        return convert(pc.run_end_decode(array), type_)
    if kinds.is_timestamp(array.type) and kinds.is_timestamp(type_):
        if array.type.unit == "ns":
            array = pc.floor_temporal(array, unit="microsecond")
        return array.cast(type_)
    if kinds.is_fixed_size_binary(array.type) and kinds.is_binary(type_):
        return array.cast(pa.binary())
    if kinds.is_uint64(array.type):
        return array.cast(pa.decimal128(20, 0)).cast(type_)
    return array.cast(type_)


def without_columns(n_rows: int) -> pa.RecordBatch:
    """A batch that has rows and no columns: all that counting needs."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), n_rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
