"""Rank ordering (section 3.4 of the overhead study): sort by rows removed per unit of time.

For every signature and every module it may visit, the share of rows removed by cost per row,
(1 - selectivity) / cost; the highest goes first. For independent selections without precedence this
order is optimal. The study itself sorts by selectivity alone, since all its costs are equal.
"""

from __future__ import annotations

from eddies.core.lineage import Signature
from eddies.core.policies.base import Decision, Fork, until_reoptimized
from eddies.core.policies.measure import MIN_COST_NS, Tally, without_cross

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
        self._tallies: dict[tuple[Signature, int], _Ranked] = {}
        self._at: dict[int, tuple[Fork, list[_Ranked]]] = {}  # by the number of a fork
        self._period = 0

    def choose(self, fork: Fork) -> Decision:
        """An untried candidate for a few rows, else the one of the highest rank."""
        ranked = self._ranked(fork)
        best, best_rank = -1, 0.0
        for i in fork.connected or without_cross(fork):
            tally = ranked[i]
            if not tally.n_in:
                return Decision(i, TRIAL_ROWS)
            # (1 - selectivity) / cost, in sums
            rank = (tally.n_in - tally.n_out) / max(tally.elapsed_ns, MIN_COST_NS * tally.n_in)
            if best < 0 or rank > best_rank:
                best, best_rank = i, rank
        return until_reoptimized(best)

    def observe(self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int) -> None:
        """Adds to the module's figures at this signature."""
        known = self._at.get(fork.fork_id)
        ranked = known[1] if known is not None and known[0] is fork else self._ranked(fork)
        tally = ranked[choice]
        if tally.period != self._period:
            if tally.n_in:
                tally.fade(0.5 ** (self._period - tally.period))
            tally.period = self._period
        tally.n_in += n_in
        tally.n_out += n_out
        tally.elapsed_ns += elapsed_ns

    def reoptimize(self) -> None:
        """Halves the weight of the past, for each tally when it is next added to."""
        self._period += 1

    def _ranked(self, fork: Fork) -> list[_Ranked]:
        """The figures of a fork's candidates, as far as they are known at its signature: hosts with
        queues show a part of the candidates, and routes may be worked out anew.
        """
        known = self._at.get(fork.fork_id)
        if known is None or known[0] is not fork:
            keys = [(fork.signature, candidate.module) for candidate in fork.candidates]
            found = [self._tallies.get(key) or _Ranked() for key in keys]
            self._tallies.update(zip(keys, found, strict=True))
            known = self._at[fork.fork_id] = (fork, found)
        return known[1]


class _Ranked(Tally):
    """A tally, and the period in which it was last added to."""

    __slots__ = ("period",)

    def __init__(self) -> None:
        super().__init__()
        self.period = 0
