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
from eddies.core.route import Route

__all__ = ["Repeats"]


class Repeats:
    """Counts repeated work along a join tree."""

    def __init__(self, tree: JoinTree, n_sources: int) -> None:
        self._joined = [0] * n_sources  # by source, those the tree joins it with, as a mask
        for edge in tree.edges:
            self._joined[edge.left] |= 1 << edge.right
            self._joined[edge.right] |= 1 << edge.left

    def n_tuples(self, routes: Iterable[Route], n_rows: Sequence[int]) -> int:
        """Tuples that asked again, and that were found again; `n_rows` have come, by source. Costs a
        microsecond a step.
        """
        asked: dict[tuple[int, int], list[int]] = {}
        for route in routes:
            sources = route.signature.sources
            if route.fork is None:
                continue
            for after, way in zip(route.fork.leads_to, route.ways, strict=True):
                n_in, n_out = way.n_in, way.n_out
                found = after.sources & ~sources
                if not n_in or not found:
                    continue
                target = found.bit_length() - 1
                askers = self._joined[target] & sources
                if askers:
                    asker = bits(askers)[0]
                    sums = asked.setdefault((asker, target), [0, 0])
                    sums[0] += n_in
                    sums[1] += n_out
        again = 0
        for (asker, _), (n_in, n_out) in asked.items():
            n_again = n_in - n_rows[asker]
            if n_again > 0:
                again += n_again * (n_in + n_out) // n_in
        return again
