"""Streaming queries: any mix of streaming and static inputs, exactly once, also after a restart."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.pandas.types import from_arrow_schema

import eddies
from eddies.errors import OptionError, PlanError, SourceError, StateError, UnsupportedError
from eddies.streaming.place import places_of
from tests.support.bag import assert_same_bag
from tests.support.keepers import keepers_at
from tests.support.stream_tables import STREAM_QUERY, expected_answer, stream_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def file_stream(spark: SparkSession, table: pa.Table, folder: Path, n_files: int) -> DataFrame:
    """A streaming DataFrame that reads `table` from files, one an epoch, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = -(-table.num_rows // n_files)
    now_s = time.time()
    for i in range(n_files):
        path = folder / f"{i}.parquet"
        parquet.write_table(table.slice(i * rows, rows), path)
        os.utime(path, (now_s, now_s - n_files + i))
    schema = from_arrow_schema(table.schema)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def start(frame: DataFrame, out: Path, checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start(str(out))


def keepers(query: StreamingQuery) -> list[int]:
    """Processes that keep cells of a query, and of no other."""
    return [process for place in places_of(str(query.id)) for process in keepers_at(place)]


def test_streams_and_static_tables(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(400)
    parquet.write_table(tables["customers"], tmp_path / "customers.parquet")
    inputs: dict[str, object] = {
        "orders": file_stream(spark, tables["orders"], tmp_path / "orders", 5),
        "items": file_stream(spark, tables["items"], tmp_path / "items", 3),
        "customers": str(tmp_path / "customers.parquet"),
        "shops": spark.createDataFrame(tables["shops"]),
    }
    options = eddies.Options(checkpoint=str(tmp_path / "checkpoint"))
    frame = eddies.sql(STREAM_QUERY, inputs, options=options)
    assert frame.isStreaming
    query = start(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert query.awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert_same_bag(found, expected_answer(tables), "streams and static tables")


def test_aggregates_above(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(200)
    inputs: dict[str, object] = dict(tables) | {
        "orders": file_stream(spark, tables["orders"], tmp_path / "orders", 3),
    }
    text = """SELECT c.city, count(*) AS n, sum(i.price) AS total FROM orders o, customers c, items i
              WHERE o.customer = c.id AND i.order_id = o.id GROUP BY c.city"""
    options = eddies.Options(checkpoint=str(tmp_path / "checkpoint"))
    frame = eddies.sql(text, inputs, options=options)
    name = "totals"
    writer = frame.writeStream.format("memory").queryName(name).outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert_same_bag(spark.table(name).toArrow(), expected_answer(tables, text), "groups")


def test_it_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(300)
    halves = {
        name: (t.slice(0, t.num_rows // 2), t.slice(t.num_rows // 2)) for name, t in tables.items()
    }
    checkpoint = tmp_path / "checkpoint"
    options = eddies.Options(checkpoint=str(checkpoint))
    streams = {n: file_stream(spark, h[0], tmp_path / n, 2) for n, h in halves.items()}
    first = start(eddies.sql(STREAM_QUERY, streams, options=options), tmp_path / "out", checkpoint)
    assert first.awaitTermination(120)
    for process in keepers(first):
        os.kill(process, signal.SIGKILL)
    for name, (_, late) in halves.items():
        parquet.write_table(late, tmp_path / name / "late.parquet")
    again = eddies.sql(STREAM_QUERY, streams, options=options)
    assert start(again, tmp_path / "out", checkpoint).awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert_same_bag(found, expected_answer(tables), "after a restart")
    with pytest.raises(StateError, match="another query"):
        eddies.sql(STREAM_QUERY.replace("> 10", "> 11"), streams, options=options)
    other = eddies.Options(checkpoint=str(checkpoint), cells=5)
    with pytest.raises(OptionError, match="cells"):
        eddies.sql(STREAM_QUERY, streams, options=other)
    shutil.rmtree(checkpoint / "offsets")
    shutil.rmtree(checkpoint / "commits")
    (checkpoint / "metadata").unlink()
    for crc in checkpoint.glob(".metadata.crc"):
        crc.unlink()
    forgotten = eddies.sql(STREAM_QUERY, streams, options=options)
    query = start(forgotten, tmp_path / "out2", checkpoint)
    with pytest.raises(Exception, match="belongs to streaming query"):
        query.awaitTermination(120)


def test_static_tables_are_those_of_the_first_start(spark: SparkSession, tmp_path: Path) -> None:
    """Also if they have grown since, so that a cell would rather take them in another order."""
    tables = stream_tables(300)
    orders, checkpoint = tables["orders"], tmp_path / "checkpoint"
    paths = {name: tmp_path / f"{name}.parquet" for name in ("customers", "items", "shops")}
    for name, path in paths.items():
        parquet.write_table(tables[name], path)
    stream = file_stream(spark, orders.slice(0, 100), tmp_path / "orders", 1)
    inputs: dict[str, object] = {name: str(path) for name, path in paths.items()}
    inputs["orders"] = stream
    options = eddies.Options(checkpoint=str(checkpoint), cells=1)
    out = tmp_path / "out"
    frame = eddies.sql(STREAM_QUERY, inputs, options=options)
    assert start(frame, out, checkpoint).awaitTermination(120)
    parquet.write_table(pa.concat_tables([tables["shops"]] * 100), paths["shops"])
    parquet.write_table(orders.slice(100), tmp_path / "orders" / "late.parquet")
    again = eddies.sql(STREAM_QUERY, inputs, options=options)
    assert start(again, out, checkpoint).awaitTermination(120)
    found = spark.read.parquet(str(out)).toArrow()
    assert_same_bag(found, expected_answer(tables), "the first static tables")


def test_a_static_table_that_was_saved_in_part_is_saved_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = stream_tables(100)
    checkpoint = tmp_path / "checkpoint"
    part = checkpoint / "eddies" / "static" / "shops"  # as a killed driver leaves it
    part.mkdir(parents=True)
    parquet.write_table(tables["shops"].slice(0, 3), part / "part-0.parquet")
    inputs: dict[str, object] = dict(tables) | {
        "orders": file_stream(spark, tables["orders"], tmp_path / "orders", 1),
        "shops": spark.createDataFrame(tables["shops"]),
    }
    options = eddies.Options(checkpoint=str(checkpoint))
    frame = eddies.sql(STREAM_QUERY, inputs, options=options)
    assert start(frame, tmp_path / "out", checkpoint).awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert_same_bag(found, expected_answer(tables), "saved again")


def test_keepers_leave_when_the_query_stops(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(100)
    inputs: dict[str, object] = dict(tables) | {
        "orders": file_stream(spark, tables["orders"], tmp_path / "orders", 1),
    }
    options = eddies.Options(checkpoint=str(tmp_path / "checkpoint"))
    frame = eddies.sql(STREAM_QUERY, inputs, options=options)
    writer = frame.writeStream.format("noop").option("checkpointLocation", options.checkpoint)
    query = writer.start()
    query.processAllAvailable()
    places = places_of(str(query.id))
    assert places
    assert all(place.is_taken() for place in places)
    query.stop()
    until = time.monotonic() + 30
    while places_of(str(query.id)):
        assert time.monotonic() < until, "keepers and their files stay"
        time.sleep(0.1)


def test_a_checkpoint_is_needed(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(10)
    stream = file_stream(spark, tables["orders"], tmp_path / "orders", 1)
    with pytest.raises(OptionError, match="checkpoint"):
        eddies.sql(STREAM_QUERY, dict(tables) | {"orders": stream})


def test_online_gives_results_as_they_come(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(2000)
    options = eddies.Options(rows_per_epoch=1000)
    with eddies.online(STREAM_QUERY, tables, spark=spark, options=options) as query:
        moments = []
        n_rows = 0
        for batch in query:
            n_rows += batch.num_rows
            moments.append((time.monotonic(), batch.num_rows))
        assert query.is_complete
        assert_same_bag(query.result(), expected_answer(tables), "online")
        assert n_rows == query.result().num_rows
        assert moments[-1][0] - moments[0][0] > 0.1, "the first results come before the last rows"
        progress = query.progress()
        assert {s.name: (s.n_arrived, s.is_ended) for s in progress.sources} == {
            name: (table.num_rows, True) for name, table in tables.items()
        }
        assert progress.n_probes > 0


def test_online_resumes_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    tables = stream_tables(1000)
    options = eddies.Options(checkpoint=str(tmp_path / "checkpoint"))
    stalled = eddies.read.simulated(tables["items"], stall_after=900)
    inputs = dict(tables) | {"items": stalled}
    first = eddies.online(STREAM_QUERY, inputs, spark=spark, options=options)
    assert next(iter(first)).num_rows
    first.stop()
    with pytest.raises(SourceError, match="stopped"):
        first.result()
    inputs |= {"items": eddies.read.simulated(tables["items"])}
    second = eddies.online(STREAM_QUERY, inputs, spark=spark, options=options)
    assert_same_bag(second.result(), expected_answer(tables), "resumed")


def test_online_refuses_what_it_cannot_do(spark: SparkSession) -> None:
    tables = stream_tables(10)
    text = "SELECT o.shop, count(*) AS n FROM orders o, items i WHERE i.order_id = o.id GROUP BY o.shop"
    with pytest.raises(UnsupportedError, match="puts out rows"):
        eddies.online(text, dict(tables), spark=spark)


def test_a_source_that_fails_is_named_and_the_query_resumes(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = stream_tables(500)
    options = eddies.Options(checkpoint=str(tmp_path / "checkpoint"))
    broken = eddies.read.simulated(tables["items"], fail_after=300)
    query = eddies.online(
        STREAM_QUERY, dict(tables) | {"items": broken}, spark=spark, options=options
    )
    with pytest.raises(SourceError, match="items"):
        query.result()
    mended = eddies.read.simulated(tables["items"])
    again = eddies.online(
        STREAM_QUERY, dict(tables) | {"items": mended}, spark=spark, options=options
    )
    assert_same_bag(again.result(), expected_answer(tables), "mended")


def test_a_mirror_takes_over(spark: SparkSession) -> None:
    tables = stream_tables(500)
    items = tables["items"]
    doubled = pa.concat_tables([items, items.slice(0, 50)])  # rows that are there twice stay so
    broken = eddies.read.simulated(doubled, fail_after=400)
    other = doubled.take(pa.array(range(doubled.num_rows - 1, -1, -1)))
    inputs = dict(tables) | {"items": broken.mirror(eddies.read.arrow(other))}
    with eddies.online(STREAM_QUERY, inputs, spark=spark) as query:
        expected = expected_answer(tables | {"items": doubled})
        assert_same_bag(query.result(), expected, "a mirror took over")


def test_a_mirror_takes_over_where_spark_reads_alone(spark: SparkSession) -> None:
    rows = pa.table({"k": pa.array(range(500), pa.int64()), "t": ["a"] * 500})
    other = rows.take(pa.array(range(499, -1, -1)))
    text = "SELECT t.k, t.t FROM t"
    broken = eddies.read.simulated(rows, fail_after=200)
    with pytest.raises(PlanError, match=r"'t' has mirrors.*declare the key"):
        eddies.online(text, {"t": broken.mirror(eddies.read.arrow(other))}, spark=spark)
    mirrored = broken.mirror(eddies.read.arrow(other)).keyed("k")
    with eddies.online(text, {"t": mirrored}, spark=spark) as query:
        assert_same_bag(query.result(), rows, "each row once")


def test_a_stalled_source_does_not_stop_the_others(spark: SparkSession) -> None:
    tables = stream_tables(400)
    stalled = eddies.read.simulated(tables["items"], stall_after=300)
    with eddies.online(STREAM_QUERY, dict(tables) | {"items": stalled}, spark=spark) as query:
        expected = expected_answer(tables | {"items": tables["items"].slice(0, 300)})
        found: list[pa.RecordBatch] = []
        for batch in query:
            found.append(batch)
            if sum(part.num_rows for part in found) >= expected.num_rows:
                break
        assert_same_bag(pa.Table.from_batches(found, query.schema), expected, "until the stall")
        sources = {source.name: source for source in query.progress().sources}
        assert sources["orders"].is_ended
        assert not sources["items"].is_ended


def test_one_table_is_a_query_too(spark: SparkSession) -> None:
    tables = stream_tables(300)
    text = "SELECT id, shop + 1 AS next FROM orders WHERE shop > 3"
    options = eddies.Options(rows_per_epoch=50)
    with eddies.online(text, tables, spark=spark, options=options) as query:
        batches = list(query)
        assert len(batches) >= 3, "an epoch reads few rows"
        found = pa.Table.from_batches(batches, query.schema)
        assert_same_bag(found, expected_answer(tables, text), "one table")
