"""One policy for several threads: what one learns, all know.

Threads route pieces of the same relation through the same state. If each had a policy of its own, each
would have to find out for itself, with half of the rows to learn from; one of them may go the wrong way
to the end. So they share one, and each sees it through a `view`, as if it were alone:

    shared = SharedPolicy(policy)
    router.policy = shared.view()         # one for each thread

Every thread has a route table, and so forks, of its own. The policy is shown one fork for each
signature, whoever asks. It is told and asked by one thread at a time. A re-optimization that changed
something ends the decisions of all threads, of each at its own next safe point.

Known limitation: a policy that explores may send rows of two threads on the same trial, because the
second asks before the first has told what came of it.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from eddies.core.lineage import Signature
from eddies.core.policies.base import Decision, Fork, RoutingPolicy

__all__ = ["SharedPolicy"]


class SharedPolicy:
    """A policy, a lock, and the forks that the policy knows."""

    def __init__(self, policy: RoutingPolicy) -> None:
        self.policy = policy
        self.lock = threading.Lock()
        self.n_changes = 0  # re-optimizations that changed something
        self._forks: dict[Signature, Fork] = {}
        self._n_forks = 0

    def view(self) -> RoutingPolicy:
        """The policy as one thread sees it."""
        return _View(self)

    def known_as(self, fork: Fork) -> Fork:
        """The fork that stands for this one and all like it. Only with the lock."""
        known = self._forks.get(fork.signature)
        if known is None or known.candidates != fork.candidates:
            known = self._forks[fork.signature] = replace(fork, fork_id=self._n_forks)
            self._n_forks += 1
        return known


class _View:
    """What one thread sees. Order of calls as in `base`."""

    def __init__(self, shared: SharedPolicy) -> None:
        self._shared = shared
        self._policy = shared.policy
        self._lock = shared.lock
        self._n_changes = 0  # those whose effect this thread has seen
        self._forks: dict[int, tuple[Fork, Fork]] = {}  # by number: ours, and the policy's
        self.every_batch = shared.policy.every_batch

    @property
    def news_ns(self) -> int | None:
        return self._policy.news_ns

    @property
    def diverts(self) -> bool:
        return self._policy.diverts

    @property
    def is_surprised(self) -> bool:
        """Whoever was surprised: a shift concerns all. So does one that others have acted on."""
        return self._policy.is_surprised or self._n_changes != self._shared.n_changes

    def choose(self, fork: Fork) -> Decision:
        with self._lock:
            return self._policy.choose(self._known_as(fork))

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        with self._lock:
            known = self._known_as(fork)
            self._policy.observe(known, choice, n_in, n_out, elapsed_ns, n_runs)

    def reoptimize(self) -> bool:
        """True if nothing has changed since this thread last asked, whoever changed it."""
        shared = self._shared
        with self._lock:
            if not self._policy.reoptimize():
                shared.n_changes += 1
            is_unchanged = self._n_changes == shared.n_changes
            self._n_changes = shared.n_changes
        return is_unchanged

    def _known_as(self, fork: Fork) -> Fork:
        known = self._forks.get(fork.fork_id)
        if known is None or known[0] is not fork:
            known = self._forks[fork.fork_id] = (fork, self._shared.known_as(fork))
        return known[1]
