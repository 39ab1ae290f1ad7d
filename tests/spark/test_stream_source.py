"""Streams in Spark: what arrives is the tables, each row once, however often a query is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eddies.sources import read
from eddies.sources.streams import stream_of
from eddies.spark.exchange import PACKED
from eddies.spark.stream_source import Feed, stream_frame
from tests.support.bag import assert_same_bag, bag_of
from tests.support.json_server import JsonServer, serve
from tests.support.packed import N_CELLS, Unpacked, hashed_by, unpacked
from tests.support.postgres_server import PostgresServer

ORDERS = pa.table({"k": pa.array(range(9000), pa.int64()), "t": [f"t{i}" for i in range(9000)]})
ITEMS = pa.table({"k": pa.array([i % 900 for i in range(4000)], pa.int64())})
LONGEST_S = 90


class Query:
    """A query that writes packed rows into files; started, stopped and started again."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def start(self, sources: dict[str, object], *, to_end: bool = True, **settings: object) -> None:
        feeds = []
        for number, (name, source) in enumerate(sources.items()):
            stream = stream_of(source)
            columns = tuple(stream.schema.names)
            feeds.append(Feed(number, name, stream, columns, hashed_by("k", number), N_CELLS))
        frame = stream_frame(self._spark, feeds, **settings)  # type: ignore[arg-type]
        assert frame.isStreaming
        writer = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .option("path", str(self._folder / "rows"))
        )
        if to_end:
            writer = writer.trigger(availableNow=True)
        self.running: StreamingQuery = writer.start()

    def finish(self) -> None:
        assert self.running.awaitTermination(LONGEST_S)

    def wait_for_rows(self, relation: int, least: int) -> None:
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            error = self.running.exception()
            assert error is None, error
            table = self.rows().tables.get(relation)
            if table is not None and table.num_rows >= least:
                return
            time.sleep(0.2)
        raise AssertionError(f"never had {least} rows")

    def wait_for_ticks(self, least: int) -> None:
        until = time.monotonic() + LONGEST_S
        while len(self.rows().ticks) < N_CELLS or min(self.rows().ticks.values()) < least:
            assert time.monotonic() < until, "no ticks"
            time.sleep(0.2)

    def rows(self) -> Unpacked:
        if not (self._folder / "rows" / "_spark_metadata").exists():
            return Unpacked()
        frame = self._spark.read.schema(PACKED).parquet(str(self._folder / "rows"))
        return unpacked(frame.toArrow(), dict.fromkeys(range(3), "k"))


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Query]:
    made = Query(spark, tmp_path)
    yield made
    made.running.stop()


ALL_ENDS = {(relation, cell): 1 for relation in (0, 1) for cell in range(N_CELLS)}


def test_all_blobs_unpacked_are_the_tables(query: Query, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet", row_group_size=1000)
    orders = read.parquet(str(tmp_path / "orders.parquet"))
    query.start({"orders": orders, "items": ITEMS}, rows_per_epoch=4000)
    query.finish()
    found = query.rows()
    assert_same_bag(found.tables[0], ORDERS)
    assert_same_bag(found.tables[1], ITEMS)
    assert found.ends == ALL_ENDS
    sizes = [epoch["sources"][0]["endOffset"] for epoch in query.running.recentProgress]
    assert len(sizes) >= 3  # back-pressure made several epochs of it


def test_a_query_that_is_stopped_and_resumed_delivers_each_row_once(query: Query) -> None:
    def sources() -> dict[str, object]:
        return {
            "orders": read.simulated(ORDERS, rows_per_s=2000),
            "items": read.simulated(ITEMS, burst_rows=400, pause_s=0.2, seed=3),
        }

    for least in (500, 4000):
        query.start(sources(), to_end=False)
        query.wait_for_rows(0, least)
        query.running.stop()
    query.start(sources())
    query.finish()
    found = query.rows()
    assert_same_bag(found.tables[0], ORDERS)
    assert_same_bag(found.tables[1], ITEMS)
    assert found.ends == ALL_ENDS


def test_a_stalled_source_holds_up_no_other_and_ticks_come(query: Query) -> None:
    stalled = read.simulated(ORDERS, stall_after=1000)
    query.start({"orders": stalled, "items": ITEMS}, to_end=False, tick_s=0.3)
    query.wait_for_rows(1, ITEMS.num_rows)
    query.wait_for_ticks(2)
    query.running.stop()
    found = query.rows()
    assert_same_bag(found.tables[0], ORDERS.slice(0, 1000))
    assert_same_bag(found.tables[1], ITEMS)
    assert found.ends == {(1, cell): 1 for cell in range(N_CELLS)}


def test_a_source_that_fails_stops_the_query_which_resumes(query: Query) -> None:
    query.start({"orders": read.simulated(ORDERS, fail_after=3000), "items": ITEMS})
    with pytest.raises(StreamingQueryException, match=r"source 'orders': .*same\s+checkpoint"):
        query.finish()
    assert_same_bag(query.rows().tables[0], ORDERS.slice(0, 3000))
    query.start({"orders": read.simulated(ORDERS), "items": ITEMS})
    query.finish()
    found = query.rows()
    assert_same_bag(found.tables[0], ORDERS)
    assert_same_bag(found.tables[1], ITEMS)
    assert found.ends == ALL_ENDS


def test_servers_and_text_files_stream(query: Query, tmp_path: Path) -> None:
    csv.write_csv(ORDERS, tmp_path / "orders.csv")
    server = PostgresServer()
    try:
        server.load("items", ITEMS.append_column("id", pa.array(range(4000), pa.int64())), "id")
        with serve(JsonServer(ORDERS.slice(0, 500), "k", page_rows=100)) as pages:
            sources = {
                "orders": read.csv(str(tmp_path / "orders.csv")),
                "items": read.postgres(server.dsn, "items"),
                "pages": read.http(f"{pages.url}/linked", rows="items", next="next"),
            }
            query.start(sources, rows_per_epoch=6000)
            query.finish()
    finally:
        server.stop()
    found = query.rows()
    assert_same_bag(found.tables[0], ORDERS)
    assert_same_bag(found.tables[1].select(["k"]), ITEMS)
    assert_same_bag(found.tables[2], ORDERS.slice(0, 500))
    assert len(found.ends) == 3 * N_CELLS


def test_a_mirror_takes_over(query: Query) -> None:
    backwards = ORDERS.take(list(range(8999, -1, -1)))
    failing = read.simulated(ORDERS, fail_after=2000)
    query.start({"orders": failing.mirror(read.arrow(backwards)), "items": ITEMS})
    query.finish()
    found = query.rows()
    assert bag_of(found.tables[0]) == bag_of(ORDERS) + bag_of(ORDERS.slice(0, 2000))
    assert found.ends == ALL_ENDS
