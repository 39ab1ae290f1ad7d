"""Rule: NOT goes inward, where that changes no answer.

De Morgan's laws hold in three-valued logic, NOT NOT p is p, and NOT (a = b) is a <> b (both NULL
when a side is). Order comparisons are left alone: turning them gains nothing.
"""

from __future__ import annotations

from sqlglot import exp

__all__ = ["push_negation"]


def push_negation(node: exp.Expr) -> exp.Expr:
    """`node` with every NOT over AND, OR, NOT, = and <> moved inward."""
    if isinstance(node, exp.Paren):
        return push_negation(node.this)
    if isinstance(node, exp.And | exp.Or):
        combine = exp.and_ if isinstance(node, exp.And) else exp.or_
        return combine(*(push_negation(part) for part in node.flatten()), copy=False)
    if isinstance(node, exp.Not):
        return _negated(node.this.unnest()) or node
    return node


def _negated(inner: exp.Expr) -> exp.Expr | None:
    if isinstance(inner, exp.Not):
        return push_negation(inner.this)
    if isinstance(inner, exp.And | exp.Or):
        combine = exp.or_ if isinstance(inner, exp.And) else exp.and_
        return combine(*(push_negation(exp.Not(this=p)) for p in inner.flatten()), copy=False)
    if isinstance(inner, exp.EQ) and not _over_rows(inner):
        return exp.NEQ(this=inner.this, expression=inner.expression)
    if isinstance(inner, exp.NEQ) and not _over_rows(inner):
        return exp.EQ(this=inner.this, expression=inner.expression)
    return None


def _over_rows(node: exp.Binary) -> bool:
    # `x = ANY (SELECT ...)` is not negated by `x <> ANY (SELECT ...)`.
    return any(isinstance(side, exp.Any | exp.All | exp.Tuple) for side in (node.left, node.right))
