"""The joins of state="joins": a spanning tree of the query graph, chosen before the query starts.

EddyJoins (the original eddy's architecture) keep state inside binary joins, so the pairs of sources
that are joined directly must be chosen beforehand (Avnur and Hellerstein 2000, section 2.3): equality
edges in the order of the text until every source is connected. Equalities outside the tree are
checked as filters. SteMs need no such choice; STAIRs can change it in mid-query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eddies.core.expr import Call, Expr
from eddies.core.graph import Graph
from eddies.errors import UnsupportedError

__all__ = ["JoinEdge", "JoinTree", "joined_pairs", "make_join_tree"]


@dataclass(frozen=True, slots=True)
class JoinEdge:
    """A binary equijoin: `keys` are pairs (column of `left`, column of `right`)."""

    number: int
    left: int
    right: int
    keys: tuple[tuple[str, str], ...]
    name: str

    def other(self, source: int) -> int:
        return self.right if source == self.left else self.left


@dataclass(frozen=True, slots=True)
class JoinTree:
    """Edges that connect all sources without a cycle, and what must be checked besides.

    `checks` are predicates with the mask of their sources: the query's filters, and the equalities
    that are not in the tree.
    """

    edges: tuple[JoinEdge, ...]
    checks: tuple[tuple[int, Expr], ...]


Pair = tuple[int, int]


def joined_pairs(graph: Graph) -> dict[Pair, list[tuple[str, str]]]:
    """Pairs of sources that equalities connect, with their key columns, in the order of the text."""
    pairs: dict[Pair, list[tuple[str, str]]] = {}
    for key_class in graph.classes:
        members = sorted(key_class.column_by_source.items())
        hub, hub_column = members[0]
        for source, column in members[1:]:
            pairs.setdefault((hub, source), []).append((hub_column, column))
    return pairs


def make_join_tree(graph: Graph, preferred: Sequence[Pair] = ()) -> JoinTree:
    """Choose the tree: `preferred` pairs first, then in the order of the text.

    Raises `UnsupportedError` when equalities do not connect all sources.
    """
    pairs = joined_pairs(graph)
    component = list(range(len(graph.roles)))
    edges: list[JoinEdge] = []
    checks = [(predicate.mask, predicate.expr) for predicate in graph.filters]
    for left, right in dict.fromkeys([*preferred, *pairs]):
        keys = pairs[left, right]
        if component[left] == component[right]:
            checks += [_equality_check(graph, left, right, key) for key in keys]
            continue
        merged, into = component[right], component[left]
        component = [into if c == merged else c for c in component]
        name = f"join:{graph.roles[left].name}-{graph.roles[right].name}"
        edges.append(JoinEdge(len(edges), left, right, tuple(keys), name))
    if len(set(component)) > 1:
        raise UnsupportedError(
            "state='stairs', 'joins' or 'static' needs equalities that connect all sources; "
            "use state='stems'"
        )
    return JoinTree(tuple(edges), tuple(checks))


def _equality_check(graph: Graph, left: int, right: int, key: tuple[str, str]) -> tuple[int, Expr]:
    """A key equality as a predicate over stored columns."""
    sides = []
    for source, name in zip((left, right), key, strict=True):
        sides.append(graph.stored_expr(source, name))
    return 1 << left | 1 << right, Call("eq", tuple(sides))
