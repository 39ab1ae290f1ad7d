"""Constants in SQL text, with the types Spark gives them.

`1` is int, `3000000000` bigint, `1.50` decimal(3,2), `1e0` double. A cast of a constant is done
here, at planning time, so that `date '1998-12-01' - interval '90' day` reaches the evaluator as one
date. A constant this module cannot convert with certainty is left to Spark.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Literal
from eddies.sql.types import is_integral, is_text

__all__ = ["cast_literal", "literal", "months_days_micros"]

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?")
_STAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?)?(Z)?"
)
_INTEGER = re.compile(r"[+-]?\d+")
_RANGES = {
    pa.int8(): 2**7,
    pa.int16(): 2**15,
    pa.int32(): 2**31,
    pa.int64(): 2**63,
}
_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_DAYS = {"WEEK": 7, "DAY": 1}
_MICROS = {
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def literal(node: exp.Expr) -> Literal | None:
    """The typed constant `node` writes down, or None if it is not a plain constant."""
    if isinstance(node, exp.Null):
        return Literal(None, pa.null())
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this), pa.bool_())
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    return Literal(text, pa.string()) if node.is_string else _number(text)


def _number(text: str) -> Literal | None:
    if "e" in text.lower():
        value = float(text)
        return Literal(value, pa.float64()) if math.isfinite(value) else None
    if text.isdigit():
        value = int(text)
        for type in (pa.int32(), pa.int64()):
            if value < _RANGES[type]:
                return Literal(value, type)
    return _decimal(Decimal(text))


def _decimal(value: Decimal) -> Literal | None:
    _, digits, exponent = value.as_tuple()
    scale = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    precision = max(len(digits), scale, 1)
    return Literal(value, pa.decimal128(precision, scale)) if precision <= 38 else None


def cast_literal(constant: Literal, target: pa.DataType) -> Literal | None:
    """`constant` converted to `target`; None when that is for the evaluator or Spark to decide."""
    if constant.type == target:
        return constant
    value = constant.value
    if value is None:
        return Literal(None, target)
    if is_text(constant.type):
        return _from_text(str(value).strip(), target)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _from_integer(value, target)
    if isinstance(value, Decimal):
        return _from_decimal(value, target)
    if pa.types.is_timestamp(target) and type(value) is dt.date:
        zone = dt.UTC if target.tz else None
        return Literal(dt.datetime(value.year, value.month, value.day, tzinfo=zone), target)
    return None


def _from_integer(value: int, target: pa.DataType) -> Literal | None:
    if is_integral(target):
        limit = _RANGES[target]
        return Literal(value, target) if -limit <= value < limit else None
    if pa.types.is_decimal128(target):
        fits = len(str(abs(value))) <= target.precision - target.scale or value == 0
        return Literal(Decimal(value), target) if fits else None
    return Literal(float(value), target) if target == pa.float64() else None


def _from_decimal(value: Decimal, target: pa.DataType) -> Literal | None:
    if target == pa.float64():
        return Literal(float(value), target)
    if not pa.types.is_decimal128(target):
        return None
    exponent = value.as_tuple().exponent
    exact = isinstance(exponent, int) and -exponent <= target.scale
    fits = abs(value) < Decimal(10) ** (target.precision - target.scale)
    return Literal(value, target) if exact and fits else None


def _from_text(text: str, target: pa.DataType) -> Literal | None:
    try:
        if pa.types.is_date32(target) and (found := _DATE.fullmatch(text)):
            year, month, day = (int(part or 1) for part in found.groups())
            return Literal(dt.date(year, month, day), target)
        if pa.types.is_timestamp(target) and (found := _STAMP.fullmatch(text)):
            *parts, fraction, zulu = found.groups()
            if zulu and not target.tz:
                return None
            micros = int((fraction or "0").ljust(6, "0"))
            zone = dt.UTC if target.tz else None
            numbers = [int(part or 0) for part in parts]
            return Literal(dt.datetime(*numbers, micros, tzinfo=zone), target)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    if _INTEGER.fullmatch(text) and (is_integral(target) or target == pa.float64()):
        return _from_integer(int(text), target)
    return None


def months_days_micros(interval: exp.Expr) -> tuple[int, int, int] | None:
    """`INTERVAL '3' MONTH` as (months, days, microseconds); None when it is not that plain."""
    if not isinstance(interval, exp.Interval):
        return None
    amount, unit = interval.this, interval.args.get("unit")
    sign = 1
    while isinstance(amount, exp.Neg | exp.Paren):
        sign, amount = (-sign if isinstance(amount, exp.Neg) else sign), amount.this
    if not isinstance(amount, exp.Literal) or not isinstance(unit, exp.Var):
        return None
    if not _INTEGER.fullmatch(str(amount.this).strip()):
        return None
    count, name = sign * int(amount.this), unit.name.upper().removesuffix("S")
    if not (name in _MONTHS or name in _DAYS or name in _MICROS):
        return None
    return count * _MONTHS.get(name, 0), count * _DAYS.get(name, 0), count * _MICROS.get(name, 0)
