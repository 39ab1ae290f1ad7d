"""Any legal way, by chance. If an answer depends on the order of work, this policy finds it."""

from __future__ import annotations

# Not `import random`: once this module is loaded, `random` in the package's __init__ means this
# module, and `random.Random` there must still be the generator.
from random import Random

from eddies.core.policies.base import Decision, Fork

__all__ = ["RandomPolicy"]


class RandomPolicy:
    """Every candidate is equally likely, Cartesian products included.

    Explores: everything, always.
    Exploration costs: the distance of the average order from the best one.
    Forgets: has nothing to forget.
    Decides: every batch.
    Worst case: the expected cost is the mean over all orders; there is no bound against the best.
    """

    is_surprised = False
    news_ns = None
    every_batch = True
    diverts = False

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def choose(self, fork: Fork) -> Decision:
        """A uniform draw."""
        return Decision(self._rng.randrange(len(fork.candidates)))

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Nothing is learned."""

    def reoptimize(self) -> None:
        """Nothing changes."""
