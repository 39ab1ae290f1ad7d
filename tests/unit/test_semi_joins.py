"""Which sources thin out which DataFrames before their rows leave Spark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from eddies.core.graph import Graph, make_graph
from eddies.spark.semi_joins import Member, Reducer, plan_semi_joins
from eddies.sql import plan
from eddies.sql.share_kept import share_kept

ROWS = {"lines": 6_000_000, "orders": 1_500_000, "customers": 150_000, "nations": 25}
SCHEMAS = {
    "lines": pa.schema([("o", pa.int64()), ("p", pa.int64()), ("x", pa.int64())]),
    "orders": pa.schema([("o", pa.int64()), ("c", pa.int64()), ("day", pa.int64())]),
    "customers": pa.schema([("c", pa.int64()), ("n", pa.int64())]),
    "nations": pa.schema([("n", pa.int64()), ("name", pa.string())]),
}
CHAIN = """
    SELECT l.x FROM lines l, orders o, customers c, nations n
    WHERE l.o = o.o AND o.c = c.c AND c.n = n.n
"""


def planned(
    text: str, without_keys: tuple[str, ...] = (), types: dict[str, str] | None = None
) -> tuple[Graph, dict[str, tuple[Reducer, ...]]]:
    """What is planned when all tables are DataFrames; those `without_keys` have none to give."""
    (block,) = plan(text, SCHEMAS, host="spark", may_ask=True).blocks
    graph = make_graph(block.query)
    members = {}
    for role in graph.roles:
        table = graph.relations[role.relation].name
        where = block.pushdown.get(role.name, ())
        kinds = dict.fromkeys(SCHEMAS[table].names, "bigint") | (types or {})
        has_keys = table not in without_keys
        members[role.source_id] = Member(ROWS[table], kinds, where, share_kept(where, {}), has_keys)
    return graph, plan_semi_joins(graph, members, set(ROWS))


def shown(graph: Graph, reducers: tuple[Reducer, ...]) -> list[str]:
    """`o(c(n))`: the keys of o, which must have keys of c, which must have keys of n."""
    found = []
    for reducer in reducers:
        inner = ",".join(shown(graph, reducer.reducers))
        found.append(graph.roles[reducer.source].name + (f"({inner})" if inner else ""))
    return found


def test_a_condition_works_its_way_up() -> None:
    graph, found = planned(CHAIN + " AND n.name = 'a'")
    assert shown(graph, found["lines"]) == ["o(c(n))"]
    assert shown(graph, found["orders"]) == ["c(n)"]
    assert found["lines"][0].on == (("o", "o"),)
    assert found["lines"][0].reducers[0].reducers[0].where == ("`name` = 'a'",)
    assert "nations" not in found


def test_without_conditions_nothing_is_dropped() -> None:
    assert planned(CHAIN)[1] == {}


def test_a_condition_on_the_largest_thins_out_nobody_who_is_small() -> None:
    assert planned(CHAIN + " AND l.x = 3")[1] == {}


def test_no_keys_of_what_may_not_be_computed_twice() -> None:
    graph, found = planned(CHAIN + " AND n.name = 'a' AND o.day = 3", without_keys=("customers",))
    assert shown(graph, found["lines"]) == ["o"]
    assert "orders" not in found


def test_small_tables_are_not_worth_it() -> None:
    _, found = planned("SELECT c.c FROM customers c, nations n WHERE c.n = n.n")
    assert found == {}
    _, found = planned("SELECT n.name FROM nations n, nations m WHERE n.n = m.n AND m.name = 'a'")
    assert found == {}


@pytest.mark.parametrize("types", [{"o": "double"}, {"o": "string collate UNICODE"}])
def test_keys_that_spark_may_compare_otherwise(types: dict[str, str]) -> None:
    _, found = planned("SELECT l.x FROM lines l, orders o WHERE l.o = o.o AND o.day = 3", (), types)
    assert found == {}


def test_two_columns_are_compared_together() -> None:
    text = "SELECT l.x FROM lines l, orders o WHERE l.o = o.o AND l.p = o.c AND o.day = 3"
    _, found = planned(text)
    assert set(found["lines"][0].on) == {("o", "o"), ("p", "c")}


def test_exists_thins_out_who_asks_and_who_is_asked() -> None:
    text = CHAIN + " AND EXISTS (SELECT 1 FROM lines m WHERE m.o = l.o AND m.x <> l.x) AND n.n = 3"
    graph, found = planned(text)
    # Both roles of lines are one relation here, of which rows are dropped for neither.
    assert set(found) == {"orders", "customers"}
    text = "SELECT l.x FROM lines l, nations n WHERE l.p = n.n AND EXISTS (" + (
        "SELECT 1 FROM orders o WHERE o.o = l.o AND o.day = 3)"
    )
    graph, found = planned(text)
    assert len(found["lines"]) == 1
    assert graph.roles[found["lines"][0].source].name.startswith("o")


def test_not_exists_drops_nothing_of_who_asks() -> None:
    text = "SELECT l.x FROM lines l, nations n WHERE l.p = n.n AND n.name = 'a' AND NOT EXISTS ("
    graph, found = planned(text + "SELECT 1 FROM orders o WHERE o.o = l.o AND o.day = 3)")
    assert shown(graph, found["lines"]) == ["n"]
    # But orders whose lines are gone need not be known, if the lines' keys are not too many.
    assert all(graph.roles[r.source].name == "l" for r in found.get("orders", ()))


def test_not_in_wants_to_see_every_row() -> None:
    text = (
        "SELECT l.x FROM lines l, nations n WHERE l.p = n.n AND n.name = 'a' "
        "AND l.o NOT IN (SELECT o.o FROM orders o WHERE o.day = 3)"
    )
    graph, found = planned(text)
    assert "orders" not in found
    assert shown(graph, found["lines"]) == ["n"]


def test_keys_are_broadcast_once_for_all() -> None:
    keys = Reducer(1, (("a", "k"),), (), (), 0.3)
    assert keys.keys == replace(keys, on=(("b", "k"),)).keys
