"""Lottery scheduling (section 4.2 of Eddies): modules win rows by consuming more than they return.

A module earns a ticket for each row it takes and pays one for each row it gives back; who is next
is drawn by tickets. A selective module gathers tickets and so comes early.

Two things are added to the paper. Tickets do not see cost, and one thread has no queues that would:
they are divided by the measured time per row. And tickets may fall below zero (a join that fans
out): nobody has fewer than the *floor*, the average number of rows of a run, which is 1 when rows
are routed one by one as in the paper.

For two selections of equal cost the share of rows that see the first one first tends to
(1-s1)s2 / ((1-s1)s2 + (1-s2)s1), s being selectivities.
"""

from __future__ import annotations

import random

from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.measure import Tally, costs_or_cheapest, draw, without_cross

__all__ = ["LotteryPolicy"]


class LotteryPolicy:
    """Cumulative tickets, by module, over all signatures.

    Explores: all the time, in proportion to tickets per nanosecond.
    Exploration costs: with two selections, up to 5 % over the better order at equal costs and up to
    10 % at unequal ones, for ever: it mixes orders rather than settling.
    Forgets: nothing. After a long past it takes as long a present to change its mind; see
    `lottery_window` for the cure.
    Decides: every batch.
    Worst case: after a shift it follows the old order for about as long as the old phase lasted. A
    join that returns nothing because its partner is late looks perfect (section 5 of Eddies).
    """

    is_surprised = False
    news_ns = None
    every_batch = True
    diverts = False

    def __init__(self, rng: random.Random, *, cost_aware: bool = True) -> None:
        self._rng = rng
        self._cost_aware = cost_aware
        self._tallies: dict[int, Tally] = {}
        self._all = Tally()

    def choose(self, fork: Fork) -> Decision:
        """A draw by max(tickets, floor), over time per row if cost-aware."""
        choices = without_cross(fork)
        tallies = [self._tallies.get(fork.candidates[i].module) for i in choices]
        floor = self._all.n_in / self._all.n_runs if self._all.n_runs else 1.0
        weights = [
            max(tally.n_in - tally.n_out, floor) if tally is not None else floor
            for tally in tallies
        ]
        if self._cost_aware:
            costs_ns = costs_or_cheapest([tally.cost_ns if tally else None for tally in tallies])
            weights = [w / cost_ns for w, cost_ns in zip(weights, costs_ns, strict=True)]
        return Decision(draw(self._rng, choices, weights))

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """`n_in` tickets earned, `n_out` paid."""
        module = fork.candidates[choice].module
        tally = self._tallies.get(module)
        if tally is None:
            tally = self._tallies[module] = Tally()
        tally.add(n_in, n_out, elapsed_ns)
        self._all.add(n_in, n_out, elapsed_ns)

    def reoptimize(self) -> None:
        """Tickets are never taken away."""

    def tickets_of(self, module: int) -> float:
        """Rows taken minus rows returned, so far."""
        tally = self._tallies.get(module)
        return tally.n_in - tally.n_out if tally else 0.0
