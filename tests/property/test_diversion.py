"""Rows with heavy keys leave their batch: the same bag, and in a graph with hubs much less work."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core import diversion
from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.policies.random import RandomPolicy
from eddies.core.state import heavy_keys
from tests.support.bag import assert_same_bag, bag_of
from tests.support.driving import Oracle, drive, random_options
from tests.support.random_queries import SHAPES, make_case
from tests.support.small import drained, make_query

N_CASES = 20


@pytest.mark.parametrize("shape", SHAPES)
def test_any_diversion_same_bag(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomPolicy, "diverts", True)
    monkeypatch.setattr(diversion, "FAN_OUT", 0.2)
    monkeypatch.setattr(diversion, "_GAIN", 0.9)
    monkeypatch.setattr(heavy_keys, "_FEWEST_ROWS", 2)
    monkeypatch.setattr(heavy_keys, "_TIMES_USUAL", 0.5)
    oracle = Oracle()
    n_diverted = 0
    for seed in range(N_CASES):
        case, expected = oracle.bounded(make_case(seed, shape, functions=False))
        rng = random.Random(f"diversion {seed}")
        made: list[Eddy] = []
        options = random_options(rng, policy=rng.choice(("random", "auto")))
        found = drive(case.query, case.tables, rng, options, made=made)
        assert_same_bag(found, expected, case)
        n_diverted += sum(router.diversion.n_diverted for router in made[0]._routers)
    if shape in ("cycle", "clique", "star"):
        assert n_diverted > 20


@pytest.mark.parametrize("policy", ["auto", "rank"])
def test_triangles_through_hubs(policy: str) -> None:
    """Only `auto` diverts: it makes a small part of the pairs that an order for all rows makes."""
    degree = 1000
    rng = np.random.default_rng(5)
    a, b = rng.integers(1, 5000, (2, 20_000))
    a[:degree] = 0
    b[degree : 2 * degree] = 0
    edges = pa.table({"a": a, "b": b}).take(pa.array(rng.permutation(len(a))))
    tables = {f"e{i}": edges for i in (1, 2, 3)}
    joins = ["e1.b = e2.a", "e2.b = e3.a", "e3.b = e1.a"]
    query = make_query(tables, joins, output=["e1.a", "e2.a", "e3.a"])
    eddy = Eddy(query, Options(policy=policy, batch_rows=1000))
    for name in ("e1", "e2", "e3"):
        for batch in edges.to_batches(max_chunksize=1000):
            eddy.push(name, batch)
        eddy.end(name)
    found = drained(eddy)
    sql = "SELECT e1.a, e2.a, e3.a FROM e e1, e e2, e e3 WHERE " + " AND ".join(joins)
    assert bag_of(found) == bag_of(Oracle().answer(sql, {"e": edges}))
    n_pairs = degree * degree
    if policy == "auto":
        assert eddy.progress().n_probes < n_pairs / 2
    else:
        assert eddy.progress().n_probes > n_pairs
