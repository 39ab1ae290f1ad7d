"""Thousands of random queries, routed at random, give exactly DuckDB's bag of rows.

A test is a chunk of seeds. A failure prints the seed and the question:

    make_case(seed)                       # the query, its SQL text and its tables
    drive(..., Random(f"drive {seed}"))   # the same cuts, the same interleaving, the same routing
"""

from __future__ import annotations

import contextlib
import random

import pytest

from eddies.core.eddy import Eddy
from eddies.core.exactly_once import NoRule
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.policies import POLICIES
from eddies.errors import UnsupportedError
from eddies.hosts import local
from tests.support.bag import assert_same_bag, bag_of, compare
from tests.support.driving import BATCH_ROWS, Oracle, drive, random_options
from tests.support.random_queries import SHAPES, Case, aggregated, make_case
from tests.support.small import drained

CHUNK = 60
N_CHUNKS = 32


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def seeds(chunk: int, first: int = 0) -> range:
    return range(first + chunk * CHUNK, first + (chunk + 1) * CHUNK)


def check(case: Case, oracle: Oracle, **options: object) -> int:
    case, expected = oracle.bounded(case)
    rng = random.Random(f"drive {case.seed}")
    found = drive(case.query, case.tables, rng, random_options(rng, **options))
    assert_same_bag(found, expected, case)
    return expected.num_rows


@pytest.mark.parametrize("chunk", range(N_CHUNKS))
def test_random_routing_of_random_queries(chunk: int, oracle: Oracle) -> None:
    n_rows = [check(make_case(seed), oracle) for seed in seeds(chunk)]
    assert sum(n > 0 for n in n_rows) > CHUNK / 4, "most answers are empty: the test proves little"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_join_graph(shape: str, oracle: Oracle) -> None:
    n_rows = [check(make_case(seed, shape), oracle) for seed in seeds(0, first=100_000)]
    assert sum(n > 0 for n in n_rows) > CHUNK / 5


@pytest.mark.parametrize("chunk", range(6))
def test_aggregates_of_random_joins(chunk: int, oracle: Oracle) -> None:
    for seed in seeds(chunk, first=200_000):
        joined, _ = oracle.bounded(make_case(seed))
        case = aggregated(joined)
        rng = random.Random(f"drive {seed}")
        options = random_options(rng, threads=rng.choice((1, 1, 2)))
        found = drive(case.query, case.tables, rng, options)
        assert_same_bag(found, oracle.answer(case.sql, case.tables), case)


@pytest.mark.parametrize("chunk", range(3))
def test_without_stamps_almost_every_answer_has_duplicates(chunk: int, oracle: Oracle) -> None:
    """The negative control: what the rest of this file proves would be false without the rule."""
    n_answers = n_duplicated = 0
    for seed in seeds(chunk, first=300_000):
        case, expected = oracle.bounded(make_case(seed))
        if not 0 < expected.num_rows <= 300:
            continue
        rng = random.Random(f"drive {seed}")
        options = random_options(rng)
        found = drive(case.query, case.tables, rng, options, race=True, stamps=NoRule())
        difference = compare(bag_of(found), bag_of(expected))
        assert not difference.missing, case
        assert not difference.extra, case
        n_answers += 1
        n_duplicated += bool(difference.duplicated)
        rng = random.Random(f"drive {seed}")
        found = drive(case.query, case.tables, rng, random_options(rng), race=True)
        assert_same_bag(found, expected, case)
    assert n_answers > CHUNK / 4
    assert n_duplicated >= 0.95 * n_answers


@pytest.mark.parametrize("chunk", range(3))
def test_two_threads(chunk: int, oracle: Oracle) -> None:
    """Relations one after the other, so that the last one streams by and threads share the work."""
    for seed in seeds(chunk, first=400_000):
        case, expected = oracle.bounded(make_case(seed))
        rng = random.Random(f"drive {seed}")
        eddy = Eddy(case.query, random_options(rng, threads=2, batch_rows=rng.choice((1, 2, 7))))
        for name, table in case.tables.items():
            for batch in table.to_batches(max_chunksize=rng.choice((3, 1000))):
                eddy.push(name, batch)
            eddy.end(name)
        assert_same_bag(drained(eddy), expected, case)


@pytest.mark.parametrize("chunk", range(4))
def test_joins_that_keep_intermediate_results(chunk: int, oracle: Oracle) -> None:
    n_run = 0
    for seed in seeds(chunk, first=500_000):
        with contextlib.suppress(UnsupportedError):  # equalities do not connect all sources
            check(make_case(seed), oracle, state="joins")
            n_run += 1
    assert n_run > CHUNK / 2


def reversed_order(case: Case) -> tuple[str, ...]:
    """All modules of the query, the last one first."""
    names = [source.name for source in case.query.sources]
    names += [optional.name for optional in make_graph(case.query).optionals]
    return tuple(reversed(names))


@pytest.mark.parametrize("batch_rows", BATCH_ROWS)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_at_every_batch_size(policy: str, batch_rows: int, oracle: Oracle) -> None:
    for shape in SHAPES:
        case, expected = oracle.bounded(make_case(600_001, shape))
        order = reversed_order(case) if policy == "static" else ()
        rng = random.Random(f"drive {shape}")
        options = random_options(rng, policy=policy, order=order, batch_rows=batch_rows)
        assert_same_bag(drive(case.query, case.tables, rng, options), expected, case)


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("chunk", range(2))
def test_the_local_host(chunk: int, interleave: bool, oracle: Oracle) -> None:
    for seed in seeds(chunk, first=700_000):
        case, expected = oracle.bounded(make_case(seed))
        options = Options(batch_rows=3)
        found = local.run(case.query, case.tables, options, interleave=interleave).table()
        assert_same_bag(found, expected, case)
