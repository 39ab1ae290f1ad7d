"""The process that plans epochs, and what it sends to tasks. No Spark is started."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eddies.errors import PlanError, SourceError
from eddies.sources import read
from eddies.sources.streams import Offset, stream_of
from eddies.spark.stream_source import Feed, data_source, stream_frame
from tests.support.bag import assert_same_bag
from tests.support.packed import N_CELLS, hashed_by, unpacked

ORDERS = pa.table({"k": pa.array(range(5000), pa.int64()), "t": [f"t{i}" for i in range(5000)]})
ITEMS = pa.table({"k": pa.array([i % 900 for i in range(2000)], pa.int64())})
TABLES = {"orders": ORDERS, "items": ITEMS}
KEYS = {0: "k", 1: "k"}


def feeds(**sources: object) -> list[Feed]:
    return [
        Feed(
            n, name, stream_of(source), tuple(TABLES[name].column_names), hashed_by("k", n), N_CELLS
        )
        for n, (name, source) in enumerate(sources.items())
    ]


def planner(these: Sequence[Feed], **settings: object) -> Any:
    """The reader as the planning process has it: made from a source that was pickled."""
    source = data_source(these, **settings)
    made = cloudpickle.loads(cloudpickle.dumps(cloudpickle.loads(cloudpickle.dumps(source))({})))
    assert made.schema() == "cell int, relation int, payload binary"
    return made.streamReader(None)


def steps(reader: Any, limit: int = 700, start: Offset | None = None) -> Iterator[Offset]:
    offset = reader.initialOffset() if start is None else start
    yield offset
    until = time.monotonic() + 20
    while not reader._all_ended(offset):
        found = json.loads(json.dumps(reader.latestOffset(offset, ReadMaxRows(limit))))
        if found != offset:
            offset = found
            yield offset
        assert time.monotonic() < until


def read_epoch(reader: Any, start: Offset, end: Offset) -> list[pa.RecordBatch]:
    """What tasks deliver, from a reader and partitions that were pickled."""
    task = cloudpickle.loads(cloudpickle.dumps(reader))
    works = [pickle.loads(cloudpickle.dumps(work)) for work in reader.partitions(start, end)]
    return [batch for work in works for batch in task.read(work)]


@given(st.integers(3, 3000))
@settings(max_examples=15, deadline=None)
def test_all_blobs_together_are_the_tables(limit: int) -> None:
    reader = planner(feeds(orders=ORDERS, items=ITEMS))
    offsets = list(steps(reader, max(limit, 100)))
    found = unpacked((b for s, e in pairwise(offsets) for b in read_epoch(reader, s, e)), KEYS)
    assert_same_bag(found.tables[0], ORDERS)
    assert_same_bag(found.tables[1], ITEMS)


def test_each_end_is_told_once_to_every_cell_and_again_when_its_epoch_is() -> None:
    reader = planner(feeds(orders=ORDERS, items=ITEMS))
    offsets = list(steps(reader))
    ends = [unpacked(read_epoch(reader, s, e), KEYS).ends for s, e in pairwise(offsets)]
    told = [(epoch, relation) for epoch, found in enumerate(ends) for relation, _ in found]
    assert sorted(told) == [(5, 1)] * N_CELLS + [(len(ends) - 1, 0)] * N_CELLS
    other = planner(feeds(orders=ORDERS, items=ITEMS))
    assert unpacked(read_epoch(other, offsets[5], offsets[6]), KEYS).ends == ends[5]


def test_rows_are_shared_by_the_streams_that_have_not_ended() -> None:
    reader = planner(feeds(orders=ORDERS, items=ITEMS))
    rows = [
        (offset["streams"]["orders"]["rows"], offset["streams"]["items"]["rows"])
        for offset in steps(reader, 1000)
    ]
    assert rows == [(500 * i, 500 * i) for i in range(5)] + [
        (3000, 2000),
        (4000, 2000),
        (5000, 2000),
    ]
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["streams"]["orders"][
        "end"
    ]


def test_nothing_is_new_when_all_has_ended() -> None:
    reader = planner(feeds(orders=ORDERS), tick_s=0.01)
    *_, last = steps(reader)
    time.sleep(0.02)
    assert reader.latestOffset(last, ReadMaxRows(10)) == last


def test_a_stalled_stream_holds_up_no_other_and_ticks_come_instead() -> None:
    stalled = read.simulated(ORDERS, stall_after=100)
    reader = planner(feeds(orders=stalled, items=ITEMS), tick_s=0.05)
    offset = reader.initialOffset()
    offsets = [offset]
    until = time.monotonic() + 20
    while offset["tick"] < 2 and time.monotonic() < until:
        found = reader.latestOffset(offset, ReadMaxRows(10_000))
        if found != offset:
            offset = found
            offsets.append(offset)
    assert offset["streams"]["items"]["end"]
    assert offset["streams"]["orders"]["rows"] == 100
    found = unpacked((b for s, e in pairwise(offsets) for b in read_epoch(reader, s, e)), KEYS)
    assert found.ticks == dict.fromkeys(range(N_CELLS), 2)
    assert_same_bag(found.tables[1], ITEMS)


def test_an_epoch_is_few_tasks_however_many_parts_it_has(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    wide = pa.table({"k": pa.array(range(200_000), pa.int64())})
    pq.write_table(wide, path, row_group_size=1000)
    source = read.parquet(str(path))
    feed = Feed(0, "t", stream_of(source), ("k",), hashed_by("k", 0), N_CELLS)
    reader = planner([feed], n_partitions=3)
    start = reader.initialOffset()
    for most_rows, n_tasks in ((5000, 1), (50_000, 2), (200_000, 3)):
        end = reader.latestOffset(start, ReadMaxRows(most_rows))
        works = reader.partitions(start, end)
        assert len(works) == n_tasks
        sizes = [sum(part.n_rows for _, part in work.parts) for work in works]
        assert sum(sizes) == most_rows
        assert max(sizes) - min(sizes) <= 1000


def test_tasks_get_neither_streams_nor_tables() -> None:
    big = pa.table({"k": pa.array(range(500_000), pa.int64())})
    source = data_source([Feed(0, "t", stream_of(big), ("k",), hashed_by("k", 0), N_CELLS)])
    made = source({})
    assert len(cloudpickle.dumps(made)) > big.nbytes
    reader = made.streamReader(None)
    assert len(cloudpickle.dumps((reader, made))) < 2000
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert sum(len(cloudpickle.dumps(work)) for work in reader.partitions(start, end)) < 5000


def test_a_large_table_goes_beside_what_spark_keeps() -> None:
    big = pa.table({"k": pa.array(range(500_000), pa.int64()), "unused": ["x"] * 500_000})
    simulated = stream_of(read.simulated(big))
    reader = planner([Feed(0, "t", simulated, ("k",), hashed_by("k", 0), N_CELLS)], is_near=True)
    assert len(reader._pickled_plan) < 5000
    found = [b for s, e in pairwise(steps(reader, 300_000)) for b in read_epoch(reader, s, e)]
    assert_same_bag(unpacked(found, {0: "k"}).tables[0], big.select(["k"]))


def test_a_query_that_runs_to_the_end_waits_for_what_is_not_there_yet() -> None:
    reader = planner(feeds(items=read.simulated(ITEMS, delay_s=0.3)))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(100_000))["streams"]["items"]["end"]


def test_a_source_that_fails_is_named_with_what_to_do() -> None:
    reader = planner(feeds(orders=read.simulated(ORDERS, fail_after=0)))
    with pytest.raises(SourceError, match=r"source 'orders': .*as asked.* same checkpoint"):
        list(steps(reader))


class BrokenPart:
    """Fails as often as told, over all copies."""

    n_rows = 1
    is_patient = False
    left = 0

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if BrokenPart.left:
            BrokenPart.left -= 1
            raise SourceError("the disk is away")
        yield from ITEMS.select(list(columns)).to_batches()


@pytest.mark.parametrize(("n_failures", "passes"), [(2, True), (100, False)])
def test_a_part_that_cannot_be_read_is_tried_again(n_failures: int, passes: bool) -> None:
    reader = planner(feeds(items=ITEMS))
    stream = reader._planned().streams["items"]
    stream.parts = lambda start, end: [BrokenPart()]
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100_000))
    BrokenPart.left = n_failures
    if passes:
        assert_same_bag(unpacked(read_epoch(reader, start, end), {0: "k"}).tables[0], ITEMS)
    else:
        with pytest.raises(SourceError, match=r"source 'items': .*the disk is away.*checkpoint"):
            read_epoch(reader, start, end)


def test_a_checkpoint_of_other_sources_is_refused() -> None:
    offset = planner(feeds(orders=ORDERS)).initialOffset()
    reader = planner(feeds(items=ITEMS))
    with pytest.raises(SourceError, match="written for the sources orders, but it now reads items"):
        reader.latestOffset(offset, ReadMaxRows(5))


@pytest.mark.parametrize(
    ("these", "settings", "said"),
    [
        ([], {}, "needs feeds"),
        (feeds(orders=ORDERS) * 2, {}, "a name of its own"),
        (feeds(orders=ITEMS), {}, "source 'orders' has no column 't'"),
        (feeds(orders=ORDERS), {"rows_per_epoch": 0}, "must be at least 1"),
        (feeds(orders=ORDERS), {"tick_s": 0.0}, "tick_s must be above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    these: list[Feed], settings: dict[str, float], said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        stream_frame(None, these, **settings)
