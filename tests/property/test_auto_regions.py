"""state="auto" over parts of the data: whoever takes over from whom, at any point of stasis, the bag of
rows is that of DuckDB.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.policies.random import RandomPolicy
from eddies.core.stairs import migration, outlook, partitions, regions, search
from eddies.core.stairs.partitions import Lack, Part, Parting
from eddies.core.stairs.regions import Leaf, Split
from eddies.core.state_modes import auto, regional
from eddies.core.state_modes.auto import AutoMode
from tests.support.bag import assert_same_bag
from tests.support.driving import BATCH_ROWS, Oracle, drive, random_options
from tests.support.random_queries import make_case
from tests.support.small import make_query

SHAPES = ("chain", "star", "tree", "self")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


class Restless:
    """Parts are found everywhere and nowhere: at random, told by any question and any value."""

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.n_turns = self.n_returns = self.n_kept = 0

    def survey(self, chooser, n_rows, statistics, rng, *, has_drifted):
        if self.rng.random() < 0.1:
            return Lack.PARTS
        found = self.regions(chooser, n_rows, 2)
        part = Part(chooser.joins[0].number, 1.0, 1.0, (1.0,) * len(chooser.joins))
        return Parting(chooser.source, found, tuple(e.number for e in chooser.joins), (part,))

    def forms(self, outlook):
        """Those of a random tree, most of them: what was kept is then used again."""
        weight = {mask: self.rng.random() for mask in outlook.planner.sets()}
        return frozenset(f for f in outlook.planner.best_tree(weight) if self.rng.random() < 0.8)

    def regions(self, chooser, n_rows, depth):
        if not depth or self.rng.random() < 0.2:
            return Leaf(self.rng.randrange(len(chooser.joins)))
        rows = np.arange(n_rows[chooser.source], dtype=np.int32)
        name, values = self.rng.choice(list(chooser.features(rows).items()))
        parts = [self.regions(chooser, n_rows, depth - 1) for _ in range(2)]
        return Split(name, int(self.rng.choice(values)), *parts)


@pytest.fixture
def restless(monkeypatch):
    """Every poll that finds nothing to do may change who keeps the state."""
    fickle = Restless()
    monkeypatch.setattr(auto, "LOOK", 0)
    never_still = property(lambda _: 0.0, lambda *_: None)
    monkeypatch.setattr(AutoMode, "still_until", never_still, raising=False)
    monkeypatch.setattr(search, "survey", fickle.survey)
    monkeypatch.setattr(auto, "pays", lambda *_: True)
    monkeypatch.setattr(AutoMode, "_searches", lambda _: fickle.rng.random() < 0.5)
    monkeypatch.setattr(
        regional.RegionalMode, "is_undivided", property(lambda _: fickle.rng.random() < 0.3)
    )
    monkeypatch.setattr(regional, "_GROWTH", 1.0)
    monkeypatch.setattr(regional, "_FEWEST_MOVED", 1)
    monkeypatch.setattr(regional, "_PATIENCE", 1.0)
    monkeypatch.setattr(regions, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(migration.CostAware, "growth", 1.0)
    monkeypatch.setattr(migration.CostAware, "stride", 0.0)
    monkeypatch.setattr(migration.CostAware, "decide", lambda _, outlook: fickle.forms(outlook))
    monkeypatch.setattr(migration.Migration.stage, "__defaults__", (3,))
    monkeypatch.setattr(outlook.Outlook, "is_cheap", lambda *_: fickle.rng.random() < 0.7)
    turn, leave = AutoMode._turn_to_parts, AutoMode._leave_parts

    def count_turn(self):
        kept = self._made is not None and bool(self._made.stairs.kept_forms())
        turned = turn(self)
        fickle.n_turns += turned
        fickle.n_kept += turned and kept
        return turned

    def count_return(self, mode):
        leave(self, mode)
        fickle.n_returns += 1

    monkeypatch.setattr(AutoMode, "_turn_to_parts", count_turn)
    monkeypatch.setattr(AutoMode, "_leave_parts", count_return)
    return fickle


def check_any(seed: int, oracle: Oracle, fickle: Restless) -> None:
    case, expected = oracle.bounded(make_case(seed, SHAPES[seed % len(SHAPES)]))
    rng = fickle.rng = random.Random(f"parts {seed}")
    options = random_options(rng, policy="auto")
    own = {"policy": RandomPolicy(random.Random(seed))} if rng.random() < 0.5 else {}
    assert_same_bag(drive(case.query, case.tables, rng, options, **own), expected, (case, options))


def test_whoever_takes_over_nothing_is_lost_or_repeated(restless, oracle):
    for seed in range(8_600_000, 8_600_120):
        check_any(seed, oracle, restless)
    assert restless.n_turns > 20
    assert restless.n_returns > 5
    assert restless.n_kept > 2


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_whoever_takes_over_nothing_is_lost_or_repeated_at_length(chunk, restless, oracle):
    for seed in range(8_610_000 + chunk * 250, 8_610_000 + (chunk + 1) * 250):
        check_any(seed, oracle, restless)


def parted(rng: np.random.Generator, n: int, *, by_arrival: bool) -> dict[str, pa.Table]:
    """S rows of two kinds: one joins R only, the other T only; a few join both."""
    kind = rng.integers(0, 10, n)
    if by_arrival:
        kind.sort()
    n_keys = max(1, n // 12)
    matched = rng.integers(0, n_keys, (2, n))
    missing = n + rng.integers(0, 5 * n, (2, n))
    joins_both = rng.random(n) < 0.05
    a = np.where((kind < 5) | joins_both, matched[0], missing[0])
    b = np.where((kind >= 5) | joins_both, matched[1], missing[1])
    null = rng.random(n) < 0.02
    return {
        "R": pa.table({"a": rng.integers(0, 3 * n_keys, n), "r": np.arange(n)}),
        "S": pa.table({"a": pa.array(a, mask=null), "b": b, "kind": kind}),
        "T": pa.table({"b": rng.integers(0, 3 * n_keys, n), "t": np.arange(n)}),
    }


def in_turns(eddy: Eddy, data: dict[str, pa.Table], rng: random.Random) -> pa.Table:
    """The answer, if sources deliver in turns, a few rows each, and all results are read in between."""
    found, starts = [], dict.fromkeys(data, 0)
    while starts:
        for name in list(starts):
            n_rows = rng.randint(1, 40)
            for batch in data[name].slice(starts[name], n_rows).combine_chunks().to_batches():
                eddy.push(name, batch)
            starts[name] += n_rows
            if starts[name] >= data[name].num_rows:
                eddy.end(name)
                del starts[name]
            while (rows := eddy.poll()) is not None:
                found.append(rows)
    assert eddy.is_done
    return pa.Table.from_batches(found, schema=eddy.output.schema)


@pytest.mark.parametrize("batch_rows", BATCH_ROWS)
def test_parts_that_are_there_are_found_and_lose_nothing(batch_rows, oracle, monkeypatch):
    monkeypatch.setattr(search, "SURVEY", 200)
    monkeypatch.setattr(auto, "LOOK", 0)
    monkeypatch.setattr(search, "CALM", 1.0)
    monkeypatch.setattr(partitions, "_FEWEST_ROWS", 60)
    monkeypatch.setattr(partitions, "_SLOWER", 1.0)  # few matches are enough
    columns = ["R.a", "R.r", "S.b", "S.kind", "T.t"]
    named = ", ".join(f"{name} AS {name.replace('.', '_')}" for name in columns)
    sql = f"SELECT {named} FROM R, S, T WHERE R.a = S.a AND S.b = T.b"
    n_regional = 0
    for seed in range(12):
        rng = random.Random(f"parted {seed} {batch_rows}")
        data = parted(np.random.default_rng(seed), rng.randint(300, 700), by_arrival=seed % 2 == 0)
        query = make_query(data, ["R.a = S.a", "S.b = T.b"], output=columns)
        policy = RandomPolicy(random.Random(seed)) if seed % 3 else None
        eddy = Eddy(query, Options(batch_rows=batch_rows, seed=seed), policy=policy)
        assert_same_bag(in_turns(eddy, data, rng), oracle.answer(sql, data), seed)
        assert isinstance(eddy.mode, AutoMode)
        n_regional += eddy.mode.is_regional
    assert n_regional > 4
