"""Correlated scalar subqueries as joins.

    x < (SELECT 0.2 * avg(b.y) FROM b WHERE b.k = a.k AND ...)

For every row of a, that is the average over the group of b with its key; so it is a join of a with the
groups of b, computed once:

    (SELECT b.k AS key_0, 0.2 * avg(b.y) AS value FROM b WHERE ... GROUP BY b.k) g
    g.key_0 = a.k AND x < g.value

That is right where the comparison must be true: a key without a group, or with NULL in it, makes the
subquery NULL, the comparison unknown and drops the row, and so does the join. It needs that no rows
make the value NULL, which `count` does not; that rows are correlated by equalities only; and that
values of the two sides that are equal belong to one group, so the types must be the same or integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from eddies.sql.join_tree import has_subquery
from eddies.sql.normalise import conjuncts
from eddies.sql.plain import nondeterministic
from eddies.sql.references import outer_references

__all__ = ["Grouped", "grouped_subquery"]

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_NULL_OF_NOTHING = (exp.Sum, exp.Avg, exp.Min, exp.Max)
_NULL_IN_NULL_OUT = (exp.Mul, exp.Add, exp.Sub, exp.Div, exp.Neg, exp.Paren, exp.Cast)
_CLAUSES = {"kind", "hint", "expressions", "from_", "joins", "where", "operation_modifiers"}


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups of a subquery: `query` has columns key_0, key_1, ... and value; `outer` are the
    expressions of the query around it that equal the keys; `place` is the subquery's node.
    """

    query: exp.Select
    outer: tuple[exp.Expr, ...]
    place: exp.Expr


def grouped_subquery(condition: exp.Expr) -> Grouped | None:
    """The correlated subquery that `condition` compares something with, as groups; None if it is
    another kind of condition, or cannot be written so.
    """
    if not isinstance(condition, _COMPARISONS):
        return None
    sides = (condition.this, condition.expression)
    places = [side for side in sides if isinstance(side.unnest(), exp.Select)]
    if len(places) != 1 or any(has_subquery(side) for side in sides if side is not places[0]):
        return None
    select = places[0].unnest()
    if any(value and key not in _CLAUSES for key, value in select.args.items()):
        return None
    if len(select.expressions) != 1 or not _is_null_of_nothing(select.expressions[0].unalias()):
        return None
    if any(nondeterministic(node) for node in select.walk()):
        return None
    outside = outer_references(select)
    where = select.args.get("where")
    if not outside or where is None:
        return None
    kept: list[exp.Expr] = []
    keys: list[exp.Expr] = []
    outer: list[exp.Expr] = []
    for part in conjuncts(where.this):
        if not _reads(part) & outside:
            kept.append(part)
            continue
        link = _link(part, outside)
        if link is None:
            return None
        keys.append(link[0])
        outer.append(link[1])
    query = select.copy()
    query.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
    if outer_references(query) or not keys:
        return None
    value = query.expressions[0].unalias()
    items = [exp.alias_(key.copy(), f"key_{i}", quoted=True) for i, key in enumerate(keys)]
    query.set("expressions", [*items, exp.alias_(value, "value", quoted=True)])
    query.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    return Grouped(query, tuple(outer), places[0])


def _link(part: exp.Expr, outside: set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    """The inner and the outer side of an equality that correlates."""
    if not isinstance(part, exp.EQ) or has_subquery(part):
        return None
    for inner, outer in ((part.this, part.expression), (part.expression, part.this)):
        if _reads(inner) and not _reads(inner) & outside and _reads(outer) <= outside:
            return inner, outer
    return None


def _reads(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column)}


def _is_null_of_nothing(value: exp.Expr) -> bool:
    """Whether `value` is NULL when there are no rows."""
    if isinstance(value, _NULL_OF_NOTHING):
        return not has_subquery(value) and not value.this.find(exp.AggFunc)
    if isinstance(value, _NULL_IN_NULL_OUT):
        parts = [part for part in value.iter_expressions() if not isinstance(part, exp.DataType)]
        aggregates = [part for part in parts if not isinstance(part, exp.Literal)]
        return bool(aggregates) and all(_is_null_of_nothing(part) for part in aggregates)
    return False
