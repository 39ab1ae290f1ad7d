"""The default policy is never much worse than the best fixed order: shown by simulation."""

from __future__ import annotations

import math
import random

import pytest

from eddies.core.lineage import Signature
from eddies.core.policies import Candidate, Decision, Fork
from eddies.core.policies.auto import EXPLORED_SHARE, SAVED_NS, AutoPolicy
from eddies.core.policies.evidence import Ledger
from tests.unit.routing_simulator import (
    PERIOD,
    Module,
    Outcome,
    World,
    best_cost,
    legal_orders,
    order_cost,
)


def simulate(
    modules: list[Module], n_periods: int, *, seed: int = 1, jitter: float = 0.1
) -> Outcome:
    world = World(modules, AutoPolicy(random.Random(seed)), seed=seed, jitter=jitter)
    return world.run(n_periods * PERIOD)


def ideal(modules: list[Module], first: int, last: int) -> float:
    """Cost of the periods if each had its best order."""
    return sum(best_cost(modules, p * PERIOD) for p in range(first, last)) * PERIOD


def best_fixed(modules: list[Module], n_periods: int) -> float:
    return PERIOD * min(
        sum(order_cost(modules, order, p * PERIOD) for p in range(n_periods))
        for order in legal_orders(modules)
    )


def before_after(before: float, after: float, period: int = 20):
    return lambda t: before if t < period * PERIOD else after


@pytest.mark.parametrize("seed", range(12))
def test_near_the_best_fixed_order(seed: int) -> None:
    draw = random.Random(seed)
    modules = [
        Module(
            draw.choice([draw.uniform(0.01, 1), draw.uniform(0.01, 1), draw.uniform(1, 4)]),
            math.exp(draw.uniform(math.log(3), math.log(300))),
        )
        for _ in range(draw.randint(3, 6))
    ]
    outcome = simulate(modules, 40, seed=seed)
    assert outcome.cost <= 1.05 * ideal(modules, 0, 40)
    assert sum(outcome.cost_by_period[2:]) <= 1.03 * ideal(modules, 2, 40)


@pytest.mark.parametrize("seed", range(8))
def test_near_the_best_order_of_each_phase(seed: int) -> None:
    draw = random.Random(seed)

    def phases(values: list[float]):
        return lambda t: values[t // (20 * PERIOD) % 3]

    modules = [
        Module(
            phases([draw.uniform(0.01, 1.5) for _ in range(3)]),
            phases([math.exp(draw.uniform(2, 5)) for _ in range(3)]),
        )
        for _ in range(draw.randint(2, 5))
    ]
    outcome = simulate(modules, 60, seed=seed)
    assert outcome.cost <= 1.10 * ideal(modules, 0, 60)
    for start in (0, 20, 40):  # costs that rise are believed within a few runs
        settled = sum(outcome.cost_by_period[start + 4 : start + 20])
        assert settled <= 1.10 * ideal(modules, start + 4, start + 20)


@pytest.mark.parametrize(
    "modules",
    [
        [Module(0.5, 10), Module(before_after(1.0, 0.01), 10), Module(0.9, 10)],
        [Module(0.5, 10), Module(0.5, before_after(200, 1)), Module(0.5, 20)],
    ],
    ids=["selectivity", "cost"],
)
def test_finds_a_module_that_improved_unused(modules: list[Module]) -> None:
    outcome = simulate(modules, 40)
    assert sum(outcome.cost_by_period[23:]) <= 1.05 * ideal(modules, 23, 40)


def test_a_module_that_is_dear_in_short_runs_only_is_found_after_a_shift() -> None:
    """Two modules could take the place of the one that fails. A few rows of the better one cost many
    times what they cost in a long run.
    """
    modules = [
        Module(before_after(0.05, 0.9), 4, run_price=500),
        Module(before_after(0.9, 0.05), 4, run_price=20_000),
        Module(before_after(0.5, 0.25), 5, run_price=500),
    ]
    n_rows = 0
    for seed in range(8):
        world = World(modules, AutoPolicy(random.Random(seed)), seed=seed, jitter=0.1)
        before = world.run(20 * PERIOD).rows_by_first[1]
        n_rows += world.run(10 * PERIOD).rows_by_first[1] - before
    assert n_rows > 0.5 * 8 * 10 * PERIOD


def test_the_account_is_overdrawn_after_a_shift_by_no_more_than_was_earned() -> None:
    modules = [
        Module(before_after(0.05, 0.9), 10),
        Module(before_after(0.9, 0.05), 12),
        Module(0.5, 11),
        Module(0.6, 12),
    ]
    policy = AutoPolicy(random.Random(3))
    world = World(modules, policy, seed=3, jitter=0.1)
    lowest = 0.0
    for period in range(40):
        world.run(PERIOD)
        lowest = min(lowest, policy.account_ns)
        if period < 20:
            assert policy.account_ns >= -SAVED_NS
    assert -EXPLORED_SHARE * world.outcome.cost - SAVED_NS <= lowest < 0


def test_sees_through_a_chain() -> None:
    modules = [Module(0.9, 10), Module(2.0, 10), Module(0.01, 10, needs=(1,))]
    outcome = simulate(modules, 20)
    assert outcome.rows_by_first[1] > 0.95 * 20 * PERIOD
    assert outcome.cost <= 1.05 * ideal(modules, 0, 20)


def test_sees_through_a_longer_chain() -> None:
    modules = [
        Module(0.9, 100),
        Module(2.0, 10),
        Module(2.0, 10, needs=(1,)),
        Module(0.01, 10, needs=(2,)),
    ]
    outcome = simulate(modules, 20)
    assert outcome.rows_by_first[1] > 0.95 * 20 * PERIOD
    assert outcome.cost <= 1.05 * ideal(modules, 0, 20)


@pytest.mark.parametrize(
    "modules",
    [
        [Module(0.9, 10), Module(50, 100), Module(0.5, 10)],
        [Module(0.02, 10), Module(20, 10)],
        [Module(0.05, 5)] + [Module(0.9, 100) for _ in range(4)],
    ],
    ids=["fan-out", "extremes", "many bad"],
)
def test_exploration_keeps_its_budget(modules: list[Module]) -> None:
    n_periods = 60
    outcome = simulate(modules, n_periods, jitter=0.0)
    least = ideal(modules, 0, n_periods)
    trials = 1057 * sum(
        order_cost(modules, (m, *(k for k in range(len(modules)) if k != m)))
        for m in range(len(modules))
    )
    sampling = 0.005 * least  # the world draws its rows
    # Twice the share: what a slice costs is known when it is over, from estimates of the rest.
    assert outcome.cost - least <= 2 * EXPLORED_SHARE * least + trials + sampling


def test_the_account_runs_dry_without_exploration_share() -> None:
    modules = [Module(0.5, 10), Module(0.9, 10), Module(0.95, 10)]
    policy = AutoPolicy(random.Random(1), explored_share=0.0)
    world = World(modules, policy)
    world.run(10 * PERIOD)
    before = dict(world.outcome.rows_by_first)
    world.run(30 * PERIOD)
    assert world.outcome.rows_by_first[0] - before[0] == 30 * PERIOD
    assert policy.account_ns <= 0


@pytest.mark.parametrize("high", [0.9, 5.0])
def test_worst_case_is_bounded(high: float) -> None:
    """Figures that change with every decision: learning cannot help, and may not hurt much."""
    modules = [
        Module(lambda t: 0.1 if t // PERIOD % 2 else high, 10),
        Module(lambda t: high if t // PERIOD % 2 else 0.1, 10),
    ]
    assert simulate(modules, 60).cost <= 1.5 * best_fixed(modules, 60)


def test_rows_one_by_one_with_noisy_times() -> None:
    modules = [Module(s, 0.0, run_price=5000) for s in (0.5, 0.2, 0.8)]
    policy = AutoPolicy(random.Random(1))
    outcome = World(modules, policy, seed=2, jitter=1.0).run(40_000, batch_rows=1)
    assert outcome.rows_by_first[1] >= 0.9 * 40_000


def test_a_module_that_sleeps_is_tried_on_a_few_rows() -> None:
    modules = [Module(0.5, 5e9), Module(0.01, 10), Module(0.5, 10)]
    outcome = simulate(modules, 2)
    assert outcome.rows_by_first[0] <= 3
    assert outcome.cost <= 1.1 * ideal(modules, 0, 2)


def test_frequent_reoptimization_does_not_forget() -> None:
    modules = [Module(0.5, 10), Module(0.3, 10), Module(0.9, 10)]
    world = World(modules, AutoPolicy(random.Random(1)), seed=1)
    outcome = world.run(10 * PERIOD, batch_rows=256, reoptimize_every=256)
    assert outcome.cost <= 1.05 * ideal(modules, 0, 10)


def test_the_price_of_a_run_is_not_the_rows() -> None:
    """A slice pays its run with few rows; the better module must not look dear for that."""
    shares = []
    for seed in range(1, 9):
        modules = [
            Module(0.5, 6, run_price=15_000),
            Module(before_after(1.0, 0.4), 6, run_price=15_000),
        ]
        world = World(modules, AutoPolicy(random.Random(seed)), seed=seed, jitter=0.1)
        world.run(50 * PERIOD)  # a period is 0.6 ms of work: the account needs many to pay a slice
        before = world.outcome.rows_by_first[1]
        world.run(10 * PERIOD)
        shares.append((world.outcome.rows_by_first[1] - before) / (10 * PERIOD))
    # Noise may lose one of the ten periods to the other module, in some of the runs.
    assert sum(shares) / len(shares) > 0.9
    assert min(shares) > 0.8


def test_what_costs_little_as_the_last_one_comes_last() -> None:
    """A probe that multiplies has the lower rank; but its matches are not made if it is the last."""
    many, few = Candidate(1, "stem:many", "probe"), Candidate(2, "stem:few", "probe")
    start, with_many, with_few, end = (Signature(sources) for sources in (0b1, 0b11, 0b101, 0b111))
    first = Fork(0, start, (many, few), (with_many, with_few))
    second = {0: Fork(1, with_many, (few,), (end,)), 1: Fork(2, with_few, (many,), (end,))}
    found = {0: 100, 1: 4}
    policy = AutoPolicy(random.Random(1))
    n_sent, n_left = [0, 0], 4_000_000
    while n_left > 0:
        decision = policy.choose(first)
        n_rows = min(decision.n_rows or 65_536, n_left)
        n_left -= n_rows
        n_sent[decision.choice] += n_rows
        n_found = n_rows * found[decision.choice]
        policy.observe(first, decision.choice, n_rows, n_found, n_rows * (700, 16)[decision.choice])
        last = second[decision.choice]
        policy.choose(last)
        policy.observe(last, 0, n_found, n_found * (4, 1)[decision.choice], n_found * 14)
        policy.reoptimize()
    assert n_sent[0] < 0.02 * n_sent[1]


def test_a_long_calm_does_not_hide_a_shift() -> None:
    """Runs not absorbed yet are not mixed with one that contradicts them, and nothing is lost."""
    fork = Fork(0, Signature(1), (Candidate(0, "stem:s0", "probe"),), (Signature(1, 1),))
    ledger = Ledger()
    ledger.observe(fork, 0, 10_000, 500, 50_000)
    ledger.absorb()
    for _ in range(20):
        ledger.observe(fork, 0, 10_000, 500, 50_000)
    assert not ledger.is_surprised
    ledger.observe(fork, 0, 10_000, 9000, 60_000)
    assert ledger.is_surprised
    (run,) = ledger.absorb()
    assert run[1:] == (210_000, 19_000, 1_060_000)
    assert ledger.n_driver_rows == 220_000
    estimate = ledger.estimate(ledger.evidence(Signature(1), 0))
    assert estimate is not None
    assert estimate.selectivity > 0.85


def test_batches_that_differ_now_and_then_are_averaged() -> None:
    """One in ten keeps nine tenths: that is no shift every time."""
    fork = Fork(0, Signature(1), (Candidate(0, "stem:s0", "probe"),), (Signature(1, 1),))
    ledger, draw = Ledger(), random.Random(1)
    estimates = []
    for batch in range(2000):
        kept = 9000 if draw.random() < 0.1 else 5000
        ledger.observe(fork, 0, 10_000, kept, 50_000)
        if batch % 10 == 9:
            ledger.absorb()
            estimate = ledger.estimate(ledger.evidence(Signature(1), 0))
            assert estimate is not None
            estimates.append(estimate.selectivity)
    assert max(estimates[20:]) < 0.7, "the mean is 0.54, all the time"


def test_a_slice_does_not_tell_of_a_shift() -> None:
    fork = Fork(0, Signature(1), (Candidate(0, "stem:s0", "probe"),), (Signature(1, 1),))
    ledger = Ledger()
    for _ in range(20):
        ledger.observe(fork, 0, 100_000, 5000, 500_000)
        ledger.absorb()
    for _ in range(10):
        ledger.observe(fork, 0, 100_000, 5000, 500_000)
    ledger.observe(fork, 0, 2048, 2000, 10_000)
    assert ledger.is_surprised
    ledger.absorb()
    estimate = ledger.estimate(ledger.evidence(Signature(1), 0))
    assert estimate is not None
    assert estimate.selectivity < 0.06


def test_the_price_of_runs_is_the_shortest_run_on_a_few_rows() -> None:
    fork = Fork(0, Signature(1), (Candidate(0, "stem:s0", "probe"),), (Signature(1, 1),))
    ledger = Ledger()
    for n_rows in (65_536, 1, 512, 32, 65_536):
        ledger.observe(fork, 0, n_rows, n_rows // 2, n_rows * 20 + 9000)
    ledger.absorb()
    assert ledger.run_price_ns == 9020.0


def test_an_interrupted_run_does_not_make_a_module_dear() -> None:
    fork = Fork(0, Signature(1), (Candidate(0, "stem:s0", "probe"),), (Signature(1, 1),))
    ledger = Ledger()
    for slow_down in (1, 1, 1, 40):
        ledger.observe(fork, 0, 65_536, 100, 65_536 * 5 * slow_down)
        ledger.absorb()
    estimate = ledger.estimate(ledger.evidence(Signature(1), 0))
    assert estimate is not None
    assert estimate.cost_ns < 10


def test_forks_of_one_signature_may_differ_in_candidates() -> None:
    """A host with queues shows only the modules with room; what was learned is shared."""
    three = tuple(Candidate(m, f"stem:s{m}", "probe") for m in range(3))
    ends = tuple(Signature(1, 1 << m) for m in range(3))
    wide = Fork(0, Signature(1), three, ends)
    narrow = Fork(0, Signature(1), three[1:], ends[1:])
    policy = AutoPolicy(random.Random(1), explored_share=0.0)
    for _ in range(12):
        decision = policy.choose(wide)
        n_rows = decision.n_rows or 4096
        policy.observe(
            wide, decision.choice, n_rows, n_rows * (1, 9, 4)[decision.choice] // 10, n_rows * 10
        )
    assert policy.choose(wide).choice == 0
    assert narrow.candidates[policy.choose(narrow).choice].module == 2


def test_how_many_matches_a_fork_found_is_not_forgotten() -> None:
    """A module that fans out at one fork and not at another is looked at again with a row or two."""
    entry = Fork(
        0,
        Signature(1),
        tuple(Candidate(m, f"stem:s{m}", "probe") for m in (1, 3)),
        (Signature(3), Signature(9)),
    )
    rare = Fork(
        1,
        Signature(3),
        tuple(Candidate(m, f"stem:s{m}", "probe") for m in (2, 3)),
        (Signature(7), Signature(11)),
    )
    usual = Fork(
        2,
        Signature(9),
        tuple(Candidate(m, f"stem:s{m}", "probe") for m in (1, 2)),
        (Signature(11), Signature(13)),
    )
    matches = {(0, 0): 1.0, (0, 1): 0.2, (1, 0): 30_000.0, (1, 1): 0.2, (2, 0): 1.0, (2, 1): 0.9}
    policy = AutoPolicy(random.Random(1), explored_share=0.2)
    most_rows = 0  # sent at once to where they fan out

    def run(fork: Fork, n_rows: int) -> None:
        nonlocal most_rows
        while n_rows:
            decision = policy.choose(fork)
            n_in = min(n_rows, decision.n_rows or n_rows)
            n_out = n_in * matches[fork.fork_id, decision.choice]
            if n_out > 10 * n_in:
                most_rows = max(most_rows, n_in)
            elapsed_ns = int(2000 + 10 * n_in + 10 * n_out)
            policy.observe(fork, decision.choice, n_in, int(n_out), elapsed_ns)
            if fork is entry:
                run((rare, usual)[decision.choice], max(1, int(n_out)))
            n_rows -= n_in

    for _ in range(400):
        run(entry, 65_536)
        policy.reoptimize()
    assert 1 <= most_rows <= 2


def test_a_fork_is_not_thought_about_before_that_is_worth_its_time() -> None:
    """Where batches are small and quick, learning three modules one after another cost more than all
    that the worst order could.
    """
    policy = AutoPolicy(random.Random(1))
    world = World([Module(0.5, 20), Module(0.5, 20), Module(0.5, 20)], policy)
    n_thoughts = 0
    decided = policy._decided

    def counted(fork: Fork) -> Decision:
        nonlocal n_thoughts
        n_thoughts += 1
        return decided(fork)

    policy._decided = counted  # type: ignore[method-assign]
    world.run(16_000, batch_rows=100, reoptimize_every=1000)
    # 0.6 ms of work: each of three forks is met once, and one has a trial of 1 row and then of 32.
    assert n_thoughts <= 4
    assert policy.news_ns > 0
    world.run(160_000, batch_rows=100, reoptimize_every=1000)
    assert len(world.outcome.rows_by_first) == 3, "later all modules are tried"


def test_a_first_decision_is_not_repeated_where_rows_multiply() -> None:
    modules = [Module(40.0, 20), Module(0.5, 20)]
    world = World(modules, AutoPolicy(random.Random(1)))
    world.run(2000, batch_rows=100, reoptimize_every=1000)
    assert world.outcome.rows_by_first[0] <= 33
