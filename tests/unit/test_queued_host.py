"""The simulated machine of the original eddy: its rules, and small versions of the claims."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.graph import make_graph
from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.lottery import LotteryPolicy
from eddies.core.policies.random import RandomPolicy
from eddies.errors import OptionError, SourceError
from eddies.experiments.delays import run_delays
from eddies.experiments.external_indexes import run_changing_costs, run_one_switch
from eddies.experiments.joins import HASH, RS, ST, T_INDEX, make_joins
from eddies.experiments.machine import Recorder, assert_same_answer, below, select_query
from eddies.experiments.selections import run_jeopardy
from eddies.hosts.machine import Limits, Scan, Service
from eddies.hosts.queued import QueuedRun

ROOMY = Limits(buffer_rows=20, queue_rows=20, batch_rows=5)
FULL = Limits(buffer_rows=60, queue_rows=20, batch_rows=5)


class Watching:
    """Takes the first candidate and remembers which forks it was shown."""

    every_batch = True
    diverts = False
    is_surprised = False
    news_ns = None

    def __init__(self) -> None:
        self.forks: list[Fork] = []
        self.observed: list[tuple[int, int, int]] = []

    def choose(self, fork: Fork) -> Decision:
        self.forks.append(fork)
        return Decision(0)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        self.observed.append((n_in, n_out, elapsed_ns))

    def reoptimize(self) -> None:
        pass


def selections(n_rows: int = 1000):
    rng = np.random.default_rng(3)
    table = pa.table({"x1": rng.random(n_rows), "x2": rng.random(n_rows)})
    query = select_query(table, (below("u", "x1", 0.5), below("u", "x2", 0.5)))
    names = [optional.name for optional in make_graph(query).optionals]
    return table, query, names


def test_a_static_plan_takes_the_time_of_its_work():
    table, query, names = selections()
    services = {names[0]: Service(10.0), names[1]: Service(30.0)}
    run = QueuedRun(query, {"u": Scan(table)}, services, FULL, order=(names[0], names[1])).run()
    kept = int((table["x1"].to_numpy() < 0.5).sum())
    assert run.n_in == {names[0]: 1000, names[1]: kept}
    # One processor, never idle: what two threads do at once is not done sooner.
    assert run.elapsed_s * 1e9 == pytest.approx(10 * 1000 + 30 * kept, rel=0.01)


def test_answers_are_those_of_the_predicates():
    table, query, names = selections()
    services = dict.fromkeys(names, Service(10.0))
    run = QueuedRun(
        query, {"u": Scan(table)}, services, ROOMY, RandomPolicy(random.Random(1))
    ).run()
    passing = (table["x1"].to_numpy() < 0.5) & (table["x2"].to_numpy() < 0.5)
    assert run.results()[:, 0].tolist() == np.flatnonzero(passing).tolist()


def test_modules_without_room_are_not_shown():
    table, query, names = selections()
    policy = Watching()
    services = {names[0]: Service(1000.0), names[1]: Service(10.0)}
    recorder = Recorder()
    QueuedRun(query, {"u": Scan(table)}, services, FULL, policy, events=recorder).run()
    # It always takes the first module of two; only a full queue can send a new row to the other.
    assert recorder.n_first()[names[1]] > recorder.n_first()[names[0]]
    assert all(len(fork.candidates) == 2 for fork in policy.forks)


def test_with_as_many_rows_in_flight_as_a_queue_holds_no_queue_is_full():
    table, query, names = selections()
    services = {names[0]: Service(1000.0), names[1]: Service(10.0)}
    recorder = Recorder()
    QueuedRun(query, {"u": Scan(table)}, services, ROOMY, Watching(), events=recorder).run()
    assert recorder.n_first()[names[0]] == 1000


def test_policies_observe_declared_time():
    table, query, names = selections(100)
    policy = Watching()
    services = {names[0]: Service(7.0, 2.0), names[1]: Service(10.0)}
    QueuedRun(query, {"u": Scan(table)}, services, ROOMY, policy).run()
    n_in, n_out, elapsed_ns = policy.observed[0]
    assert elapsed_ns == 7 * n_in + 2 * n_out


def test_a_module_that_sleeps_leaves_the_processor_to_others():
    table, query, names = selections()
    awake = {names[0]: Service(100.0), names[1]: Service(100.0)}
    asleep = {names[0]: Service(100.0), names[1]: Service(100.0, sleeps=True)}
    order = (names[0], names[1])
    runs = [
        QueuedRun(query, {"u": Scan(table)}, services, FULL, order=order).run()
        for services in (awake, asleep)
    ]
    assert runs[1].elapsed_s < 0.75 * runs[0].elapsed_s


def test_a_scan_delivers_late_and_at_its_rate():
    table, query, names = selections(100)
    services = dict.fromkeys(names, Service(1.0))
    scan = Scan(table, rows_per_s=10.0, delay_s=5.0)
    run = QueuedRun(query, {"u": scan}, services, ROOMY, order=tuple(names)).run()
    assert run.elapsed_s == pytest.approx(5.0 + 95 / 10, abs=0.01)


@pytest.mark.parametrize("state_in_joins", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_order_same_bag(state_in_joins, seed):
    joins = make_joins(1.8, 0.2, scale=100, seed=seed)
    names = (RS, ST) if state_in_joins else ("stem:R", "stem:T", "stem:S")
    services = dict.fromkeys(names, HASH)
    settings = {"state_in_joins": state_in_joins}
    fixed, _ = joins.run(None, ROOMY, services, names, **settings)
    chance, _ = joins.run(RandomPolicy(random.Random(seed)), FULL, services, **settings)
    assert_same_answer(chance, fixed)
    r, s, t = (joins.tables[name].to_pandas() for name in "RST")
    assert len(fixed.results()) == len(s.merge(r, on="a").merge(t, on="b"))


def test_index_joins_mix_with_hash_joins():
    joins = make_joins(1.8, 0.1, has_index=True, scale=100)
    services = {RS: HASH, T_INDEX: HASH}
    lottery, _ = joins.run(LotteryPolicy(random.Random(0)), ROOMY, services)
    fixed, _ = joins.run(None, ROOMY, services, (T_INDEX, RS))
    assert_same_answer(lottery, fixed)
    assert len(fixed.results()) > 0


def test_what_is_wrong_is_said():
    table, query, names = selections(10)
    with pytest.raises(OptionError, match="declares no cost for module"):
        QueuedRun(query, {"u": Scan(table)}, {}, ROOMY, Watching()).run()
    with pytest.raises(SourceError, match="give a scan or an index"):
        QueuedRun(query, {}, dict.fromkeys(names, HASH), ROOMY, Watching())
    with pytest.raises(OptionError, match="not both"):
        QueuedRun(query, {"u": Scan(table)}, {}, ROOMY)
    with pytest.raises(OptionError, match="must be at least 1 and fit"):
        Limits(buffer_rows=5, queue_rows=5, batch_rows=6)


def test_small_versions_of_claims_hold():
    (jeopardy,) = run_jeopardy().claims
    assert jeopardy.held, jeopardy.headline
    (costs,) = run_changing_costs().claims
    assert costs.held, costs.headline
    (switch,) = run_one_switch(n_rows=6000, switch_s=30.0).claims
    eddy_over_static = switch.checks[0]
    assert eddy_over_static.value < 0.35, eddy_over_static


def test_a_delayed_source_misleads_joins_but_does_not_bind_stems():
    r_late, _ = run_delays(scale=10).claims
    assert r_late.held, r_late.headline
