"""Dates and timestamps, in UTC and the proleptic Gregorian calendar.

A timestamp counts microseconds since 1970 whether or not its type names the zone UTC, so both kinds
are computed on the number; calendar arithmetic works on days, and a time of day is carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.core.functions.casting import convert
from eddies.core.functions.signature import (
    Function,
    Kernel,
    Types,
    Value,
    fixed,
    is_text,
    is_timestamp,
    literal_of,
    mapped,
    same,
    spread,
    truth,
)
from eddies.errors import TypeMismatchError, UnsupportedError

__all__ = ["FUNCTIONS"]

Int64s = npt.NDArray[np.int64]
_MICROS_PER_DAY = 86_400_000_000
_UNITS = {
    "year": "year",
    "yyyy": "year",
    "yy": "year",
    "quarter": "quarter",
    "month": "month",
    "mon": "month",
    "mm": "month",
    "week": "week",
    "day": "day",
    "dd": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}
_DATE_UNITS = ("year", "quarter", "month", "week")


def _is_day(type_: pa.DataType) -> bool:
    return bool(kinds.is_date32(type_)) or is_timestamp(type_)


def _local(value: Value) -> Value:
    """A timestamp without its zone: Arrow then needs no time zone database."""
    if kinds.is_timestamp(value.type) and value.type.tz is not None:
        return mapped(lambda array: array.view(pa.timestamp("us")), value)
    return value


def _field(kernel: Callable[[Value], Value]) -> Kernel:
    return lambda value: kernel(_local(value)).cast(pa.int32())


def _days_of(array: pa.Array) -> Int64s:
    """int64[n]: days since 1970 of a date column, 0 for NULL."""
    days: Int64s = pc.fill_null(array.view(pa.int32()).cast(pa.int64()), 0).to_numpy()
    return days


def _ints(array: pa.Array) -> Int64s:
    numbers: Int64s = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    return numbers


def _dates(days: Int64s, *null_as: pa.Array) -> pa.Array:
    """date32 from days, NULL where one of `null_as` is."""
    known = np.ones(len(days), np.bool_)
    for array in null_as:
        known &= truth(array.is_valid(), len(array))
    return pa.array(np.where(known, days, 0), mask=~known).cast(pa.int32()).view(pa.date32())


def _date_add(date: pa.Array, n_days: pa.Array) -> pa.Array:
    return _dates(_days_of(date) + _ints(n_days), date, n_days)


def _date_sub(date: pa.Array, n_days: pa.Array) -> pa.Array:
    return _dates(_days_of(date) - _ints(n_days), date, n_days)


def _datediff(end: pa.Array, start: pa.Array) -> pa.Array:
    return pc.subtract_checked(end.view(pa.int32()), start.view(pa.int32()))


def _month_shift(days: Int64s, n_months: Int64s | int) -> Int64s:
    """The same day of another month, or that month's last day if it is shorter."""
    month = days.astype("M8[D]").astype("M8[M]")
    day_of_month = days - month.astype("M8[D]").astype(np.int64)
    target = month.astype(np.int64) + n_months
    first = target.astype("M8[M]").astype("M8[D]").astype(np.int64)
    following = (target + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    clamped: npt.NDArray[np.int64] = np.minimum(first + day_of_month, following - 1)
    return clamped


def _add_months(date: pa.Array, n_months: pa.Array) -> pa.Array:
    return _dates(_month_shift(_days_of(date), _ints(n_months)), date, n_months)


def _last_day(date: pa.Array) -> pa.Array:
    month = _days_of(date).astype("M8[D]").astype("M8[M]").astype(np.int64)
    following = (month + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    return _dates(following - 1, date)


def _trunc_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) != 2 or not is_text(types[0]) or not _is_day(types[1]):
        return None
    unit = literal_of(args[0], "the unit of date_trunc")
    known = _UNITS.get(unit.lower()) if isinstance(unit, str) else None
    if known is None or (kinds.is_date32(types[1]) and known not in _DATE_UNITS):
        raise UnsupportedError(
            f"date_trunc to {unit!r} of {types[1]}; units are {', '.join(_UNITS)} "
            "(for a date: year, quarter, month, week)"
        )
    return types[1]


def _trunc(unit: pa.Scalar, value: Value) -> Value:
    known = _UNITS[unit.as_py().lower()]
    floor = pc.floor_temporal(_local(value), unit=known, week_starts_monday=True)
    return mapped(lambda array: array.view(value.type), floor)


def _to_date(value: Value) -> Value:
    return convert(value, pa.date32(), lenient=False)


def _interval_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    fits = len(types) == 4 and _is_day(types[0])
    if not fits or list(types[1:]) != [pa.int32(), pa.int32(), pa.int64()]:
        return None
    values = [literal_of(arg, "an interval") for arg in args[1:]]
    if None in values:
        return None
    if kinds.is_date32(types[0]) and values[2]:
        raise TypeMismatchError("an interval below a day needs a timestamp; cast the date first")
    return types[0]


def _add_interval(value: Value, months: pa.Scalar, days: pa.Scalar, micros: pa.Scalar) -> Value:
    """Months first (clipped to the month's last day), then days, then microseconds, as in Spark."""
    n_months, n_days, n_micros = months.as_py(), days.as_py(), micros.as_py()

    def of_date(array: pa.Array) -> pa.Array:
        shifted = _month_shift(_days_of(array), n_months) if n_months else _days_of(array)
        return _dates(shifted + n_days, array)

    def of_timestamp(array: pa.Array) -> pa.Array:
        instants = array.view(pa.int64())
        if n_months:
            numbers = pc.fill_null(instants, 0).to_numpy()
            day, time = np.divmod(numbers, _MICROS_PER_DAY)
            moved = _month_shift(day, n_months) * _MICROS_PER_DAY + time
            instants = pa.array(moved, mask=~truth(array.is_valid(), len(array)))
        shift = n_days * _MICROS_PER_DAY + n_micros
        return pc.add_checked(instants, pa.scalar(shift, pa.int64())).view(array.type)

    return mapped(of_date if kinds.is_date32(value.type) else of_timestamp, value)


def _timestamp_diff(end: Value, start: Value) -> Value:
    return pc.subtract_checked(_local(end), _local(start))


def _unix_micros(value: Value) -> Value:
    return mapped(lambda array: array.view(pa.int64()), value)


def _sunday_is_1(value: Value) -> Value:
    return pc.day_of_week(value, count_from_zero=False, week_start=7)


_DATE = kinds.is_date32
_INT = kinds.is_int32


def _part(name: str, kernel: Callable[[Value], Value]) -> Function:
    return Function(name, "a date or timestamp", fixed(pa.int32(), _is_day), _field(kernel))


def _clock(name: str, kernel: Callable[[Value], Value]) -> Function:
    return Function(name, "a timestamp", fixed(pa.int32(), is_timestamp), _field(kernel))


def _shift(name: str, kernel: Callable[..., pa.Array]) -> Function:
    return Function(name, "(date, int)", fixed(pa.date32(), _DATE, _INT), spread(kernel))


FUNCTIONS = (
    _part("year", pc.year),
    _part("quarter", pc.quarter),
    _part("month", pc.month),
    _part("day", pc.day),
    _part("dayofweek", _sunday_is_1),
    _part("weekday", pc.day_of_week),
    _part("dayofyear", pc.day_of_year),
    _part("weekofyear", pc.iso_week),
    _clock("hour", pc.hour),
    _clock("minute", pc.minute),
    _clock("second", pc.second),
    _shift("date_add", _date_add),
    _shift("date_sub", _date_sub),
    _shift("add_months", _add_months),
    Function("datediff", "two dates", fixed(pa.int32(), _DATE, _DATE), spread(_datediff)),
    Function("last_day", "a date", fixed(pa.date32(), _DATE), spread(_last_day)),
    Function("date_trunc", "(unit literal, date or timestamp)", _trunc_rule, _trunc),
    Function(
        "to_date",
        "text, a date or a timestamp",
        fixed(pa.date32(), lambda type_: is_text(type_) or _is_day(type_)),
        _to_date,
    ),
    Function(
        "add_interval",
        "(date or timestamp, int months, int days, bigint microseconds), the last three literals",
        _interval_rule,
        _add_interval,
    ),
    Function(
        "timestamp_diff",
        "two timestamps of one type",
        lambda types, args: pa.duration("us") if same(is_timestamp, 2, 2)(types, args) else None,
        _timestamp_diff,
    ),
    Function("unix_micros", "a timestamp", fixed(pa.int64(), is_timestamp), _unix_micros),
)
