"""Cumulative selectivity (section 4.2 of STAIRs): count all that a join leads to, not only matches.

Where joins keep what is routed to them, the next join is not the whole price: the tuple stays there and
every later tuple that meets it follows. So a join is judged by how many tuples come of one tuple joined
with *all* relations beyond it, as the state forecasts from the rows that have come; the lowest goes
first. Where nothing is forecast (predicates, SteMs), the measured selectivity stands in.

"cumulative-window" and "content" are the same policy over a state ("stairs" or "joins") that sends
rows of a source to different joins, by arrival or by their values, before a policy is asked: see
`state_modes.regional`. Over any other state they are plain "cumulative".
"""

from __future__ import annotations

from eddies.core.lineage import Signature
from eddies.core.policies.base import Candidate, Decision, Fork
from eddies.core.policies.measure import Tally, without_cross

__all__ = ["CumulativePolicy"]


class CumulativePolicy:
    """Deterministic; lowest forecast first.

    Explores: nothing. Forecasts come from stored rows, not from what was tried; a module that has none
    and was never visited is taken to keep every row.
    Exploration costs: nothing.
    Forgets: half of its own measurements at every re-optimization.
    Decides: once per fork and re-optimization.
    Worst case: forecasts assume independent joins. Correlated ones can be ordered wrongly for good.
    """

    is_surprised = False
    news_ns = None
    every_batch = False
    diverts = False

    def __init__(self) -> None:
        self._tallies: dict[tuple[Signature, int], Tally] = {}

    def choose(self, fork: Fork) -> Decision:
        """The candidate after which fewest tuples are left in the end."""
        choices = without_cross(fork)
        return Decision(min(choices, key=lambda i: self._outlook(fork, fork.candidates[i])))

    def _outlook(self, fork: Fork, candidate: Candidate) -> float:
        if candidate.forecast is not None:
            return candidate.forecast()
        tally = self._tallies.get((fork.signature, candidate.module))
        return 1.0 if tally is None or not tally.n_in else tally.selectivity

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Adds to the module's figures at this signature."""
        candidate = fork.candidates[choice]
        if candidate.forecast is None:
            key = (fork.signature, candidate.module)
            self._tallies.setdefault(key, Tally()).add(n_in, n_out, elapsed_ns)

    def reoptimize(self) -> None:
        """Halves the weight of the past."""
        for tally in self._tallies.values():
            tally.fade(0.5)
