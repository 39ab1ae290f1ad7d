"""Rounding, roots, powers and logarithms.

Rounding a float is defined, as in Spark, on the shortest decimal text that reads back as that
float: round(2.675, 2) is 2.68 although the binary number lies a little below. Nearly all values
are far from a tie and take a fast way through binary arithmetic; the rest go through decimal text,
exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.core.functions import decimals
from eddies.core.functions.casting import float_to_wide
from eddies.core.functions.signature import (
    Function,
    Kernel,
    Refusal,
    Types,
    Value,
    fixed,
    literal_of,
    mapped,
)
from eddies.errors import UnsupportedError

__all__ = ["FUNCTIONS"]

MAX_ROUND_DIGITS = 38
_EXACT_POWERS = 22  # 10**22 is the largest power of ten a double holds exactly
_SAFE_SCALED = 2.0**40  # below, a product has an error under 2**-13, far less than _TIE_MARGIN
_TIE_MARGIN = 0.001


def _round_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) != 2 or not kinds.is_int32(types[1]):
        return None
    n_digits = literal_of(args[1], "the number of digits of round")
    if not isinstance(n_digits, int):
        return None
    if kinds.is_decimal128(types[0]):
        return decimals.round_type(types[0], n_digits)
    if kinds.is_floating(types[0]) and abs(n_digits) > MAX_ROUND_DIGITS:
        raise UnsupportedError(f"round of a float to {n_digits} digits; at most {MAX_ROUND_DIGITS}")
    accepted = kinds.is_signed_integer(types[0]) or kinds.is_floating(types[0])
    return types[0] if accepted else None


def _round(value: Value, digits: pa.Scalar) -> Value:
    n_digits = digits.as_py()
    if kinds.is_decimal(value.type):
        return decimals.round_to(value, n_digits)
    if kinds.is_integer(value.type):
        return _round_integer(value, n_digits)
    return mapped(lambda array: _round_float(array, n_digits), value)


def _round_integer(value: Value, n_digits: int) -> Value:
    if n_digits >= 0:
        return value
    wide = value.cast(pa.decimal128(19, 0))
    return decimals.round_to(wide, max(n_digits, -20)).cast(value.type)


def _round_float(array: pa.Array, n_digits: int) -> pa.Array:
    # Spark rounds a float32 as the double it equals.
    wide = array.cast(pa.float64())
    numbers = wide.to_numpy(zero_copy_only=False).astype(np.float64)
    power = 10.0 ** abs(n_digits)
    with np.errstate(all="ignore"):
        magnitude = np.abs(numbers)
        scaled = magnitude * power if n_digits >= 0 else magnitude / power
        rest = scaled - np.floor(scaled)
        easy = (
            (scaled < _SAFE_SCALED)
            & (np.abs(rest - 0.5) > _TIE_MARGIN)
            & (abs(n_digits) <= _EXACT_POWERS)
        )
        whole = np.floor(scaled + 0.5)
        rounded = np.copysign(whole / power if n_digits >= 0 else whole * power, numbers)
    rounded[rounded == 0] = 0.0  # through BigDecimal, a rounded -0.2 is 0.0
    hard = ~easy & np.isfinite(numbers)
    if n_digits >= 0:
        hard &= magnitude < 2.0**53  # beyond, every double is a whole number
    same_as_before = ~easy & ~hard
    rounded[same_as_before] = numbers[same_as_before]
    if hard.any():
        rounded[hard] = _round_text(wide.filter(pa.array(hard)), n_digits)
    return pa.array(rounded, pa.float64(), mask=~_valid(array)).cast(array.type, safe=False)


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _round_text(array: pa.Array, n_digits: int) -> npt.NDArray[np.float64]:
    """Rounded through decimals and back through text, which is exact."""
    wide, lost = float_to_wide(array)
    if lost.any():  # only with negative n_digits: larger numbers are whole and stay as they are
        raise Refusal("round of a float of 1e38 or more to a negative number of digits")
    rounded = pc.round(wide, n_digits, round_mode=decimals.HALF_UP)
    back: npt.NDArray[np.float64] = rounded.cast(pa.string()).cast(pa.float64()).to_numpy()
    return back


def _to_whole(up: bool) -> Kernel:
    rounding = pc.ceil if up else pc.floor

    def kernel(value: Value) -> Value:
        if kinds.is_integer(value.type):
            return value.cast(pa.int64())
        if kinds.is_decimal(value.type):
            return rounding(value.cast(pa.decimal256(76, value.type.scale))).cast(
                _whole_type(value.type)
            )
        return mapped(lambda array: _float_to_int64(rounding(array)), value)

    return kernel


def _float_to_int64(array: pa.Array) -> pa.Array:
    """NaN becomes 0, as Java's cast has it; a number beyond int64 is refused."""
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    valid = _valid(array)
    outside = valid & ((numbers < -(2.0**63)) | (numbers > 2.0**63))
    if outside.any():
        raise Refusal(f"{numbers[outside][0]!r} is beyond the range of bigint")
    top = numbers >= 2.0**63
    with np.errstate(invalid="ignore"):
        whole = np.where(np.isnan(numbers) | top, 0.0, numbers).astype(np.int64)
    whole[top] = np.iinfo(np.int64).max
    return pa.array(whole, pa.int64(), mask=~valid)


def _whole_type(type_: pa.DataType) -> pa.DataType:
    # Spark: a decimal without fraction keeps its type, any other gets one more whole digit.
    if type_.scale == 0:
        return type_
    return decimals.bounded(type_.precision - type_.scale + 1, 0)


def _whole_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) != 1:
        return None
    if kinds.is_decimal128(types[0]):
        return _whole_type(types[0])
    accepted = kinds.is_signed_integer(types[0]) or kinds.is_floating(types[0])
    return pa.int64() if accepted else None


def _sign(value: Value) -> Value:
    # copysign keeps -0.0, which pc.sign turns into 0.
    return pc.if_else(pc.equal(value, 0.0), value, pc.sign(value))


def _logarithm(base10: bool) -> Kernel:
    kernel = pc.log10 if base10 else pc.ln

    def of(value: Value) -> Value:
        missing = pa.scalar(None, value.type)
        return kernel(pc.if_else(pc.less_equal(value, 0.0), missing, value))

    return of


_DOUBLE = fixed(pa.float64(), kinds.is_float64)
_WHOLE = "one number"

FUNCTIONS = (
    Function("round", "a number and an int literal", _round_rule, _round),
    Function("floor", _WHOLE, _whole_rule, _to_whole(up=False)),
    Function("ceil", _WHOLE, _whole_rule, _to_whole(up=True)),
    Function("sign", "a double", _DOUBLE, _sign),
    Function("sqrt", "a double", _DOUBLE, pc.sqrt),
    Function("exp", "a double", _DOUBLE, pc.exp),
    Function("ln", "a double", _DOUBLE, _logarithm(base10=False)),
    Function("log10", "a double", _DOUBLE, _logarithm(base10=True)),
    Function(
        "power", "two doubles", fixed(pa.float64(), kinds.is_float64, kinds.is_float64), pc.power
    ),
)
