"""Windows on Spark: withWatermark names the time, state stays small, the answer is DuckDB's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import eddies
from eddies.core.progress import together
from eddies.errors import OptionError, StateError
from eddies.streaming.progress_file import read_progress
from tests.spark.test_streaming import file_stream, start
from tests.support.bag import assert_same_bag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY = """SELECT o.id, o.at, i.price, s.name FROM orders o, items i, shops s
           WHERE i.order_id = o.id AND o.shop = s.id AND i.price > 10"""
WINDOW = {"orders": "10 minutes", "i": ("sold_at", "2 minutes")}
N_FILES = 6


def windowed_tables(n_orders: int) -> dict[str, pa.Table]:
    """Orders over an hour and a half, items up to a quarter of an hour before and after them, each
    table nearly in the order of its times.
    """
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.integers(0, 5400, n_orders)) * 1_000_000
    chosen = rng.integers(0, n_orders, 3 * n_orders)
    sold = seconds[chosen] + rng.integers(-900, 900, 3 * n_orders) * 1_000_000
    order = np.argsort(sold + rng.integers(0, 20_000_000, 3 * n_orders))
    instant = pa.timestamp("us", "UTC")
    return {
        "orders": pa.table(
            {
                "id": pa.array(np.arange(n_orders), pa.int64()),
                "shop": pa.array(rng.integers(0, 5, n_orders), pa.int32()),
                "at": pa.array(seconds, pa.int64(), mask=rng.random(n_orders) < 0.02).cast(instant),
            }
        ),
        "items": pa.table(
            {
                "order_id": pa.array(chosen[order], pa.int64()),
                "price": pa.array(rng.integers(0, 100, 3 * n_orders), pa.int32()),
                "sold_at": pa.array(sold[order], pa.int64()).cast(instant),
            }
        ),
        "shops": pa.table({"id": pa.array(range(5), pa.int32()), "name": [*"abcde"]}),
    }


def streams(spark: SparkSession, tables: dict[str, pa.Table], folder: Path) -> dict[str, Any]:
    orders = file_stream(spark, tables["orders"], folder / "orders", N_FILES)
    items = file_stream(spark, tables["items"], folder / "items", N_FILES)
    return {
        "orders": orders.withWatermark("at", "30 minutes"),
        "items": items.withWatermark("sold_at", "30 minutes"),
        "shops": tables["shops"],
    }


def answer(tables: dict[str, pa.Table]) -> pa.Table:
    within = " AND o.at > i.sold_at - INTERVAL 10 MINUTE AND i.sold_at > o.at - INTERVAL 2 MINUTE"
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(QUERY + within).to_arrow_table()


def test_windowed_streams(spark: SparkSession, tmp_path: Path) -> None:
    tables = windowed_tables(1500)
    inputs = streams(spark, tables, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    options = eddies.Options(checkpoint=str(checkpoint), window=WINDOW)
    query = start(eddies.sql(QUERY, inputs, options=options), tmp_path / "out", checkpoint)
    assert query.awaitTermination(180)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    expected = answer(tables)
    assert 0 < expected.num_rows < 4500 / 2
    assert_same_bag(found.set_column(1, "at", found["at"].cast(expected["at"].type)), expected)
    states = [path for path in (checkpoint / "eddies").iterdir() if path.name != "static"]
    progress = together(known for state in states for known in read_progress(str(state)))
    by_name = {source.name: source for source in progress.sources}
    assert by_name["orders"].n_late == by_name["items"].n_late == 0
    assert by_name["orders"].n_evicted > 300
    assert by_name["items"].n_evicted > 1500
    longer = eddies.Options(checkpoint=str(checkpoint), window=WINDOW | {"orders": "11 minutes"})
    with pytest.raises(StateError, match="another query"):
        eddies.sql(QUERY, inputs, options=longer)
    without = eddies.Options(checkpoint=str(checkpoint))
    with pytest.raises(StateError, match="another query"):
        eddies.sql(QUERY, inputs, options=without)


def test_windows_that_make_no_sense(spark: SparkSession, tmp_path: Path) -> None:
    tables = windowed_tables(20)
    inputs = streams(spark, tables, tmp_path)

    def plan(window: dict[str, Any], given: dict[str, Any] = inputs, **more: Any) -> DataFrame:
        options = eddies.Options(checkpoint=str(tmp_path / "state"), window=window, **more)
        return eddies.sql(QUERY, given, options=options)

    with pytest.raises(OptionError, match=r"names 'ordres', which no eddy .* joins o, orders, i"):
        plan({"ordres": "10 minutes"})
    with pytest.raises(OptionError, match="'shops', which does not stream"):
        plan({"shops": ("id", 3)})
    with pytest.raises(OptionError, match="column 'price' of 'items' is an integer"):
        plan({"items": ("price", "10 minutes")})
    with pytest.raises(OptionError, match="'items' is over column 'sold'; it has order_id, price"):
        plan({"items": ("sold", "10 minutes")})
    unmarked = inputs | {"items": file_stream(spark, tables["items"], tmp_path / "items", N_FILES)}
    with pytest.raises(OptionError, match="'items' needs a time column"):
        plan({"items": "10 minutes"}, unmarked)
    with pytest.raises(OptionError, match="'i' counts rows, so all of them must come to one cell"):
        plan({"items": "100 rows"}, cells=2)
    options = eddies.Options(checkpoint=str(tmp_path / "state"), window={"o": "1 hour"})
    told = eddies.explain(QUERY, inputs, options=options)
    assert "window over at" in told
    assert "no window: nothing is forgotten before it has ended" in told
    with pytest.raises(OptionError, match="for streaming queries, and no table of this one"):
        plan({"items": ("sold_at", "10 minutes")}, tables)
