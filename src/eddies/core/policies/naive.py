"""Back-pressure alone (section 4.1 of Eddies): rows flow to whoever takes them fastest.

In the paper each module has a thread and a bounded queue; a fast module drains its queue sooner and
so receives more rows. One thread has no queues (section 3.3 of the overhead study), so the queues
are modelled: in the long run each drains at its module's measured speed, and a module is drawn with
a chance proportional to that speed. What comes *out* of a module is not looked at.

A host that does have bounded queues, in virtual time, shows forks that list only the modules with
room. Such forks share a signature and differ in candidates, so speeds are kept by module.
"""

from __future__ import annotations

import random

from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.measure import Tally, costs_or_cheapest, draw, without_cross

__all__ = ["NaivePolicy"]


class NaivePolicy:
    """Draws modules in proportion to rows per second; blind to selectivity.

    Explores: all the time, since slow modules are still drawn.
    Exploration costs: with two selections of equal selectivity never more than 10 % over the better
    order (the ratio is largest where one costs about four times as much as the other).
    Forgets: half of its timings at every re-optimization.
    Decides: every batch.
    Worst case: with equal costs it is random, so a fan-out join may come first half of the time.
    """

    is_surprised = False
    news_ns = None
    every_batch = True
    diverts = False

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._tallies: dict[int, Tally] = {}

    def choose(self, fork: Fork) -> Decision:
        """A draw by measured speed; a module without measurements counts as fast as the fastest."""
        choices = without_cross(fork)
        tallies = [self._tallies.get(fork.candidates[i].module) for i in choices]
        costs_ns = costs_or_cheapest([tally.cost_ns if tally else None for tally in tallies])
        return Decision(draw(self._rng, choices, [1.0 / cost_ns for cost_ns in costs_ns]))

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Adds to the speed of the module."""
        module = fork.candidates[choice].module
        tally = self._tallies.get(module)
        if tally is None:
            tally = self._tallies[module] = Tally()
        tally.add(n_in, n_out, elapsed_ns)

    def reoptimize(self) -> None:
        """Halves the weight of the past."""
        for tally in self._tallies.values():
            tally.fade(0.5)
