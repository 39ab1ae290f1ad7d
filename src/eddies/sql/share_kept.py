"""The share of a table's rows that its conditions are likely to keep, from little more than their form.

These are the guesses of System R for columns of which nothing is known (Selinger et al., 1979): an
equality keeps a tenth, a range a quarter, a comparison a third, a list as many times an equality as it
has values. Of some columns it is known how many rows have one value. All this serves to find out
whether it pays to look, never to decide what is right.

    >>> share_kept(["a = 1", "b > 2"], {})
    0.03333333333333333
    >>> share_kept(["a = 1", "b > 2"], {"a": 0.3})
    0.09999999999999999
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import sqlglot
from sqlglot import exp

from eddies.sql.parse import DIALECT

__all__ = ["KEPT_BY_FILTER", "share_kept"]

_EQUAL = 1 / 10
_BETWEEN = 1 / 4
_OTHER = 1 / 3
KEPT_BY_FILTER = _OTHER  # of a condition that nobody knows
_MOST_OF_A_LIST = 1 / 2


def share_kept(conditions: Iterable[str], equal: Mapping[str, float]) -> float:
    """The likely share of rows for which all `conditions`, in Spark SQL, hold; `equal` has the share of
    rows with one value, by column.
    """
    trees = (sqlglot.parse_one(condition, read=DIALECT) for condition in conditions)
    return prod((_share(tree, equal) for tree in trees), start=1.0)


def _share(node: exp.Expr, equal: Mapping[str, float]) -> float:
    match node:
        case exp.Paren():
            return _share(node.this, equal)
        case exp.And():
            return _share(node.left, equal) * _share(node.right, equal)
        case exp.Or():
            left, right = _share(node.left, equal), _share(node.right, equal)
            return left + right - left * right
        case exp.Not():
            return 1 - _share(node.this, equal)
        case exp.EQ() | exp.NullSafeEQ():
            return _of_one_value(node, equal)
        case exp.NEQ():
            return 1 - _of_one_value(node, equal)
        case exp.Is():
            return _EQUAL
        case exp.In():
            n_values = max(len(node.expressions), 1)
            return min(_of_one_value(node, equal) * n_values, _MOST_OF_A_LIST)
        case exp.Between():
            return _BETWEEN
        case _:
            return _OTHER


def _of_one_value(node: exp.Expr, equal: Mapping[str, float]) -> float:
    """The share of rows in which the column that is compared in `node` has a certain value."""
    sides = [node.this, node.args.get("expression")]
    columns = [side.name for side in sides if isinstance(side, exp.Column)]
    return equal.get(columns[0], _EQUAL) if len(columns) == 1 else _EQUAL
