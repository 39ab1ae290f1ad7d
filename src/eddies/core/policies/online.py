"""Benefit by cost (SteMs, section 4.1): what gives the user most, soonest.

Of the modules a signature may visit, take the one with the most expected benefit per time: partial
results that come back for each row, each worth the part of the sources it spans, divided by the time a
row takes. Statistics are kept for each (module, signature). A small share of the rows keeps going to
the others, because they may have become better (SteM-55).
"""

from __future__ import annotations

from random import Random

from eddies.core.lineage import Signature
from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.measure import Tally, without_cross

__all__ = ["OnlinePolicy"]

TRIAL_ROWS = 4_096
EXPLORE_SHARE = 0.02


class OnlinePolicy:
    """For people who look at results as they come.

    Explores: each module once per signature, then 2 % of the decisions, at random.
    Exploration costs: at most 2 % of the rows go a way that is believed to be worse, and
    `TRIAL_ROWS` rows per (signature, module) at the beginning.
    Forgets: half of what it knows at every re-optimization.
    Decides: every batch.
    Worst case: benefit is counted one step ahead, so a module that multiplies rows which the next one
    drops looks good; the total work then exceeds that of the best order without bound.
    """

    is_surprised = False
    news_ns = None
    every_batch = True
    diverts = False

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._tallies: dict[tuple[Signature, int], Tally] = {}

    def choose(self, fork: Fork) -> Decision:
        """The most benefit by cost; now and then another."""
        ways = without_cross(fork)
        for i in ways:
            if (fork.signature, fork.candidates[i].module) not in self._tallies:
                return Decision(i, TRIAL_ROWS)
        if len(ways) > 1 and self._rng.random() < EXPLORE_SHARE:
            return Decision(self._rng.choice(ways), TRIAL_ROWS)
        return Decision(max(ways, key=lambda i: self._benefit_by_cost(fork, i)))

    def _benefit_by_cost(self, fork: Fork, i: int) -> float:
        tally = self._tallies[fork.signature, fork.candidates[i].module]
        worth = fork.leads_to[i].sources.bit_count()
        return worth * tally.selectivity / tally.cost_ns

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Adds to the module's figures at this signature."""
        key = (fork.signature, fork.candidates[choice].module)
        if key not in self._tallies:
            if n_in == 0:
                return
            self._tallies[key] = Tally()
        self._tallies[key].add(n_in, n_out, elapsed_ns)

    def reoptimize(self) -> None:
        """Halves the weight of the past."""
        for tally in self._tallies.values():
            tally.fade(0.5)
