"""Fewest results first (section 4 of SteMs): among the SteMs a row may probe, the most selective.

Intermediate results are what costs in a join of many sources; the module with the fewest rows out
per row in makes the fewest. Time is not looked at, as fits SteMs of like cost. A small part of the
rows keeps going to the worse alternatives during the whole query, or their improvement would be
missed.
"""

from __future__ import annotations

import random

from eddies.core.lineage import Signature
from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.measure import Tally, without_cross

__all__ = ["EXPLORED_SHARE", "TRIAL_ROWS", "GreedyPolicy"]

EXPLORED_SHARE = 0.02  # of batches; "a small fraction" in the paper
TRIAL_ROWS = 1024  # first look at a module: a fan-out is known before a whole batch suffers it


class GreedyPolicy:
    """Lowest selectivity first, by signature.

    Explores: each module once per signature, then another than the best for `EXPLORED_SHARE` of the
    batches.
    Exploration costs: `EXPLORED_SHARE` of the rows, at what the average worse candidate costs.
    Forgets: half of what it knows at every re-optimization.
    Decides: every batch.
    Worst case: blind to cost. A dear and selective module goes before a cheap one, by any factor.
    """

    is_surprised = False
    news_ns = None
    every_batch = True
    diverts = False

    def __init__(self, rng: random.Random, *, explored_share: float = EXPLORED_SHARE) -> None:
        self._rng = rng
        self._explored_share = explored_share
        self._tallies: dict[tuple[Signature, int], Tally] = {}

    def choose(self, fork: Fork) -> Decision:
        """An untried candidate, rarely a worse one, else the most selective."""
        choices = without_cross(fork)
        best, best_selectivity = -1, 0.0
        for i in choices:
            tally = self._tallies.get((fork.signature, fork.candidates[i].module))
            if tally is None:
                return Decision(i, TRIAL_ROWS)
            selectivity = tally.selectivity
            if best < 0 or selectivity < best_selectivity:
                best, best_selectivity = i, selectivity
        if len(choices) > 1 and self._rng.random() < self._explored_share:
            return Decision(self._rng.choice([i for i in choices if i != best]))
        return Decision(best)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Adds to the module's figures at this signature."""
        key = (fork.signature, fork.candidates[choice].module)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
        tally.add(n_in, n_out, elapsed_ns)

    def reoptimize(self) -> None:
        """Halves the weight of the past."""
        for tally in self._tallies.values():
            tally.fade(0.5)
