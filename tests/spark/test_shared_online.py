"""Online queries over the same sources share scans and SteMs, and each gets its own answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eddies
from eddies.errors import OptionError, SourceError, StateError, UnsupportedError
from eddies.streaming.place import places_of
from tests.support.bag import assert_same_bag
from tests.support.stream_tables import STREAM_QUERY, expected_answer, stream_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = {
    "all": STREAM_QUERY,
    "in Lima": """SELECT o.id, c.id AS customer FROM orders o JOIN customers c ON o.customer = c.id
                  WHERE c.city = 'Lima'""",
    "dear": "SELECT i.price, o.shop FROM items i, orders o WHERE i.order_id = o.id AND i.price > 90",
    "same shop": """SELECT a.id, b.id AS other FROM orders a, orders b
                    WHERE a.shop = b.shop AND a.id < b.id AND a.customer = b.customer""",
}


@pytest.mark.parametrize("n_cells", [1, 3])
def test_each_query_gets_its_answer(spark: SparkSession, n_cells: int) -> None:
    tables = stream_tables(1500)
    options = eddies.Options(rows_per_epoch=3000, cells=n_cells)
    queries = eddies.online(QUERIES, tables, spark=spark, options=options)
    for name, query in queries.items():
        assert_same_bag(query.result(), expected_answer(tables, QUERIES[name]), name)
    progress = queries["all"].progress()
    arrived = {source.name: source.n_arrived for source in progress.sources}
    assert arrived == {name: table.num_rows for name, table in tables.items()}, "read once"
    if n_cells == 1:
        stored = {source.name: source.n_stored for source in progress.sources}
        n_orders = tables["orders"].num_rows
        assert n_orders * 0.95 < stored["orders"] <= n_orders, "stored once, for five roles"
    for query in queries.values():
        query.close()


def test_queries_stop_one_by_one_and_resume_together(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(1000)
    two = {name: QUERIES[name] for name in ("all", "dear")}
    options = eddies.Options(checkpoint=str(tmp_path / "checkpoint"))
    stalled = eddies.read.simulated(tables["items"], stall_after=900)
    first = eddies.online(two, dict(tables) | {"items": stalled}, spark=spark, options=options)
    assert next(iter(first["all"])).num_rows
    first["all"].stop()
    with pytest.raises(SourceError, match="stopped"):
        first["all"].result()
    assert next(iter(first["dear"])).num_rows, "the other goes on"
    query_id = str(first["dear"]._run._query.id)
    assert places_of(query_id)
    first["dear"].stop()
    assert not places_of(query_id), "keepers leave with the last query"
    for others in (two | {"dear": QUERIES["in Lima"]}, {"all": STREAM_QUERY}):
        with pytest.raises(StateError, match="another query"):
            eddies.online(others, dict(tables), spark=spark, options=options)
    inputs = dict(tables) | {"items": eddies.read.simulated(tables["items"])}
    second = eddies.online(two, inputs, spark=spark, options=options)
    for name, query in second.items():
        assert_same_bag(query.result(), expected_answer(tables, two[name]), name)


def test_one_query_by_name(spark: SparkSession) -> None:
    tables = stream_tables(200)
    with eddies.online({"only": QUERIES["dear"]}, tables, spark=spark)["only"] as query:
        assert_same_bag(query.result(), expected_answer(tables, QUERIES["dear"]), "only")


def test_what_cannot_be_shared_is_named(spark: SparkSession) -> None:
    tables = dict(stream_tables(10))
    grouped = "SELECT shop, count(*) AS n FROM orders GROUP BY shop"
    with pytest.raises(UnsupportedError, match="'counts' is more than a join"):
        eddies.online({"all": STREAM_QUERY, "counts": grouped}, tables, spark=spark)
    derived = (
        "SELECT o.id FROM orders o, (SELECT DISTINCT order_id FROM items) d WHERE o.id = d.order_id"
    )
    with pytest.raises(UnsupportedError, match="'orders' is more than a join"):
        eddies.online({"all": STREAM_QUERY, "orders": derived}, tables, spark=spark)
    for options in (eddies.Options(window={"orders": "5 rows"}), eddies.Options(memory="1GB")):
        with pytest.raises(OptionError, match=r"window|memory"):
            eddies.online(QUERIES, tables, spark=spark, options=options)
    still = {"customers": spark.createDataFrame(stream_tables(10)["customers"])}
    named = "SELECT a.id FROM customers a, customers b WHERE a.city = b.city"
    with pytest.raises(UnsupportedError, match="'named' is a batch DataFrame"):
        eddies.online({"all": STREAM_QUERY, "named": named}, tables | still, spark=spark)
    mirrored = eddies.read.arrow(stream_tables(10)["orders"])
    inputs = tables | {"orders": mirrored.mirror(eddies.read.arrow(stream_tables(10)["orders"]))}
    with pytest.raises(UnsupportedError, match="'orders' has mirrors"):
        eddies.online(QUERIES, inputs, spark=spark)
