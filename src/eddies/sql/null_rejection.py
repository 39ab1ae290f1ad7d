"""Which relations a condition rejects when all their columns are NULL.

An outer join adds rows whose other side is NULL. If a condition above it does not hold for those, they
were added for nothing, and the join is an inner one (`eddies.sql.join_tree`):

    a LEFT JOIN b ON a.k = b.k WHERE b.v > 3      -- v is NULL where b is missing: an inner join

What is not known to make NULL of NULL is taken to make something else of it.
"""

from __future__ import annotations

from sqlglot import exp

__all__ = ["null_rejected"]

_NOTHING: frozenset[str] = frozenset()
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.ILike)
# NULL if any operand is.
_STRICT = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Abs, exp.Paren),
    *(exp.Lower, exp.Upper, exp.Length, exp.Substring, exp.Trim, exp.Cast, exp.Year, exp.Month),
)


def null_rejected(condition: exp.Expr) -> frozenset[str]:
    """The relations without which, all their columns NULL, `condition` cannot be true.

    >>> from sqlglot import parse_one
    >>> sorted(null_rejected(parse_one("a.x = b.y + 1 AND (c.z IS NULL OR b.z > 0)")))
    ['a', 'b']
    """
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return null_rejected(condition.left) | null_rejected(condition.right)
    if isinstance(condition, exp.Or):
        return null_rejected(condition.left) & null_rejected(condition.right)
    if isinstance(condition, exp.Not):
        return _rejected_if_negated(condition.this.unnest())
    if isinstance(condition, exp.Between):
        bounds = (condition.args["low"], condition.args["high"])
        return _needed(condition.this).union(*map(_needed, bounds))
    if isinstance(condition, exp.In):
        return _needed_by_list(condition)
    return _needed(condition)


def _rejected_if_negated(condition: exp.Expr) -> frozenset[str]:
    """The relations without which NOT `condition` cannot be true."""
    if isinstance(condition, exp.Is) and isinstance(condition.expression, exp.Null):
        return _needed(condition.this)
    if isinstance(condition, exp.Between):
        return _needed(condition.this)
    if isinstance(condition, exp.In):
        return _needed_by_list(condition)
    return _needed(condition)


def _needed_by_list(condition: exp.In) -> frozenset[str]:
    """Of `x [NOT] IN (...)`. A query in the list may be empty, and then nothing is needed."""
    is_list = bool(condition.expressions) and condition.args.get("query") is None
    return _needed(condition.this) if is_list else _NOTHING


def _needed(value: exp.Expr) -> frozenset[str]:
    """The relations without which `value` is NULL."""
    if isinstance(value, exp.Column):
        return frozenset((value.table,)) if value.table else _NOTHING
    if isinstance(value, (*_COMPARISONS, *_STRICT)):
        operands = (node for node in value.iter_expressions() if not isinstance(node, exp.DataType))
        return _NOTHING.union(*map(_needed, operands))
    return _NOTHING
