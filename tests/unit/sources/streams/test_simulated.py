"""Simulated streams under a clock that the test moves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddies
from eddies.errors import SourceError
from eddies.hosts import local
from eddies.sources import is_source, read
from eddies.sources.retries import Patience
from eddies.sources.streams import Offset, stream_of
from eddies.sources.streams.patient import PatientStream
from eddies.sources.streams.schedule import Schedule
from eddies.sources.streams.scheduled import SimulatedStream
from eddies.sources.streams.tables import TableStream
from tests.support.bag import assert_same_bag
from tests.support.reading_streams import read_between, read_stream, revived

TABLE = pa.table({"k": pa.array(range(1000), pa.int64())})
MANY = 1_000_000


class Clock:
    """A wall clock that stands still."""

    moment_s = 1_000_000.0  # of the class: a stream that was pickled sees the same clock

    def __call__(self) -> float:
        return Clock.moment_s


@pytest.fixture(autouse=True)
def clock() -> Clock:
    Clock.moment_s = 1_000_000.0
    return Clock()


def simulated(clock: Clock, **settings: object) -> SimulatedStream:
    return SimulatedStream(TableStream(TABLE), Schedule(**settings), clock)  # type: ignore[arg-type]


def rows_at(stream: SimulatedStream, offset: Offset, elapsed_s: float) -> int:
    Clock.moment_s = 1_000_000.0 + elapsed_s
    return int(stream.latest(offset, MANY)["rows"])


def test_rows_come_at_their_rate_after_the_delay(clock: Clock) -> None:
    stream = simulated(clock, rows_per_s=10, delay_s=5)
    start = stream.start()
    rows = [rows_at(stream, start, at) for at in (0, 4.9, 5.05, 5.15, 6.05, 104.85, 104.95, 105.0)]
    assert rows == [0, 0, 0, 1, 10, 998, 999, 1000]
    assert stream.is_end(stream.latest(start, MANY))


def test_without_a_rate_all_come_after_the_delay(clock: Clock) -> None:
    stream = simulated(clock, delay_s=2)
    start = stream.start()
    assert [rows_at(stream, start, at) for at in (1.9, 2.0)] == [0, 1000]


def test_a_stall_holds_rows_back_for_its_time(clock: Clock) -> None:
    stream = simulated(clock, rows_per_s=100, stall_after=300, stall_s=50)
    start = stream.start()
    rows = [rows_at(stream, start, at) for at in (2.0, 3.0, 52.9, 53.015, 54.0, 60.0)]
    assert rows == [200, 300, 300, 301, 400, 1000]


def test_a_stall_may_last_for_ever(clock: Clock) -> None:
    stream = simulated(clock, stall_after=300)
    assert rows_at(stream, stream.start(), 1e9) == 300


def test_bursts_are_apart_by_seeded_pareto_pauses(clock: Clock) -> None:
    schedule = Schedule(burst_rows=10, pause_s=2.0, pause_shape=1.5, seed=7)
    due = np.array([schedule.due_s(n) for n in range(1, 1001)]).reshape(100, 10)
    assert (due == due[:, :1]).all()  # a burst comes at once
    pauses = np.diff(due[:, 0])
    shortest_s = 2.0 * 0.5 / 1.5
    assert pauses.min() >= shortest_s - 1e-9
    assert np.median(pauses) < 2.0 < pauses.max()  # most are short, some are long
    again = Schedule(burst_rows=10, pause_s=2.0, pause_shape=1.5, seed=7)
    other = Schedule(burst_rows=10, pause_s=2.0, pause_shape=1.5, seed=8)
    assert again.due_s(1000) == due[99, 9] != other.due_s(1000)


def test_pauses_have_the_mean_that_was_asked_for() -> None:
    schedule = Schedule(burst_rows=1, pause_s=3.0, pause_shape=4.0)
    assert schedule.due_s(200_001) / 200_000 == pytest.approx(3.0, rel=0.02)


@given(
    st.integers(1, 50),
    st.floats(0.01, 2),
    st.integers(0, 900),
    st.floats(0, 5),
    st.integers(0, 500),
    st.integers(0, 400),
    st.floats(0, 60),
)
def test_what_is_due_is_what_the_moments_say(
    burst_rows: int,
    pause_s: float,
    stall_after: int,
    stall_s: float,
    first: int,
    most_rows: int,
    elapsed_s: float,
) -> None:
    schedule = Schedule(
        rows_per_s=100,
        burst_rows=burst_rows,
        pause_s=pause_s,
        stall_after=stall_after,
        stall_s=stall_s,
    )
    due = [schedule.due_s(n) for n in range(first + 1, first + most_rows + 1)]
    assert due == sorted(due)
    assert schedule.n_due(elapsed_s, first, most_rows) == sum(at <= elapsed_s for at in due)


def test_a_restart_goes_on_with_the_schedule(clock: Clock) -> None:
    stream = simulated(clock, rows_per_s=10)
    start = stream.start()
    Clock.moment_s += 20
    early = stream.latest(start, MANY)
    Clock.moment_s += 30  # meanwhile the query was down
    other = revived(simulated(clock, rows_per_s=10))
    late = other.latest(early, MANY)
    assert (early["rows"], late["rows"]) == (200, 500)
    assert_same_bag(read_between(other, early, late), TABLE.slice(200, 300))


def test_a_repeated_first_epoch_reads_the_same_from_its_new_start(clock: Clock) -> None:
    stream = simulated(clock, rows_per_s=10)
    start = stream.start()
    Clock.moment_s += 20
    end = stream.latest(start, MANY)
    other = revived(stream)
    assert_same_bag(read_between(other, other.start(), end), TABLE.slice(0, 200))


def test_back_pressure_counts_before_the_schedule(clock: Clock) -> None:
    stream = simulated(clock, rows_per_s=10)
    start = stream.start()
    Clock.moment_s += 60
    assert stream.latest(start, 70)["rows"] == 70


def test_an_empty_table_ends_after_the_delay(clock: Clock) -> None:
    stream = SimulatedStream(TableStream(TABLE.slice(0, 0)), Schedule(delay_s=3), clock)
    start = stream.start()
    assert stream.latest(start, MANY) == start
    Clock.moment_s += 3
    assert stream.is_end(stream.latest(start, MANY))


def test_failures_that_pass_are_tried_again_with_growing_pauses(clock: Clock) -> None:
    inner = simulated(clock, fail_after=400, fail_times=3)
    stream = PatientStream(inner, Patience(retries=3, backoff_s=1.0), clock)
    at_400 = stream.latest(stream.start(), MANY)
    assert at_400["rows"] == 400
    quiet = []
    began_s = Clock.moment_s
    while stream.latest(at_400, MANY) == at_400:
        quiet.append(Clock.moment_s - began_s)
        Clock.moment_s += 0.5
    assert quiet[-1] == 6.5  # the pauses are 1, 2 and 4
    assert stream.latest(at_400, MANY)["rows"] == 1000


def test_failures_that_do_not_pass_are_raised_with_the_name(clock: Clock) -> None:
    inner = simulated(clock, fail_after=400)
    stream = PatientStream(inner, Patience(retries=2, backoff_s=1.0), clock)
    at_400 = stream.latest(stream.start(), MANY)
    for _ in range(2):
        assert stream.latest(at_400, MANY) == at_400
        Clock.moment_s += 2.5
    with pytest.raises(SourceError, match=r"simulated Arrow table failed 3 times.* as asked"):
        stream.latest(at_400, MANY)


def test_it_is_the_source_behind_it_where_nothing_streams() -> None:
    source = eddies.read.simulated(TABLE, rows_per_s=1, delay_s=1000)
    assert is_source(source)
    assert (source.schema, source.n_rows) == (TABLE.schema, 1000)
    found = local.sql("SELECT k FROM t WHERE k < 10", {"t": source})
    assert found.num_rows == 10


def test_it_is_read_through_the_clock_of_the_world() -> None:
    source = read.simulated(TABLE, rows_per_s=20_000, burst_rows=100, pause_s=0.001, seed=1)
    assert_same_bag(read_stream(stream_of(source)), TABLE)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rows_per_s": 0}, "rows_per_s must be above 0"),
        ({"burst_rows": 5}, "burst_rows needs pause_s"),
        ({"pause_s": 5.0}, "pause_s needs burst_rows"),
        ({"stall_s": 5.0}, "stall_s needs stall_after"),
        ({"fail_times": 5}, "fail_times needs fail_after"),
        ({"delay_s": -1.0}, "delay_s must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        read.simulated(TABLE, **settings)  # type: ignore[arg-type]
