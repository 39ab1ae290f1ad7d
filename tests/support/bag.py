"""Results compared as bags: the same rows, each as often, in any order.

Duplicates are what an eddy gets wrong first, so nothing here ever makes a set of rows. A failing
comparison prints a small difference: rows that are missing, rows that should not be there, and rows
that are there too often.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Difference", "assert_same_bag", "bag_of", "compare"]

Row = tuple[object, ...]
_SHOWN = 6


def bag_of(table: pa.Table | pa.RecordBatch, digits: int | None = None) -> Counter[Row]:
    """The rows of `table`, counted. Every NaN is the same NaN; `digits` rounds floats (sums)."""
    columns = [
        [_plain(value, digits) for value in column.to_pylist()]
        if pa.types.is_floating(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    if not columns:
        return Counter({(): table.num_rows} if table.num_rows else {})
    return Counter(zip(*columns, strict=True))


def _plain(value: object, digits: int | None) -> object:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if digits is not None and math.isfinite(value):
            return float(f"{value:.{digits}g}")
    return value


@dataclass(frozen=True, slots=True)
class Difference:
    """How one bag differs from the bag that was expected."""

    missing: Counter[Row]
    extra: Counter[Row]
    duplicated: Counter[Row]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.duplicated)

    def __str__(self) -> str:
        parts = []
        for name in ("missing", "extra", "duplicated"):
            rows: Counter[Row] = getattr(self, name)
            if rows:
                parts.append(f"{rows.total()} {name}: " + "; ".join(_shown(rows.items())))
        return "\n".join(parts) or "no difference"


def _shown(rows: Iterable[tuple[Row, int]]) -> list[str]:
    listed = [f"{row}" if n == 1 else f"{row} x{n}" for row, n in rows]
    return listed[:_SHOWN] + ([f"... {len(listed) - _SHOWN} more"] if len(listed) > _SHOWN else [])


def compare(found: Counter[Row], expected: Counter[Row]) -> Difference:
    """What must change in `found` to make it `expected`."""
    surplus = found - expected
    duplicated = Counter({row: n for row, n in surplus.items() if row in expected})
    return Difference(expected - found, surplus - duplicated, duplicated)


def assert_same_bag(
    found: pa.Table, expected: pa.Table, context: object = "", digits: int | None = None
) -> None:
    """Fail with a small difference, and `context`, unless both have the same rows."""
    difference = compare(bag_of(found, digits), bag_of(expected, digits))
    assert not difference, f"{context}\n{difference}"
