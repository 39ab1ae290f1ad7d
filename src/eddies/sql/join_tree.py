"""FROM and WHERE as groups of inner-joined items, with outer joins between the groups.

A `Group` is a bag of items that must all be present, and conditions over them: order means nothing
in it, which is what an eddy wants. An `Outer` item joins two groups by LEFT, RIGHT, FULL, SEMI or
ANTI; conditions cross it only where that changes no answer:

* WHERE on the preserved side goes below (left of LEFT, SEMI and ANTI, right of RIGHT).
* ON of a LEFT, SEMI or ANTI join that reads only its right side goes into the right side.
* `(L LEFT JOIN R) JOIN c` whose ON reads only L and c becomes `(L JOIN c) LEFT JOIN R`.
* Nothing crosses a FULL join; nothing from WHERE enters a null-supplying side.
* An outer join whose added rows a condition above it rejects (`null_rejection`) does not add them: it
  becomes an inner join, or FULL becomes LEFT or RIGHT.

A plain SELECT in FROM is dissolved into the group around it and its columns are replaced by their
values. On a null-supplying side only if they are all bare columns: `coalesce(x, 0)` computed above
the outer join would not be NULL for a row without a partner.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sqlglot import exp

from eddies.errors import UnsupportedError
from eddies.sql.normalise import conjuncts
from eddies.sql.null_rejection import null_rejected
from eddies.sql.plain import is_plain, nondeterministic
from eddies.sql.scope import as_column

__all__ = [
    "Group",
    "Leaf",
    "Outer",
    "Values",
    "has_subquery",
    "in_place_of",
    "join_tree",
    "relations",
    "substitute",
]

Values = dict[str, dict[str, exp.Expr]]  # relation -> column -> what it stands for
_PRESERVES_LEFT = ("LEFT", "SEMI", "ANTI")


@dataclass(slots=True)
class Leaf:
    """One FROM item."""

    item: exp.Expr

    def names(self) -> frozenset[str]:
        """The relation it defines."""
        return frozenset((self.item.alias_or_name,))


@dataclass(slots=True)
class Outer:
    """`left` KIND JOIN `right` ON all of `on`; kind is LEFT, RIGHT, FULL, SEMI or ANTI."""

    kind: str
    left: Group
    right: Group
    on: list[exp.Expr]

    def names(self) -> frozenset[str]:
        """Every relation below."""
        return self.left.names() | self.right.names()


@dataclass(slots=True)
class Group:
    """Items joined by nothing but `conjuncts`; `nullable` under a null-supplying side."""

    items: list[Leaf | Outer]
    nullable: bool
    conjuncts: list[exp.Expr] = field(default_factory=list)

    def names(self) -> frozenset[str]:
        """Every relation below."""
        return frozenset().union(*(item.names() for item in self.items))

    def absorb(self, condition: exp.Expr) -> None:
        """Put `condition` as deep into the tree as the answer allows."""
        needs = relations(condition)
        if needs and not has_subquery(condition):
            self._add_no_rejected(null_rejected(condition))
            for item in self.items:
                if isinstance(item, Outer):
                    side = item.left if item.kind in _PRESERVES_LEFT else None
                    side = item.right if item.kind == "RIGHT" else side
                    if side is not None and needs <= side.names():
                        side.absorb(condition)
                        return
        self.conjuncts.append(condition)

    def _add_no_rejected(self, rejected: frozenset[str]) -> None:
        """Outer joins no longer add rows in which one of the relations `rejected` is missing."""
        items, self.items = self.items, []
        freed: list[exp.Expr] = []
        for item in items:
            if not isinstance(item, Outer):
                self.items.append(item)
                continue
            kind = _kind_without(item, rejected)
            if kind == "INNER":
                self.items += [*item.left.items, *item.right.items]
                freed += [*item.left.conjuncts, *item.right.conjuncts, *item.on]
            elif kind != item.kind:
                self.items.append(_outer(kind, item.left, item.right, item.on))
                freed += self.conjuncts  # they may go below now
                self.conjuncts = []
            else:
                self.items.append(item)
                preserved = item.right if kind == "RIGHT" else item.left
                if kind != "FULL":
                    preserved._add_no_rejected(rejected)
        for condition in freed:
            self.absorb(condition)

    def attach(self, other: Group, on: list[exp.Expr]) -> None:
        """Inner-join `other`, below an outer join if `on` only concerns its preserved left side."""
        for item in self.items:
            if not isinstance(item, Outer) or item.kind not in _PRESERVES_LEFT:
                continue
            near = item.left.names()
            both = near | other.names()
            needs = [relations(condition) for condition in on]
            if (
                any(need & near and need & other.names() for need in needs)
                and all(need and need <= both for need in needs)
                and not any(has_subquery(condition) for condition in on)
            ):
                item.left.attach(other, on)
                return
        self.items.extend(other.items)
        for condition in (*other.conjuncts, *on):
            self.absorb(condition)


def join_tree(select: exp.Select, functions: Collection[str]) -> tuple[Group, Values]:
    """The groups of `select`'s FROM and WHERE, and the columns of dissolved subqueries.

    Takes the tree apart: `select`'s own FROM, joins and WHERE are not to be used afterwards.
    """
    builder = _Builder(functions)
    return builder.select(select, nullable=False), builder.values


class _Builder:
    def __init__(self, functions: Collection[str]) -> None:
        self._functions = functions
        self.values: Values = {}

    def select(self, select: exp.Select, nullable: bool) -> Group:
        source = select.args["from_"].this
        group = self._sequence(source, select.args.get("joins") or [], nullable)
        where = select.args.get("where")
        for condition in self._conditions(where.this if where is not None else None):
            group.absorb(condition)
        return group

    def _conditions(self, condition: exp.Expr | None) -> list[exp.Expr]:
        found = conjuncts(condition)
        for part in found:
            for node in part.walk():
                if nondeterministic(node):
                    raise UnsupportedError(
                        f"{node.sql('spark')} in a condition: its value differs from call to call, "
                        "so the answer would depend on the order of work; compute it beforehand"
                    )
        return [substitute(part, self.values) for part in found]

    def _sequence(self, first: exp.Expr, joins: list[exp.Join], nullable: bool) -> Group:
        kinds = [_kind(join) for join in joins]
        made_nullable = [kind in ("RIGHT", "FULL") for kind in kinds]
        group = self._item(first, nullable or any(made_nullable))
        for position, (join, kind) in enumerate(zip(joins, kinds, strict=True)):
            later = nullable or any(made_nullable[position + 1 :])
            right = self._item(join.this, later or kind in ("LEFT", "FULL"))
            on = self._conditions(join.args.get("on"))
            if kind == "INNER":
                group.attach(right, on)
                continue
            group = Group([_outer(kind, group, right, on)], later)
        return group

    def _item(self, item: exp.Expr, nullable: bool) -> Group:
        joins = item.args.pop("joins", None)
        if joins:
            return self._sequence(item, joins, nullable)
        if isinstance(item, exp.Subquery) and not item.alias:  # every query has got a name by now
            return self._item(item.this, nullable)
        if isinstance(item, exp.Subquery) and self._dissolves(item, nullable):
            group = self.select(item.this, nullable)
            label = item.args["alias"]
            names = [part.name for part in label.args.get("columns") or ()]
            projections = item.this.expressions
            self.values[label.name] = {
                name: as_column(substitute(projection.unalias(), self.values))
                for name, projection in zip(
                    names or [projection.alias for projection in projections],
                    projections,
                    strict=True,
                )
            }
            return group
        return Group([Leaf(item)], nullable)

    def _dissolves(self, item: exp.Subquery, nullable: bool) -> bool:
        query = item.this
        if item.args.get("pivots") or item.args.get("sample") or not query.args.get("from_"):
            return False
        if not is_plain(query, self._functions) or any(
            not isinstance(projection, exp.Alias) for projection in query.expressions
        ):
            return False
        bare = all(isinstance(part.unalias(), exp.Column) for part in query.expressions)
        return bare or not nullable


def _kind(join: exp.Join) -> str:
    side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
    if kind in ("SEMI", "ANTI"):
        return kind
    if side in ("LEFT", "RIGHT", "FULL"):
        return side
    if kind in ("", "INNER", "CROSS", "OUTER") and not method:
        return "INNER"
    raise UnsupportedError(f"{method} {side} {kind} JOIN: write it with ON".replace("  ", " "))


def _kind_without(outer: Outer, rejected: frozenset[str]) -> str:
    """The join that is left of `outer` if rows without one of these relations are not wanted."""
    needs_left = bool(rejected & outer.left.names())
    needs_right = bool(rejected & outer.right.names())
    if outer.kind == "FULL":
        return {
            (True, True): "INNER",
            (True, False): "LEFT",
            (False, True): "RIGHT",
            (False, False): "FULL",
        }[needs_left, needs_right]
    is_inner = (outer.kind == "LEFT" and needs_right) or (outer.kind == "RIGHT" and needs_left)
    return "INNER" if is_inner else outer.kind


def _outer(kind: str, left: Group, right: Group, on: list[exp.Expr]) -> Outer:
    kept = []
    for condition in on:
        needs = relations(condition)
        movable = bool(needs) and not has_subquery(condition)
        if movable and kind in _PRESERVES_LEFT and needs <= right.names():
            right.absorb(condition)
        elif movable and kind == "RIGHT" and needs <= left.names():
            left.absorb(condition)
        else:
            kept.append(condition)
    return Outer(kind, left, right, kept)


def relations(node: exp.Expr) -> frozenset[str]:
    """The relations `node` reads; "" stands for a name that only Spark can resolve."""
    return frozenset(column.table for column in node.find_all(exp.Column))


def has_subquery(node: exp.Expr) -> bool:
    """Whether `node` contains a query."""
    return node.find(exp.Query) is not None


def in_place_of(column: exp.Column, value: exp.Expr) -> exp.Expr:
    """`value`, with the column's name where that names a field: in `struct(a, b)` and `(a, b)`."""
    if not isinstance(column.parent, exp.Struct | exp.Tuple) or value.name == column.name:
        return value
    return exp.alias_(value, column.name, quoted=True, copy=False)


def substitute(node: exp.Expr, values: Values) -> exp.Expr:
    """`node` with the columns of dissolved subqueries replaced by what they stand for, in place."""
    if not values:
        return node

    def replaced(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and part.name in values.get(part.table, ()):
            value = values[part.table][part.name].copy()
            value = value if isinstance(value, exp.Column) else exp.paren(value, copy=False)
            return in_place_of(part, value)
        return part

    return node.transform(replaced, copy=False)
