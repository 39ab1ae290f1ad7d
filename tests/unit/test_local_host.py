"""The local host: order of reading, waiting on a clock, stalls, failures, and SQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from eddies.core.clock import VirtualClock
from eddies.core.events import Built, SourceEnded
from eddies.core.expr import Call
from eddies.core.options import Options
from eddies.core.query import Selection, UserFunction
from eddies.errors import EddiesError, SourceError, UnsupportedError
from eddies.hosts import local
from eddies.sources import Simulated
from tests.support.bag import assert_same_bag
from tests.support.small import Recorder, col, make_query

BIG = pa.table({"x": [i % 5 for i in range(100)], "n": range(100)})
SMALL = pa.table({"y": [1, 2, 2], "m": [0, 1, 2]})
TABLES = {"big": BIG, "small": SMALL}
QUERY = make_query(TABLES, ["big.x = small.y"])
SQL = "SELECT big.x AS big_x, n AS big_n, y AS small_y, m AS small_m FROM big, small WHERE x = y"


def expected() -> pa.Table:
    return local.run(QUERY, TABLES).table()


def generator(table: pa.Table, rows: int = 7) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=rows)


def test_the_answer() -> None:
    assert expected().num_rows == 20 + 2 * 20


def test_the_largest_source_is_read_last_and_not_stored() -> None:
    log = Recorder()
    local.run(QUERY, TABLES, events=log).table()
    assert [event.source for event in log.of(SourceEnded)] == ["small", "big"]
    assert {event.source: event.stored for event in log.of(Built)} == {"small": True, "big": False}


def test_a_source_of_unknown_size_is_read_after_the_known_ones_in_their_order() -> None:
    log = Recorder()
    tables = {"stream": SMALL, "large": BIG, "small": SMALL}
    query = make_query(tables, ["stream.y = large.x", "large.x = small.y"])
    local.run(query, {**tables, "stream": generator(SMALL)}, events=log).table()
    assert [event.source for event in log.of(SourceEnded)] == ["small", "large", "stream"]


def test_interleaved_sources_take_turns() -> None:
    log = Recorder()
    options = Options(batch_rows=2)
    found = local.run(QUERY, TABLES, options, events=log, interleave=True).table()
    assert [event.source for event in log.of(Built)][:4] == ["big", "small", "big", "small"]
    assert_same_bag(found, expected())


@pytest.mark.parametrize("interleave", [False, True])
def test_every_kind_of_source(interleave: bool) -> None:
    for source in (
        BIG,
        BIG.combine_chunks().to_batches()[0],
        BIG.to_reader(max_chunksize=9),
        generator(BIG),
        BIG.to_batches(max_chunksize=3),
        Simulated(BIG, batch_rows=30),
    ):
        found = local.run(QUERY, {"big": source, "small": SMALL}, interleave=interleave).table()
        assert_same_bag(found, expected(), type(source))


def test_a_source_without_rows() -> None:
    for empty in (BIG.slice(0, 0), BIG.slice(0, 0).to_reader(), Simulated(BIG.slice(0, 0))):
        assert local.run(QUERY, {"big": empty, "small": SMALL}).table().num_rows == 0


def test_a_missing_table_is_named() -> None:
    with pytest.raises(SourceError, match="reads 'small', but the tables given are: big"):
        local.run(QUERY, {"big": BIG})


def test_slow_sources_take_virtual_time_only() -> None:
    clock = VirtualClock()
    slow = {
        "big": Simulated(BIG, rows_per_s=10, batch_rows=10),
        "small": Simulated(SMALL, delay_s=3600),
    }
    run = local.run(QUERY, slow, clock=clock, stall_timeout_s=7200)
    assert_same_bag(run.table(), expected())
    assert clock.now_ns() == 3600 * 10**9


def test_results_flow_while_a_source_is_late() -> None:
    clock = VirtualClock()
    slow = {"big": Simulated(BIG, batch_rows=10, rows_per_s=10), "small": SMALL}
    moments = []
    for _ in local.run(QUERY, slow, clock=clock):
        moments.append(clock.now_ns() / 1e9)
    assert moments == [float(second) for second in range(1, 11)]


@pytest.mark.parametrize("stall_s", [None, 1000.0])
def test_a_stall_ends_in_an_error_that_names_the_source(stall_s: float | None) -> None:
    clock = VirtualClock()
    tables = {"big": Simulated(BIG, stall_after=50, stall_s=stall_s), "small": SMALL}
    run = local.run(QUERY, tables, clock=clock, stall_timeout_s=60)
    batches = iter(run)
    assert next(batches).num_rows == 30  # what came before the stall is answered
    with pytest.raises(
        SourceError, match=r"nothing came from big for 60 s; the answer is incomplete"
    ):
        list(batches)
    assert clock.now_ns() == 60 * 10**9


def test_a_stall_that_ends_in_time_changes_nothing() -> None:
    tables = {"big": Simulated(BIG, stall_after=50, stall_s=30), "small": SMALL}
    found = local.run(QUERY, tables, clock=VirtualClock(), stall_timeout_s=60).table()
    assert_same_bag(found, expected())


def test_a_source_that_fails_after_some_rows() -> None:
    tables = {"big": Simulated(BIG, name="big", batch_rows=10, fail_after=25), "small": SMALL}
    with pytest.raises(SourceError, match="'big' failed after 25 rows"):
        local.run(QUERY, tables, clock=VirtualClock()).table()


def test_an_iterator_that_raises_is_named_with_its_cause() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from generator(BIG.slice(0, 7))
        raise ConnectionError("the line is dead")

    with pytest.raises(SourceError, match="source 'big' failed: the line is dead") as failure:
        local.run(QUERY, {"big": broken(), "small": SMALL}).table()
    assert isinstance(failure.value.__cause__, ConnectionError)


def test_input_is_not_read_while_results_wait() -> None:
    """Back-pressure: an input batch makes many result batches; the next is read when they are out."""
    n_read = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal n_read
        for _ in range(20):
            n_read += 1
            yield pa.record_batch({"x": [1] * 100})

    tables = {"small": pa.table({"y": [1] * 1000})}
    query = make_query({**tables, "big": pa.table({"x": [1]})}, ["big.x = small.y"])
    results = iter(local.run(query, {**tables, "big": counted()}, Options(batch_rows=1000)))
    n_rows = 0
    for rows in results:
        n_rows += rows.num_rows
        assert n_read <= n_rows // 100_000 + 2, "one batch is fetched ahead, not more"
    assert n_rows == 20 * 100 * 1000


@pytest.mark.parametrize("threads", [1, 2])
def test_results_of_a_live_iterator_come_before_its_next_batch_is_asked_for(threads: int) -> None:
    n_asked = 0

    def live() -> Iterator[pa.RecordBatch]:
        nonlocal n_asked
        for number in range(9):
            n_asked += 1
            time.sleep(0.03)
            yield pa.record_batch({"x": [1], "n": [number]})

    last = -1
    for rows in local.run(QUERY, {"big": live(), "small": SMALL}, Options(threads=threads)):
        last = max([last, *rows["big_n"].to_pylist()])
        assert n_asked <= last + 1 + 3 * (threads - 1), "threads get what comes in a short time"
    assert n_asked == 9
    assert last == 8


def test_an_error_is_not_swallowed_by_closing() -> None:
    wrong = pa.table({"x": ["one"], "n": [1]})
    with pytest.raises(SourceError, match="column 'x' of 'big' came as string"):
        local.run(QUERY, {"big": wrong, "small": SMALL}).table()


def test_a_run_is_read_once() -> None:
    run = local.run(QUERY, TABLES)
    assert run.table().num_rows == 60
    with pytest.raises(SourceError, match="a run is read once"):
        run.table()
    begun = local.run(QUERY, TABLES)
    next(iter(begun))
    with pytest.raises(SourceError, match="a run is read once"):
        iter(begun)


def test_stopping_early_closes_the_eddy() -> None:
    run = local.run(QUERY, TABLES, Options(batch_rows=1, threads=2))
    batches = iter(run)
    next(batches)
    batches.close()
    assert run.eddy.n_in_flight == 0


def test_every_thread_gets_rows() -> None:
    """A function that waits lets the other thread in, so both must have had a piece."""

    def slow(value: int) -> bool:
        time.sleep(0.001)
        return True

    query = make_query(
        TABLES,
        ["big.x = small.y"],
        selections=(Selection(Call("slow", (col("big.n"),)), expensive=True),),
        functions=(UserFunction("slow", slow, pa.bool_()),),
    )
    run = local.run(query, TABLES, Options(batch_rows=5, threads=2))
    assert_same_bag(run.table(), expected())
    shares = [router.n_driver_rows for router in run.eddy._routers]
    assert sum(shares) == BIG.num_rows
    assert min(shares) > 0


def test_sql() -> None:
    assert_same_bag(local.sql(SQL, TABLES), expected())


def test_sql_over_sources_that_can_be_read_once() -> None:
    """Asking an iterator for its columns takes its first batch: it must not be lost."""
    for source in (generator(BIG), BIG.to_reader(max_chunksize=9), Simulated(BIG)):
        assert_same_bag(local.sql(SQL, {"big": source, "small": SMALL}), expected())


def test_sql_leaves_tables_alone_that_it_does_not_read() -> None:
    def untouched() -> Iterator[pa.RecordBatch]:
        raise AssertionError("nobody asked for this table")
        yield

    tables = {**TABLES, "other": untouched()}
    assert_same_bag(local.sql(SQL, tables), expected())
    assert "stem:small" in local.explain(SQL, tables)
    with pytest.raises(EddiesError, match=r"othr.*other"):
        local.sql("SELECT 1 AS c FROM othr", tables)


@pytest.mark.parametrize(
    ("values", "plain", "literal"),
    [
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string(), "'a'"),
        (pa.array([5, 6, 5]).dictionary_encode(), pa.int64(), "5"),
        (pa.array(["a", "b", "a"], pa.large_string()), pa.string(), "'a'"),
        (pa.array(["a", "b", "a"], pa.string_view()), pa.string(), "'a'"),
        (
            pa.array([Decimal(1), Decimal(2), Decimal(1)], pa.decimal64(5, 2)),
            pa.decimal128(5, 2),
            "1.00",
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_sql_over_columns_in_any_encoding(
    values: pa.Array, plain: pa.DataType, literal: str
) -> None:
    table = pa.table({"k": [0, 1, 2], "v": values})
    tables = {"p": table, "q": table}
    text = f"SELECT p.k, q.v FROM p, q WHERE p.v = q.v AND p.v <= {literal}"
    found = local.sql(text, tables)
    assert found.schema.field("v").type == plain
    assert sorted(found["k"].to_pylist()) == [0, 0, 2, 2]
    assert "stem:q" in local.explain(text, tables)


def test_explain_takes_no_row_out_of_a_reader() -> None:
    reader = BIG.to_reader(max_chunksize=9)
    assert "stem:small" in local.explain(SQL, {"big": reader, "small": SMALL})
    assert reader.read_all().num_rows == BIG.num_rows
    with pytest.raises(SourceError, match="'big' is an iterator, whose columns are unknown"):
        local.explain(SQL, {"big": generator(BIG), "small": SMALL})


def test_sql_aggregates() -> None:
    text = "SELECT y, count(*) AS c, sum(n) AS s FROM big, small WHERE x = y GROUP BY y"
    found = local.sql(text, TABLES)
    assert_same_bag(found, pa.table({"y": [1, 2], "c": [20, 40], "s": [970, 1980]}))


def test_sql_that_needs_more_than_an_eddy_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"local host does not have.*Run it through Spark"):
        local.sql("SELECT x FROM big ORDER BY x", TABLES)
