"""PostgreSQL and HTTP as streams, against real servers on loopback."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from itertools import chain, pairwise, repeat

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eddies.core.expr import Call, Column, Literal
from eddies.errors import SourceError
from eddies.sources import read
from eddies.sources.source import Source
from eddies.sources.streams import Stream, stream_of
from tests.support.bag import assert_same_bag
from tests.support.json_server import JsonServer, serve
from tests.support.postgres_server import PostgresServer
from tests.support.reading_streams import offsets_of, read_between, read_stream, revived
from tests.support.source_rows import read_all

N_ROWS = 1200
TABLE = pa.table(
    {
        "id": pa.array(range(N_ROWS), pa.int64()),
        "name": [f"n{i % 97}" for i in range(N_ROWS)],
        "day": [
            datetime.date(2020, 1, 1) + datetime.timedelta(days=i % 300) for i in range(N_ROWS)
        ],
    }
)
PLAIN = pa.table({"id": pa.array(range(95), pa.int64()), "t": [f"t{i}" for i in range(95)]})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    running = PostgresServer()
    running.load("one_key", TABLE, "id")
    running.load("two_keys", TABLE, "name, day, id")
    running.load("no_key", TABLE)
    running.run("CREATE VIEW seen AS SELECT * FROM one_key WHERE id < 700")
    running.run("CREATE TABLE nothing (id bigint PRIMARY KEY)", "CREATE TABLE void (id bigint)")
    running.run("DELETE FROM no_key WHERE id BETWEEN 300 AND 900")  # holes: blocks without rows
    yield running
    running.stop()


def postgres(server: PostgresServer, table: str) -> Source:
    return read.postgres(server.dsn, table, page_rows=100, timeout_s=10)


@pytest.mark.parametrize("table", ["one_key", "two_keys", "no_key", "seen"])
@given(st.lists(st.integers(1, 900), max_size=5))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_postgres_gives_the_same_bag_at_any_cut(
    server: PostgresServer, table: str, sizes: list[int]
) -> None:
    source = postgres(server, table)
    assert_same_bag(read_stream(stream_of(source), chain(sizes, repeat(400))), read_all(source))


@pytest.mark.parametrize("table", ["one_key", "two_keys", "no_key"])
def test_postgres_goes_on_from_any_offset(server: PostgresServer, table: str) -> None:
    stream = stream_of(postgres(server, table))
    offsets = list(offsets_of(stream, repeat(350)))
    assert len(offsets) > 2
    for cut in range(1, len(offsets)):
        other = revived(stream)
        pieces = [read_between(other, start, end) for start, end in pairwise(offsets[: cut + 1])]
        rest = list(offsets_of(other, repeat(500), offsets[cut]))
        pieces += [read_between(other, start, end) for start, end in pairwise(rest)]
        assert_same_bag(pa.concat_tables(pieces), read_all(postgres(server, table)))


@pytest.mark.parametrize(
    ("table", "most_rows"), [("one_key", 90), ("two_keys", 90), ("no_key", 300)]
)
def test_postgres_keeps_to_the_rows_of_a_step(
    server: PostgresServer, table: str, most_rows: int
) -> None:
    stream = stream_of(postgres(server, table))
    for start, end in pairwise(offsets_of(stream, repeat(most_rows))):
        n_rows = read_between(stream, start, end).num_rows
        assert n_rows == end["rows"] - start["rows"] <= most_rows


@pytest.mark.parametrize("table", ["nothing", "void"])
def test_an_empty_postgres_table_ends_at_once(server: PostgresServer, table: str) -> None:
    stream = stream_of(postgres(server, table))
    start, end = offsets_of(stream)
    assert stream.is_end(end)
    assert stream.parts(start, end) == []


def test_predicates_are_asked_of_postgres(server: PostgresServer) -> None:
    where = (Call("lt", (Column("x", "id"), Literal(150, pa.int64()))),)
    stream = stream_of(postgres(server, "one_key"), where=where)
    assert_same_bag(read_stream(stream, repeat(100)), TABLE.slice(0, 150))


def test_postgres_that_restarts_costs_nothing_but_time(server: PostgresServer) -> None:
    stream = stream_of(postgres(server, "one_key"))
    offsets = offsets_of(stream, repeat(300))
    pieces, last = [], next(offsets)
    for number, offset in enumerate(offsets):
        if number == 1:
            server.restart()
        pieces.append(read_between(stream, last, offset))
        last = offset
    assert_same_bag(pa.concat_tables(pieces), TABLE)


@pytest.fixture
def pages() -> Iterator[JsonServer]:
    with serve(JsonServer(PLAIN, "id", page_rows=10)) as running:
        yield running


def linked(pages: JsonServer, **more: float) -> Source:
    return read.http(f"{pages.url}/linked", rows="items", next="next", schema=PLAIN.schema, **more)


def counted(pages: JsonServer, **more: float) -> Source:
    return read.http(f"{pages.url}/pages", page="page", schema=PLAIN.schema, **more)


KINDS = {"linked": linked, "counted": counted}


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.integers(1, 40), max_size=6))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_http_gives_the_same_bag_at_any_cut(pages: JsonServer, kind: str, sizes: list[int]) -> None:
    stream = stream_of(KINDS[kind](pages))
    assert_same_bag(read_stream(stream, chain(sizes, repeat(25))), PLAIN)


@pytest.mark.parametrize("kind", KINDS)
def test_http_goes_on_from_any_offset(pages: JsonServer, kind: str) -> None:
    stream = stream_of(KINDS[kind](pages))
    offsets = list(offsets_of(stream, repeat(17)))
    for cut in range(1, len(offsets)):
        other = revived(stream)
        pieces = [read_between(other, start, end) for start, end in pairwise(offsets[: cut + 1])]
        rest = list(offsets_of(other, repeat(23), offsets[cut]))
        pieces += [read_between(other, start, end) for start, end in pairwise(rest)]
        assert_same_bag(pa.concat_tables(pieces), PLAIN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_fetched_once(pages: JsonServer, kind: str) -> None:
    read_stream(stream_of(KINDS[kind](pages)), repeat(7))
    assert pages.n_requests == {"linked": 10, "counted": 11}[kind]


def test_http_columns_are_read_as_asked(pages: JsonServer) -> None:
    found = read_stream(stream_of(linked(pages), ["t"]), repeat(30), ["t"])
    assert_same_bag(found, PLAIN.select(["t"]))


def test_streams_can_be_narrowed_later(server: PostgresServer, pages: JsonServer) -> None:
    for source in (
        linked(pages),
        read.simulated(linked(pages)),
        linked(pages).mirror(counted(pages)),
    ):
        stream = revived(stream_of(source).narrowed(["t"]))
        assert stream.schema.names == ["t"]
        assert_same_bag(read_stream(stream, repeat(30)), PLAIN.select(["t"]))
    stream = stream_of(postgres(server, "one_key")).narrowed(["name"])
    assert_same_bag(read_stream(stream, repeat(500), ["name"]), TABLE.select(["name"]))


def test_a_page_that_hangs_keeps_nobody_waiting(pages: JsonServer) -> None:
    stream = stream_of(linked(pages))
    pages.delay_s = 0.5
    start = stream.start()
    began_s = time.monotonic()
    n_asked = 0
    while stream.latest(start, 10) == start:
        n_asked += 1
        time.sleep(0.01)
    assert n_asked > 10  # it was asked all the time, and never waited
    assert time.monotonic() - began_s > 0.4


def test_a_server_that_is_away_for_a_moment_is_asked_again(pages: JsonServer) -> None:
    stream = stream_of(linked(pages, backoff_s=0.01))
    pages.fails = {2, 3, 5}
    assert_same_bag(read_stream(stream, repeat(10)), PLAIN)


def test_a_server_that_dies_is_named(pages: JsonServer) -> None:
    stream = stream_of(linked(pages, backoff_s=0.01, retries=2))
    pages.dies_after = 3
    with pytest.raises(SourceError, match=r"GET http://127.0.0.1:\d+/linked failed 3 times"):
        list(offsets_of(stream, repeat(10)))


def test_pages_that_changed_are_not_read_as_if_they_had_not(pages: JsonServer) -> None:
    stream = stream_of(linked(pages))
    offsets = list(offsets_of(stream, repeat(25)))
    pages.rows = pages.rows[:35]
    other: Stream = revived(stream)
    with pytest.raises(SourceError, match="answers with fewer rows than before"):
        other.parts(offsets[1], offsets[2])
