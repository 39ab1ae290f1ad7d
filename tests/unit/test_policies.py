"""The papers' policies, driven through the protocol by a simulated world."""

from __future__ import annotations

import random

import pytest

from eddies.core.lineage import Signature
from eddies.core.policies import POLICIES, Candidate, Decision, Fork, make_policy
from eddies.core.policies.greedy import EXPLORED_SHARE, GreedyPolicy
from eddies.core.policies.lottery import LotteryPolicy
from eddies.core.policies.lottery_window import LotteryWindowPolicy
from eddies.core.policies.measure import Tally
from eddies.core.policies.naive import NaivePolicy
from eddies.core.policies.random import RandomPolicy
from eddies.core.policies.rank import TRIAL_ROWS, RankPolicy
from eddies.core.policies.static import StaticPolicy, check_order
from eddies.errors import OptionError
from tests.unit.routing_simulator import PERIOD, Module, World, best_cost, order_cost

ORDER = ("s0", "s1", "s2")


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)


def fork_of(*names: str, cross: tuple[bool, ...] = ()) -> Fork:
    cross = cross or (False,) * len(names)
    return Fork(
        0,
        Signature(1),
        tuple(Candidate(m, n, "probe", cross[m]) for m, n in enumerate(names)),
        tuple(Signature(1, 1 << m) for m in range(len(names))),
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_same_seed_same_routing(name: str) -> None:
    modules = [Module(0.5, 10), Module(0.2, 30), Module(1.5, 5)]
    traces = []
    for _ in range(2):
        world = World(modules, make_policy(name, rng(), ORDER), seed=3, jitter=0.2)
        traces.append(world.run(6 * PERIOD, batch_rows=8192).trace)
    assert traces[0] == traces[1]


@pytest.mark.parametrize("name", ["random", "naive", "lottery", "lottery-window"])
def test_another_seed_another_routing(name: str) -> None:
    modules = [Module(0.5, 10), Module(0.4, 12)]
    one, two = (
        World(modules, make_policy(name, rng(seed)), seed=3).run(50_000, batch_rows=500).trace
        for seed in (1, 2)
    )
    assert one != two


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"static", "random"}))
def test_a_product_is_taken_only_if_nothing_else_is_legal(name: str) -> None:
    modules = [Module(0.1, 1, cross=True), Module(0.9, 50), Module(0.8, 50)]
    outcome = World(modules, make_policy(name, rng())).run(4 * PERIOD, batch_rows=4096)
    assert outcome.rows_by_first[0] == 0
    assert outcome.rows_by_module[0] > 0


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"static"}))
def test_rows_returned_later_count(name: str) -> None:
    """A run that pauses reports the rest of its output with no rows in."""
    fork = fork_of("stem:s0", "stem:s1")
    policy = make_policy(name, rng())
    for _ in range(40):
        for _ in range(2):
            policy.observe(fork, 0, 4096, 4096, 40_000)
            policy.observe(fork, 0, 0, 4096 * 8, 40_000)
            policy.observe(fork, 1, 4096, 2048, 80_000)
        policy.reoptimize()
    chosen = [policy.choose(fork).choice for _ in range(200)]
    if name == "random" or name == "naive":
        assert 60 <= sum(chosen) <= 140  # of equal speed, and they look at nothing else
    elif name == "greedy":
        assert sum(chosen) >= 185
    elif name.startswith("lottery"):
        assert sum(chosen) >= 150
    elif name == "rank":
        assert sum(chosen) == 200


def test_a_tally_never_fades_to_nothing() -> None:
    tally = Tally()
    tally.add(100, 25, 1000)
    for _ in range(5000):
        tally.fade(0.5)
    assert tally.selectivity == pytest.approx(0.25)
    assert tally.cost_ns == pytest.approx(10)


# static


def test_static_follows_the_order_by_name_or_source() -> None:
    fork = fork_of("stem:a", "select:f(x) > 1", "stem:b")
    assert StaticPolicy(["b", "f(x) > 1", "a"]).choose(fork).choice == 2
    assert StaticPolicy(["select:f(x) > 1", "stem:a", "b"]).choose(fork).choice == 1


def test_static_refuses_what_it_cannot_follow() -> None:
    with pytest.raises(OptionError, match="'stem:b'"):
        StaticPolicy(["a"]).choose(fork_of("stem:a", "stem:b"))
    with pytest.raises(OptionError, match="twice"):
        StaticPolicy(["a", "a"])
    with pytest.raises(OptionError, match="'c', which is no module"):
        check_order(["a", "c"], ["stem:a"])
    with pytest.raises(OptionError, match="'stem:b'"):
        check_order(["a"], ["stem:a", "stem:b"])


@pytest.mark.parametrize("misrouted", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("s1", "best"), [(0.1, 1.1), (0.9, 1.5)])
def test_jeopardy_of_misrouting(misrouted: float, s1: float, best: float) -> None:
    """Section 3.5 of the specification: best + 0.4 e, for two selections of cost 1."""
    modules = [Module(s1, 1.0), Module(0.5, 1.0)]
    good, bad = ((0, 1), (1, 0)) if s1 < 0.5 else ((1, 0), (0, 1))
    cost = (1 - misrouted) * order_cost(modules, good) + misrouted * order_cost(modules, bad)
    assert cost == pytest.approx(best + 0.4 * misrouted)
    n_rows, n_bad = 400_000, round(400_000 * misrouted)
    simulated = 0.0
    for order, n in ((good, n_rows - n_bad), (bad, n_bad)):
        policy = StaticPolicy([f"s{m}" for m in order])
        simulated += World(modules, policy).run(n).cost
    assert simulated / n_rows == pytest.approx(cost, rel=0.01)


# random and naive


def test_random_is_uniform() -> None:
    outcome = World([Module(0.1, 1), Module(1.0, 90), Module(2.0, 5)], RandomPolicy(rng())).run(
        30_000, batch_rows=10
    )
    for m in range(3):
        assert outcome.rows_by_first[m] / 30_000 == pytest.approx(1 / 3, abs=0.04)


@pytest.mark.parametrize("cost", range(1, 10))
def test_naive_nears_the_better_order_when_costs_differ(cost: int) -> None:
    modules = [Module(0.5, cost * 1000), Module(0.5, 5000)]
    outcome = World(modules, NaivePolicy(rng())).run(20_000, batch_rows=1)
    assert outcome.cost <= 1.11 * best_cost(modules) * 20_000
    assert outcome.rows_by_first[0] / 20_000 == pytest.approx(5 / (5 + cost), abs=0.03)


@pytest.mark.parametrize("s1", [0.1, 0.9])
def test_naive_is_blind_to_selectivity(s1: float) -> None:
    outcome = World([Module(s1, 5000), Module(0.5, 5000)], NaivePolicy(rng())).run(
        20_000, batch_rows=1
    )
    assert outcome.rows_by_first[0] / 20_000 == pytest.approx(0.5, abs=0.03)


# lotteries


@pytest.mark.parametrize("s2", [0.3, 0.5])
@pytest.mark.parametrize("s1", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_lottery_share_has_a_closed_form(s1: float, s2: float) -> None:
    modules = [Module(s1, 5000), Module(s2, 5000)]
    outcome = World(modules, LotteryPolicy(rng())).run(50_000, batch_rows=1)
    share = (1 - s1) * s2 / ((1 - s1) * s2 + (1 - s2) * s1)
    assert outcome.rows_by_first[0] / 50_000 == pytest.approx(share, abs=0.03)
    assert outcome.cost <= 1.10 * best_cost(modules) * 50_000


@pytest.mark.parametrize("cost", [1, 3, 5, 7, 9])
def test_lottery_sees_cost_only_if_told_to(cost: int) -> None:
    modules = [Module(0.5, cost * 1000), Module(0.5, 5000)]
    aware = World(modules, LotteryPolicy(rng())).run(20_000, batch_rows=1)
    blind = World(modules, LotteryPolicy(rng(), cost_aware=False)).run(20_000, batch_rows=1)
    assert aware.cost <= 1.10 * best_cost(modules) * 20_000
    assert blind.rows_by_first[0] / 20_000 == pytest.approx(0.5, abs=0.05)


def test_tickets_are_rows_taken_minus_rows_returned() -> None:
    policy = LotteryPolicy(rng())
    fork = fork_of("stem:a", "stem:b")
    policy.observe(fork, 0, 100, 30, 1)
    policy.observe(fork, 1, 10, 25, 1)
    assert (policy.tickets_of(0), policy.tickets_of(1), policy.tickets_of(2)) == (70, -15, 0)


def test_window_banks_escrow_and_forgets_the_bank() -> None:
    policy = LotteryWindowPolicy(rng(), window_rows=32)
    fork = fork_of("stem:a", "stem:b")
    for _ in range(31):
        policy.observe(fork, 0, 1, 0, 1)
    assert policy.banked_tickets_of(0) == 0
    policy.observe(fork, 0, 1, 0, 1)
    assert policy.banked_tickets_of(0) == 32
    for _ in range(32):
        policy.observe(fork, 1, 1, 0, 1)
    assert (policy.banked_tickets_of(0), policy.banked_tickets_of(1)) == (0, 32)


def test_window_lottery_adapts_where_the_cumulative_one_does_not() -> None:
    swap = 20_000
    modules = [
        Module(lambda t: 0.1 if t < swap else 0.9, 1000),
        Module(lambda t: 0.9 if t < swap else 0.1, 1000),
    ]
    shares = []
    for policy in (LotteryWindowPolicy(rng()), LotteryPolicy(rng())):
        world = World(modules, policy)
        before = world.run(swap, batch_rows=1).rows_by_first[1]
        after = world.run(2000, batch_rows=1).rows_by_first[1] - before
        shares.append(after / 2000)
    assert shares[0] >= 0.75
    assert shares[1] <= 0.30


def test_window_lottery_follows_costs_that_swap() -> None:
    """Figure 11 of Eddies: costs 1 and 100 swap every 1000 of 4000 rows."""
    modules = [
        Module(0.1, lambda t: 1e3 if t // 1000 % 2 == 0 else 1e5),
        Module(0.1, lambda t: 1e5 if t // 1000 % 2 == 0 else 1e3),
    ]
    outcome = World(modules, LotteryWindowPolicy(rng())).run(4000, batch_rows=1)
    static = sum(order_cost(modules, (0, 1), t) for t in range(4000))
    assert outcome.cost <= 0.35 * static


# rank and greedy


def test_rank_orders_by_rows_removed_per_time() -> None:
    modules = [Module(0.2, 100), Module(0.6, 10), Module(0.9, 1)]
    outcome = World(modules, RankPolicy()).run(20 * PERIOD)
    assert outcome.rows_by_first[2] > 0.9 * 20 * PERIOD  # 0.1 / 1 beats 0.4 / 10 and 0.8 / 100
    assert outcome.cost <= 1.05 * best_cost(modules) * 20 * PERIOD


MS = 1_000_000


def ranked(*costs: int) -> tuple[RankPolicy, Fork]:
    """A policy that has seen modules of these costs (in milliseconds) keep half of 1,000 rows each."""
    policy, fork = RankPolicy(), fork_of(*(f"m{i}" for i in range(len(costs))))
    for cost in costs:
        policy.observe(fork, policy.choose(fork).choice, 1000, 500, cost * MS)
        assert not policy.reoptimize(), "there was work enough for a trial, or one was made"
    return policy, fork


def test_rank_has_nothing_to_decide_while_the_order_is_the_same() -> None:
    policy, fork = ranked(10, 20)
    assert policy.choose(fork).choice == 0
    policy.observe(fork, 0, 1000, 500, 17 * MS)
    assert policy.reoptimize()
    policy.observe(fork, 0, 1000, 500, 90 * MS)
    assert not policy.reoptimize(), "now the other is quicker"
    assert policy.choose(fork).choice == 1


def test_rank_tries_no_module_before_it_is_worth_deciding_anew() -> None:
    policy, fork = RankPolicy(), fork_of("m0", "m1")
    for _ in range(7):
        assert policy.choose(fork) == Decision(0), "the first of the text, until there are others"
        policy.observe(fork, 0, 100, 50, MS // 10)
        assert policy.reoptimize(), "in 0.7 ms a decision was made 50 times, not worth another"
    policy.observe(fork, 0, 100, 50, MS // 10)
    assert policy.news_ns, "runs may be summed up"
    assert not policy.reoptimize()
    assert policy.choose(fork) == Decision(1, TRIAL_ROWS)
    assert not policy.news_ns, "what comes of a trial is wanted at once"


def test_rank_keeps_its_choice_if_another_is_hardly_better() -> None:
    policy, fork = ranked(10, 20)
    assert policy.choose(fork).choice == 0
    for _ in range(50):
        policy.observe(fork, 0, 1000, 500, 21 * MS)
        assert policy.reoptimize()
        assert policy.choose(fork).choice == 0


def test_rank_forgets_without_losing_ranks() -> None:
    policy, fork = ranked(10, 20, 30)
    assert policy.choose(fork).choice == 0
    for _ in range(2000):  # weights double each time: they must not overflow
        policy.reoptimize()
        policy.observe(fork, 0, 1000, 500, 10 * MS)
    assert policy.choose(fork).choice == 0
    for _ in range(5):
        policy.reoptimize()
        policy.observe(fork, 0, 1000, 500, 100 * MS)
    assert policy.choose(fork).choice == 1, "of the others, the better one is still known"


def test_greedy_looks_at_selectivity_alone_and_keeps_exploring() -> None:
    modules = [Module(0.2, 1000), Module(0.6, 1)]
    n_rows = 1_000_000
    outcome = World(modules, GreedyPolicy(rng())).run(n_rows, batch_rows=500)
    assert outcome.rows_by_first[1] / n_rows == pytest.approx(EXPLORED_SHARE, abs=0.01)
