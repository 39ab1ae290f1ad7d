"""Rank ordering (section 3.4 of the overhead study): sort by rows removed per unit of time.

For every signature and every module it may visit, the share of rows removed by cost per row,
(1 - selectivity) / cost; the highest goes first. For independent selections without precedence this
order is optimal. The study itself sorts by selectivity alone, since all its costs are equal.

Ranks change only where rows go. So a decision comes with the rank below which another would be taken,
and while the chosen module stays above, a re-optimization has nothing to decide. Measured costs differ
from run to run; another is taken only if it is better by more than that (`MARGIN`). Forgetting does not
change a rank: instead of making all that is known weigh half, what comes weighs twice.
"""

from __future__ import annotations

from math import inf

from eddies.core.lineage import Signature
from eddies.core.policies.base import (
    DECIDING_NS,
    NEWS_NS,
    WORTH_DECISIONS,
    Decision,
    Fork,
    until_reoptimized,
)
from eddies.core.policies.measure import MIN_COST_NS, without_cross

__all__ = ["MARGIN", "TRIAL_ROWS", "RankPolicy"]

TRIAL_ROWS = 16_384  # few batches are larger, and cutting a batch costs more than a wrong turn
MARGIN = 0.1  # of its rank by which a module must be better than the chosen one
_HEAVIEST = 2.0**200  # weight of what comes, before all weights are made smaller
_LIGHTEST = 1e-30  # nanoseconds that remain of a module that was not visited


class RankPolicy:
    """Deterministic: the same observations give the same decisions.

    Explores: each module once per signature, first those that come first in the text. A round of
    trials, one at each fork, begins when enough was done since the last (`WORTH_DECISIONS`).
    Exploration costs: `TRIAL_ROWS` rows per (signature, module), whatever those rows then cost; to
    decide about trials, 4 % of the measured time.
    Forgets: half of what it knows at every re-optimization; what is not visited keeps its last
    rank.
    Decides: once per fork and re-optimization, if the order at some fork may have changed.
    Worst case: a module that looked bad when tried and is good now is never tried again.
    """

    is_surprised = False
    every_batch = False
    diverts = False

    def __init__(self) -> None:
        self._ranked: dict[tuple[Signature, int], _Ranked] = {}
        self._at: dict[int, _Order] = {}  # by the number of a fork
        self._weight = 1.0  # of what comes
        self._has_news = False  # whether some order may have changed since the last re-optimization
        self._is_trying = False  # whether this is a round of trials
        self._lacks_trials = False  # whether something was not tried for lack of work done
        self._ns = 0  # observed since the last round

    @property
    def news_ns(self) -> int:
        """Everything at once while modules are tried."""
        return 0 if self._is_trying else NEWS_NS

    def choose(self, fork: Fork) -> Decision:
        """An untried candidate for a few rows, else the one of the highest rank. The first one, if
        nothing is known of any.
        """
        order = self._order(fork)
        ranked, best = order.ranked, order.best
        best_rank = next_rank = -inf
        if best >= 0 and ranked[best].ns:
            ranked[best].least = inf
            best_rank = ranked[best].rank
            best_rank += MARGIN * abs(best_rank)
        for i in fork.connected or without_cross(fork):
            candidate = ranked[i]
            if not candidate.ns:
                if best < 0:
                    best = i
                elif i != best:
                    self._lacks_trials = True
                    if self._is_trying:
                        return Decision(i, TRIAL_ROWS)
                continue
            if i == order.best:
                continue
            rank = candidate.rank
            if rank > best_rank:
                best, best_rank, next_rank = i, rank, max(best_rank, next_rank)
            elif rank > next_rank:
                next_rank = rank
        order.best = best
        ranked[best].least = next_rank - MARGIN * abs(next_rank) if next_rank > -inf else -inf
        return until_reoptimized(best)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Adds to the module's figures at this signature."""
        order = self._at.get(fork.fork_id)
        if order is None or order.fork is not fork:
            order = self._order(fork)
        self._ns += elapsed_ns
        module, weight = order.ranked[choice], self._weight
        n_removed = module.n_removed = module.n_removed + weight * (n_in - n_out)
        ns = module.ns = module.ns + weight * (elapsed_ns or MIN_COST_NS * n_in)
        if n_removed < module.least * ns:
            self._has_news = True

    def reoptimize(self) -> bool:
        """Halves the weight of the past. True if the order is the same at all forks."""
        self._weight *= 2.0
        if self._weight > _HEAVIEST:
            self._lighten()
        is_worth_trials = False
        if self._lacks_trials:
            worth_ns = WORTH_DECISIONS * DECIDING_NS * len(self._at)
            # Where time stands still, deciding takes none.
            is_worth_trials = self._ns >= worth_ns or not self._ns
        self._is_trying = is_worth_trials
        if is_worth_trials:
            self._lacks_trials = False
            self._ns = 0
        if self._has_news or is_worth_trials:
            self._has_news = False
            return False
        return True

    def _lighten(self) -> None:
        """Make all weights so much smaller that what comes weighs one."""
        for known in self._ranked.values():
            known.scale(1.0 / self._weight)
        self._weight = 1.0

    def _order(self, fork: Fork) -> _Order:
        """The figures of a fork's candidates, as far as they are known at its signature: hosts with
        queues show a part of the candidates, and routes may be worked out anew.
        """
        order = self._at.get(fork.fork_id)
        if order is None or order.fork is not fork:
            found = []
            for candidate in fork.candidates:
                key = (fork.signature, candidate.module)
                ranked = self._ranked.get(key)
                if ranked is None:
                    ranked = self._ranked[key] = _Ranked()
                found.append(ranked)
            if len(found) == 1:
                found[0].least = -inf
            order = self._at[fork.fork_id] = _Order(fork, found)
        return order


class _Ranked:
    """Weighted sums of the runs of a module at a signature.

    `least` is the rank below which another goes first; infinite if the module is not the chosen one.
    """

    __slots__ = ("least", "n_removed", "ns")

    def __init__(self) -> None:
        self.n_removed = self.ns = 0.0
        self.least = inf

    @property
    def rank(self) -> float:
        """Only if some rows went there."""
        return self.n_removed / self.ns

    def scale(self, factor: float) -> None:
        """Keep the rank, weigh `factor` of what it weighed, but not nothing."""
        if self.ns:
            factor = max(factor, _LIGHTEST / self.ns)
            self.n_removed *= factor
            self.ns *= factor


class _Order:
    """A fork, the figures of its candidates, and the one that was chosen last (-1: none)."""

    __slots__ = ("best", "fork", "ranked")

    def __init__(self, fork: Fork, ranked: list[_Ranked]) -> None:
        self.fork = fork
        self.ranked = ranked
        self.best = -1
