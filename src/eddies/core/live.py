"""Which row ids of a tuple are still of use.

A tuple is a row id for each source it spans. A source that was only there to be matched, and that
neither the answer nor a later step looks at, need not be carried on: to copy its ids at every further
join, or to fetch them from a pool where they lie scattered, is most of what a join that multiplies
costs. So each route says which sources are *live* in its tuples, and joining leaves the others out.

Invariant: whatever reads a column of a tuple at a signature, or of one that comes of it, finds its
source live there. That is, the columns of the answer; of predicates over several sources, which the
step that covers them evaluates on its result; of predicates that are modules; and of keys shared with
a source yet to come. What is not live once is not live later: fewer sources are yet to come.
"""

from __future__ import annotations

from collections.abc import Iterable

from eddies.core.expr import Expr, columns_of
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinTree
from eddies.core.lineage import Signature

__all__ = ["EVERYTHING", "Live"]

EVERYTHING = -1  # as a mask of sources


class Live:
    """The live sources of a query's signatures, as masks. With `tree`, joins go along its edges and
    check the other equalities afterwards.
    """

    def __init__(self, graph: Graph, tree: JoinTree | None = None) -> None:
        self._graph = graph
        self._ids = {role.name: role.source_id for role in graph.roles}
        checked = 0 if tree is None else _union(mask for mask, _ in tree.checks)
        checked |= _union(predicate.mask for predicate in graph.filters)
        for optional in graph.optionals:
            checked |= optional.mask | self._mask(optional.exprs)
            if optional.exists is not None:
                checked |= _union(1 << source for source, _, _ in optional.exists.keys)
        query = graph.query
        if query.parts:
            outputs = [[output.expr for output in part.output] for part in query.parts]
        elif query.aggregation is not None:
            aggregates = [a.arg for a in query.aggregation.aggregates if a.arg is not None]
            outputs = [[*(group.expr for group in query.aggregation.groups), *aggregates]]
        else:
            outputs = [[output.expr for output in query.output]]
        self._always = [checked | self._mask(exprs) for exprs in outputs]

    def at(self, signature: Signature) -> int:
        """Of tuples with `signature`."""
        graph = self._graph
        number = graph.part_of(signature.sources)
        missing = graph.parts[number].sources & ~signature.sources
        live = self._always[number]
        for key_class in graph.classes:
            if key_class.mask & missing:
                live |= key_class.mask
        return live

    def _mask(self, exprs: Iterable[Expr]) -> int:
        return _union(1 << self._ids[c.source] for expr in exprs for c in columns_of(expr))


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union
