"""What a policy knows about a module: rows in, rows out and the time it took, and how it forgets.

`Tally` is the plain sum that the policies of the papers need. Its averages are *ratios of sums*:
total time by total rows, never the mean of the times per row of single runs. A run of one row,
whose time is mostly the cost of calling, then weighs as much as one row should.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from eddies.core.policies.base import Fork

__all__ = ["MIN_COST_NS", "Tally", "costs_or_cheapest", "draw", "without_cross"]

MIN_COST_NS = 0.01  # a module is never free: keeps ratios finite when a virtual clock stands still
_LARGER_PRODUCT = 16.0  # times the smallest: such a product is not tried


class Tally:
    """Sums over the runs of one module, possibly faded. Add to the fields directly."""

    __slots__ = ("elapsed_ns", "n_in", "n_out", "n_runs")

    def __init__(self) -> None:
        self.n_runs = 0.0
        self.n_in = 0.0
        self.n_out = 0.0
        self.elapsed_ns = 0.0

    def add(self, n_in: float, n_out: float, elapsed_ns: float) -> None:
        """One run; with no rows in, the rest of a run that did not return everything at once."""
        self.n_runs += n_in > 0
        self.n_in += n_in
        self.n_out += n_out
        self.elapsed_ns += elapsed_ns

    def fade(self, factor: float) -> None:
        """Keep the averages, make them weigh `factor` of what they weighed, but at least one row.

        Without the limit, a module that is never visited would reach zero rows and have no average.
        """
        if factor * self.n_in < 1.0:
            factor = max(factor, min(1.0, 1.0 / self.n_in)) if self.n_in else 0.0
        self.n_runs *= factor
        self.n_in *= factor
        self.n_out *= factor
        self.elapsed_ns *= factor

    def clear(self) -> None:
        """Forget everything."""
        self.n_runs = self.n_in = self.n_out = self.elapsed_ns = 0.0

    @property
    def selectivity(self) -> float:
        """Rows out per row in; above one for a join that fans out. Only if `n_in` is not zero."""
        return self.n_out / self.n_in

    @property
    def cost_ns(self) -> float:
        """Time per row in, at least `MIN_COST_NS`. Only if `n_in` is not zero."""
        return max(self.elapsed_ns / self.n_in, MIN_COST_NS)


def without_cross(fork: Fork) -> Sequence[int]:
    """The choices that are no Cartesian product. If there is nothing else, the smaller products: even
    to try one row with a large one may cost more than all of the smallest.
    """
    if fork.connected or len(fork.candidates) == 1:
        return fork.connected or (0,)
    sizes = [1.0 if c.forecast is None else c.forecast() for c in fork.candidates]
    most = _LARGER_PRODUCT * max(1.0, min(sizes))
    return [i for i, size in enumerate(sizes) if size <= most]


def costs_or_cheapest(costs_ns: Sequence[float | None]) -> list[float]:
    """Replace unknown costs by the lowest known one (1 if none is): hope makes a module be tried.

    >>> costs_or_cheapest([5.0, None, 2.0])
    [5.0, 2.0, 2.0]
    """
    hope_ns = min((cost_ns for cost_ns in costs_ns if cost_ns is not None), default=1.0)
    return [hope_ns if cost_ns is None else cost_ns for cost_ns in costs_ns]


def draw(rng: random.Random, choices: Sequence[int], weights: Sequence[float]) -> int:
    """One of `choices`, each with a chance proportional to its weight."""
    return rng.choices(choices, weights)[0] if len(choices) > 1 else choices[0]
