"""Any memory, same bag: SteMs that flush, wait and clean up, at every budget and in every order."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.policies import POLICIES
from eddies.core.spill import answers
from eddies.core.spill.flush_policies import FLUSH_POLICIES
from eddies.core.state_modes.spilling import SpillingStems
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, drive, random_options
from tests.support.random_queries import SHAPES, Case, make_case

SHARES = (0.02, 0.05, 0.1, 0.3, 1.0)
FLUSH_SIZES = (0.01, 0.05, 0.2, 1.0)


@dataclass
class Spilled:
    """What happened in all runs of a test, so that it cannot pass without having spilled."""

    n_runs: int = 0
    n_flushed: int = 0
    n_waited: int = 0


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def budget(case: Case, share: float) -> int:
    """A share of the bytes of all tables."""
    return max(1, int(share * sum(table.nbytes for table in case.tables.values())))


def check(
    seed: int,
    oracle: Oracle,
    folder: Path,
    spilled: Spilled,
    shape: str | None = None,
    **given: object,
) -> None:
    case, expected = oracle.bounded(make_case(seed, shape))
    rng = random.Random(f"spill {seed}")
    settings = {
        "memory": budget(case, rng.choice(SHARES)),
        "flush_size": rng.choice(FLUSH_SIZES),
        "flush": rng.choice(FLUSH_POLICIES),
        "spill_dir": str(folder),
        "batch_rows": rng.choice((2, 7, 1009)),
    }
    options = random_options(rng, **settings | given)
    eddies: list[Eddy] = []
    found = drive(case.query, case.tables, rng, options, race=rng.random() < 0.2, made=eddies)
    assert_same_bag(found, expected, f"{case} with {options}")
    assert os.listdir(folder) == [], "the spill directory is removed at the end"
    mode = eddies[0].mode
    assert isinstance(mode, SpillingStems)
    spilled.n_runs += 1
    spilled.n_flushed += mode.n_flushes > 0
    spilled.n_waited += mode.n_ever_waited > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_any_memory_same_bag(shape: str, oracle: Oracle, tmp_path: Path) -> None:
    spilled = Spilled()
    for seed in range(10_000, 10_007):
        check(seed, oracle, tmp_path, spilled, shape)
    assert spilled.n_flushed > spilled.n_runs / 2
    assert spilled.n_waited > 1


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_any_memory_same_bag_with_every_policy(policy: str, oracle: Oracle, tmp_path: Path) -> None:
    spilled = Spilled()
    for seed in range(20_000, 20_003):
        case = make_case(seed)
        names = [source.name for source in case.query.sources]
        names += [optional.name for optional in make_graph(case.query).optionals]
        order = tuple(reversed(names)) if policy == "static" else ()
        check(
            seed, oracle, tmp_path, spilled, policy=policy, order=order, memory=budget(case, 0.05)
        )
    assert spilled.n_flushed > 1


def test_two_threads_share_pending_probes(oracle: Oracle, tmp_path: Path) -> None:
    """Relations one after the other: the last is not stored, and both threads let tuples wait."""
    for seed in range(30_000, 30_012):
        case, expected = oracle.bounded(make_case(seed))
        memory = budget(case, 0.1)
        options = Options(threads=2, batch_rows=7, memory=memory, spill_dir=str(tmp_path))
        eddy = Eddy(case.query, options)
        found = []
        for name, table in case.tables.items():
            for batch in table.to_batches(max_chunksize=5):
                eddy.push(name, batch)
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            found.append(rows)
        assert_same_bag(pa.Table.from_batches(found, schema=eddy.output.schema), expected, case)


@pytest.mark.parametrize("shape", SHAPES)
def test_reading_ahead_same_bag(
    shape: str, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little there is, threads read it."""
    monkeypatch.setattr(answers, "WORTH_A_THREAD", 0)
    spilled = Spilled()
    for seed in range(50_000, 50_005):
        check(seed, oracle, tmp_path, spilled, shape)
    assert spilled.n_waited > 0


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(30))
def test_any_memory_same_bag_3000_times(
    chunk: int, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other hundred with threads that read ahead."""
    monkeypatch.setattr(answers, "WORTH_A_THREAD", 0 if chunk % 2 else 1 << 20)
    spilled = Spilled()
    for seed in range(100_000 + 100 * chunk, 100_100 + 100 * chunk):
        check(seed, oracle, tmp_path, spilled)
    assert spilled.n_flushed > spilled.n_runs / 2
    assert spilled.n_waited > spilled.n_runs / 4


@pytest.mark.parametrize("worth_a_thread", [0, 1 << 20])
def test_waiting_tuples_are_answered_in_silence(
    worth_a_thread: int, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources stall at random; whoever uses the silence gets the same bag, and some of it earlier."""
    monkeypatch.setattr(answers, "WORTH_A_THREAD", worth_a_thread)
    n_merges = n_early = 0
    for seed in range(40_000, 40_025):
        case, expected = oracle.bounded(make_case(seed))
        rng = random.Random(f"silence {seed}")
        memory = budget(case, rng.choice((0.05, 0.2)))
        options = random_options(rng, memory=memory, spill_dir=str(tmp_path), batch_rows=7)
        eddy = Eddy(case.query, options)
        found = []
        pieces = [
            (name, batch)
            for name, table in case.tables.items()
            for batch in table.to_batches(max_chunksize=rng.choice((2, 9)))
        ]
        rng.shuffle(pieces)
        for name, batch in pieces:
            eddy.push(name, batch)
            for _ in range(rng.choice((0, 0, 1, 30))):
                while (rows := eddy.poll()) is not None:
                    found.append(rows)
                before = eddy.output.n_rows
                if not eddy.use_silence():
                    break
                n_early += eddy.output.n_rows - before
        for name in case.tables:
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            found.append(rows)
        assert isinstance(eddy.mode, SpillingStems)
        n_merges += eddy.mode.n_silent_merges
        assert_same_bag(pa.Table.from_batches(found, schema=eddy.output.schema), expected, case)
    assert n_merges > 10
    assert n_early > 10
