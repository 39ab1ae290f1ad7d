"""Spark's implicit casts (ANSI mode) as functions from types to types.

Spark's rules (`AnsiTypeCoercion`, `DecimalPrecision`) in one place; `lower` inserts a `Cast`
wherever an operand's type differs from what these functions say. Where there is no common type (or
it would be a decimal of more than 38 digits) the answer is None, and the expression runs above or
is refused.

* Integers widen to the wider one; an integer and a float meet as double, as do decimal and float.
* An integer beside a decimal becomes a decimal of its digits; a literal counts its own digits.
* A string meets an integer as bigint, a float or decimal as double, any other type as that type.
* A date meets a timestamp as timestamp.
* A decimal result of more than 38 digits gives up digits after the point, but keeps six of them.
"""

from __future__ import annotations

import pyarrow as pa

from eddies.sql.types import is_integral, is_numeric, is_text

__all__ = [
    "arithmetic_result",
    "common_type",
    "common_type_of",
    "decimal_for",
    "operand_types",
    "sum_type",
]

MAX_DIGITS = 38
MIN_SCALE = 6  # digits after the point that Spark keeps when it has to drop some
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def decimal_for(type: pa.DataType, value: object = None) -> pa.DataType:
    """The decimal an integer becomes beside a decimal: a literal's own digits, else its type's."""
    if pa.types.is_decimal(type):
        return type
    if isinstance(value, int):
        return pa.decimal128(max(len(str(abs(value))), 1), 0)
    return pa.decimal128(_DIGITS[type], 0)


def _adjusted(precision: int, scale: int) -> pa.DataType:
    if precision <= MAX_DIGITS:
        return pa.decimal128(precision, scale)
    kept_scale = max(MAX_DIGITS - (precision - scale), min(scale, MIN_SCALE))
    return pa.decimal128(MAX_DIGITS, kept_scale)


def _wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(precision, scale) if precision <= MAX_DIGITS else None


def common_type(
    left: pa.DataType, right: pa.DataType, values: tuple[object, object] = (None, None)
) -> pa.DataType | None:
    """The type two operands of a comparison, CASE or COALESCE are brought to, if there is one.

    `values` are the operands' values where they are literals.
    """
    if left == right:
        return left
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    if is_text(left) and is_text(right):
        return pa.string()
    if is_text(left) or is_text(right):
        return _common_with_string(right if is_text(left) else left)
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right, values)
    stamps = [type for type in (left, right) if pa.types.is_timestamp(type)]
    if stamps and all(pa.types.is_timestamp(t) or pa.types.is_date32(t) for t in (left, right)):
        zoned = [type for type in stamps if type.tz]
        return pa.timestamp("us", zoned[0].tz if zoned else None)
    return None


def _common_with_string(other: pa.DataType) -> pa.DataType | None:
    if is_integral(other):
        return pa.int64()
    if is_numeric(other):
        return pa.float64()
    plain = pa.types.is_date32(other) or pa.types.is_timestamp(other) or pa.types.is_boolean(other)
    return other if plain else None


def _common_number(
    left: pa.DataType, right: pa.DataType, values: tuple[object, object]
) -> pa.DataType | None:
    if is_integral(left) and is_integral(right):
        return max(left, right, key=lambda type: type.bit_width)
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()  # two float32 are equal types and never get here
    return _wider_decimal(decimal_for(left, values[0]), decimal_for(right, values[1]))


def common_type_of(types: list[pa.DataType]) -> pa.DataType | None:
    """The common type of several operands, left to right; None if two of them have none.

    Strings are considered last, as Spark does, so that the order of operands does not matter.
    """
    found: pa.DataType | None = pa.null()
    for type in sorted(types, key=is_text):
        if found is None:
            return None
        found = common_type(found, type)
    return found


def operand_types(
    function: str,
    left: pa.DataType,
    right: pa.DataType,
    values: tuple[object, object] = (None, None),
) -> tuple[pa.DataType, pa.DataType] | None:
    """What the operands of `add subtract multiply divide int_divide modulo` are cast to."""
    if is_text(left) and is_text(right):
        left = right = pa.float64()
    elif is_text(left) or is_text(right):
        number = _common_with_string(right if is_text(left) else left)
        if number is None:
            return None
        left, right = (number, right) if is_text(left) else (left, number)
    left = right if pa.types.is_null(left) else left
    right = left if pa.types.is_null(right) else right
    if not (is_numeric(left) and is_numeric(right)):
        return None
    decimals = pa.types.is_decimal(left) or pa.types.is_decimal(right)
    floats = pa.types.is_floating(left) or pa.types.is_floating(right)
    if function == "int_divide" and not decimals:
        return (pa.int64(), pa.int64()) if not floats else None
    if decimals and not floats:
        return decimal_for(left, values[0]), decimal_for(right, values[1])
    if function == "divide":
        return pa.float64(), pa.float64()
    common = common_type(left, right)
    return (common, common) if common is not None else None


def arithmetic_result(function: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of an arithmetic call on operands already cast by `operand_types`."""
    if function == "int_divide":
        return pa.int64()
    if not pa.types.is_decimal(left):
        return left
    (p1, s1), (p2, s2) = (left.precision, left.scale), (right.precision, right.scale)
    if function in ("add", "subtract"):
        return _adjusted(max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2))
    if function == "multiply":
        return _adjusted(p1 + p2 + 1, s1 + s2)
    if function == "divide":
        scale = max(MIN_SCALE, s1 + p2 + 1)
        return _adjusted(p1 - s1 + s2 + scale, scale)
    if function == "modulo":
        return _adjusted(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
    return None


def sum_type(type: pa.DataType) -> pa.DataType | None:
    """The type of `sum` over `type`: bigint, double, or ten more decimal digits (38 at most)."""
    if is_integral(type):
        return pa.int64()
    if pa.types.is_floating(type):
        return pa.float64()
    if pa.types.is_decimal128(type):
        return pa.decimal128(min(type.precision + 10, MAX_DIGITS), type.scale)
    return None
