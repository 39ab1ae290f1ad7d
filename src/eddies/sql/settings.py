"""Settings of the session that change what an expression means.

The evaluator computes as Spark does in a session in UTC with ANSI mode on, which is Spark 4's default.
In any other session, what depends on the setting runs above: see `zones` for the time zone. Where Spark
may not give up digits of decimals to make room for others, their arithmetic has other types. Without
ANSI mode Spark gives NULL or wraps around where the evaluator fails (overflow, division by zero, a text
that is no number), and brings operands of different kinds to other types: of a string and an integer
COALESCE makes strings, an integer is compared with a float as a float. What is left are comparisons and
functions of values of one kind, and casts that keep every value.

Known limitation: sums are computed in blocks in both modes, and fail if they overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from eddies.core.evaluate import type_of
from eddies.core.expr import Call, Cast, Column, Expr
from eddies.core.query import UserFunction
from eddies.sql.types import is_integral, is_text

__all__ = ["DEFAULT", "Settings", "is_on_decimals", "meet_alike", "needs_ansi"]

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of signed integers, by width
_MAY_OVERFLOW = {"add", "subtract", "multiply", "negate", "abs", "round", "floor", "ceil"}
_DIVIDES = {"divide", "int_divide", "modulo"}
_ARITHMETIC = {"add", "subtract", "multiply", *_DIVIDES}


@dataclass(frozen=True, slots=True)
class Settings:
    """`in_utc`: the session's time zone is UTC; `ansi`: spark.sql.ansi.enabled; `gives_up_digits`:
    spark.sql.decimalOperations.allowPrecisionLoss.
    """

    in_utc: bool = True
    ansi: bool = True
    gives_up_digits: bool = True


DEFAULT = Settings()


def meet_alike(types: Sequence[pa.DataType]) -> bool:
    """Whether operands of these types are brought to the same type with and without ANSI mode."""
    known = [type for type in types if not pa.types.is_null(type)]
    if len({is_text(type) for type in known}) > 1:
        return False
    return pa.float32() not in known or len(set(known)) == 1


def needs_ansi(
    expr: Expr,
    column_type: Callable[[Column], pa.DataType],
    functions: Mapping[str, UserFunction],
) -> bool:
    """Whether the value of `expr` itself (not of its parts) depends on ANSI mode."""
    match expr:
        case Cast(arg=arg, type=type, lenient=False):
            return not _keeps_all(type_of(arg, column_type, functions), type)
        case Call(function=name) if name in _DIVIDES:
            return True
        case Call(function=name, args=(arg, *_)) if name in _MAY_OVERFLOW:
            return not pa.types.is_floating(type_of(expr, column_type, functions))
    return False


def is_on_decimals(
    expr: Expr,
    column_type: Callable[[Column], pa.DataType],
    functions: Mapping[str, UserFunction],
) -> bool:
    """Whether `expr` itself (not its parts) is arithmetic on decimals."""
    match expr:
        case Call(function=name, args=(arg, *_)) if name in _ARITHMETIC:
            return bool(pa.types.is_decimal(type_of(arg, column_type, functions)))
    return False


def _keeps_all(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast never fails."""
    if source == target or pa.types.is_null(source) or is_text(target):
        return True
    if is_integral(source) and is_integral(target):
        return bool(source.bit_width <= target.bit_width)
    if pa.types.is_decimal128(target) and (is_integral(source) or pa.types.is_decimal128(source)):
        whole = target.precision - target.scale
        if is_integral(source):
            return bool(whole >= _DIGITS[source.bit_width])
        return bool(whole >= source.precision - source.scale and target.scale >= source.scale)
    if target == pa.float64():
        return is_integral(source) or pa.types.is_decimal128(source) or source == pa.float32()
    return bool(pa.types.is_temporal(source) and pa.types.is_temporal(target))
