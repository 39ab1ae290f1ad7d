"""Which groups are the same whenever they are computed."""

from __future__ import annotations

from sqlglot import exp

from eddies.sql.parse import parse

__all__ = ["has_repeatable_groups"]

_REPEATABLE = (exp.Sum, exp.Count, exp.Min, exp.Max, exp.Avg)


def has_repeatable_groups(text: str) -> bool:
    """Whether all aggregates of `text` are functions of the rows of a group, whatever their order.

    A sum of floating-point numbers is one up to rounding. A group that a condition on it lets pass once
    and not the next time may as well be left out.

    >>> has_repeatable_groups("SELECT k FROM t GROUP BY k HAVING sum(x) > 3")
    True
    >>> has_repeatable_groups("SELECT k, first(x) FROM t GROUP BY k")
    False
    """
    tree = parse(text)
    if tree.find(exp.Window, exp.Limit, exp.Offset, exp.Anonymous):
        return False
    return all(isinstance(node, _REPEATABLE) for node in tree.find_all(exp.AggFunc))
