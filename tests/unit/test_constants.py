"""Constant parts of expressions are worked out once; what fails or is the user's stays."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from eddies.core.constants import with_constants
from eddies.core.expr import Call, Cast, Column, Expr, Literal

DAY = Column("t", "day")


def date(year: int, month: int, day: int) -> Literal:
    return Literal(dt.date(year, month, day), pa.date32())


def number(value: int) -> Literal:
    return Literal(value, pa.int32())


def test_what_reads_no_column_becomes_a_literal() -> None:
    shifted = Call("add_months", (date(1994, 1, 31), number(1)))
    before = Call("lt", (DAY, shifted))
    assert with_constants(before) == Call("lt", (DAY, date(1994, 2, 28)))
    cast = Cast(Cast(Literal("1.50", pa.string()), pa.decimal128(3, 2)), pa.decimal128(5, 3))
    assert with_constants(cast) == Literal(Decimal("1.500"), pa.decimal128(5, 3))


def test_columns_failures_and_user_functions_stay() -> None:
    kept: list[Expr] = [
        DAY,
        Cast(DAY, pa.string()),
        Cast(Literal("x", pa.string()), pa.int32()),
        Call("mine", (number(1),)),
        Call("eq", (Call("mine", (number(1),)), number(1))),
        Call("add_months", (date(9999, 12, 31), number(1))),  # a date that Python does not have
    ]
    for expr in kept:
        assert with_constants(expr) == expr
