"""JSON over HTTP, from a real server on loopback."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddies
from eddies.errors import SourceError
from eddies.hosts import local
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.json_server import JsonServer, serve

USERS = pa.table(
    {"uid": pa.array(range(35)), "name": [f"name, no. {i} / x" for i in range(34)] + [None]}
)
ORDERS = pa.table({"id": pa.array(range(100)), "user": pa.array([i % 40 for i in range(100)])})
TEXT = "SELECT o.id, u.name FROM orders o, users u WHERE o.user = u.uid"


@pytest.fixture
def server():
    with serve(JsonServer(USERS, "uid")) as running:
        yield running


def rows(source) -> pa.Table:
    batches = [b for split in source.splits() for b in split.read(source.schema.names)]
    return pa.Table.from_batches(batches, schema=source.schema)


def expected() -> pa.Table:
    return Oracle().answer(TEXT, {"orders": ORDERS, "users": USERS})


def test_counted_pages(server):
    source = eddies.read.http(f"{server.url}/pages", page="page", backoff_s=0.01)
    assert source.schema == USERS.schema
    assert_same_bag(rows(source), USERS)


def test_linked_pages(server):
    source = eddies.read.http(f"{server.url}/linked", rows="items", next="next")
    assert_same_bag(rows(source), USERS)


def test_columns_in_the_order_asked_for(server):
    source = eddies.read.http(f"{server.url}/pages", page="page")
    (split,) = source.splits()
    batch = next(split.read(["name"]))
    assert batch.schema.names == ["name"]


def test_a_page_that_fails_is_asked_for_again(server):
    server.fails = {2, 3}
    source = eddies.read.http(
        f"{server.url}/pages", page="page", schema=USERS.schema, backoff_s=0.001
    )
    assert_same_bag(rows(source), USERS)


def test_a_server_that_dies_is_a_clear_error(server):
    server.dies_after = 2
    source = eddies.read.http(
        f"{server.url}/pages", page="page", schema=USERS.schema, backoff_s=0.001, retries=2
    )
    with pytest.raises(SourceError, match=r"GET http://127.*/pages failed 3 times"):
        rows(source)


def test_look_ups_by_url(server):
    users = eddies.read.http(schema=USERS.schema, lookup=server.url + "/rows/{uid}", on=["uid"])
    assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())
    assert server.n_requests == 40, "each key once"


def test_look_ups_keep_to_their_limit(server):
    server.delay_s = 0.01
    users = eddies.read.http(
        schema=USERS.schema, lookup=server.url + "/rows/{uid}", on=["uid"], concurrency=3
    )
    local.sql(TEXT, {"orders": ORDERS, "users": users})
    assert server.most_busy == 3


def test_pages_and_look_ups_together(server):
    users = eddies.read.http(
        f"{server.url}/pages", page="page", lookup=server.url + "/rows/{uid}", on=["uid"]
    )
    assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())


def test_a_mirror_that_dies_in_mid_query_changes_nothing(server):
    with serve(JsonServer(USERS, "uid", page_rows=7)) as other:
        server.dies_after = 3
        first = eddies.read.http(
            f"{server.url}/pages", page="page", schema=USERS.schema, retries=1, backoff_s=0.001
        )
        second = eddies.read.http(f"{other.url}/pages", page="page", schema=USERS.schema)
        for users in (first.mirror(second), second.mirror(first)):
            assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())


def test_without_a_mirror_it_is_a_clear_error(server):
    server.dies_after = 1
    users = eddies.read.http(
        f"{server.url}/pages", page="page", schema=USERS.schema, retries=1, backoff_s=0.001
    ).keyed("uid")
    with pytest.raises(SourceError, match="no scan of 'users' is left"):
        local.sql(TEXT, {"orders": ORDERS, "users": users})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://x"}, "not an HTTP address"),
        ({"lookup": "http://x/{id}", "on": ["uid"], "schema": USERS.schema}, "in braces"),
        ({"lookup": "http://x/{uid}", "on": ["uid"]}, "schema="),
        ({"lookup": "http://x/{no}", "on": ["no"], "schema": USERS.schema}, "no column 'no'"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(SourceError, match=message):
        eddies.read.http(**settings)


def test_answers_that_are_no_rows_are_refused(server):
    with pytest.raises(SourceError, match="list of objects"):
        eddies.read.http(f"{server.url}/text")
    with pytest.raises(SourceError, match="no field 'things'"):
        eddies.read.http(f"{server.url}/linked", rows="things", next="next")
    with pytest.raises(SourceError, match="there is nothing at"):
        eddies.read.http(f"{server.url}/nowhere")
