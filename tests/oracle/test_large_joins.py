"""Joins too large for the smallest table, buffer or batch: growth, misses, skew, pauses, threads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.options import Options
from eddies.hosts import local
from eddies.sql import plan
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.small import make_query

N = 60_000


def tables_of(seed: int, kind: str) -> dict[str, pa.Table]:
    """Three relations: a meets b mostly in vain, and c with a few very frequent keys."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 5 * N, (2, N))
    columns = {
        "a": {"x": x, "y": rng.integers(0, N, N), "id": np.arange(N)},
        "b": {"x": y, "id": np.arange(N)},
        "c": {"y": rng.zipf(1.5, 4000) % N, "id": np.arange(4000)},
    }
    tables = {name: pa.table(values) for name, values in columns.items()}
    if kind == "text":
        return {
            name: pa.table(
                {
                    n: [f"key {v}" for v in t[n].to_pylist()] if n != "id" else t[n]
                    for n in t.column_names
                }
            )
            for name, t in tables.items()
        }
    return tables


@pytest.mark.parametrize("kind", ["int", "text"])
@pytest.mark.parametrize(
    ("batch_rows", "threads", "interleave"),
    [(1009, 1, True), (20_000, 2, False), (65_536, 1, True)],
)
def test_three_relations(kind: str, batch_rows: int, threads: int, interleave: bool) -> None:
    tables = tables_of(batch_rows, kind)
    query = make_query(tables, ["a.x = b.x", "a.y = c.y"], output=["a.id", "b.id", "c.id"])
    sql = "SELECT a.id, b.id, c.id FROM a, b, c WHERE a.x = b.x AND a.y = c.y"
    options = Options(batch_rows=batch_rows, threads=threads)
    found = local.run(query, tables, options, interleave=interleave).table()
    expected = Oracle().answer(sql, tables)
    assert expected.num_rows > 100
    assert_same_bag(found, expected)


def test_threads_share_rows_that_are_all_stored() -> None:
    """A relation joined with itself is stored, but once it is complete nobody builds any more."""
    rng = np.random.default_rng(11)
    edges = pa.table({"a": rng.integers(0, 2000, 20_000), "b": rng.integers(0, 2000, 20_000)})
    text = (
        "SELECT e1.a, e2.a AS m, e3.a AS z FROM e AS e1, e AS e2, e AS e3 "
        "WHERE e1.b = e2.a AND e2.b = e3.a AND e3.b = e1.a"
    )
    query = plan(text, {"e": edges.schema}).blocks[0].query
    run = local.run(query, {"e": edges}, Options(threads=2, batch_rows=1000))
    found = run.table()
    assert_same_bag(found, Oracle().answer(text, {"e": edges}))
    assert all(router.n_driver_rows > 0 for router in run.eddy._routers)


@pytest.mark.parametrize("interleave", [False, True])
def test_a_result_much_larger_than_its_inputs(interleave: bool) -> None:
    """Chains hundreds of rows long, followed in many pauses, two joins deep."""
    rng = np.random.default_rng(7)
    tables = {
        name: pa.table({"k": rng.integers(0, 12, n), "id": np.arange(n)})
        for name, n in (("a", 300), ("b", 400), ("c", 60))
    }
    query = make_query(tables, ["a.k = b.k", "b.k = c.k"], output=["a.id", "b.id", "c.id"])
    options = Options(batch_rows=64)
    found = local.run(query, tables, options, interleave=interleave).table()
    sql = "SELECT a.id, b.id, c.id FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
    assert_same_bag(found, Oracle().answer(sql, tables))
    assert found.num_rows > 40_000
