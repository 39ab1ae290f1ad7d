"""Whatever the data and the predicate: no row that passes is lost, by splits or by readers."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import eddies
from eddies.core.evaluate import keep
from eddies.core.expr import Call, Cast, Column, Expr, Literal, columns_of
from eddies.errors import EvaluationError
from eddies.hosts import local
from eddies.sources import Source
from tests.support.bag import assert_same_bag

_NTZ = pa.timestamp("us")
_UTC = pa.timestamp("us", "UTC")
_MONEY = pa.decimal128(9, 2)
_FEW_WORDS = ["", "a", "ab", "abc", "b", "ba", "ä", "\U0001f600", "zz"]
_NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.5, 9.0, math.nan, math.inf, -math.inf])
_DAYS = st.dates(dt.date(1969, 12, 1), dt.date(1970, 2, 1))
_MOMENTS = st.datetimes(dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 2))

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "small": (pa.int32(), st.integers(-5, 5)),
    "whole": (pa.int64(), st.integers(-5, 5) | st.sampled_from([2**53, 2**53 + 1, -(2**63)])),
    "single": (pa.float32(), _NUMBERS),
    "double": (pa.float64(), _NUMBERS),
    "word": (pa.string(), st.sampled_from(_FEW_WORDS)),
    "bytes": (pa.binary(), st.sampled_from([b"", b"a", b"\xff", b"\xff\x00"])),
    "day": (pa.date32(), _DAYS),
    "moment": (_NTZ, _MOMENTS),
    "instant": (_UTC, _MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    "money": (_MONEY, st.integers(-500, 500).map(lambda cents: Decimal(cents).scaleb(-2))),
    "flag": (pa.bool_(), st.booleans()),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq")
WIDER = {
    "small": (pa.int64(), pa.float64(), pa.decimal128(12, 2)),
    "whole": (pa.float64(),),
    "single": (pa.float64(),),
    "money": (pa.float64(), pa.decimal128(15, 4)),
    "day": (_NTZ, _UTC),
    "moment": (pa.date32(),),
    "instant": (pa.date32(),),
}
NARROWER = {"small": pa.decimal128(3, 3), "money": pa.decimal128(3, 3)}  # some values do not fit


def literals(type_: pa.DataType) -> st.SearchStrategy[Expr]:
    for name, (known, values) in VALUES.items():
        if known == type_ and name != "flag":
            return (values | st.none()).map(lambda value: Literal(value, type_))
    scale = type_.scale  # a wider decimal
    return st.integers(-900, 900).map(lambda n: Literal(Decimal(n).scaleb(-scale), type_))


@st.composite
def comparisons(draw: st.DrawFn, names: Sequence[str], narrow: bool) -> Expr:
    name = draw(st.sampled_from([name for name in names if name != "flag"]))
    type_ = VALUES[name][0]
    value: Expr = Column("t", name)
    if name in WIDER and draw(st.booleans()):
        type_ = draw(st.sampled_from(WIDER[name]))
        value = Cast(value, type_)
    elif narrow and name in NARROWER and draw(st.booleans()):
        type_ = NARROWER[name]
        value = Cast(value, type_, lenient=True)
    kind = draw(st.sampled_from(["compare", "compare", "compare", "in", "null", "year", "text"]))
    if kind == "in" and not pa.types.is_decimal(type_):
        members = draw(st.lists(literals(type_), min_size=1, max_size=4))
        return Call("in_list", (value, *members))
    if kind == "null":
        return Call(draw(st.sampled_from(["is_null", "is_not_null"])), (value,))
    if kind == "year" and name in ("day", "moment", "instant"):
        year = Literal(draw(st.integers(1969, 1971)), pa.int32())
        return Call(draw(st.sampled_from(COMPARISONS)), (Call("year", (Column("t", name),)), year))
    if kind == "text" and name == "word":
        start = draw(st.sampled_from(_FEW_WORDS))
        function = draw(st.sampled_from(["starts_with", "like"]))
        ending = draw(st.sampled_from(["", "%", "_"])) if function == "like" else ""
        return Call(function, (value, Literal(start + ending, pa.string())))
    if kind == "text" and pa.types.is_floating(type_):
        return Call("is_nan", (value,))
    sides = [value, draw(literals(type_))]
    if draw(st.booleans()):
        sides.reverse()
    return Call(draw(st.sampled_from(COMPARISONS)), tuple(sides))


def predicates(
    names: Sequence[str] = tuple(VALUES), narrow: bool = True
) -> st.SearchStrategy[Expr]:
    """Predicates over columns of these names; if `narrow`, with casts that lose some values."""
    leaves = comparisons(names, narrow)
    if "flag" in names:
        leaves |= st.just(Column("t", "flag"))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda parts: Call("and", parts)),
            st.tuples(inner, inner).map(lambda parts: Call("or", parts)),
            inner.map(lambda part: Call("not", (part,))),
        ),
        max_leaves=4,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, tuple[Expr, ...]]:
    """Predicates, and a table of the columns they read: few rows of few different values, so that
    row groups of one value, of NULL only, and at the bounds of a predicate are frequent.
    """
    where = tuple(draw(st.lists(predicates(), min_size=1, max_size=2)))
    n_rows = draw(st.integers(1, 8))
    columns = {"id": pa.array(range(n_rows))}
    for name in sorted({column.name for expr in where for column in columns_of(expr)}):
        type_, values = VALUES[name]
        some = draw(st.lists(values | st.none(), min_size=1, max_size=3))
        cells = draw(st.lists(st.sampled_from(some), min_size=n_rows, max_size=n_rows))
        columns[name] = pa.array(cells, type_)
    return pa.table(columns), where


def passing(table: pa.Table, where: tuple[Expr, ...]) -> pa.Table:
    for predicate in where:
        arrays = {
            name: pa.concat_arrays([pa.array([], column.type), *column.chunks])
            for name, column in zip(table.schema.names, table.columns, strict=True)
        }
        kept = keep(predicate, _reader(arrays), table.num_rows, {})
        if kept is not None:
            table = table.filter(pa.array(kept))
    return table


def _reader(arrays: dict[str, pa.Array]) -> Callable[[Column], pa.Array]:
    return lambda wanted: arrays[wanted.name]


def rows_of(source: Source, where: tuple[Expr, ...], pushed: tuple[Expr, ...]) -> pa.Table:
    splits = source.splits(where)
    batches = [batch for split in splits for batch in split.read(source.schema.names, pushed)]
    return pa.Table.from_batches(batches, schema=source.schema)


@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(1, 3))
def test_no_row_that_passes_is_lost(
    case: tuple[pa.Table, tuple[Expr, ...]], group_rows: int
) -> None:
    table, where = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        parquet.write_table(table, path, row_group_size=group_rows)
        source = eddies.read.parquet(path)
        expected = passing(table, where)
        assert_same_bag(passing(rows_of(source, where, ()), where), expected, where)
        assert_same_bag(passing(rows_of(source, (), where), where), expected, where)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_partitions_of_one_value_are_pruned_exactly(data: st.DataObject) -> None:
    days = data.draw(st.lists(_DAYS | st.none(), min_size=1, max_size=4, unique=True))
    numbers = data.draw(st.lists(st.integers(-5, 5), min_size=1, max_size=3, unique=True))
    predicate = data.draw(predicates(("day", "small"), narrow=False))
    with tempfile.TemporaryDirectory() as folder:
        for day in days:
            text = "__HIVE_DEFAULT_PARTITION__" if day is None else day.isoformat()
            for number in numbers:
                below = Path(folder) / f"day={text}" / f"small={number}"
                below.mkdir(parents=True)
                parquet.write_table(pa.table({"x": [1]}), below / "t.parquet")
        source = eddies.read.parquet(folder)
        everything = rows_of(source, (), ())
        if days == [None]:
            return  # a key without any value has no type to compare
        found = rows_of(source, (predicate,), ())
        wanted = passing(everything.select(["x", "day", "small"]), (predicate,))
        assert_same_bag(passing(found, (predicate,)), wanted, predicate)
        if np.intersect1d(["or", "and"], [getattr(predicate, "function", "")]).size == 0:
            assert found.num_rows == wanted.num_rows, predicate


def test_a_value_that_does_not_survive_a_cast_is_null(tmp_path: Path) -> None:
    """TRY_CAST makes NULL of what does not fit, though the column has none; CAST has to fail."""
    table = pa.table({"n": pa.array([5000, 7000], pa.int32())})
    parquet.write_table(table, tmp_path / "t.parquet")
    given = {"t": str(tmp_path / "t.parquet")}
    text = "SELECT n FROM t WHERE TRY_CAST(n AS DECIMAL(3, 0)) IS NULL"
    assert_same_bag(local.sql(text, given), table)
    with pytest.raises(EvaluationError, match="5000"):
        local.sql("SELECT n FROM t WHERE CAST(n AS DECIMAL(3, 0)) = 1", given)
