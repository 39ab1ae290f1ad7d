"""Which of several indexes answers next, and whether an index is worth asking while a scan runs.

Indexes with the same bind columns (mirrors) share one queue of keys and compete for it. The rule is
earliest expected answer: a free index gets the keys unless a faster one, busy now, would have answered
them sooner anyway. An index nobody has tried counts as fast, so each is tried; a slow one is asked
again for a small share of the keys, because it may have become fast (SteM-55).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from eddies.core.access.method import IndexAccess

__all__ = ["AccessPolicy", "AnyIndex", "EarliestAnswer", "IndexState"]

EXPLORE_SHARE = 0.02  # of requests go to an index that is believed to be slow
_MEMORY = 0.8  # weight of the past in an index's latency


@dataclass(slots=True, eq=False)
class IndexState:
    """What is known of one index while the query runs."""

    index: IndexAccess
    n_out: int = 0
    latency_ns: float | None = None
    n_failed: int = 0  # in a row
    failed_ns: int = -1
    paused_until_ns: int = 0
    n_lookups: int = 0
    n_keys: int = 0
    n_rows: int = 0

    def is_free(self, now_ns: int) -> bool:
        """Whether it may be asked now."""
        return self.n_out < self.index.concurrency and now_ns >= self.paused_until_ns

    def answered(self, elapsed_ns: int) -> None:
        """An answer came after `elapsed_ns`."""
        self.n_failed, self.paused_until_ns = 0, 0
        if self.latency_ns is None:
            self.latency_ns = float(elapsed_ns)
        self.latency_ns = _MEMORY * self.latency_ns + (1 - _MEMORY) * elapsed_ns

    def failed(self, now_ns: int, issued_ns: int) -> None:
        """A call issued at `issued_ns` failed: pause, longer each time. Calls that were under way
        together and fail together count as one.
        """
        self.latency_ns = max(self.latency_ns or 0.0, float(now_ns - issued_ns))
        if self.n_failed and issued_ns <= self.failed_ns:
            return
        pause_ns = self.index.backoff_s * 1e9 * 2 ** min(self.n_failed, 10)
        self.n_failed += 1
        self.failed_ns = now_ns
        self.paused_until_ns = now_ns + int(pause_ns)


class AccessPolicy(Protocol):
    """Chooses among what is legal; no choice can make an answer wrong."""

    def choose(self, free: Sequence[IndexState], all_: Sequence[IndexState], n_keys: int) -> int:
        """Which of the `free` indexes is asked next, -1: none of them now. `n_keys` keys wait."""
        ...

    def use_index(self, estimate_ns: float, scan_ns: float | None) -> bool:
        """Whether rows that a running scan will bring anyway are looked up, too.

        `estimate_ns` is how long a look-up would take, `scan_ns` how long the scan is expected to
        take until it brings them (None: nobody knows).
        """
        ...

    def pick(self, n_options: int, costs: Sequence[float]) -> int:
        """Which of several sets of bind columns to ask by, given what a look-up costs by each."""
        ...


class EarliestAnswer:
    """See the module docstring."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def choose(self, free: Sequence[IndexState], all_: Sequence[IndexState], n_keys: int) -> int:
        """The free index that answers first, unless a busy one would be sooner."""
        best = min(range(len(free)), key=lambda i: free[i].latency_ns or 0.0)
        chosen = free[best]
        if len(all_) == 1 or chosen.latency_ns is None:
            return best
        for other in all_:
            if other is chosen or other.latency_ns is None or other.n_failed:
                continue
            index = other.index
            rounds = n_keys / (index.concurrency * index.keys_per_lookup)
            if other.latency_ns * (1.0 + rounds) < chosen.latency_ns:
                return best if self._rng.random() < EXPLORE_SHARE else -1
        return best

    def use_index(self, estimate_ns: float, scan_ns: float | None) -> bool:
        """If it is expected to be sooner; else now and then, to see whether it would have been."""
        if scan_ns is None or estimate_ns < scan_ns:
            return True
        return self._rng.random() < EXPLORE_SHARE

    def pick(self, n_options: int, costs: Sequence[float]) -> int:
        """The cheapest."""
        return min(range(n_options), key=lambda i: costs[i])


class AnyIndex:
    """Anything legal, by chance: finds out whether an answer depends on it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def choose(self, free: Sequence[IndexState], all_: Sequence[IndexState], n_keys: int) -> int:
        """A uniform draw."""
        return self._rng.randrange(len(free))

    def use_index(self, estimate_ns: float, scan_ns: float | None) -> bool:
        """Half of the time."""
        return self._rng.random() < 0.5

    def pick(self, n_options: int, costs: Sequence[float]) -> int:
        """A uniform draw."""
        return self._rng.randrange(n_options)
