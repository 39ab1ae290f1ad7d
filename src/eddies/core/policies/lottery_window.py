"""The lottery with a short memory (section 4.3 of Eddies): every window must be earned again.

Lotteries are held with the *banked* tickets of the last window while the present window's go to
*escrow*; at a window's end `banked := escrow, escrow := 0`. A module that was good long ago and is
no longer has nothing in the bank.

A window is a number of rows taken by modules, and of runs: with large batches a window of few rows
would hold one run, and the bank one module. Cost is remembered as long as tickets are: two windows.
"""

from __future__ import annotations

import random

from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.measure import Tally, costs_or_cheapest, draw, without_cross

__all__ = ["MIN_RUNS", "WINDOW_ROWS", "LotteryWindowPolicy"]

WINDOW_ROWS = 128  # rows taken by all modules; a twentieth of the shortest phase in the papers
MIN_RUNS = 16  # of a window, so that every module of a usual query is drawn within it


class LotteryWindowPolicy:
    """Tickets of the last window, by module.

    Explores: all the time; a module with an empty bank keeps the floor, the average rows of a run.
    Exploration costs: as the lottery, and at least one run in about `MIN_RUNS` for each module that
    has nothing in the bank.
    Forgets: everything older than two windows.
    Decides: every batch.
    Worst case: after a shift, two windows in the old order; within a phase, the mixture of orders
    that the tickets make (with two selections up to 10 % over the better one, plus the floor's
    share).
    """

    is_surprised = False
    news_ns = None
    every_batch = True
    diverts = False

    def __init__(
        self, rng: random.Random, *, window_rows: int = WINDOW_ROWS, cost_aware: bool = True
    ) -> None:
        self._rng = rng
        self._window_rows = window_rows
        self._cost_aware = cost_aware
        self._banked: dict[int, Tally] = {}
        self._escrow: dict[int, Tally] = {}
        self._window = Tally()
        self._floor = 1.0

    def choose(self, fork: Fork) -> Decision:
        """A draw by max(banked tickets, floor), over recent time per row if cost-aware."""
        choices = without_cross(fork)
        modules = [fork.candidates[i].module for i in choices]
        weights = [max(self.banked_tickets_of(module), self._floor) for module in modules]
        if self._cost_aware:
            costs_ns = costs_or_cheapest([self._recent_cost_ns(module) for module in modules])
            weights = [w / cost_ns for w, cost_ns in zip(weights, costs_ns, strict=True)]
        return Decision(draw(self._rng, choices, weights))

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Tickets go to escrow; a full window is banked."""
        module = fork.candidates[choice].module
        tally = self._escrow.get(module)
        if tally is None:
            tally = self._escrow[module] = Tally()
        tally.add(n_in, n_out, elapsed_ns)
        window = self._window
        window.add(n_in, n_out, elapsed_ns)
        if window.n_in >= self._window_rows and window.n_runs >= MIN_RUNS:
            self._banked = self._escrow
            self._escrow = {}
            self._floor = window.n_in / window.n_runs
            window.clear()

    def reoptimize(self) -> None:
        """Windows are counted in rows and runs, not in re-optimizations."""

    def banked_tickets_of(self, module: int) -> float:
        """Tickets of the last complete window."""
        tally = self._banked.get(module)
        return tally.n_in - tally.n_out if tally else 0.0

    def _recent_cost_ns(self, module: int) -> float | None:
        """Of this window as soon as there is one run in it, so that a stalling module is seen."""
        for tally in (self._escrow.get(module), self._banked.get(module)):
            if tally is not None and tally.n_in:
                return tally.cost_ns
        return None
