"""What is known of a column without reading it: the values it may hold, as intervals.

Values of all types are mapped to Python values that compare exactly as SQL compares the originals
(`ordinal`): dates are days, timestamps microseconds, text its bytes, decimals exact `Decimal`s. Floats
become pairs, so that NaN is greater than everything, as in Spark.

A `Range` may claim too much (values that do not occur), never too little. Statistics that a writer
left out, or that cannot be trusted, make a range without bounds. Writers leave NaN out of the minimum
and maximum of floats, so a float column may always hold NaN besides.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyarrow import types as kinds

__all__ = [
    "ANYTHING",
    "MICROS_A_DAY",
    "NAN",
    "NOTHING",
    "Ordinal",
    "Range",
    "leaf_by_name",
    "ordinal",
    "point",
    "range_of",
]

# Any: ints, bools, bytes, Decimals and pairs; two values of one column always compare.
Ordinal = Any
Interval = tuple[Ordinal | None, Ordinal | None]  # closed; None is no bound

NAN: Ordinal = (1, 0.0)
MICROS_A_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Range:
    """Every non-NULL value lies in one of `pieces`; NULL occurs only if `may_be_null`."""

    pieces: tuple[Interval, ...]
    may_be_null: bool


ANYTHING = Range(((None, None),), True)
NOTHING = Range((), True)  # NULL in every row


def ordinal(scalar: pa.Scalar) -> Ordinal | None:
    """The value of a constant as it is compared; None for types whose order is not used."""
    type_ = scalar.type
    if kinds.is_boolean(type_) or kinds.is_integer(type_) or kinds.is_decimal(type_):
        return scalar.as_py()
    if kinds.is_floating(type_):
        return _float_ordinal(float(scalar.as_py()))
    if kinds.is_string(type_):
        return scalar.as_py().encode()
    if kinds.is_binary(type_):
        return scalar.as_py()
    if kinds.is_date32(type_) or type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        return scalar.value
    return None


def _float_ordinal(number: float) -> Ordinal:
    return NAN if math.isnan(number) else (0, number)


def point(scalar: pa.Scalar) -> Range:
    """A column that holds one value in every row: a partition's, or a constant."""
    if not scalar.is_valid:
        return NOTHING
    value = ordinal(scalar)
    return Range(((value, value),), False)


def leaf_by_name(schema: parquet.ParquetSchema) -> dict[str, int]:
    """Positions of the plain columns of a file: neither nested nor repeated."""
    leaves = [schema.column(i) for i in range(len(schema))]
    return {
        leaf.name: i
        for i, leaf in enumerate(leaves)
        if leaf.path == leaf.name and leaf.max_repetition_level == 0
    }


def range_of(
    chunk: parquet.ColumnChunkMetaData, leaf: parquet.ColumnSchema, type_: pa.DataType
) -> Range:
    """The range of a column chunk whose rows are delivered as `type_`."""
    statistics = chunk.statistics
    if statistics is None:
        return ANYTHING
    n_nulls = statistics.null_count if statistics.has_null_count else None
    if n_nulls is not None and n_nulls == chunk.num_values:
        return NOTHING
    bounds = None
    if statistics.has_min_max:
        bounds = _bounds(statistics.min_raw, statistics.max_raw, leaf, type_)
    pieces: tuple[Interval, ...] = ((None, None) if bounds is None else bounds,)
    if kinds.is_floating(type_):
        pieces = (*pieces, (NAN, NAN))
    return Range(pieces, n_nulls != 0)


def _bounds(
    low: object, high: object, leaf: parquet.ColumnSchema, type_: pa.DataType
) -> Interval | None:
    facts = _logical(leaf.logical_type.to_json())
    first = _stored(low, leaf.physical_type, facts, type_)
    last = _stored(high, leaf.physical_type, facts, type_)
    if first is None or last is None or first > last or NAN in (first, last):
        return None
    return first, last


@lru_cache(maxsize=1024)
def _logical(text: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(text)
    return facts


def _stored(raw: Any, physical: str, facts: dict[str, Any], type_: pa.DataType) -> Ordinal | None:
    """A bound as it stands in the footer, as the delivered value it stands for."""
    meaning = facts["Type"]
    if kinds.is_integer(type_) or type_ == pa.decimal128(20, 0):
        if meaning == "Int" and not facts["isSigned"]:
            return raw % 2 ** (64 if physical == "INT64" else 32)
        if meaning in ("Int", "None") and kinds.is_integer(type_):
            return raw if physical in ("INT32", "INT64") else None
    if kinds.is_decimal(type_) and meaning == "Decimal":
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return unscaled_decimal(unscaled, facts["scale"])
    if kinds.is_floating(type_) and physical in ("FLOAT", "DOUBLE"):
        return _float_ordinal(raw)
    if kinds.is_date32(type_) and meaning == "Date":
        return raw
    if kinds.is_timestamp(type_) and meaning == "Timestamp" and physical == "INT64":
        unit = facts["timeUnit"]
        return raw * 1000 if unit == "milliseconds" else raw // (1000 if "nano" in unit else 1)
    if kinds.is_timestamp(type_) and meaning == "Date":
        return raw * MICROS_A_DAY
    if kinds.is_string(type_) or kinds.is_binary(type_):
        return raw if isinstance(raw, bytes) and meaning in ("String", "None", "Enum") else None
    if kinds.is_boolean(type_) and physical == "BOOLEAN":
        return raw
    return None


def unscaled_decimal(unscaled: int, scale: int) -> Decimal:
    """`unscaled` / 10**scale, exactly, whatever precision the decimal context has."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))
