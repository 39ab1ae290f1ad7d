"""Rank ordering (section 3.4 of the overhead study): sort by rows removed per unit of time.

For every signature and every module it may visit, the share of rows removed by cost per row,
(1 - selectivity) / cost; the highest goes first. For independent selections without precedence this
order is optimal. The study itself sorts by selectivity alone, since all its costs are equal.
"""

from __future__ import annotations

from eddies.core.lineage import Signature
from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.measure import Tally, without_cross

__all__ = ["TRIAL_ROWS", "RankPolicy"]

TRIAL_ROWS = 16_384  # few batches are larger, and cutting a batch costs more than a wrong turn


class RankPolicy:
    """Deterministic: the same observations give the same decisions.

    Explores: each module once per signature, before anything else.
    Exploration costs: `TRIAL_ROWS` rows per (signature, module), whatever those rows then cost.
    Forgets: half of what it knows at every re-optimization; what is not visited keeps its last
    rank.
    Decides: once per fork and re-optimization.
    Worst case: a module that looked bad when tried and is good now is never tried again.
    """

    is_surprised = False
    every_batch = False
    diverts = False

    def __init__(self) -> None:
        self._tallies: dict[tuple[Signature, int], Tally] = {}
        self._period = 0
        self._period_of: dict[Tally, int] = {}  # in which a tally was last added to

    def choose(self, fork: Fork) -> Decision:
        """An untried candidate for a few rows, else the one of the highest rank."""
        best, best_rank = -1, 0.0
        for i in without_cross(fork):
            tally = self._tallies.get((fork.signature, fork.candidates[i].module))
            if tally is None:
                return Decision(i, TRIAL_ROWS)
            rank = (1.0 - tally.selectivity) / tally.cost_ns
            if best < 0 or rank > best_rank:
                best, best_rank = i, rank
        return Decision(best)

    def observe(self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int) -> None:
        """Adds to the module's figures at this signature."""
        key = (fork.signature, fork.candidates[choice].module)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
            self._period_of[tally] = self._period
        elif self._period_of[tally] != self._period:
            tally.fade(0.5 ** (self._period - self._period_of[tally]))
            self._period_of[tally] = self._period
        tally.add(n_in, n_out, elapsed_ns)

    def reoptimize(self) -> None:
        """Halves the weight of the past, for each tally when it is next added to."""
        self._period += 1
