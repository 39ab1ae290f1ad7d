"""Readings that go on give what a new reading would give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from eddies.core.expr import Expr
from eddies.sources.streams.readings import OpenReadings

TABLE = pa.table({"k": pa.array(range(500), pa.int64()), "x": pa.array(range(500), pa.int32())})


class CountedSplit:
    """A split in ragged batches that counts how often it is opened."""

    n_rows = 500
    n_bytes = 0
    n_opened = 0

    def read(
        self, columns: Sequence[str], where: tuple[Expr, ...] = (), batch_rows: int = 10
    ) -> Iterator[pa.RecordBatch]:
        CountedSplit.n_opened += 1
        for start, stop in ((0, 33), (33, 34), (34, 210), (210, 500)):
            yield from TABLE.slice(start, stop - start).select(list(columns)).to_batches()


def keys(readings: OpenReadings, first: int, stop: int) -> list[int]:
    batches = readings.rows(CountedSplit(), ["k"], first, stop)
    return [key for batch in batches for key in batch.column("k").to_pylist()]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)).map(sorted), max_size=12))
def test_any_ranges_in_any_order_are_right(ranges: list[list[int]]) -> None:
    readings = OpenReadings()
    for first, stop in ranges:
        assert keys(readings, first, stop) == list(range(first, stop))


def test_ranges_that_follow_each_other_open_the_split_once() -> None:
    CountedSplit.n_opened = 0
    readings = OpenReadings()
    for first in range(0, 500, 20):
        assert keys(readings, first, first + 20) == list(range(first, first + 20))
    assert CountedSplit.n_opened == 1
    assert keys(readings, 40, 60) == list(range(40, 60))
    assert CountedSplit.n_opened == 2


def test_a_reading_that_was_left_in_the_middle_is_not_gone_on_with() -> None:
    readings = OpenReadings()
    batches = readings.rows(CountedSplit(), ["k"], 0, 200)
    next(batches)
    batches.close()
    assert keys(readings, 30, 60) == list(range(30, 60))


def test_other_columns_are_another_reading() -> None:
    readings = OpenReadings()
    assert keys(readings, 0, 10) == list(range(10))
    (batch,) = readings.rows(CountedSplit(), ["x"], 5, 8)
    assert batch.column("x").to_pylist() == [5, 6, 7]


def test_few_readings_stay_open() -> None:
    CountedSplit.n_opened = 0
    readings = OpenReadings(most_open=1)
    for columns in (["k"], ["x"], ["k"]):
        list(readings.rows(CountedSplit(), columns, 0, 10))
    assert CountedSplit.n_opened == 3
