"""Members of a block that Spark computes beforehand (`derive`): which parts of a group become such.

These are subqueries in FROM and WITH tables, the values of `x IN (SELECT ...)`, and the groups of a
correlated aggregate, `x < (SELECT avg(y) ... WHERE k = outer)`. A part becomes a member only where that
makes a join in an eddy; what it is made of is divided into blocks itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from sqlglot import exp

from eddies.core.query import UserFunction
from eddies.sql.block import Draft, Member
from eddies.sql.derive import Deriving, comparable_exactly, once_each
from eddies.sql.join_tree import Group, Leaf, Outer, has_subquery, relations
from eddies.sql.references import outer_references
from eddies.sql.scope import column
from eddies.sql.settings import Settings
from eddies.sql.typed import CannotLower
from eddies.sql.unnest import Grouped, grouped_subquery

__all__ = ["MIN_SOURCES", "DerivedMembers", "Splitting"]

MIN_SOURCES = 2  # an eddy over one source has nothing to decide


class Splitting(Protocol):
    """The division of a statement into blocks, under way. `tables` are base tables by alias."""

    tables: dict[str, str]

    def query(self, tree: exp.Query) -> exp.Query | None:
        """`tree` over blocks."""
        ...

    def say(self, reason: str) -> None:
        """Note why something is done as it is."""
        ...


class DerivedMembers:
    """Makes the derived members of all groups of a statement, with names of their own."""

    def __init__(
        self,
        splitting: Splitting,
        deriving: Deriving,
        functions: Sequence[UserFunction],
        settings: Settings,
        may_ask: bool,
    ) -> None:
        self._splitting = splitting
        self._deriving = deriving
        self._functions = functions
        self._settings = settings
        self._may_ask = may_ask
        self._n_value_sets = 0

    def of(
        self,
        group: Group,
        members: list[Member],
        others: list[Leaf | Outer],
        asked: Collection[int],
    ) -> tuple[list[Member], list[Leaf | Outer]]:
        """`members`, base tables of `group`, with what Spark can compute for them, and those of the
        `others` that remain. Of conditions that are `asked` in the block, by identity, nothing is made.
        """
        queries = {
            position: item.item
            for position, item in enumerate(others)
            if isinstance(item, Leaf)
            and self._deriving.may_be_source(item.item)
            and not outer_references(item.item)
        }
        least = MIN_SOURCES if members else MIN_SOURCES + 1
        n_subqueries = sum(map(_may_be_joined, group.conjuncts)) if members else 0
        n_subqueries += len(asked)
        if len(members) + len(queries) + n_subqueries < least:
            return members, others
        found = {at: self._deriving.columns_of_item(query) for at, query in queries.items()}
        columns = {position: schema for position, schema in found.items() if schema is not None}
        if len(members) + len(columns) + n_subqueries < least:
            return members, others
        members, remaining = list(members), []
        for position, item in enumerate(others):
            if position not in columns or not isinstance(item, Leaf):
                remaining.append(item)
                continue
            if isinstance(item.item, exp.Subquery):
                item.item.set("this", self._splitting.query(item.item.this))
            members.append(self._deriving.member_of_item(item.item, columns[position]))
            self._splitting.say(f"{item.item.alias} is computed by Spark and joined in the block")
        parts = [
            part if id(part) in asked else self._in_values(part, members)
            for part in group.conjuncts
        ]
        group.conjuncts = [new for part in parts for new in self._in_groups(part, members, parts)]
        return members, remaining

    def _in_values(self, condition: exp.Expr, members: list[Member]) -> exp.Expr:
        """`x IN (SELECT ...)` as a join with a new member; any other condition as it is."""
        query = condition.args.get("query") if isinstance(condition, exp.In) else None
        sought = condition.this
        if query is None or not isinstance(sought, exp.Expr) or has_subquery(sought):
            return condition
        query = query.unnest()
        draft = Draft("", members, self._functions, False, self._settings)
        if not isinstance(query, exp.Query) or outer_references(query):
            return condition
        try:
            compared = draft.lowering.lower(sought).type
        except CannotLower:
            return condition
        schema = self._deriving.columns_of_values(query, compared)
        if schema is None:
            return condition
        relation = f"__values_{self._n_value_sets}"
        self._n_value_sets += 1
        rewritten = self._splitting.query(once_each(query.copy())) or query
        members.append(self._deriving.member_of_values(relation, rewritten, schema))
        self._splitting.say("the values of an IN are computed by Spark and joined in the block")
        return exp.EQ(this=sought, expression=column(relation, "value"))

    def _in_groups(
        self, condition: exp.Expr, members: list[Member], around: Sequence[exp.Expr]
    ) -> list[exp.Expr]:
        """`x < (SELECT avg(y) ... WHERE k = outer)` as a join with a new member, whose rows are groups;
        any other condition as it is.
        """
        grouped = grouped_subquery(condition)
        if grouped is None:
            return [condition]
        draft = Draft("", members, self._functions, False, self._settings)
        relation = f"__groups_{self._n_value_sets}"
        item = exp.Subquery(
            this=grouped.query, alias=exp.TableAlias(this=exp.to_identifier(relation))
        )
        schema = self._deriving.columns_of_item(item)
        if schema is None:
            return [condition]
        try:
            types = [draft.lowering.lower(outer).type for outer in grouped.outer]
        except CannotLower:
            return [condition]
        if not all(map(comparable_exactly, schema.types, types)):
            return [condition]
        self._n_value_sets += 1
        query = self._of_wanted_keys(grouped, around) if self._may_ask else grouped.query.copy()
        item.set("this", self._splitting.query(query) or query)
        members.append(self._deriving.member_of_item(item, schema))
        self._splitting.say(
            "a correlated subquery is computed for all its keys and joined in the block"
        )
        links: list[exp.Expr] = [
            exp.EQ(this=outer.copy(), expression=column(relation, f"key_{i}"))
            for i, outer in enumerate(grouped.outer)
        ]
        grouped.place.replace(column(relation, "value"))
        return [*links, condition]

    def _of_wanted_keys(self, grouped: Grouped, around: Sequence[exp.Expr]) -> exp.Select:
        """The groups that the conditions `around` can ask for, as far as that is easily said: by the
        keys of one table that its own conditions leave. Others would be computed in vain.
        """
        query = grouped.query.copy()
        for i, outer in enumerate(grouped.outer):
            key = query.expressions[i].this
            if not isinstance(outer, exp.Column) or outer.table not in self._splitting.tables:
                continue
            table = self._splitting.tables[outer.table]
            plain = [part for part in around if not has_subquery(part)]
            own = [part.copy() for part in plain if relations(part) == {outer.table}]
            if own:
                alias = f"__keys_{self._n_value_sets}_{i}"
                self._splitting.tables[alias] = table
                query.where(_in_keys(key, outer, table, alias, own), copy=False)
            for part in around:
                sought = part.args.get("query") if isinstance(part, exp.In) else None
                if sought is not None and part.this == outer and not outer_references(sought):
                    query.where(exp.In(this=key.copy(), query=sought.copy()), copy=False)
        return query


def _in_keys(
    key: exp.Expr, outer: exp.Column, table: str, alias: str, own: Sequence[exp.Expr]
) -> exp.In:
    """`key` is among the values of `outer` in the rows of `table`, here called `alias`, that fulfil
    its `own` conditions.
    """
    value = outer.copy()
    for node in (value, *own):
        for part in node.find_all(exp.Column):
            part.set("table", exp.to_identifier(alias, quoted=True))
    item = exp.Table(
        this=exp.to_identifier(table, quoted=True),
        alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)),
    )
    select = exp.Select(expressions=[exp.alias_(value, outer.name, quoted=True)])
    select.set("from_", exp.From(this=item))
    select.set("where", exp.Where(this=exp.and_(*own)))
    return exp.In(this=key.copy(), query=exp.Subquery(this=select))


def _may_be_joined(condition: exp.Expr) -> bool:
    """Whether a condition has a subquery that may become a member of the block."""
    if isinstance(condition, exp.In):
        return condition.args.get("query") is not None
    return grouped_subquery(condition) is not None
