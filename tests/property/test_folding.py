"""Matches that are folded give the totals that they give one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.modules.folding import Folding
from eddies.core.options import Options
from eddies.core.state.fold import Fold
from eddies.errors import EvaluationError
from eddies.hosts import local
from eddies.sql import plan
from tests.support.bag import assert_same_bag

N_CASES = 60
CHUNKS = 4
POLICIES = ("auto", "random", "greedy", "rank", "lottery")


class Counted:
    """How often rows were folded, and how many results they stood for."""

    def __init__(self) -> None:
        self.n_batches = self.n_results = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    seen, apply = Counted(), Folding.apply

    def counting(self: Folding, *args: object) -> object:
        folded = apply(self, *args)  # type: ignore[arg-type]
        if folded is not None and folded.folded is not None:
            seen.n_batches += 1
            seen.n_results += int(folded.folded.weights.sum())
        return folded

    monkeypatch.setattr(Folding, "apply", counting)
    return seen


def table_of(rng: random.Random, n_rows: int, n_keys: int) -> pa.Table:
    """Keys `k` and `j` with many rows each, integers `v` and `w`, of which `w` may be NULL."""

    def keys(share_null: float) -> pa.Array:
        spread = 10**12 if rng.random() < 0.3 else 1
        values = [spread * rng.randrange(n_keys) for _ in range(n_rows)]
        return pa.array([None if rng.random() < share_null else v for v in values], pa.int64())

    nulls = rng.choice((0.0, 0.0, 0.2))
    values = [rng.randrange(-(10**6), 10**6) for _ in range(n_rows)]
    return pa.table(
        {
            "k": keys(rng.choice((0.0, 0.1))),
            "j": keys(rng.choice((0.0, 0.1))),
            "v": pa.array(values, pa.int64()),
            "w": pa.array([None if rng.random() < nulls else v for v in values], pa.int64()),
            "s": pa.array([rng.choice("abc") for _ in range(n_rows)]),
        }
    )


def text_of(rng: random.Random, names: list[str]) -> str:
    joins = []
    for n, name in enumerate(names[1:], 1):
        other = rng.choice(names[:n])
        joins.append(f"{other}.{rng.choice('kj')} = {name}.{rng.choice('kj')}")
        if rng.random() < 0.15:
            joins.append(f"{other}.j = {name}.j")
        if rng.random() < 0.1:
            joins.append(f"{other}.v < {name}.v")
    pick = lambda: f"{rng.choice(names)}.{rng.choice('vvvw')}"  # noqa: E731
    aggregates = ["count(*) AS n"]
    for number in range(rng.randrange(3)):
        terms = " + ".join(pick() for _ in range(rng.randint(1, 3)))
        aggregates.append(f"sum({terms}) AS s{number}")
    if rng.random() < 0.1:
        aggregates.append(f"max({pick()}) AS m")
    groups = ""
    if rng.random() < 0.6:
        by = f"{rng.choice(names)}.{rng.choice('skj')}"
        aggregates.insert(0, f"{by} AS g")
        groups = f" GROUP BY {by}"
    return f"SELECT {', '.join(aggregates)} FROM {', '.join(names)} WHERE {' AND '.join(joins)}{groups}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_folded_matches_give_the_same_totals(chunk: int, counted: Counted) -> None:
    for seed in range(chunk * N_CASES, (chunk + 1) * N_CASES):
        rng = random.Random(f"folding {seed}")
        names = ["a", "b", "c", "d"][: rng.choice((2, 2, 3, 4))]
        n_keys = rng.choice((1, 3, 10, 40))
        most = 60 if len(names) > 2 and n_keys < 10 else 200
        if len(names) == 4:
            most = 30
        tables = {name: table_of(rng, rng.choice((0, 1, most, most)), n_keys) for name in names}
        text = text_of(rng, names)
        options = Options(
            policy=rng.choice(POLICIES),
            seed=seed,
            batch_rows=rng.choice((1, 2, 7, 1009, 262_144)),
            threads=rng.choice((1, 1, 2)),
        )
        found = local.sql(text, tables, options, interleave=rng.random() < 0.2)
        expected = duckdb_answer(text, tables)
        assert_same_bag(found, expected.cast(found.schema), (seed, text))
    assert counted.n_batches > N_CASES / 4
    assert counted.n_results > 10_000


def duckdb_answer(text: str, tables: dict[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(text).to_arrow_table()


def test_an_explosion_is_not_made(counted: Counted) -> None:
    n_rows, n_keys = 100_000, 20
    keys, values = np.arange(n_rows) % n_keys, np.arange(n_rows)
    tables = {
        "r": pa.table({"k": np.append(keys, [-1]), "v": np.append(values, [0])}),  # comes last
        "s": pa.table({"k": keys, "v": values}),
    }
    text = "SELECT r.k, count(*) AS n, sum(r.v + s.v) AS t FROM r, s WHERE r.k = s.k GROUP BY r.k"
    found = local.sql(text, tables).sort_by("k").to_pylist()
    assert counted.n_results == n_rows * (n_rows // n_keys)
    n_alike = n_rows // n_keys
    totals = [2 * n_alike * int(values[keys == key].sum()) for key in range(n_keys)]
    assert found == [{"k": k, "n": n_alike**2, "t": total} for k, total in enumerate(totals)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_an_explosion_of_a_few_keys_is_not_made(threads: int, share: float) -> None:
    rng, n_rows = np.random.default_rng(1), 200_000
    keys = rng.permutation(n_rows)
    keys[: int(share * n_rows)] = 7
    rows = pa.table({"k": rng.permutation(keys), "v": np.arange(n_rows)})
    text = "SELECT count(*) AS n, sum(r.v + s.v) AS t FROM r, s WHERE r.k = s.k"
    query = plan(text, {"r": rows.schema, "s": rows.schema}, aggregate=True).blocks[0].query
    run = local.run(query, {"r": rows, "s": rows}, Options(threads=threads))
    (found,) = run.table().to_pylist()
    _, counts = np.unique(keys, return_counts=True)
    assert found["n"] == int((counts.astype(np.int64) ** 2).sum())
    n_made = sum(route.n_out for route in run.eddy.progress().routes)
    assert n_made < 40 * n_rows


def test_stores_that_grow_are_not_folded_again_for_a_few_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_folded = []
    make = Fold.make
    monkeypatch.setattr(
        Fold, "make", lambda *given: (n_folded.append(given[0].n_rows), make(*given))[1]
    )
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    text = "SELECT count(*) AS n, sum(r.v + s.v) AS t FROM r, s WHERE r.k = s.k"
    eddy = Eddy(plan(text, {"r": schema, "s": schema}, aggregate=True).blocks[0].query)
    rng = np.random.default_rng(1)
    n_batches, n_rows, n_keys = 100, 100, 100
    keys = {name: rng.integers(0, n_keys, (n_batches, n_rows)) for name in "rs"}
    for number in range(n_batches):
        for name in "rs":
            eddy.push(name, pa.record_batch({"k": keys[name][number], "v": keys[name][number]}))
            assert eddy.poll() is None
    for name in "rs":
        eddy.end(name)
    rows = eddy.poll()
    assert rows is not None
    counts = [np.bincount(keys[name].ravel(), minlength=n_keys) for name in "rs"]
    assert rows["n"].to_pylist() == [int(counts[0] @ counts[1])]
    assert sum(n_folded) < 4 * n_batches * n_rows


def test_zeros_of_both_signs_are_one_key_but_not_one_text(counted: Counted) -> None:
    tables = {
        "r": pa.table({"k": [0.0] * 1000}),
        "s": pa.table({"k": [0.0, -0.0, -0.0, 0.0, 1.5] * 8}),
    }
    text = "SELECT {0} AS g, count(*) AS n FROM r, s WHERE r.k = s.k GROUP BY {0}"
    found = local.sql(text.format("CAST(s.k AS string)"), tables).sort_by("g").to_pylist()
    assert found == [{"g": "-0.0", "n": 16_000}, {"g": "0.0", "n": 16_000}]
    assert counted.n_batches == 0
    assert local.sql(text.format("s.k"), tables).to_pylist() == [{"g": 0.0, "n": 32_000}]
    assert counted.n_results == 32_000


@pytest.mark.parametrize("group", ["", " GROUP BY r.k"])
def test_sums_that_do_not_fit_are_errors_as_without_folding(group: str, counted: Counted) -> None:
    text = f"SELECT {'r.k, ' if group else ''}sum(r.v + s.v) AS t FROM r, s WHERE r.k = s.k{group}"
    large = 2**62
    tables = {
        "r": pa.table({"k": [1] * 40, "v": pa.array([large] * 40, pa.int64())}),
        "s": pa.table({"k": [1] * 40, "v": pa.array([large] * 40, pa.int64())}),
    }
    with pytest.raises(EvaluationError, match="beyond"):
        local.sql(text, tables)
    cancelled = {"r": tables["r"], "s": pa.table({"k": [1] * 40, "v": [-large] * 40})}
    found = local.sql(text, cancelled)
    assert found["t"].to_pylist() == [0]
    assert counted.n_batches == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(s.v) AS m FROM r, s WHERE r.k = s.k",
        "SELECT s.v, count(*) AS n FROM r, s WHERE r.k = s.k GROUP BY s.v",
        "SELECT count(*) AS n FROM r, s WHERE r.k = s.k AND r.v < s.v",
        "SELECT sum(r.v * s.v) AS n FROM r, s WHERE r.k = s.k",
        "SELECT sum(s.w) AS n FROM r, s WHERE r.k = s.k",
    ],
)
def test_matches_that_must_be_told_apart_are_made(text: str, counted: Counted) -> None:
    rows = pa.table(
        {"k": [n % 2 for n in range(60)], "v": list(range(60)), "w": [*range(59), None]},
        pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64())]),
    )
    tables = {"r": rows, "s": rows.slice(1)}  # r comes last
    found = local.sql(text, tables)
    assert_same_bag(found, duckdb_answer(text, tables).cast(found.schema), text)
    assert counted.n_batches == 0
