"""Work that SteMs did again: what kept intermediate results might have saved.

SteMs find everything anew for every row that needs it. Often that is nothing twice: where each row of S
is found by one row of R, its partners in T are looked for once, and a kept S⋈T would not be used again
either. Intermediate results pay where a row looks for its partners more often than once. That can be
counted from what the router counts anyway, without a look at any row.

Of a tuple that looks for source y, the *asker* is its source that the join tree joins with y. Each row
of the asker looks for its partners once when it arrives. So of all tuples that asked, as many as the
asker has rows were the first; the others, and what they found, were work done again.

Known limitations: skew hides repeats (a few rows ask all the time, others never); what is saved because
a relation need not be indexed does not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eddies.core.join_tree import JoinTree
from eddies.core.lineage import bits
from eddies.core.route import Route, Way

__all__ = ["Repeats"]


class Repeats:
    """Counts repeated work along a join tree."""

    def __init__(self, tree: JoinTree, n_sources: int) -> None:
        self._joined = [0] * n_sources  # by source, those the tree joins it with, as a mask
        for edge in tree.edges:
            self._joined[edge.left] |= 1 << edge.right
            self._joined[edge.right] |= 1 << edge.left
        self._lookups: dict[Route, list[tuple[Way, tuple[int, int]]]] = {}

    def n_tuples(self, routes: Iterable[Route], n_rows: Sequence[int]) -> int:
        """Tuples that asked again, and that were found again; `n_rows` have come, by source. Costs a
        microsecond a step.
        """
        asked: dict[tuple[int, int], list[int]] = {}
        for route in routes:
            lookups = self._lookups.get(route)
            if lookups is None:
                lookups = self._lookups[route] = self._lookups_of(route)
            for way, between in lookups:
                if way.n_in:
                    sums = asked.setdefault(between, [0, 0])
                    sums[0] += way.n_in
                    sums[1] += way.n_out
        again = 0
        for (asker, _), (n_in, n_out) in asked.items():
            n_again = n_in - n_rows[asker]
            if n_again > 0:
                again += n_again * (n_in + n_out) // n_in
        return again

    def _lookups_of(self, route: Route) -> list[tuple[Way, tuple[int, int]]]:
        """The ways of a route that look for a source, with the asker and that source."""
        sources, found = route.signature.sources, []
        if route.fork is None:
            return []
        for after, way in zip(route.fork.leads_to, route.ways, strict=True):
            target = (after.sources & ~sources).bit_length() - 1
            if target >= 0 and (askers := self._joined[target] & sources):
                found.append((way, (bits(askers)[0], target)))
        return found
