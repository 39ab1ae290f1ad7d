"""Rule: TRUE and FALSE written in a condition decide what they can.

Only the written constants: `1 = 0` and the like are decided by the evaluator when they are lowered.
"""

from __future__ import annotations

from sqlglot import exp

__all__ = ["fold_constants"]


def fold_constants(node: exp.Expr) -> exp.Expr:
    """`node` without TRUE in an AND or FALSE in an OR; the constant itself if one decides."""
    if isinstance(node, exp.Paren):
        return fold_constants(node.this)
    if not isinstance(node, exp.And | exp.Or):
        return node
    deciding = isinstance(node, exp.Or)  # TRUE decides an OR, FALSE an AND
    parts = [fold_constants(part) for part in node.flatten()]
    if any(isinstance(part, exp.Boolean) and bool(part.this) is deciding for part in parts):
        return exp.Boolean(this=deciding)
    parts = [part for part in parts if not isinstance(part, exp.Boolean)]
    if not parts:
        return exp.Boolean(this=not deciding)
    combine = exp.or_ if deciding else exp.and_
    return combine(*parts, copy=False)
