"""Regret: what a policy's choices cost more than the best ones would have. For tests and figures.

A `RegretRouter` sends every base batch down *every* legal order and emits the results once, so that
the cost of every order on every batch is known exactly. Signatures make this affordable: what reaches
a signature does not depend on the way there, so it is computed once per signature, not once per
order. (That it does not depend on the way is checked: the row counts of all ways must agree, and where
no row arrives, none may be found further on.)

Cost is counted in rows handled: each row that goes to a module costs one. The policy is asked at
every fork and told only of the steps it chose, as if it had been alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from eddies.core.batch import RoutedBatch
from eddies.core.clock import Clock
from eddies.core.lineage import Signature
from eddies.core.policies.base import RoutingPolicy
from eddies.core.route import RouteTable
from eddies.core.router import Router

__all__ = ["BatchCosts", "RegretLog", "RegretRouter"]


@dataclass(slots=True)
class BatchCosts:
    """One base batch: rows that arrive at each signature, and the ways on from there."""

    start: Signature
    n_rows: dict[Signature, int] = field(default_factory=dict)
    ways: dict[Signature, list[tuple[str, Signature]]] = field(default_factory=dict)
    chosen_cost: int = 0

    def best_cost(self) -> int:
        """Rows handled on the cheapest way from the start to the results."""
        cheapest: dict[Signature, int] = {}

        def cost(signature: Signature) -> int:
            if signature not in cheapest:
                onward = [cost(after) for _, after in self.ways.get(signature, [])]
                cheapest[signature] = self.n_rows.get(signature, 0) + min(onward) if onward else 0
            return cheapest[signature]

        return cost(self.start)

    def order_cost(self, order: Sequence[str]) -> int:
        """Rows handled when at each signature the module earliest in `order` is taken."""
        total, signature = 0, self.start
        while ways := self.ways.get(signature):
            total += self.n_rows.get(signature, 0)
            signature = min(ways, key=lambda way: order.index(way[0]))[1]
        return total


class RegretLog:
    """Costs of all batches of a query."""

    def __init__(self) -> None:
        self.batches: list[BatchCosts] = []

    @property
    def chosen_cost(self) -> int:
        """Rows handled by the policy's choices."""
        return sum(batch.chosen_cost for batch in self.batches)

    @property
    def best_cost(self) -> int:
        """Rows handled if every batch had taken its best order."""
        return sum(batch.best_cost() for batch in self.batches)

    def best_fixed_order(self) -> tuple[int, tuple[str, ...]]:
        """Cost and modules of the best single order; tries all, so for few modules only."""
        modules = sorted({way for b in self.batches for ways in b.ways.values() for way, _ in ways})
        costs = (
            (sum(batch.order_cost(order) for batch in self.batches), order)
            for order in permutations(modules)
        )
        return min(costs, default=(0, ()))


class RegretRouter(Router):
    """A router that takes every way. Results are emitted once."""

    def __init__(
        self,
        log: RegretLog,
        table: RouteTable,
        policy: RoutingPolicy,
        clock: Clock,
        collect: Callable[[RoutedBatch], None],
        reoptimize_every: int | None,
        batch_rows: int,
    ) -> None:
        super().__init__(table, policy, clock, collect, reoptimize_every, batch_rows, None)
        self._log = log

    def run(self, batch: RoutedBatch) -> None:
        """Every batch goes all ways, so none has a path."""
        self.start(batch)
        self.step()

    def step(self, timed_rows: int = 0) -> bool:
        """Take the current base batch down every way, to the end."""
        batch = self._current
        if batch is None:
            return False
        self._current = None
        costs = BatchCosts(batch.route.signature)
        self._log.batches.append(costs)
        arrived: dict[Signature, list[RoutedBatch]] = {batch.route.signature: [batch]}
        chosen = batch.route.signature
        for _ in range(1 << 20):  # bounded: every step adds a bit
            if not arrived:
                return True
            signature = min(arrived, key=lambda s: (s.sources.bit_count() + s.done.bit_count(), s))
            pieces = arrived.pop(signature)
            chosen = self._all_ways(costs, signature, pieces, arrived, chosen)
        raise AssertionError("progress: a batch visits a module a bounded number of times")

    def _all_ways(
        self,
        costs: BatchCosts,
        signature: Signature,
        pieces: list[RoutedBatch],
        arrived: dict[Signature, list[RoutedBatch]],
        chosen: Signature,
    ) -> Signature:
        route = self.table.route(signature)
        if not route.is_expanded:
            self.table.expand(route)
        n_rows = costs.n_rows[signature] = sum(piece.n_rows for piece in pieces)
        if route.fork is None:
            for piece in pieces:
                self._collect(piece)
            return chosen
        choice = -1
        if signature == chosen and n_rows:
            if route.n_left <= 0 or self.policy.every_batch:
                self._decide(route, n_rows)
            choice = route.way.number
            costs.chosen_cost += n_rows
            chosen = route.fork.leads_to[choice]
        for way, after in zip(route.ways, route.fork.leads_to, strict=True):
            step = way.step
            costs.ways.setdefault(signature, []).append((step.name, after))
            started = self._now()
            if n_rows and step.prepare(self.scratch):
                self.has_indexed = True
            results: list[RoutedBatch] = []
            for piece in pieces:
                first, more = step.run(piece, self.scratch)
                results += [first] if first is not None else []
                results += list(more) if more is not None else []
            n_out = sum(result.n_rows for result in results)
            if way.number == choice:
                elapsed = self._now() - started
                way.n_runs += 1
                way.n_in += n_rows
                way.n_out += n_out
                way.ns += elapsed
                self.ns_working += elapsed
                self.policy.observe(way.fork, choice, n_rows, n_out, elapsed)
            n_before = costs.n_rows.setdefault(after, n_out)
            assert n_before == n_out, "any order, same bag: two ways disagree about what arrives"
            arrived.setdefault(after, results)
        return chosen
