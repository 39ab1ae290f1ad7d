"""Exact decimal arithmetic with Spark's result types.

Arrow's decimal128 kernels are used as they are while the result has at most 38 digits. Beyond that
the work is done on decimal256, which holds any product or scaled numerator of two 38-digit
numbers, and the result is rounded HALF_UP to Spark's type and checked against its precision.

Arrow derives a result's type from the declared precisions and refuses more than 76 digits,
although no 256-bit integer would overflow. `_declared` therefore states a smaller precision than
the values may have: only the kernels below see it, and `fit` checks the digits that are really
there.

*Known limitation.* A quotient whose scaled numerator needs more than 72 digits (for instance
decimal(38,0) by decimal(38,38) with large values) is reported as overflow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.functions.signature import Value, mapped
from eddies.core.kernels.decimals import multiply_small

__all__ = [
    "add",
    "add_type",
    "bounded",
    "common",
    "divide",
    "divide_type",
    "fit",
    "int_divide",
    "modulo",
    "modulo_type",
    "multiply",
    "multiply_type",
    "round_to",
    "round_type",
    "subtract",
    "wide",
]

MAX_PRECISION = 38
MIN_ADJUSTED_SCALE = 6  # Spark keeps at least so many digits after the point when it drops some
HALF_UP = "half_towards_infinity"  # Arrow's name for ties away from zero


def bounded(precision: int, scale: int) -> pa.DataType:
    """decimal128 with both numbers capped at 38."""
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def _adjusted(precision: int, scale: int) -> pa.DataType:
    """Spark's rule when a result would need more than 38 digits: give up digits after the point."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    n_whole = precision - scale
    return pa.decimal128(
        MAX_PRECISION, max(MAX_PRECISION - n_whole, min(scale, MIN_ADJUSTED_SCALE))
    )


def add_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Type of a sum or difference."""
    scale = max(left.scale, right.scale)
    n_whole = max(left.precision - left.scale, right.precision - right.scale)
    return _adjusted(n_whole + scale + 1, scale)


def multiply_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Type of a product."""
    return _adjusted(left.precision + right.precision + 1, left.scale + right.scale)


def divide_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Type of a quotient."""
    scale = max(MIN_ADJUSTED_SCALE, left.scale + right.precision + 1)
    return _adjusted(left.precision - left.scale + right.scale + scale, scale)


def modulo_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Type of a remainder."""
    scale = max(left.scale, right.scale)
    n_whole = min(left.precision - left.scale, right.precision - right.scale)
    return _adjusted(n_whole + scale, scale)


def round_type(type_: pa.DataType, n_digits: int) -> pa.DataType:
    """Type of `round(x, n_digits)`: one more whole digit, for 99.9 becoming 100."""
    n_whole = type_.precision - type_.scale + 1
    if n_digits < 0:
        return bounded(max(n_whole, -n_digits + 1), 0)
    scale = min(type_.scale, n_digits)
    return bounded(n_whole + scale, scale)


def wide(value: Value, scale: int) -> Value:
    """The same numbers as decimal256(76, scale); `scale` is not below the value's own."""
    return value.cast(pa.decimal256(76, scale))


def _declared(value: Value, precision: int, scale: int) -> Value:
    """decimal256 digits read as another decimal256 type, without touching them."""
    return mapped(lambda array: array.view(pa.decimal256(precision, scale)), value)


def fit(value: Value, type_: pa.DataType) -> Value:
    """A decimal rounded HALF_UP to `type_`; too many digits raise ArrowInvalid."""
    if value.type.scale > type_.scale:
        value = pc.round(value, type_.scale, round_mode=HALF_UP)
    return value.cast(type_)


def common(left: Value, right: Value) -> tuple[Value, Value]:
    """Both with one decimal type that loses nothing, to compare or subtract them."""
    a, b = left.type, right.type
    if a == b:
        return left, right
    scale = max(a.scale, b.scale)
    n_whole = max(a.precision - a.scale, b.precision - b.scale)
    if n_whole + scale <= MAX_PRECISION:
        type_ = pa.decimal128(n_whole + scale, scale)
        return left.cast(type_), right.cast(type_)
    return wide(left, scale), wide(right, scale)


def _sum(kernel: str, left: Value, right: Value) -> Value:
    type_ = add_type(left.type, right.type)
    scale = max(left.type.scale, right.type.scale)
    n_whole = max(left.type.precision - left.type.scale, right.type.precision - right.type.scale)
    if n_whole + scale + 1 <= MAX_PRECISION:
        return pc.call_function(kernel, [left, right])
    a, b = (_declared(wide(value, scale), 75, scale) for value in (left, right))
    return fit(pc.call_function(kernel, [a, b]), type_)


def add(left: Value, right: Value) -> Value:
    """Sum, in `add_type`."""
    return _sum("add", left, right)


def subtract(left: Value, right: Value) -> Value:
    """Difference, in `add_type`."""
    return _sum("subtract", left, right)


def multiply(left: Value, right: Value) -> Value:
    """Product, in `multiply_type`."""
    type_ = multiply_type(left.type, right.type)
    if type_.scale == left.type.scale + right.type.scale:
        product = _small_product(left, right, type_)
        if product is not None:
            return product
    if left.type.precision + right.type.precision + 1 <= MAX_PRECISION:
        return pc.multiply(left, right)
    a = _declared(wide(left, left.type.scale), 38, left.type.scale)
    b = _declared(wide(right, right.type.scale), 37, min(right.type.scale, 37))
    product = pc.multiply(a, b)
    scale = left.type.scale + right.type.scale
    return fit(_declared(product, 76, scale), type_)


def _small_product(left: Value, right: Value, type_: pa.DataType) -> pa.Array | None:
    """The product of two arrays of numbers below 2**63; None if one is not, or is no array."""
    if not isinstance(left, pa.Array) or not isinstance(right, pa.Array):
        return None
    n = len(left)
    if n == 0 or not (left.type.bit_width == right.type.bit_width == 128):
        return None
    buffer = pa.allocate_buffer(16 * n)  # of Arrow's pool, whose pages are there already
    if not multiply_small(_words(left), _words(right), np.frombuffer(buffer, np.int64)):
        return None
    product = pa.Array.from_buffers(type_, n, [None, buffer])
    for one in (left, right):
        if one.null_count:
            product = pc.if_else(one.is_valid(), product, pa.scalar(None, type_))
    return product


def _words(array: pa.Array) -> npt.NDArray[np.int64]:
    first = 2 * array.offset
    return np.frombuffer(array.buffers()[1], np.int64, first + 2 * len(array))[first:]


def _quotient(left: Value, right: Value, scale: int) -> Value:
    """left / right as decimal256(76, 4) in units of 10**-scale, cut off after four more digits."""
    shift = scale + right.type.scale
    if shift >= left.type.scale:
        numerator, denominator = wide(left, shift), wide(right, right.type.scale)
    else:
        numerator = wide(left, left.type.scale)
        denominator = wide(right, left.type.scale - scale)
    return pc.divide(_declared(numerator, 72, 0), _declared(denominator, 1, 0))


def divide(left: Value, right: Value) -> Value:
    """Quotient, in `divide_type`. Four digits decide a HALF_UP tie as well as all of them would."""
    type_ = divide_type(left.type, right.type)
    quotient = pc.round(_quotient(left, right, type_.scale), 0, round_mode=HALF_UP)
    return _declared(quotient.cast(pa.decimal256(76, 0)), 76, type_.scale).cast(type_)


def int_divide(left: Value, right: Value) -> Value:
    """The whole part of a quotient as int64."""
    whole = pc.round(_quotient(left, right, 0), 0, round_mode="towards_zero")
    return whole.cast(pa.decimal128(38, 0)).cast(pa.int64())


def modulo(left: Value, right: Value) -> Value:
    """Remainder with the sign of the dividend, in `modulo_type`."""
    type_ = modulo_type(left.type, right.type)
    a, b = common(left, right)
    return fit(pc.remainder_checked(a, b), type_)


def round_to(value: Value, n_digits: int) -> Value:
    """`value` rounded HALF_UP to `n_digits` after the point (negative: before it)."""
    type_ = round_type(value.type, n_digits)
    if n_digits >= value.type.scale:
        return value.cast(type_)
    if n_digits < -MAX_PRECISION:
        return pc.if_else(pc.is_valid(value), pa.scalar(0, type_), pa.scalar(None, type_))
    scaled = wide(value, value.type.scale)
    return pc.round(scaled, n_digits, round_mode=HALF_UP).cast(type_)
