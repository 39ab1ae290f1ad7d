"""What a query wants of one relation: the columns it reads, and predicates that its rows fulfil.

A relation may play several roles (`t a JOIN t b`). A row is wanted if any role wants it, so the
predicates of the roles are alternatives; if one role takes every row, there are none.
"""

from __future__ import annotations

from functools import reduce

from eddies.core.expr import Call, Expr
from eddies.core.graph import Graph, Relation

__all__ = ["wanted_of"]


def wanted_of(graph: Graph, relation: Relation) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    """Columns and predicates to read `relation` with (`Split.read`)."""
    columns = tuple(relation.read.names)
    by_role = [graph.roles[source_id].selections for source_id in relation.roles]
    if len(by_role) == 1:
        return columns, by_role[0]
    if not all(by_role):
        return columns, ()
    return columns, (reduce(_either, (reduce(_both, selections) for selections in by_role)),)


def _both(one: Expr, other: Expr) -> Expr:
    return Call("and", (one, other))


def _either(one: Expr, other: Expr) -> Expr:
    return Call("or", (one, other))
