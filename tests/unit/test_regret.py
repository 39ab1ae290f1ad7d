"""Regret: every order is tried on every batch, and all of them must agree."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.expr import Call
from eddies.core.options import Options
from eddies.core.query import Filter, UserFunction
from eddies.core.regret import RegretLog
from eddies.hosts import local
from tests.support.bag import assert_same_bag
from tests.support.small import col, make_query

TABLES = {
    "a": pa.table({"x": range(40), "y": range(40)}),
    "b": pa.table({"x": range(0, 40, 2)}),
    "c": pa.table({"y": range(0, 40, 10)}),
}
ON = ["a.x = b.x", "a.y = c.y"]


def test_costs_are_rows_handled_on_each_way() -> None:
    """40 rows go to b, which keeps 20, or to c, which keeps 4; then on to the other."""
    query = make_query(TABLES, ON)
    log = RegretLog()
    options = Options(policy="static", order=("b", "c"))
    found = local.run(query, TABLES, options, regret=log).table()
    assert_same_bag(found, local.run(query, TABLES).table())
    assert log.chosen_cost == 40 + 20
    assert log.best_cost == 40 + 4
    assert log.best_fixed_order() == (40 + 4, ("stem:c", "stem:b"))


def test_where_no_row_arrives_the_rest_costs_nothing() -> None:
    tables = TABLES | {"b": pa.table({"x": [-1]})}
    log = RegretLog()
    options = Options(policy="static", order=("c", "b"))
    found = local.run(make_query(tables, ON), tables, options, regret=log).table()
    assert found.num_rows == 0
    assert (log.chosen_cost, log.best_cost) == (40 + 4, 40)


@pytest.mark.parametrize("answers", [[False, True], [True, False]])
def test_any_order_same_bag_is_checked_also_where_one_way_finds_nothing(
    answers: list[bool],
) -> None:
    """A function that changes its mind gives one way no rows and the other some."""

    def fickle(x: int, y: int) -> bool:
        calls.append((x, y))
        return answers[(len(calls) - 1) // 4]

    calls: list[tuple[int, int]] = []
    query = make_query(
        TABLES,
        ON,
        filters=(Filter(Call("fickle", (col("b.x"), col("c.y")))),),
        functions=(UserFunction("fickle", fickle, pa.bool_()),),
    )
    with pytest.raises(AssertionError, match="any order, same bag"):
        local.run(query, TABLES, regret=RegretLog()).table()
    assert len(calls) == 8


def test_matches_that_are_counted_are_rows_handled_all_the_same() -> None:
    """Folded, there would be as many results on each way as its last probe found keys."""
    tables = {
        "a": pa.table({"x": [n % 40 for n in range(400)], "y": [n % 40 for n in range(400)]}),
        "b": pa.table({"x": [n % 20 for n in range(200)]}),
        "c": pa.table({"y": [n % 10 for n in range(150)]}),
    }
    text = "SELECT count(*) AS n FROM a, b, c WHERE a.x = b.x AND a.y = c.y"
    log = RegretLog()
    assert local.sql(text, tables, regret=log)["n"].to_pylist() == [100 * 10 * 15]
    assert log.best_cost == 400 + 100 * 15
