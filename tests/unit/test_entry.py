"""The way in: which rows enter, and on which of them anything is computed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.entry import Entry
from eddies.core.expr import Call, Cast, Literal
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.query import Equality, Query, Selection
from eddies.errors import EvaluationError
from tests.support.bag import assert_same_bag
from tests.support.small import answer, batches, col, make_query

INT, TEXT = pa.int64(), pa.string()


def lit(value: int) -> Literal:
    return Literal(value, INT)


TABLE = pa.table({"id": [1, 2, 3, 4], "s": ["2", "x", "1", "9"]})
IS_NUMBER = Call("ne", (col("b.s"), Literal("x", TEXT)))


def keyed_by_number(*selections: Selection) -> Query:
    """t a JOIN t b ON a.id = CAST(b.s AS bigint)."""
    base = make_query({"t": TABLE}, roles={"a": "t", "b": "t"}, output=["a.id", "b.id"])
    number = Cast(col("b.s"), INT)
    return Query(
        base.sources,
        selections=selections,
        equalities=(Equality(col("a.id"), number, INT),),
        output=base.output,
    )


@pytest.mark.parametrize("rows", [1, 2, None])
def test_a_derived_key_is_not_computed_on_rows_its_role_drops(rows: int | None) -> None:
    found = answer(keyed_by_number(Selection(IS_NUMBER)), {"t": TABLE}, rows=rows)
    assert_same_bag(found, pa.table({"a_id": [2, 1], "b_id": [1, 3]}))


def test_a_derived_key_is_computed_on_all_rows_of_a_role_that_drops_none() -> None:
    only_a = Selection(Call("gt", (col("a.id"), lit(2))))
    with pytest.raises(EvaluationError, match="x"):
        answer(keyed_by_number(only_a), {"t": TABLE})


def test_a_derived_key_that_no_row_needs_is_null() -> None:
    never = Selection(Call("gt", (col("b.id"), lit(9))))
    graph = make_graph(keyed_by_number(never))
    relation = graph.relations[0]
    block = Entry(graph, relation).admit(batches(TABLE)[0])
    assert block.n_rows == 4
    assert block.column(relation.derived[0][0]).take(None).to_pylist() == [None] * 4


def test_a_column_that_only_selections_read_lasts_until_the_last_of_them() -> None:
    selections = (
        Selection(Call("ne", (col("t.s"), Literal("x", TEXT)))),
        Selection(Call("gt", (Cast(col("t.s"), INT), lit(1)))),
    )
    query = make_query({"t": TABLE}, output=["t.id"], selections=selections)
    graph = make_graph(query)
    block = Entry(graph, graph.relations[0]).admit(batches(TABLE)[0])
    assert list(block.columns()) == ["id"]
    assert block.column("id").take(None).to_pylist() == [1, 4]


def test_a_selective_filter_over_a_large_relation_needs_little_memory() -> None:
    """Room for the unfiltered relation would break the budget before the third row is stored."""
    n = 1_000_000
    table = pa.table({"id": pa.array(range(n), INT)})
    few = Selection(Call("eq", (Call("modulo", (col("t.id"), lit(100_000))), lit(7))))
    other = pa.table({"id": pa.array([7, 300_007], INT)})
    tables = {"t": table, "u": other}
    query = make_query(tables, ["t.id = u.id"], output=["t.id"], selections=(few,))
    options = Options(memory=1 << 20)
    found = answer(query, tables, options, rows=50_000, expected_rows={"t": n, "u": 2})
    assert_same_bag(found, pa.table({"t_id": [7, 300_007]}))
