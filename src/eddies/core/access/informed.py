"""Tells a routing policy what look-ups cost.

A policy judges a module by rows out and time taken. Of a probe that bounces its rows it would see no
rows and almost no time, and send everything there first, as if it were a selection that costs nothing.
An `InformedPolicy` adds what the bounced rows will bring and what looking them up will take: the
matches that a key has on average, and the time an index takes for one, shared by all calls at once.
Then a filter that costs nothing goes before a look-up that costs 20 ms, and a key is not even asked
for if no row with it passes.
"""

from __future__ import annotations

from collections.abc import Callable

from eddies.core.policies.base import Decision, Fork, RoutingPolicy

__all__ = ["InformedPolicy", "Owed"]

Owed = tuple[float, float]  # rows that will come, nanoseconds that it will take


class InformedPolicy:
    """`inner`, told what is owed. `owed(source)` gives what was added since it was last asked."""

    news_ns = None

    def __init__(self, inner: RoutingPolicy, owed: Callable[[int], Owed]) -> None:
        self._inner = inner
        self._owed = owed
        self.every_batch = inner.every_batch
        self.diverts = False  # what a look-up brings is not in the SteM yet

    @property
    def is_surprised(self) -> bool:
        return self._inner.is_surprised

    def choose(self, fork: Fork) -> Decision:
        """As the policy itself."""
        return self._inner.choose(fork)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """With what is still to come."""
        candidate = fork.candidates[choice]
        if candidate.kind == "probe" and candidate.module >= 0:
            more_rows, more_ns = self._owed(candidate.module)
            n_out += round(more_rows)
            elapsed_ns += round(more_ns)
        self._inner.observe(fork, choice, n_in, n_out, elapsed_ns, n_runs)

    def reoptimize(self) -> None:
        """As the policy itself."""
        self._inner.reoptimize()
