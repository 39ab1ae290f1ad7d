"""Arrivals: what is due when, in which pieces, and how sources fail."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from eddies.errors import SourceError
from eddies.sources import Arrivals, Batches, InMemory, Simulated, arrivals_of
from eddies.sources.simulated import NEVER_NS

TABLE = pa.table({"x": range(10)})
SECOND = 10**9


def schedule(source: Arrivals, most: int = 100) -> list[tuple[float, int]]:
    """(due in seconds, rows) of every batch."""
    found = []
    while (due := source.due_ns()) is not None and len(found) < most:
        found.append((due / SECOND, source.take().num_rows))
    return found


def rows_of(source: Arrivals) -> list[int]:
    found: list[int] = []
    take_all(source, found)
    return found


def take_all(source: Arrivals, found: list[int]) -> None:
    while source.due_ns() is not None:
        found += source.take().column(0).to_pylist()


def test_a_table_is_due_at_once_in_pieces() -> None:
    source = InMemory(TABLE, 4)
    assert source.n_rows == 10
    assert schedule(source) == [(0, 4), (0, 4), (0, 2)]
    assert schedule(InMemory(TABLE.slice(0, 0), 4)) in ([], [(0, 0)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: TABLE.combine_chunks().to_batches()[0],
        lambda: TABLE.to_reader(max_chunksize=3),
        lambda: iter(TABLE.to_batches(max_chunksize=3)),
        lambda: TABLE.to_batches(max_chunksize=3),
        lambda: Simulated(TABLE, batch_rows=3),
    ],
)
def test_every_kind_of_source_delivers_all_rows_in_order(make: object) -> None:
    source = arrivals_of("t", make(), 4)  # type: ignore[operator]
    assert source.schema == TABLE.schema
    assert rows_of(source) == list(range(10))


@pytest.mark.parametrize("wrong", [5, {"x": 1}, None, b"bytes"])
def test_what_is_not_a_source_is_refused(wrong: object) -> None:
    with pytest.raises(SourceError, match=r"source 't' is a .*expected a pyarrow Table"):
        arrivals_of("t", wrong, 4)


def test_an_iterator_of_other_things_is_refused() -> None:
    with pytest.raises(SourceError, match="'t' delivered a int, not a RecordBatch"):
        Batches("t", [1, 2])  # type: ignore[list-item]


def test_an_empty_iterator_has_no_columns() -> None:
    with pytest.raises(SourceError, match="'t' is an empty iterator"):
        Batches("t", [])


def test_a_reader_without_batches_has_columns() -> None:
    source = arrivals_of("t", TABLE.slice(0, 0).to_reader(), 4)
    assert source.schema == TABLE.schema
    assert rows_of(source) == []


def test_an_iterator_that_raises() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise OSError("disk on fire")

    source = Batches("t", broken())
    with pytest.raises(SourceError, match="'t' failed: disk on fire"):
        rows_of(source)


def test_an_iterator_is_asked_only_when_the_next_batch_is_wanted() -> None:
    asked: list[int] = []

    def live() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(TABLE.to_batches(max_chunksize=4)):
            asked.append(number)
            yield batch

    for source, first in (
        (Batches("t", live()), [0]),  # its columns are in its first batch
        (arrivals_of("t", pa.RecordBatchReader.from_batches(TABLE.schema, live()), 4), []),
    ):
        assert asked == first
        assert source.take().num_rows == 4
        assert asked == [0]
        assert source.due_ns() == 0
        assert asked == [0, 1]
        assert rows_of(source) == list(range(4, 10))
        asked.clear()


def test_a_steady_source() -> None:
    source = Simulated(TABLE, rows_per_s=2, delay_s=10, batch_rows=4)
    assert schedule(source) == [(12, 4), (14, 4), (15, 2)]


def test_bursts_with_pauses() -> None:
    source = Simulated(TABLE, burst_rows=4, pauses_s=[1, 3])
    assert schedule(source) == [(0, 4), (1, 4), (4, 2)]


def test_one_long_gap() -> None:
    source = Simulated(TABLE, stall_after=7, stall_s=30)
    assert schedule(source) == [(0, 7), (30, 3)]


def test_a_stall_for_ever() -> None:
    source = Simulated(TABLE, stall_after=7)
    assert source.take().num_rows == 7
    assert source.due_ns() == NEVER_NS


@pytest.mark.parametrize("fail_after", [0, 3, 10])
def test_failing_after_some_rows(fail_after: int) -> None:
    source = Simulated(TABLE, name="t", fail_after=fail_after)
    found: list[int] = []
    with pytest.raises(SourceError, match=f"'t' failed after {fail_after} rows"):
        take_all(source, found)
    assert found == list(range(fail_after))


def test_moments_never_fall() -> None:
    source = Simulated(TABLE, batch_rows=1, rows_per_s=3, burst_rows=2, pauses_s=[0.5] * 9)
    moments = [due for due, _ in schedule(source)]
    assert moments == sorted(moments)
    assert len(moments) == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_rows": 0}, "batch_rows of source 't' must be at least 1, not 0"),
        ({"burst_rows": 0}, "burst_rows of source 't' must be at least 1, not 0"),
        ({"rows_per_s": 0}, "rows_per_s of source 't' must be above 0, not 0"),
        ({"rows_per_s": -2.5}, "rows_per_s of source 't' must be above 0, not -2.5"),
        ({"rows_per_s": float("nan")}, "rows_per_s"),
        ({"delay_s": -1}, "delay_s of source 't' must be at least 0, not -1"),
        ({"stall_after": 3, "stall_s": -0.5}, "stall_s"),
        ({"stall_after": -3}, "stall_after"),
        ({"fail_after": -3}, "fail_after"),
        (
            {"burst_rows": 2, "pauses_s": [1, -1]},
            "pauses_s of source 't' must be at least 0, not -1",
        ),
    ],
)
def test_impossible_schedules_are_refused_by_name(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        rows_of(Simulated(TABLE, name="t", **settings))  # type: ignore[arg-type]
