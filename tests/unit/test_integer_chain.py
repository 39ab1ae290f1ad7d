"""Sums of integer columns, added up without Arrow: the same numbers, or none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.expr import Call, Column, Expr, Literal
from eddies.core.modules.integer_chain import IntegerChain
from eddies.errors import EvaluationError
from eddies.hosts import local

A, B, C = (Column(name, "v") for name in "abc")
HIGHEST = 2**63 - 1


def add(left: Expr, right: Expr) -> Call:
    return Call("add", (left, right))


@pytest.mark.parametrize("expr", [A, add(A, B), add(add(A, B), C), add(add(A, A), A)])
def test_chains(expr: Expr) -> None:
    assert IntegerChain.of(expr) is not None


@pytest.mark.parametrize(
    "expr",
    [
        add(A, add(B, C)),  # another order of additions may overflow elsewhere
        add(A, Literal(1, pa.int64())),
        Call("subtract", (A, B)),
        add(Call("abs", (A,)), B),
    ],
)
def test_what_is_no_chain(expr: Expr) -> None:
    assert IntegerChain.of(expr) is None


def summed(a: list[int | None], b: list[int | None], type_: pa.DataType | None = None) -> object:
    type_ = type_ or pa.int64()
    tables = {
        "a": pa.table({"k": range(len(a)), "v": pa.array(a, type_)}),
        "b": pa.table({"k": range(len(b)), "v": pa.array(b, type_)}),
    }
    text = "SELECT count(*) AS n, sum(a.v + b.v) AS s, sum(b.v) AS t FROM a, b WHERE a.k = b.k"
    return local.sql(text, tables).to_pylist()


def test_numbers() -> None:
    assert summed([1, 2, -3], [10, -20, 30]) == [{"n": 3, "s": 20, "t": 20}]


def test_nulls_are_left_to_arrow() -> None:
    assert summed([1, None, 3, None], [10, 20, None, None]) == [{"n": 4, "s": 11, "t": 30}]
    assert summed([None], [None]) == [{"n": 1, "s": None, "t": None}]


def test_other_widths_are_left_to_arrow() -> None:
    assert summed([1, 2], [3, 4], pa.int32()) == [{"n": 2, "s": 10, "t": 7}]


def test_no_rows() -> None:
    assert summed([], []) == [{"n": 0, "s": None, "t": None}]


def test_a_sum_of_two_columns_beyond_its_type_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="beyond the range"):
        summed([HIGHEST, 0], [1, 0])


def test_a_column_that_others_hold_is_not_written() -> None:
    """The values of a source that comes in order are its own memory."""
    values = pa.array([1, 2, 3], pa.int64())
    tables = {"a": pa.table({"v": values, "w": pa.array([10, 20, 30], pa.int64())})}
    found = local.sql("SELECT sum(v + w) AS s FROM a", tables).to_pylist()
    assert found == [{"s": 66}]
    assert values.to_pylist() == [1, 2, 3]
