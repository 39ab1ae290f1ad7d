"""Migrations that policies decide, at every turn and in the smallest stages: the same bag of rows."""

from __future__ import annotations

import contextlib
import random

import pytest

from eddies.core.eddy import Eddy
from eddies.core.join_tree import joined_pairs, make_join_tree
from eddies.core.options import Options
from eddies.core.stairs import migration, outlook, regions
from eddies.core.state_modes import auto, regional
from eddies.core.state_modes import stairs as mode
from eddies.errors import UnsupportedError
from tests.support import driving
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, drive, random_options
from tests.support.random_queries import make_case

SHAPES = ("chain", "star", "tree", "cycle", "class", "self")


class Fickle:
    """Wants the forms of a random tree, or a part of it, each time it is asked."""

    rng = random.Random(0)
    growth = 1.0
    stride = 0.0
    on_demand = True

    def decide(self, outlook):
        rng = self.rng
        weight = {mask: rng.random() for mask in outlook.planner.sets()}
        forms = outlook.planner.best_tree(weight)
        return frozenset(form for form in forms if rng.random() < 0.7)

    def gave_up(self, forms):
        pass


@pytest.fixture
def restless(monkeypatch):
    """Looks at every safe point, and moves three rows a stage or makes forms on demand."""
    for policy in (migration.CostAware, migration.Greedy):
        monkeypatch.setattr(policy, "growth", 1.0)
        monkeypatch.setattr(policy, "stride", 0.0)
    monkeypatch.setattr(migration.Migration.stage, "__defaults__", (3,))
    monkeypatch.setitem(migration.MIGRATIONS, "never", Fickle)
    monkeypatch.setattr(outlook.Outlook, "is_cheap", lambda *_: Fickle.rng.random() < 0.5)
    moved = []
    finish = mode.StairsMode._go_on_moving

    def count(self):
        finish(self)
        moved.append(self.n_migrations)

    monkeypatch.setattr(mode.StairsMode, "_go_on_moving", count)
    return moved


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def check(seed: int, oracle: Oracle, name: str) -> bool:
    case, expected = oracle.bounded(make_case(seed, SHAPES[seed % len(SHAPES)]))
    rng = random.Random(f"migrate {seed}")
    Fickle.rng = rng
    policy = rng.choice(("auto", "random", "cumulative"))
    options = random_options(
        rng, state="stairs", migration=name, policy=policy, batch_rows=rng.choice((1, 2, 7))
    )
    with contextlib.suppress(UnsupportedError):
        assert_same_bag(drive(case.query, case.tables, rng, options), expected, (case, options))
        return True
    return False


@pytest.mark.parametrize("name", ["cost-aware", "greedy", "never"])
def test_migrations_lose_and_repeat_nothing(name, restless, oracle):
    n_run = sum(check(seed, oracle, name) for seed in range(8_000_000, 8_000_024))
    assert n_run > 15
    assert max(restless) > 0


def test_no_migration_goes_on_after_the_end(restless, oracle):
    """The query had ended and its state was released; another poll went on moving it."""
    assert check(8_100_217, oracle, "greedy")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cost-aware", "greedy", "never"])
@pytest.mark.parametrize("chunk", range(4))
def test_migrations_lose_and_repeat_nothing_at_length(name, chunk, restless, oracle):
    first = 8_100_000 + chunk * 150
    assert sum(check(seed, oracle, name) for seed in range(first, first + 150)) > 100


@pytest.mark.parametrize("state", ["static", "joins"])
@pytest.mark.parametrize("policy", ["auto", "cumulative", "cumulative-window"])
def test_static_plans_and_joins(state, policy, oracle):
    for seed in range(8_200_000, 8_200_010):
        case, expected = oracle.bounded(make_case(seed, SHAPES[seed % len(SHAPES)]))
        rng = random.Random(f"drive {seed}")
        options = random_options(rng, state=state, policy=policy)
        with contextlib.suppress(UnsupportedError):
            assert_same_bag(drive(case.query, case.tables, rng, options), expected, case)


@pytest.mark.parametrize("is_late", [False, True], ids=["on the way", "late source"])
@pytest.mark.parametrize("eager", [False, True])
def test_auto_changes_hands_and_loses_nothing(eager, is_late, restless, oracle, monkeypatch):
    """SteMs become STAIRs in mid-query, or (`is_late`) when the last source begins; `eager`, as soon as
    that is possible.
    """
    monkeypatch.setattr(auto, "LOOK", 0)
    if is_late:
        monkeypatch.setattr(auto, "LATE_ROWS", 0)
        monkeypatch.setattr(auto, "LATE_BATCHES", 0)
    if eager:
        monkeypatch.setitem(migration.MIGRATIONS, "cost-aware", Fickle)
    n_stairs = 0
    made = []

    class Remembered(driving.Eddy):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            made.append(self)

    monkeypatch.setattr(driving, "Eddy", Remembered)
    for seed in range(8_300_000, 8_300_024):
        case, expected = oracle.bounded(make_case(seed, SHAPES[seed % len(SHAPES)]))
        rng = random.Random(f"auto {seed}")
        Fickle.rng = rng
        options = random_options(rng, policy="auto", batch_rows=rng.choice((1, 2, 7)))
        assert_same_bag(drive(case.query, case.tables, rng, options), expected, case)
        n_stairs += getattr(made[-1].mode, "stairs", None) is not None
    assert n_stairs >= (6 if eager else 3)


@pytest.mark.parametrize("state", ["stairs", "joins"])
@pytest.mark.parametrize("policy", ["content", "cumulative-window"])
def test_parts_of_the_data_in_their_own_order(state, policy, oracle, monkeypatch):
    monkeypatch.setattr(regional, "_GROWTH", 1.0)
    monkeypatch.setattr(regional, "_FEWEST_MOVED", 1)
    monkeypatch.setattr(regional, "_PATIENCE", 1.0)
    monkeypatch.setattr(regions, "_FEWEST_ROWS", 1)
    n_moved = []
    move = regional.RegionalMode._move_misplaced

    def count(self, chooser):
        n_moved.append(move(self, chooser))
        return n_moved[-1]

    monkeypatch.setattr(regional.RegionalMode, "_move_misplaced", count)
    for seed in range(8_400_000, 8_400_012):
        case, expected = oracle.bounded(make_case(seed, SHAPES[seed % len(SHAPES)]))
        rng = random.Random(f"regions {seed}")
        options = random_options(rng, state=state, policy=policy, batch_rows=rng.choice((1, 2, 7)))
        with contextlib.suppress(UnsupportedError):
            assert_same_bag(drive(case.query, case.tables, rng, options), expected, case)
    assert any(n_moved) == (state == "stairs")


def test_cyclic_queries_change_their_spanning_tree(oracle, restless, monkeypatch):
    trees = []
    plant = mode.StairsMode._plant

    def count(self, tree):
        plant(self, tree)
        trees.append(self.n_trees)

    def any_tree(self, outlook):
        pairs = list(joined_pairs(self._graph))
        Fickle.rng.shuffle(pairs)
        return make_join_tree(self._graph, pairs) if Fickle.rng.random() < 0.3 else None

    monkeypatch.setattr(mode.StairsMode, "_plant", count)
    monkeypatch.setattr(mode.StairsMode, "_better_tree", any_tree)
    for seed in range(8_500_000, 8_500_020):
        case, expected = oracle.bounded(make_case(seed, ("cycle", "clique")[seed % 2]))
        rng = random.Random(f"trees {seed}")
        Fickle.rng = rng
        options = random_options(rng, state="stairs", migration="never", policy="auto")
        with contextlib.suppress(UnsupportedError):
            assert_same_bag(drive(case.query, case.tables, rng, options), expected, case)
    assert max(trees) > 3


def test_a_given_order_keeps_its_spanning_tree(oracle):
    """The order names the joins of one tree: along another, tuples would not know where to go."""
    for seed in (70_000, 70_029, 70_030, 70_033):
        case, expected = oracle.bounded(make_case(seed, "cycle"))
        rng = random.Random(seed)
        eddy = Eddy(case.query, Options(state="stairs"))
        names = eddy.mode.module_names() + [optional.name for optional in eddy.graph.optionals]
        order = tuple(rng.sample(names, len(names)))
        options = random_options(rng, state="stairs", policy="static", order=order)
        assert_same_bag(drive(case.query, case.tables, rng, options), expected, case)
