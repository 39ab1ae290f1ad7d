"""SteMs over access methods: whatever the access methods, delays, failures and routes, the same bag.

SteM-X9, the paper's theorems 1 and 2: no duplicate, no wrong tuple, every result.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from eddies.core.access import Access
from eddies.core.access.binding import plan_access
from eddies.core.exactly_once import NoRule
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.errors import UnreachableError
from eddies.experiments.access_cases import (
    SHAPES,
    Case,
    drive_access,
    index_on,
    naive_join,
    random_case,
    random_tables,
    run_case,
)
from tests.support.bag import Difference, bag_of, compare
from tests.support.driving import Oracle

N_RUNS = 100
N_SLOW_RUNS = 6000


def one_run(seed: int, oracle: Oracle, **settings: object) -> Difference | None:
    """One random query over random access methods; None if it cannot be reached."""
    ran = run_case(seed, **settings)
    if ran is None:
        return None
    case, found = ran
    return compare(bag_of(found), bag_of(oracle.answer(case.sql, case.tables)))


def many_runs(seeds: range, **settings: object) -> tuple[int, list[tuple[int, Difference]]]:
    """How many of the seeds gave queries that run, and which of those went wrong."""
    oracle = Oracle()
    n_valid, wrong = 0, []
    for seed in seeds:
        difference = one_run(seed, oracle, **settings)
        if difference is not None:
            n_valid += 1
            if difference:
                wrong.append((seed, difference))
    return n_valid, wrong


def test_any_access_any_order_same_bag():
    n_valid, wrong = many_runs(range(N_RUNS))
    assert not wrong, f"seed {wrong[0][0]}: {wrong[0][1]} ({len(wrong)} of {n_valid})"
    assert n_valid > N_RUNS // 3


@pytest.mark.slow
def test_any_access_any_order_same_bag_thousands_of_times():
    seeds = iter(range(1_000_000, 2_000_000, 1000))
    n_valid = 0
    while n_valid < N_SLOW_RUNS:
        first = next(seeds)
        n_more, wrong = many_runs(range(first, first + 1000))
        assert not wrong, f"seed {wrong[0][0]}: {wrong[0][1]} ({len(wrong)} of {n_more})"
        n_valid += n_more


def test_rows_that_are_not_stored_wait_for_their_look_ups():
    """Only r has a scan, so its rows are never stored, and go on when their keys are covered."""
    oracle = Oracle()
    roles = {name: name for name in "rstu"}
    for seed in range(24):
        rng = random.Random(seed)
        tables = random_tables(rng, SHAPES["star"], roles, keyed=False)
        access = {}
        for name, column in (("s", "a"), ("t", "b"), ("u", "c")):
            index = index_on("i", tables[name], (column,), keys_per_lookup=rng.choice((1, 3)))
            access[name] = Access(() if name != "u" or seed % 2 else ("one",), (index,))
        case = Case(SHAPES["star"], roles, tables, access, {})
        options = Options(policy="random", batch_rows=rng.choice((1, 4)), seed=seed)
        found = drive_access(case, rng, options, fail_share=0.2)
        difference = compare(bag_of(found), bag_of(oracle.answer(case.sql, tables)))
        assert not difference, f"seed {seed}: {difference}"


def test_rows_are_stored_while_what_a_constant_asks_for_is_on_its_way():
    """A source asked for at the start is not there yet when the last scan streams by."""
    tables = {
        "r": pa.table({"a": [1, 2, 3]}),
        "s": pa.table({"a": [1, 2, 2], "k": [7, 7, 8]}),
    }
    case = Case(
        ("r.a = s.a",),
        {"r": "r", "s": "s"},
        tables,
        {"s": Access((), (index_on("by_k", tables["s"], ("k",)),))},
        {"s.k": 7},
    )
    expected = bag_of(Oracle().answer(case.sql, tables))
    for seed in range(20):
        rng = random.Random(seed)
        found = drive_access(case, rng, Options(batch_rows=1))
        assert not compare(bag_of(found), expected)


def test_sources_behind_one_that_several_must_bind():
    """s and t together reach r, and only r reaches u: nobody may go to u before r is there."""
    oracle = Oracle()
    roles = {name: name for name in "rstu"}
    for seed in range(24):
        rng = random.Random(seed)
        tables = random_tables(rng, SHAPES["star"], roles, keyed=False)
        access = {
            "r": Access((), (index_on("i", tables["r"], ("a", "b")),)),
            "u": Access((), (index_on("i", tables["u"], ("c",)),)),
        }
        case = Case(SHAPES["star"], roles, tables, access, {})
        found = drive_access(case, rng, Options(policy="random", batch_rows=2, seed=seed))
        difference = compare(bag_of(found), bag_of(oracle.answer(case.sql, tables)))
        assert not difference, f"seed {seed}: {difference}"


def test_without_stamps_results_come_twice():
    """The rule is needed: without it the same runs give duplicates."""
    _, wrong = many_runs(range(12), stamps=NoRule())
    assert any(difference.duplicated for _, difference in wrong)


def test_without_probe_completion_cyclic_index_queries_give_duplicates():
    """SteM-37: bounced rows that go on elsewhere find the same results by another way round."""
    oracle = Oracle()
    n_wrong = 0
    for completes_probes in (True, False):
        for seed in range(60):
            rng = random.Random(seed)
            roles = {name: name for name in "rst"}
            tables = random_tables(rng, SHAPES["triangle"], roles, keyed=False)
            indexes = (index_on("a", tables["s"], ("a",)), index_on("b", tables["s"], ("b",)))
            case = Case(SHAPES["triangle"], roles, tables, {"s": Access((), indexes)}, {})
            found = drive_access(
                case,
                rng,
                Options(policy="random", batch_rows=3, seed=seed),
                completes_probes=completes_probes,
            )
            difference = compare(bag_of(found), bag_of(oracle.answer(case.sql, tables)))
            assert not completes_probes or not difference, f"seed {seed}: {difference}"
            n_wrong += bool(difference.duplicated)
    assert n_wrong >= 2


def test_random_cases_cover_every_way_of_asking():
    """Lazy, lazy on a tree, eager, and sources that only several others together can bind."""
    kinds = set()
    for seed in range(200):
        case = random_case(random.Random(seed))
        graph = make_graph(case.query)
        try:
            plan = plan_access(graph, [case.access[r.name] for r in graph.relations])
        except UnreachableError:
            kinds.add("refused")
            continue
        open_ = [plan.is_open(source) for source in range(len(graph.roles))]
        if plan.is_tree:
            kinds.add("tree")
        elif plan.asks_for:
            kinds.add("eager" if all(open_) else "eager and together")
        elif not all(open_):
            kinds.add("lazy")
    assert kinds == {"refused", "tree", "eager", "eager and together", "lazy"}


def test_nested_loops_agree_with_the_database():
    """The reference of the figures is right."""
    oracle = Oracle()
    for seed in range(40):
        case = random_case(random.Random(seed))
        assert naive_join(case) == bag_of(oracle.answer(case.sql, case.tables))
