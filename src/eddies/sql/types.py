"""SQL types and Arrow types: which names mean which.

Spark's `TIMESTAMP` is an instant shown in the session's time zone: an Arrow timestamp with that
zone. `TIMESTAMP_NTZ` is an Arrow timestamp without one. Types not listed (CHAR, INTERVAL, nested
types) have no counterpart in the evaluator; expressions over them run above.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

__all__ = ["arrow_type", "is_hashable", "is_integral", "is_numeric", "is_text", "sql_name"]

_BY_NAME: dict[exp.DType, pa.DataType] = {
    exp.DType.BOOLEAN: pa.bool_(),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.TEXT: pa.string(),
    exp.DType.DATE: pa.date32(),
    exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DType.BINARY: pa.binary(),
}

_SQL_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.date32(): "date",
    pa.binary(): "binary",
}


def arrow_type(datatype: exp.DataType, timezone: str) -> pa.DataType | None:
    """The Arrow type of a SQL type, or None when the evaluator has none for it."""
    kind = datatype.this
    if kind in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ):
        return pa.timestamp("us", timezone)
    if kind == exp.DType.DECIMAL:
        numbers = [int(parameter.name) for parameter in datatype.expressions]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        return pa.decimal128(precision, scale) if 0 <= scale <= precision <= 38 else None
    return None if datatype.expressions else _BY_NAME.get(kind)


def is_integral(type: pa.DataType) -> bool:
    """Signed integers, the only ones SQL has."""
    return bool(pa.types.is_signed_integer(type))


def is_numeric(type: pa.DataType) -> bool:
    """Signed integers, 32- and 64-bit floats, and decimals of up to 38 digits."""
    return (
        is_integral(type)
        or type in (pa.float32(), pa.float64())
        or bool(pa.types.is_decimal128(type))
    )


def is_text(type: pa.DataType) -> bool:
    """Strings of either offset width."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def is_hashable(type: pa.DataType) -> bool:
    """Whether a hash index can be keyed on it: everything but nested types and NULL's own type."""
    return not (pa.types.is_nested(type) or pa.types.is_null(type))


def sql_name(type: pa.DataType) -> str:
    """`type` as SQL spells it, for messages."""
    if pa.types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp" if type.tz else "timestamp_ntz"
    return _SQL_NAMES.get(type, str(type))
