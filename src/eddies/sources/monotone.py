"""Ranges of expressions: what a cast or a function makes of the range of its argument.

A function that never falls maps an interval to the interval between its images, so `year(day) = 1994`
and comparisons that SQL widened (`CAST(x AS bigint) > 5000000000`) still say which parts of a source
to read. Where a conversion rounds, the images are widened to the next float on either side.
Constant parts (`DATE '1994-01-01' + INTERVAL '1' YEAR`) are computed.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyarrow import types as kinds

from eddies.core.evaluate import evaluate, type_of
from eddies.core.expr import Call, Cast, Column, Expr, Literal, columns_of
from eddies.errors import EddiesError
from eddies.sources.ranges import ANYTHING, MICROS_A_DAY, NOTHING, Ordinal, Range, ordinal, point

__all__ = ["Ranges", "Values", "values_of"]

Ranges = Mapping[str, Range]
Values = Callable[[Ranges], Range]
_Image = Callable[[Ordinal], tuple[Ordinal | None, Ordinal | None]]

_UTC_OR_NONE = (None, "UTC")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of signed integers, by width


def values_of(expr: Expr, schema: pa.Schema) -> Values:
    """The values that `expr` may have, given the ranges of the columns of `schema`."""
    if isinstance(expr, Column):
        name = expr.name
        return lambda ranges: ranges.get(name, ANYTHING)
    if not any(columns_of(expr)):
        constant = _constant(expr)
        return lambda ranges: constant
    image: _Image | None = None
    match expr:
        case Cast(arg=arg, type=target):
            image = _cast_image(_type(arg, schema), target)
        case Call(function="year", args=(arg,)):
            image = _year_image(_type(arg, schema))
        case _:
            return lambda ranges: ANYTHING
    if image is None:
        return lambda ranges: ANYTHING
    inner, known_image = values_of(arg, schema), image
    return lambda ranges: _mapped(inner(ranges), known_image)


def _constant(expr: Expr) -> Range:
    def no_column(column: Column) -> pa.Array:
        raise AssertionError(column)

    try:
        if isinstance(expr, Literal):
            scalar = pa.scalar(expr.value, expr.type)
        else:
            type_of(expr, lambda column: pa.null(), {})
            scalar = evaluate(expr, no_column, 1, {})[0]
    except EddiesError:  # a user's function, or a value it fails on: for the eddy to report
        return ANYTHING
    if not scalar.is_valid:
        return NOTHING
    return point(scalar) if ordinal(scalar) is not None else ANYTHING


def _type(expr: Expr, schema: pa.Schema) -> pa.DataType:
    try:
        return type_of(expr, lambda column: schema.field(column.name).type, {})
    except EddiesError:
        return pa.null()


def _mapped(range_: Range, image: _Image) -> Range:
    pieces = tuple(
        (
            None if low is None else image(low)[0],
            None if high is None else image(high)[1],
        )
        for low, high in range_.pieces
    )
    return Range(pieces, range_.may_be_null)


def _same(value: Ordinal) -> tuple[Ordinal, Ordinal]:
    return value, value


def _nearest_float(value: Ordinal) -> tuple[Ordinal, Ordinal]:
    number = float(value)
    return (0, math.nextafter(number, -math.inf)), (0, math.nextafter(number, math.inf))


def _start_of_day(days: Ordinal) -> tuple[Ordinal, Ordinal]:
    return _same(days * MICROS_A_DAY)


def _day(micros: Ordinal) -> tuple[Ordinal, Ordinal]:
    return _same(micros // MICROS_A_DAY)


def _whole_digits(type_: pa.DataType) -> int:
    return int(type_.precision - type_.scale)


def _cast_image(source: pa.DataType, target: pa.DataType) -> _Image | None:
    """What a cast makes of a value; None if it may round otherwise, or fail: a value that does not fit
    is NULL after TRY_CAST, and for the eddy to report after CAST.
    """
    if kinds.is_signed_integer(source):
        if kinds.is_signed_integer(target):
            return _same if target.bit_width >= source.bit_width else None
        if kinds.is_decimal128(target):
            return _same if _whole_digits(target) >= _DIGITS[source.bit_width] else None
    if kinds.is_decimal128(source) and kinds.is_decimal128(target):
        holds_all = _whole_digits(target) >= _whole_digits(source)
        return _same if holds_all and target.scale >= source.scale else None
    if target == pa.float64():
        if source == pa.float32():
            return _same
        return _nearest_float if kinds.is_integer(source) or kinds.is_decimal128(source) else None
    if kinds.is_date32(source) and kinds.is_timestamp(target):
        return _start_of_day if target.tz in _UTC_OR_NONE else None
    if kinds.is_timestamp(source) and kinds.is_date32(target):
        return _day if source.tz in _UTC_OR_NONE else None
    return None


def _year_image(source: pa.DataType) -> _Image | None:
    if kinds.is_date32(source):
        return _year
    if kinds.is_timestamp(source) and source.tz in _UTC_OR_NONE:
        return lambda micros: _year(micros // MICROS_A_DAY)
    return None


def _year(days: Ordinal) -> tuple[Ordinal | None, Ordinal | None]:
    try:
        return _same((dt.date(1970, 1, 1) + dt.timedelta(days=days)).year)
    except OverflowError:
        return None, None
