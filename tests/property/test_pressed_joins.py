"""Any memory, same bag: joins, static plans and STAIRs that demote, spill, wait and clean up."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from eddies.core.eddy import Eddy
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.policies import POLICIES
from eddies.core.spill.flush_policies import FLUSH_POLICIES
from eddies.core.state_modes.pressed import PressedJoins
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, drive, random_options
from tests.support.random_queries import SHAPES, Case, make_case

# Of the memory that all rows take in SteMs. The state of a few rows is mostly fixed costs, so budgets
# above it, too, are exceeded, and only then after joins have kept tuples for a while.
SHARES = (0.02, 0.1, 0.3, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0)
FLUSH_SIZES = (0.01, 0.05, 0.2, 1.0)
STATES = ("joins", "static", "stairs")
TREES = tuple(shape for shape in SHAPES if shape not in ("cross", "band"))


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def order_of(case: Case, state: str, rng: random.Random) -> tuple[str, ...]:
    """All joins and predicates, in any order."""
    options = Options(state=state)  # type: ignore[arg-type]
    names = Eddy(case.query, options).mode.module_names()
    names += [optional.name for optional in make_graph(case.query).optionals]
    return tuple(rng.sample(names, len(names)))


def state_bytes(case: Case) -> int:
    """Memory that the rows of all tables take in SteMs, with the indexes that probes may make."""
    eddy = Eddy(case.query, Options(state="joins", memory="1GB"))
    for name, table in case.tables.items():
        for batch in table.to_batches():
            eddy.push(name, batch)
    assert isinstance(eddy.mode, PressedJoins)
    n_bytes = eddy.mode.spilling.n_bytes_ahead
    eddy.close()
    return n_bytes


def check(seed: int, oracle: Oracle, folder: Path, seen: Counter[str], **given: object) -> None:
    rng = random.Random(f"pressed {seed}")
    shape = str(given.pop("shape", None) or rng.choice(TREES))
    state = str(given.pop("state", None) or rng.choice(STATES))
    case, expected = oracle.bounded(make_case(seed, shape))
    policy = str(given.pop("policy", None) or rng.choice(["auto", "random", *sorted(POLICIES)]))
    settings = {
        "state": state,
        "policy": policy,
        "order": order_of(case, state, rng) if "static" in (state, policy) else (),
        "migration": rng.choice(("cost-aware", "greedy")),
        "memory": max(1, int(rng.choice(SHARES) * state_bytes(case))),
        "flush_size": rng.choice(FLUSH_SIZES),
        "flush": rng.choice(FLUSH_POLICIES),
        "spill_dir": str(folder),
        "batch_rows": rng.choice((2, 7, 1009)),
    }
    options = random_options(rng, **settings | given)
    race, silence = rng.random() < 0.2, rng.choice((0.0, 0.1))
    eddies: list[Eddy] = []
    found = drive(case.query, case.tables, rng, options, race=race, silence=silence, made=eddies)
    assert_same_bag(found, expected, f"{case} with {options}")
    assert os.listdir(folder) == [], "the spill directory is removed at the end"
    mode = eddies[0].mode
    assert isinstance(mode, PressedJoins)
    seen["runs"] += 1
    seen["demoted"] += mode.kept.stairs.history.n_demoted > 0
    seen["spilled"] += mode.n_flushes > 0
    seen["waited"] += mode.n_ever_waited > 0


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shape", TREES)
def test_any_memory_same_bag(shape: str, state: str, oracle: Oracle, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(50_000, 50_006):
        check(seed, oracle, tmp_path, seen, shape=shape, state=state)
    assert seen["spilled"] > 1


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_any_memory_same_bag_with_every_policy(policy: str, oracle: Oracle, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(60_000, 60_006):
        check(seed, oracle, tmp_path, seen, policy=policy)
    assert seen["spilled"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(30))
def test_any_memory_same_bag_3000_times(chunk: int, oracle: Oracle, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(200_000 + 100 * chunk, 200_100 + 100 * chunk):
        check(seed, oracle, tmp_path, seen)
    assert seen["spilled"] > seen["runs"] / 3
    assert seen["waited"] > seen["runs"] / 6
    assert seen["demoted"] > 1
