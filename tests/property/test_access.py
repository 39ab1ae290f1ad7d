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
from tests.support.access import SHAPES, drive_access, index_on
from tests.support.bag import Difference, bag_of, compare
from tests.support.driving import Oracle
from tests.support.small import make_query

N_RUNS = 150
N_SLOW_RUNS = 6000


def random_tables(rng: random.Random, on: tuple[str, ...]) -> dict[str, pa.Table]:
    columns: dict[str, list[str]] = {}
    for text in on:
        for side in text.split("="):
            name, column = side.strip().split(".")
            if column not in columns.setdefault(name, []):
                columns[name].append(column)
    n_values = rng.choice((2, 4, 8))
    types = {c: rng.choice((pa.int64(), pa.string())) for c in "abcd"}
    tables = {}
    for name, names in columns.items():
        n_rows = rng.randint(0 if rng.random() < 0.05 else 1, 14)

        def value(type_: pa.DataType) -> object:
            if rng.random() < 0.05:
                return None
            number = rng.randrange(n_values)
            return f"value number {number}" if pa.types.is_string(type_) else number

        arrays = {c: pa.array([value(types[c]) for _ in range(n_rows)], types[c]) for c in names}
        ids = [rng.randrange(3 if rng.random() < 0.3 else 99) for _ in range(n_rows)]
        arrays["id"] = pa.array(ids, pa.int64())
        tables[name] = pa.table(arrays)
    return tables


def random_access(rng: random.Random, tables: dict[str, pa.Table]) -> dict[str, Access]:
    """Scans, indexes, mirrors of both, and sources without a scan, at random."""
    access = {}
    for name, table in tables.items():
        columns = [c for c in table.column_names if c != "id"]
        scans = rng.choice(((), ("one",), ("one",), ("one", "two")))
        indexes = []
        for number in range(rng.randint(0 if scans else 1, 3)):
            bind = tuple(rng.sample(columns, rng.randint(1, len(columns))))
            indexes.append(
                index_on(
                    f"i{number}",
                    table,
                    bind,
                    keys_per_lookup=rng.choice((1, 2, 5)),
                    concurrency=rng.choice((1, 2, 8)),
                    timeout_s=rng.choice((0.5, 2.0)),
                    retries=rng.choice((1, 3)),
                    backoff_s=rng.choice((0.0, 0.3)),
                )
            )
        access[name] = Access(scans, tuple(indexes))
    return access


def text_of(tables: dict[str, pa.Table], on: tuple[str, ...]) -> str:
    columns = ", ".join(f"{n}.{c}" for n, t in tables.items() for c in t.column_names)
    return f"SELECT {columns} FROM {', '.join(tables)} WHERE {' AND '.join(on)}"


def random_case(
    rng: random.Random,
) -> tuple[tuple[str, ...], dict[str, pa.Table], dict[str, Access]]:
    on = SHAPES[rng.choice(list(SHAPES))]
    tables = random_tables(rng, on)
    return on, tables, random_access(rng, tables)


def one_run(seed: int, oracle: Oracle, **settings: object) -> Difference | None:
    """One random query over random access methods; None if it cannot be reached."""
    rng = random.Random(seed)
    on, tables, access = random_case(rng)
    query = make_query(tables, on)
    options = Options(policy="random", batch_rows=rng.choice((1, 3, 1000)), seed=seed)
    dying = frozenset(
        (name, scan)
        for name, methods in access.items()
        for scan in methods.scans[1:]
        if rng.random() < 0.5
    )
    failures = rng.choice((0.0, 0.3))
    try:
        found = drive_access(
            query,
            tables,
            access,
            rng,
            options,
            fail_share=failures,
            lost_share=failures / 3,
            dying=dying,
            **settings,
        )
    except UnreachableError:
        return None
    return compare(bag_of(found), bag_of(oracle.answer(text_of(tables, on), tables)))


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


def test_without_stamps_results_come_twice():
    """The rule is needed: without it the same runs give duplicates."""
    _, wrong = many_runs(range(30), stamps=NoRule())
    assert any(difference.duplicated for _, difference in wrong)


def test_without_probe_completion_cyclic_index_queries_give_duplicates():
    """SteM-37: bounced rows that go on elsewhere find the same results by another way round."""
    oracle = Oracle()
    n_wrong = 0
    for completes_probes in (True, False):
        for seed in range(40):
            rng = random.Random(seed)
            tables = random_tables(rng, SHAPES["triangle"])
            access = {"s": Access((), (index_on("by_a", tables["s"], ("a",)),))}
            access["s"] = Access((), (*access["s"].indexes, index_on("b", tables["s"], ("b",))))
            found = drive_access(
                make_query(tables, SHAPES["triangle"]),
                tables,
                access,
                rng,
                Options(policy="random", batch_rows=3, seed=seed),
                completes_probes=completes_probes,
            )
            expected = oracle.answer(text_of(tables, SHAPES["triangle"]), tables)
            difference = compare(bag_of(found), bag_of(expected))
            assert not completes_probes or not difference, f"seed {seed}: {difference}"
            n_wrong += bool(difference.duplicated)
    assert n_wrong >= 3


def test_random_cases_cover_every_way_of_asking():
    """Lazy, lazy on a tree, eager, and sources that only several others together can bind."""
    kinds = set()
    for seed in range(200):
        on, tables, access = random_case(random.Random(seed))
        graph = make_graph(make_query(tables, on))
        try:
            plan = plan_access(graph, [access[relation.name] for relation in graph.relations])
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
    assert kinds >= {"refused", "tree", "eager", "lazy"}
