"""Groups back to FROM and WHERE, as syntax for the text above.

The items of a group are cross-joined and its conditions go to WHERE; Spark's optimizer makes joins
of that. Below an outer join the conditions cannot wait for WHERE: they are the ON of the group's
last join, or, when there is no join, a SELECT of their own.
"""

from __future__ import annotations

from sqlglot import exp

from eddies.sql.join_tree import Group, Leaf, Outer

__all__ = ["set_from"]


def set_from(select: exp.Select, root: Group) -> None:
    """Make `root` the FROM and WHERE of `select`."""
    first, joins = _joined(root)
    select.set("from_", exp.From(this=first))
    select.set("joins", joins)
    where = exp.Where(this=exp.and_(*root.conjuncts, copy=False)) if root.conjuncts else None
    select.set("where", where)


def _joined(group: Group) -> tuple[exp.Expr, list[exp.Join]]:
    """The items of `group`, without its conditions."""
    head, *others = group.items
    joins: list[exp.Join]
    if isinstance(head, Leaf):
        first, joins = head.item, []
    else:
        first, joins = _outer(head)
    joins += [exp.Join(this=_nested(item), kind="CROSS") for item in others]
    return first, joins


def _outer(outer: Outer) -> tuple[exp.Expr, list[exp.Join]]:
    first, joins = _joined(outer.left)
    if outer.left.conjuncts:
        first, joins = _with_conditions(outer.left), []
    right = _with_conditions(outer.right)
    join = exp.Join(this=right)
    if outer.kind in ("SEMI", "ANTI"):
        join.set("side", "LEFT")
        join.set("kind", outer.kind)
    else:
        join.set("side", outer.kind)
    join.set("on", exp.and_(*outer.on, copy=False) if outer.on else exp.true())
    return first, [*joins, join]


def _nested(item: Leaf | Outer) -> exp.Expr:
    if isinstance(item, Leaf):
        return item.item
    first, joins = _outer(item)
    return _parenthesised(first, joins)


def _with_conditions(group: Group) -> exp.Expr:
    """`group` as one FROM item that already satisfies its conditions."""
    first, joins = _joined(group)
    if not group.conjuncts:
        return _parenthesised(first, joins) if joins else first
    condition = exp.and_(*group.conjuncts, copy=False)
    if not joins:
        return _selected(first, condition)
    last = joins[-1]
    if last.kind == "CROSS":
        last.set("kind", None)
        last.set("on", condition)
        return _parenthesised(first, joins)
    # The last join is an outer one: its ON is not the place. Join a row that is always there.
    one_row = exp.Subquery(
        this=exp.Select(expressions=[exp.alias_(exp.Literal.number(1), "one")]),
        alias=exp.TableAlias(this=exp.to_identifier("__one_row", quoted=True)),
    )
    joins.append(exp.Join(this=one_row, on=condition))
    return _parenthesised(first, joins)


def _parenthesised(first: exp.Expr, joins: list[exp.Join]) -> exp.Expr:
    if not joins:
        return first
    if isinstance(first, exp.Values):  # VALUES in parentheses cannot be followed by a join there
        first = _selected(first)
    first.set("joins", joins)
    return exp.Subquery(this=first)


def _selected(item: exp.Expr, condition: exp.Expr | None = None) -> exp.Subquery:
    """A FROM item as a query of its own, with the same name."""
    everything = exp.Select(expressions=[exp.Star()])
    everything.set("from_", exp.From(this=item))
    everything.set("where", exp.Where(this=condition) if condition is not None else None)
    label = exp.TableAlias(this=exp.to_identifier(item.alias_or_name, quoted=True))
    return exp.Subquery(this=everything, alias=label)
