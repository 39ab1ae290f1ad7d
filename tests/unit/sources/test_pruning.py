"""Every comparison of every small range: row groups are left out when, and only when, they may be.

One file holds a row group for each pair of values of a type, NULL and NaN among them. Statistics say
of each only the smaller and the greater, so a group of two values stands for any group between them.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.core.evaluate import evaluate
from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.sources.row_groups import ParquetSplit

_X = Column("t", "x")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq")
_MOMENT = dt.datetime(2024, 1, 1)
_DAY = dt.date(2024, 1, 1)

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "int": (pa.int32(), [-(2**31), -1, 0, 7, None]),
    "bigint": (pa.int64(), [-(2**63), 0, 2**53, 2**53 + 1, None]),
    "double": (pa.float64(), [-math.inf, -0.0, 0.0, 1.5, math.inf, math.nan, None]),
    "float": (pa.float32(), [-1.5, 0.0, 2.0, math.nan, None]),
    "string": (pa.string(), ["", "a", "ab", "b", "\U0001f600", None]),
    "binary": (pa.binary(), [b"", b"a", b"\x7f", b"\xff", None]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), _DAY, dt.date(2024, 12, 31), None]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23), _MOMENT, None]),
    "instant": (pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 1), _MOMENT, None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("9.99"), None]),
    "long decimal": (pa.decimal128(38, 2), [Decimal("-1.50"), Decimal(10) ** 35, None]),
    "boolean": (pa.bool_(), [False, True, None]),
}


def predicates(type_: pa.DataType, values: list[object]) -> list[Expr]:
    literals = [Literal(value, type_) for value in values]
    found: list[Expr] = [Call("is_null", (_X,)), Call("is_not_null", (_X,))]
    for function, literal in product(_COMPARISONS, literals):
        found += [Call(function, (_X, literal)), Call(function, (literal, _X))]
    found += [Call("in_list", (_X, a, b)) for a, b in product(literals, repeat=2)]
    if pa.types.is_floating(type_):
        found.append(Call("is_nan", (_X,)))
    if pa.types.is_string(type_):
        for text in ("", "a", "ab", "b", "c"):
            found.append(Call("starts_with", (_X, Literal(text, type_))))
            found += [Call("like", (_X, Literal(text + end, type_))) for end in ("", "%", "_")]
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        for function, year in product(_COMPARISONS, (1969, 1970, 2024)):
            found.append(Call(function, (Call("year", (_X,)), Literal(year, pa.int32()))))
    for wider in _wider(type_):
        for function, literal in product(_COMPARISONS, literals):
            found.append(Call(function, (Cast(_X, wider), Cast(literal, wider))))
    if pa.types.is_boolean(type_):
        found.append(_X)
    return found + [Call("not", (predicate,)) for predicate in found]


def _wider(type_: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_int32(type_):
        return [pa.int64(), pa.float64(), pa.decimal128(12, 2)]
    if pa.types.is_date(type_):
        return [pa.timestamp("us"), pa.timestamp("us", "UTC")]
    if pa.types.is_timestamp(type_):
        return [pa.date32()]
    if pa.types.is_decimal(type_):
        return [pa.float64()] + ([pa.decimal128(12, 4)] if type_.precision == 9 else [])
    return [pa.float64()] if type_ in (pa.int64(), pa.float32()) else []


@pytest.mark.parametrize("name", VALUES)
def test_every_comparison_of_every_pair_of_values(name: str, tmp_path: Path) -> None:
    type_, values = VALUES[name]
    pairs = list(product(values, repeat=2))
    table = pa.table({"x": pa.array([value for pair in pairs for value in pair], type_)})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    source = eddies.read.parquet(tmp_path / "t.parquet")
    cells = table.column("x").combine_chunks()
    n_left_out = 0
    for predicate in predicates(type_, values):
        truths = evaluate(predicate, lambda column: cells, len(cells), {}).fill_null(False)
        passes = np.asarray(truths).reshape(-1, 2).any(axis=1)
        read = np.zeros(len(pairs), np.bool_)
        for split in source.splits((predicate,)):
            assert isinstance(split, ParquetSplit)
            read[split.row_group] = True
        lost = [pairs[i] for i in np.flatnonzero(passes & ~read)]
        assert not lost, f"{predicate} loses {lost}"
        n_left_out += int(np.count_nonzero(~read))
    # Not a proof that pruning is tight, but that it is there for every type.
    assert n_left_out > 0.1 * len(pairs) * len(predicates(type_, values))


def test_a_constant_part_is_computed_first(tmp_path: Path) -> None:
    days = pa.array([_DAY, dt.date(2026, 1, 1)])
    parquet.write_table(pa.table({"x": days}), tmp_path / "t.parquet", row_group_size=1)
    next_year = Call(
        "add_interval",
        (
            Literal(_DAY, pa.date32()),
            Literal(12, pa.int32()),
            Literal(0, pa.int32()),
            Literal(0, pa.int64()),
        ),
    )
    source = eddies.read.parquet(tmp_path / "t.parquet")
    assert len(source.splits((Call("lt", (_X, next_year)),))) == 1


def test_unsigned_and_scaled_statistics_mean_what_they_stand_for(tmp_path: Path) -> None:
    table = pa.table(
        {
            "u": pa.array([5, 4_000_000_000], pa.uint32()),
            "n": pa.array([1_500, 2_999], pa.timestamp("ns")),
            "m": pa.array([1, 2], pa.timestamp("ms")),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    source = eddies.read.parquet(tmp_path / "t.parquet")

    def groups(name: str, value: object, type_: pa.DataType) -> list[int]:
        equal = Call("eq", (Column("t", name), Literal(value, type_)))
        return [split.row_group for split in source.splits((equal,))]  # type: ignore[attr-defined]

    assert groups("u", 4_000_000_000, pa.int64()) == [1]
    assert groups("u", 6, pa.int64()) == []
    assert groups("n", dt.datetime(1970, 1, 1, 0, 0, 0, 1), pa.timestamp("us")) == [0]
    assert groups("n", dt.datetime(1970, 1, 1, 0, 0, 0, 2), pa.timestamp("us")) == [1]
    assert groups("m", dt.datetime(1970, 1, 1, 0, 0, 0, 2000), pa.timestamp("us")) == [1]


def test_files_without_statistics_are_read_whole(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=1, write_statistics=False)
    source = eddies.read.parquet(tmp_path / "t.parquet")
    assert len(source.splits((Call("eq", (_X, Literal(2, pa.int64()))),))) == 3
