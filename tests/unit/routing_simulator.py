"""A world without rows: modules that keep given shares of what they are sent, and cost given times.

It drives a policy through the protocol of `policies.base` and nothing else: forks by signature,
decisions that hold for rows or until re-optimization, observations in a virtual time. Row counts
are drawn (binomial, or Poisson for a fan-out), so a policy sees the same noise it would see in a
query.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from eddies.core.lineage import Signature
from eddies.core.policies import Candidate, Decision, Fork, RoutingPolicy

PERIOD = 65_536

OfTime = float | Callable[[int], float]
"""A constant, or a function of the number of driver rows so far."""


@dataclass(frozen=True)
class Module:
    """Keeps `selectivity` of its rows; `cost` ns a row, `run_price` ns a run; after `needs`."""

    selectivity: OfTime
    cost: OfTime
    needs: tuple[int, ...] = ()
    run_price: float = 0.0
    cross: bool = False


def at(value: OfTime, n_driver_rows: int) -> float:
    return value(n_driver_rows) if callable(value) else value


def legal_orders(modules: Sequence[Module]) -> list[tuple[int, ...]]:
    return [
        order
        for order in itertools.permutations(range(len(modules)))
        if all(set(modules[m].needs) <= set(order[:i]) for i, m in enumerate(order))
    ]


def order_cost(modules: Sequence[Module], order: Sequence[int], n_driver_rows: int = 0) -> float:
    """Expected nanoseconds per driver row."""
    total, kept = 0.0, 1.0
    for m in order:
        total += kept * at(modules[m].cost, n_driver_rows)
        kept *= at(modules[m].selectivity, n_driver_rows)
    return total


def best_cost(modules: Sequence[Module], n_driver_rows: int = 0) -> float:
    """Expected nanoseconds per driver row of the best order at that time."""
    return min(order_cost(modules, order, n_driver_rows) for order in legal_orders(modules))


@dataclass
class Outcome:
    """What came of a simulated query."""

    cost: float = 0.0
    cost_by_period: list[float] = field(default_factory=list)
    rows_by_first: Counter[int] = field(default_factory=Counter)
    rows_by_module: Counter[int] = field(default_factory=Counter)
    trace: list[tuple[int, int, int]] = field(default_factory=list)


class World:
    """One eddy's modules and routing. `run` may be called again to go on where it ended."""

    def __init__(
        self,
        modules: Sequence[Module],
        policy: RoutingPolicy,
        *,
        seed: int = 0,
        jitter: float = 0.0,
    ) -> None:
        self.modules = modules
        self.policy = policy
        self.outcome = Outcome()
        self.n_driver_rows = 0
        self._rng = np.random.default_rng(seed)
        self._jitter = jitter
        self._forks: dict[int, Fork] = {}
        self._in_force: dict[int, tuple[int, int | None]] = {}
        self._since_reoptimize = 0
        self._period_cost = 0.0

    def run(
        self, n_rows: int, *, batch_rows: int = PERIOD, reoptimize_every: int = PERIOD
    ) -> Outcome:
        end = self.n_driver_rows + n_rows
        while self.n_driver_rows < end:
            n_batch = min(batch_rows, end - self.n_driver_rows)
            self._route(n_batch)
            self.n_driver_rows += n_batch
            self._since_reoptimize += n_batch
            if self._since_reoptimize >= reoptimize_every:
                self._since_reoptimize = 0
                self.policy.reoptimize()
                self._in_force.clear()
                self.outcome.cost_by_period.append(self._period_cost)
                self._period_cost = 0.0
        return self.outcome

    def _route(self, n_batch: int) -> None:
        stack = [(0, n_batch)]
        while stack:
            done, n_rows = stack.pop()
            fork = self._fork(done)
            if not fork.candidates:
                continue
            choice, holds_for = self._decide(fork)
            n_in = n_rows if holds_for is None else min(n_rows, holds_for)
            if n_in < n_rows:
                stack.append((done, n_rows - n_in))
            if not self.policy.every_batch:
                self._spend(fork, choice, holds_for, n_in)
            n_out = self._visit(fork, choice, n_in)
            if n_out:
                stack.append((fork.leads_to[choice].done, n_out))

    def _decide(self, fork: Fork) -> tuple[int, int | None]:
        if fork.fork_id in self._in_force:
            return self._in_force[fork.fork_id]
        decision: Decision = self.policy.choose(fork)
        assert 0 <= decision.choice < len(fork.candidates)
        assert decision.n_rows is None or decision.n_rows >= 1
        return decision.choice, decision.n_rows

    def _spend(self, fork: Fork, choice: int, holds_for: int | None, n_in: int) -> None:
        if holds_for is not None and holds_for <= n_in:
            self._in_force.pop(fork.fork_id, None)
        else:
            left = None if holds_for is None else holds_for - n_in
            self._in_force[fork.fork_id] = (choice, left)

    def _visit(self, fork: Fork, choice: int, n_in: int) -> int:
        m = fork.candidates[choice].module
        module, now = self.modules[m], self.n_driver_rows
        selectivity = at(module.selectivity, now)
        n_out = int(
            self._rng.binomial(n_in, selectivity)
            if selectivity <= 1.0
            else self._rng.poisson(n_in * selectivity)
        )
        elapsed = n_in * at(module.cost, now) + module.run_price
        measured = elapsed * (1.0 + self._jitter * self._rng.exponential())
        self.policy.observe(fork, choice, n_in, n_out, round(measured))
        self.outcome.cost += elapsed
        self._period_cost += elapsed
        self.outcome.rows_by_module[m] += n_in
        if not fork.signature.done:
            self.outcome.rows_by_first[m] += n_in
        self.outcome.trace.append((fork.signature.done, m, n_in))
        return n_out

    def _fork(self, done: int) -> Fork:
        fork = self._forks.get(done)
        if fork is None:
            legal = [
                m
                for m, module in enumerate(self.modules)
                if not done >> m & 1 and all(done >> need & 1 for need in module.needs)
            ]
            fork = self._forks[done] = Fork(
                fork_id=len(self._forks),
                signature=Signature(1, done),
                candidates=tuple(
                    Candidate(m, f"stem:s{m}", "probe", self.modules[m].cross) for m in legal
                ),
                leads_to=tuple(Signature(1, done | 1 << m) for m in legal),
            )
        return fork
