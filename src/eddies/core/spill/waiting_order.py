"""One order in which tuples wait for rows on disk, so that these are read once.

Whichever relation a tuple probes first, the answer is the same. But if some tuples wait for A and then
for B, and others for B and then for A, the rows of both are read twice, and so it goes on with every
join. So tuples that must wait do so in one order of the relations, the `WaitingOrder` of their eddy:
fewest matches first, for whatever is found is written again and waits for the next. What counts are
matches of tuples that wait: filters over all relations have stopped the others before. The order
changes only if the figures clearly say so: two orders in one query cost more than the wrong one.

What is all in memory comes before: it is probed at no cost of reading, unless it multiplies tuples that
will have to be written. Which of several goes first is up to the routing policy, and so is when to
apply predicates; a `SteadyPolicy` takes from it only where to wait, and tells it what a probe of rows
on disk really does: one that finds nothing at once has not dropped its tuples, it has them written.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from eddies.core.graph import Graph
from eddies.core.policies.base import Decision, Fork, RoutingPolicy
from eddies.core.spill.resident import Resident

__all__ = ["SteadyPolicy", "WaitingOrder"]

_CLEARLY = 1.5  # how many times more matches one relation must give to go behind another
_LEAST_SHARE = 0.01  # of a relation in memory, from which its matches are extrapolated
_PRIOR_ROWS = 1000  # with as many matches: what is believed before anything is known
_WAIT_NS = 1000  # to write a tuple and to read it again, about: two passes over some sixty bytes


class WaitingOrder:
    """The relations in the order in which tuples wait for them; shared by all threads of an eddy."""

    def __init__(self, graph: Graph, residents: Sequence[Resident]) -> None:
        self._relation_of = [role.relation for role in graph.roles]
        self._residents = residents
        self._order = list(range(len(residents)))
        self._n_in = [_PRIOR_ROWS] * len(residents)
        self._n_out = [float(_PRIOR_ROWS)] * len(residents)
        self._lock = threading.Lock()

    def rank_of(self, relation: int) -> int:
        """The place of a relation in the order."""
        return self._order.index(relation)

    def rank(self, source: int) -> int:
        """The place of a source's relation in the order."""
        return self.rank_of(self._relation_of[source])

    def must_wait(self, source: int) -> bool:
        """Whether some rows of a source's relation are on disk."""
        return self._residents[self._relation_of[source]].flushed.n_runs > 0

    def matches(self, source: int) -> float:
        """How many rows of a source a tuple finds on average, in memory or on disk."""
        return self._matches(self._relation_of[source])

    def waiting_share(self, source: int) -> float:
        """How much of a source's relation is on disk: for it tuples wait."""
        resident = self._residents[self._relation_of[source]]
        return 1.0 - resident.n_rows / max(1, resident.n_arrived)

    def observe(self, source: int, n_in: int, n_out: int) -> None:
        """`n_in` tuples found `n_out` rows of a source, of those in memory; if these are too few, that
        says nothing.
        """
        relation = self._relation_of[source]
        resident = self._residents[relation]
        share = resident.n_rows / max(1, resident.n_arrived)
        if share >= _LEAST_SHARE:
            self._n_in[relation] += n_in
            self._n_out[relation] += n_out / share

    def n_observed(self, relation: int) -> int:
        """How many tuples have probed rows of a relation in memory."""
        return self._n_in[relation] - _PRIOR_ROWS

    def _matches(self, relation: int) -> float:
        return self._n_out[relation] / self._n_in[relation]

    def _growth(self, relation: int) -> float:
        """How many rows a tuple finds that waits: those that the filters stop do not."""
        return self._matches(relation) / self._residents[relation].flushed.share_found

    def update(self) -> None:
        """Put relations behind others that give clearly fewer matches."""
        with self._lock:
            order = list(self._order)
            for first in range(len(order)):
                for i in range(len(order) - 1 - first):
                    if self._growth(order[i]) > _CLEARLY * self._growth(order[i + 1]):
                        order[i], order[i + 1] = order[i + 1], order[i]
            self._order = order

    @property
    def is_needed(self) -> bool:
        """Whether anything is on disk."""
        return any(resident.flushed.n_runs for resident in self._residents)


class SteadyPolicy:
    """`inner`, which is shown only those candidates among which it may choose freely: predicates, what
    is in memory, and of what tuples must wait for the first in order.
    """

    news_ns = None

    def __init__(self, inner: RoutingPolicy, order: WaitingOrder) -> None:
        self._inner = inner
        self._order = order
        self.every_batch = inner.every_batch

    @property
    def diverts(self) -> bool:
        """Not with rows on disk: rows that leave their batch would wait elsewhere."""
        return self._inner.diverts and not self._order.is_needed

    @property
    def is_surprised(self) -> bool:
        return self._inner.is_surprised

    def choose(self, fork: Fork) -> Decision:
        """As the policy itself, among what is left to it."""
        open_ = self._open_to_choice(fork)
        if len(open_) == len(fork.candidates):
            return self._inner.choose(fork)
        if len(open_) == 1:
            return Decision(open_[0])
        narrow = replace(
            fork,
            candidates=tuple(fork.candidates[i] for i in open_),
            leads_to=tuple(fork.leads_to[i] for i in open_),
        )
        decision = self._inner.choose(narrow)
        return replace(decision, choice=open_[decision.choice])

    def _open_to_choice(self, fork: Fork) -> list[int]:
        order = self._order
        probes = [
            (i, candidate.module)
            for i, candidate in enumerate(fork.candidates)
            if candidate.kind == "probe" and not candidate.cross
        ]
        waits = [(i, source) for i, source in probes if order.must_wait(source)]
        if not waits:
            return list(range(len(fork.candidates)))
        first = min(waits, key=lambda wait: order.rank(wait[1]))[0]
        closed = {i for i, _ in waits if i != first}
        at_once = [i for i, s in probes if not order.must_wait(s) and order.matches(s) <= 1.0]
        if at_once:  # rather than write a tuple, see whether it has a partner here
            closed.add(first)
        return [i for i in range(len(fork.candidates)) if i not in closed]

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """As the policy itself; a probe of rows on disk counts with all it will find and cost."""
        candidate = fork.candidates[choice]
        if candidate.kind == "probe" and not candidate.cross:
            self._order.observe(candidate.module, n_in, n_out)
            share = self._order.waiting_share(candidate.module)
            n_out += round(n_in * share * self._order.matches(candidate.module))
            elapsed_ns += round(n_in * share * _WAIT_NS)
        self._inner.observe(fork, choice, n_in, n_out, elapsed_ns, n_runs)

    def reoptimize(self) -> None:
        """As the policy itself."""
        self._order.update()
        self._inner.reoptimize()
