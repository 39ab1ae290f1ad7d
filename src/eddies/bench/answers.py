"""Answers of different engines compared as bags: the same rows, each as often, in any order.

Engines differ in how they type and round a sum or a quotient (decimal, double, wide integer), so
numbers are compared by value, and those that are not integers with a tolerance. Columns are matched
by position: engines name unnamed ones differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial

import pyarrow as pa

__all__ = ["difference", "plain_rows"]

# Spark rounds a quotient of decimals to six digits behind the point, DuckDB to none.
RELATIVE_TOLERANCE = 1e-5
ABSOLUTE_TOLERANCE = 1e-6

Row = tuple[object, ...]


def difference(found: Sequence[Row], expected: Sequence[Row]) -> str | None:
    """A sentence on how `found` differs from `expected`, or None if they are the same bag.

    >>> difference([(1, 0.3000001), (2, None)], [(2, None), (1, 0.3)]) is None
    True
    >>> difference([(1,), (1,)], [(1,), (2,)])
    'row (1,) instead of (2,)'
    """
    widths = {len(row) for row in (*found, *expected)}
    if len(widths) > 1:
        return f"rows of {' and '.join(map(str, sorted(widths)))} columns"
    if len(found) != len(expected):
        return f"{len(found)} rows instead of {len(expected)}"
    is_fraction = [
        any(isinstance(value, float) for value in column)
        for column in zip(*found, *expected, strict=True)
    ]
    key = partial(_sort_key, is_fraction)
    for mine, theirs in zip(sorted(found, key=key), sorted(expected, key=key), strict=True):
        if not _same(mine, theirs):
            return f"row {mine} instead of {theirs}"
    return None


def plain_rows(table: pa.Table) -> list[Row]:
    """The rows of an answer with every number as int or float and every moment as text."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain(value: object) -> object:
    if isinstance(value, Decimal | float):
        return int(value) if math.isfinite(value) and value == int(value) else float(value)
    if isinstance(value, datetime) and value.time() == datetime.min.time():
        value = value.date()
    if isinstance(value, date):
        return value.isoformat()
    return value


def _sort_key(is_fraction: Sequence[bool], row: Row) -> tuple[list[str], list[float]]:
    """Exact columns first: engines' fractions differ a little and must not decide the order."""
    exact = [repr(value) for value, fraction in zip(row, is_fraction, strict=True) if not fraction]
    fractions = [
        value if isinstance(value, int | float) else -math.inf
        for value, fraction in zip(row, is_fraction, strict=True)
        if fraction
    ]
    return exact, fractions


def _same(mine: Row, theirs: Row) -> bool:
    return all(_same_value(one, other) for one, other in zip(mine, theirs, strict=True))


def _same_value(mine: object, theirs: object) -> bool:
    if isinstance(mine, int | float) and isinstance(theirs, int | float):
        if math.isnan(mine) or math.isnan(theirs):
            return math.isnan(mine) and math.isnan(theirs)
        if isinstance(mine, int) and isinstance(theirs, int):
            return mine == theirs
        return math.isclose(mine, theirs, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    return mine == theirs
