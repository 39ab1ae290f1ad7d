"""Every name resolved: the statement rewritten so that no later step needs to look anything up.

After this step each relation has a name unique in the statement, each column is written
`relation.column` with the spelling of its schema, stars are expanded, every SELECT item has an
alias (the name Spark would show), USING and NATURAL joins have become ON, GROUP BY ordinals and
aliases are replaced by what they stand for, and a WITH table that is a plain SELECT is written out
at each place that uses it. The result is still SQL with the same meaning.

In ORDER BY and HAVING a name that is an alias of the SELECT list stays as written, because there
Spark prefers the alias. Names resolve without regard to case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

import pyarrow as pa
from sqlglot import exp

from eddies.errors import PlanError, UnknownNameError, UnsupportedError
from eddies.sql.names import Names, did_you_mean, spark_name
from eddies.sql.plain import is_plain
from eddies.sql.scope import ALL, Relation, Scope, Visible, as_column, column

__all__ = ["Qualified", "qualify"]


@dataclass(frozen=True, slots=True)
class Qualified:
    """A qualified statement; `tables` maps each relation name to the base table it reads."""

    tree: exp.Query
    tables: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Cte:
    """A WITH table in sight: its text if it is written out where used, else its new name."""

    columns: tuple[str, ...] | None
    name: str
    body: exp.Query | None
    sight: _Sight


@dataclass(frozen=True, slots=True)
class _Sight:
    """What a query can refer to from around it: WITH tables and the scope it is nested in."""

    ctes: Mapping[str, _Cte]
    outer: Scope | None = None


def qualify(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> Qualified:
    """`tree` with every name resolved against `schemas`."""
    qualifier = _Qualifier(schemas)
    result, _ = qualifier.query(tree.copy(), _Sight({}))
    return Qualified(result, qualifier.tables)


class _Qualifier:
    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = {name.lower(): (name, schema) for name, schema in schemas.items()}
        if len(self._schemas) < len(schemas):
            raise PlanError("two tables have names that differ only in case: rename one of them")
        self._cte_names = Names(schemas)
        self._names = Names()
        self.tables: dict[str, str] = {}

    # -- queries -----------------------------------------------------------------------------------

    def query(self, tree: exp.Query, sight: _Sight) -> tuple[exp.Query, tuple[str, ...] | None]:
        """`tree` qualified, and the names of its columns (None: known only to Spark)."""
        sight = self._with(tree, sight)
        if isinstance(tree, exp.Select):
            return tree, self._select(tree, sight)
        if isinstance(tree, exp.SetOperation):
            left, columns = self.query(tree.this, sight)
            right, _ = self.query(tree.expression, sight)
            tree.set("this", left)
            tree.set("expression", right)
            return tree, columns
        if isinstance(tree, exp.Subquery) and isinstance(tree.this, exp.Query):
            inner, columns = self.query(tree.this, sight)
            tree.set("this", inner)
            return tree, columns
        if isinstance(tree, exp.Values):
            return tree, _values_columns(tree)
        raise UnsupportedError(f"{tree.key.upper()} as a query: write a SELECT")

    def _with(self, tree: exp.Query, sight: _Sight) -> _Sight:
        clause = tree.args.get("with_")
        if clause is None:
            return sight
        if clause.args.get("recursive"):
            raise UnsupportedError("WITH RECURSIVE: recursive queries cannot be planned")
        ctes, kept = dict(sight.ctes), []
        for cte in clause.expressions:
            here = replace(sight, ctes=dict(ctes))
            renamed = [part.name for part in cte.args["alias"].args.get("columns") or ()]
            if is_plain(cte.this) and not renamed:
                ctes[cte.alias.lower()] = _Cte(None, cte.alias, cte.this, here)
                continue
            body, columns = self.query(cte.this, here)
            name = self._cte_names.unique(cte.alias)
            cte.set("this", body)
            cte.args["alias"].set("this", exp.to_identifier(name, quoted=True))
            ctes[cte.alias.lower()] = _Cte(tuple(renamed) or columns, name, None, sight)
            kept.append(cte)
        clause.set("expressions", kept)
        if not kept:
            tree.set("with_", None)
        return replace(sight, ctes=ctes)

    def _select(self, select: exp.Select, sight: _Sight) -> tuple[str, ...] | None:
        scope = Scope(sight.outer)
        if (source := select.args.get("from_")) is not None:
            item, scope.visible = self._item(source.this, scope, sight)
            source.set("this", item)
            self._joins(select, scope, sight)
        for view in select.args.get("laterals") or ():
            self._lateral_view(view, scope, sight)
        self._expand_stars(select, scope)
        written = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        self._projections(select, scope, sight)
        aliases = {
            item.alias.lower(): item.this
            for item in select.expressions
            if isinstance(item, exp.Alias)
        }
        for clause in ("where", "prewhere"):
            self._clause(select, clause, scope, sight, frozenset())
        self._group_by(select, scope, sight, {k: v for k, v in aliases.items() if k in written})
        for clause in ("having", "order", "sort", "cluster", "distribute", "qualify"):
            self._clause(select, clause, scope, sight, frozenset(aliases))
        _order_by_position(select)
        for window in select.args.get("windows") or ():
            self._expression(window, scope, sight, frozenset())
        if any(not isinstance(item, exp.Alias) for item in select.expressions):
            return None  # an opaque star, or a generator with several columns
        return tuple(item.alias for item in select.expressions)

    # -- FROM --------------------------------------------------------------------------------------

    def _item(self, item: exp.Expr, scope: Scope, sight: _Sight) -> tuple[exp.Expr, list[Visible]]:
        """A FROM item qualified and added to `scope`, and the columns it shows."""
        nested = item.args.pop("joins", None)
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Values):
            label, item = item.args.get("alias"), item.this
            item.set("alias", label)
        if nested and isinstance(item, exp.Values):  # has no place for joins when it is printed
            item = _selected(item)
        if item.args.get("pivots"):
            item, visible = self._pivoted(item, scope, sight)
        else:
            item, visible = self._item_read(item, scope, sight)
        if nested:
            item.set("joins", nested)
            hidden, scope.visible = scope.visible, visible
            self._joins(item, scope, sight)
            visible, scope.visible = scope.visible, hidden
        return item, visible

    def _item_read(
        self, item: exp.Expr, scope: Scope, sight: _Sight
    ) -> tuple[exp.Expr, list[Visible]]:
        """The same for an item without joins, and for what is pivoted."""
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            return self._table(item, scope, sight)
        if _is_derived(item):
            return self._derived(item, scope, sight)
        if isinstance(item, exp.Subquery) and not item.alias:
            inner, visible = self._item(item.this, scope, sight)
            item.set("this", inner)
            return item, visible
        if isinstance(item, exp.Values):
            return item, self._name(item, item.alias, _values_columns(item), scope)
        inside = replace(sight, outer=scope)
        for key, part in list(item.args.items()):
            if key != "alias" and isinstance(part, exp.Expr):
                item.set(key, self._expression(part, scope, inside, frozenset()))
        return item, self._name(item, item.alias, None, scope)

    def _table(
        self, table: exp.Table, scope: Scope, sight: _Sight
    ) -> tuple[exp.Expr, list[Visible]]:
        written = ".".join(part.name for part in table.parts)
        alias = table.alias or table.name
        cte = sight.ctes.get(written.lower())
        if cte is not None and cte.body is not None:
            body = exp.Subquery(this=cte.body.copy(), alias=table.args.get("alias"))
            if not body.alias:
                body.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
            return self._derived(body, scope, cte.sight)
        if cte is not None:
            table.set("this", exp.to_identifier(cte.name, quoted=True))
            return table, self._name(table, alias, cte.columns, scope)
        if written.lower() not in self._schemas:
            known = [name for name, _ in self._schemas.values()]
            raise UnknownNameError(f"unknown table {written!r}: {did_you_mean(written, known)}")
        name, schema = self._schemas[written.lower()]
        odd = [key for key in ("pivots", "sample", "version", "when") if table.args.get(key)]
        visible = self._name(table, alias, None if odd else tuple(schema.names), scope)
        table.set("this", exp.to_identifier(name, quoted=True))
        table.set("db", None)
        table.set("catalog", None)
        self.tables[table.alias] = name
        return table, visible

    def _derived(
        self, item: exp.Subquery, scope: Scope, sight: _Sight
    ) -> tuple[exp.Expr, list[Visible]]:
        body, columns = self.query(item.this, replace(sight, outer=scope.outer))
        item.set("this", body)
        if item.args.get("pivots") or item.args.get("sample"):
            columns = None
        return item, self._name(item, item.alias, columns, scope)

    def _pivoted(
        self, item: exp.Expr, scope: Scope, sight: _Sight
    ) -> tuple[exp.Expr, list[Visible]]:
        """A FROM item with PIVOT or UNPIVOT as a query of its own. Its columns have no qualifier that
        could be written after the item: an alias before PIVOT only names what is not pivoted.
        """
        last = item.args["pivots"][-1]
        alias = last.alias or item.alias
        last.set("alias", None)
        inner, _ = self._item_read(item, Scope(scope.outer), sight)
        everything = exp.Select(expressions=[exp.Star()])
        everything.set("from_", exp.From(this=inner))
        query = exp.Subquery(this=everything)
        return query, self._name(query, alias, None, scope)

    def _name(
        self, item: exp.Expr, alias: str, columns: tuple[str, ...] | None, scope: Scope
    ) -> list[Visible]:
        """Give `item` its unique name and enter it into `scope`."""
        given = item.args.get("alias")
        renamed = [part.name for part in (given.args.get("columns") or ())] if given else []
        if renamed and columns is not None and len(renamed) != len(columns):
            raise PlanError(f"{alias} names {len(renamed)} columns but has {len(columns)}")
        name = self._names.unique(alias or "__subquery")
        label = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        if renamed:
            label.set("columns", [exp.to_identifier(part, quoted=True) for part in renamed])
        item.set("alias", label)
        return scope.add(Relation(alias, name, tuple(renamed) or columns))

    def _joins(self, holder: exp.Expr, scope: Scope, sight: _Sight) -> None:
        for join in holder.args.get("joins") or ():
            n_before = len(scope.relations)
            item, right = self._item(join.this, scope, sight)
            join.set("this", item)
            left = scope.visible
            if join.method.upper() == "NATURAL":
                shared = [v.name for v in left if any(_same(v.name, w.name) for w in right)]
                join.set("method", None)
                self._using(join, shared, left, right, scope)
                if not shared and not join.side and not join.kind:
                    join.set("kind", "CROSS")
            elif join.args.get("using"):
                names = [part.name for part in join.args["using"]]
                join.set("using", None)
                self._using(join, names, left, right, scope)
            else:
                scope.visible = [*left, *right]
                if join.args.get("on") is not None:
                    on = self._expression(join.args["on"], scope, sight, frozenset())
                    join.set("on", on)
            if join.kind.upper() in ("SEMI", "ANTI"):
                scope.visible = left
                del scope.relations[n_before:]

    def _using(
        self,
        join: exp.Join,
        names: list[str],
        left: list[Visible],
        right: list[Visible],
        scope: Scope,
    ) -> None:
        if any(entry.name == ALL for entry in (*left, *right)):
            raise UnsupportedError(
                "NATURAL JOIN or USING with a relation whose columns only Spark knows: write ON"
            )
        merged, conditions = [], []
        for name in names:
            a, b = _only(name, left), _only(name, right)
            conditions.append(exp.EQ(this=a.value.copy(), expression=b.value.copy()))
            if join.side.upper() == "FULL":
                both = exp.Coalesce(this=a.value.copy(), expressions=[b.value.copy()])
                merged.append(Visible(a.name, both))
            else:
                merged.append(b if join.side.upper() == "RIGHT" else a)
        if conditions:
            join.set("on", exp.and_(*conditions, copy=False))
        rest = [v for v in (*left, *right) if not any(_same(v.name, name) for name in names)]
        scope.visible = [*merged, *rest]

    def _lateral_view(self, view: exp.Lateral, scope: Scope, sight: _Sight) -> None:
        view.set("this", self._expression(view.this, scope, sight, frozenset()))
        scope.visible = [*scope.visible, *self._name(view, view.alias, None, scope)]

    # -- expressions -------------------------------------------------------------------------------

    def _expand_stars(self, select: exp.Select, scope: Scope) -> None:
        items: list[exp.Expr] = []
        for item in select.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if not isinstance(star, exp.Star):
                items.append(item)
                continue
            items.extend(_star(item, star, scope))
        select.set("expressions", items)

    def _projections(self, select: exp.Select, scope: Scope, sight: _Sight) -> None:
        items: list[exp.Expr] = []
        earlier: dict[str, exp.Expr] = {}
        for item in select.expressions:
            if isinstance(item, exp.Aliases) or item.is_star:
                items.append(self._expression(item, scope, sight, frozenset()))
                continue
            name = item.alias if isinstance(item, exp.Alias) else spark_name(item)
            value = item.this if isinstance(item, exp.Alias) else item
            value = self._expression(value, scope, sight, frozenset(), earlier)
            if isinstance(item, exp.Alias):
                earlier[name.lower()] = value
            items.append(exp.alias_(value, name, quoted=True, copy=False))
        select.set("expressions", items)

    def _group_by(
        self, select: exp.Select, scope: Scope, sight: _Sight, aliases: dict[str, exp.Expr]
    ) -> None:
        group = select.args.get("group")
        if group is None:
            return
        keys = []
        for key in group.expressions:
            if key.is_int and isinstance(key, exp.Literal):
                position = int(key.this)
                if not 1 <= position <= len(select.expressions):
                    raise PlanError(f"GROUP BY {position}: there is no such SELECT item")
                keys.append(select.expressions[position - 1].unalias().copy())
            else:
                keys.append(self._expression(key, scope, sight, frozenset(), aliases))
        group.set("expressions", keys)
        for part in ("rollup", "cube", "grouping_sets"):
            for node in group.args.get(part) or ():
                self._expression(node, scope, sight, frozenset(), aliases)

    def _clause(
        self, select: exp.Select, clause: str, scope: Scope, sight: _Sight, aliases: frozenset[str]
    ) -> None:
        if select.args.get(clause) is not None:
            self._expression(select.args[clause], scope, sight, aliases)

    def _expression(
        self,
        node: exp.Expr,
        scope: Scope,
        sight: _Sight,
        aliases: frozenset[str],
        values: Mapping[str, exp.Expr] | None = None,
    ) -> exp.Expr:
        """`node` with its columns resolved, in place; the new node when it is a column itself.

        A bare name in `aliases` stays; one that only `values` explains is replaced by its value.
        """
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return self.query(node, replace(sight, outer=scope))[0]
        if isinstance(node, exp.Column):
            return self._resolve(node, scope, aliases, values or {})
        inner = frozenset[str]() if isinstance(node, exp.AggFunc) else aliases
        for key, part in list(node.args.items()):
            if isinstance(part, exp.Expr):
                node.set(key, self._expression(part, scope, sight, inner, values))
            elif isinstance(part, list):
                parts = [
                    self._expression(one, scope, sight, inner, values)
                    if isinstance(one, exp.Expr)
                    else one
                    for one in part
                ]
                node.set(key, parts)
        return node

    def _resolve(
        self,
        node: exp.Column,
        scope: Scope,
        aliases: frozenset[str],
        values: Mapping[str, exp.Expr],
    ) -> exp.Expr:
        if node.meta.get("resolved"):
            return node
        if isinstance(node.this, exp.Star):
            relation = scope.relation(node.table)
            if relation is not None:
                node.set("table", exp.to_identifier(relation.name, quoted=True))
            return node
        name = node.name.lower()
        if len(node.parts) == 1:
            if name in aliases:
                return node
            if name in values and scope.bare(node.name) is None:
                value = as_column(values[name].copy())
                return value if isinstance(value, exp.Column) else exp.paren(value, copy=False)
        return scope.resolve(node) or node


def _order_by_position(select: exp.Select) -> None:
    """Where only what is selected can be sorted by, sort by an item's position or alias: items have got
    aliases, by which Spark no longer finds the expressions they stand for.
    """
    order = select.args.get("order")
    if order is None or not select.args.get("distinct"):
        return
    items = [item for item in select.expressions if isinstance(item, exp.Alias)]
    positions = {item.this: at for at, item in enumerate(select.expressions, 1) if item in items}
    aliases = {item.this: item.alias for item in items}

    def named(node: exp.Expr) -> exp.Expr:
        alias = aliases.get(node)
        return exp.column(exp.to_identifier(alias, quoted=True)) if alias is not None else node

    for key in order.expressions:
        if key.this.is_int:
            continue  # a position already
        position = positions.get(key.this)
        sorted_by = exp.Literal.number(position) if position else key.this.transform(named)
        key.set("this", sorted_by)


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _only(name: str, visible: list[Visible]) -> Visible:
    found = [entry for entry in visible if _same(entry.name, name)]
    if not found:
        known = did_you_mean(name, [entry.name for entry in visible])
        raise UnknownNameError(f"USING ({name}): one side of the join has no such column: {known}")
    if len(found) > 1:
        raise PlanError(f"USING ({name}): one side of the join has {len(found)} such columns")
    return found[0]


def _resolved(value: exp.Expr) -> exp.Expr:
    """A copy of `value` whose columns have their final names and must not be looked up again."""
    value = value.copy()
    for node in value.find_all(exp.Column):
        node.meta["resolved"] = True
    return value


def _star(item: exp.Expr, star: exp.Star, scope: Scope) -> list[exp.Expr]:
    """The SELECT items that `*` or `relation.*` stands for."""
    if star.args.get("replace") or star.args.get("rename"):
        raise UnsupportedError("SELECT * REPLACE / RENAME: list the columns")
    if isinstance(item, exp.Column):
        relation = scope.relation(item.table)
        if relation is None:
            known = did_you_mean(item.table, [known.alias for known in scope.relations])
            raise UnknownNameError(f"{item.table}.*: no such table in this FROM: {known}")
        if relation.columns is None:
            return [
                exp.Column(this=exp.Star(), table=exp.to_identifier(relation.name, quoted=True))
            ]
        shown = [Visible(name, column(relation.name, name)) for name in relation.columns]
    else:
        shown = scope.visible
        if not scope.relations:
            raise PlanError("SELECT * needs a FROM")
    left_out = [part.name.lower() for part in star.args.get("except_") or ()]
    known_names = {entry.name.lower() for entry in shown}
    for name in left_out:
        if name not in known_names:
            raise UnknownNameError(f"EXCEPT ({name}): {did_you_mean(name, known_names)}")
    if left_out and ALL in known_names:
        raise UnsupportedError("* EXCEPT over a relation whose columns only Spark knows")
    return [
        _resolved(entry.value)
        if entry.name == ALL
        else exp.alias_(_resolved(entry.value), entry.name, quoted=True)
        for entry in shown
        if entry.name.lower() not in left_out
    ]


def _is_derived(item: exp.Expr) -> TypeGuard[exp.Subquery]:
    """Whether a FROM item is a query. In `((SELECT ...) AS q JOIN t ON ...)` the outer parentheses
    hold a join, though what comes first in them is a query too.
    """
    if not isinstance(item, exp.Subquery) or not isinstance(item.this, exp.Query):
        return False
    inner = item.this
    return not (isinstance(inner, exp.Subquery) and (inner.alias or inner.args.get("joins")))


def _selected(values: exp.Values) -> exp.Subquery:
    label = values.args.get("alias")
    query = exp.Select(expressions=[exp.Star()])
    query.set("from_", exp.From(this=values))
    name = exp.TableAlias(this=label.this.copy()) if label is not None and label.this else None
    return exp.Subquery(this=query, alias=name)


def _values_columns(values: exp.Values) -> tuple[str, ...]:
    first = values.expressions[0]
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    return tuple(f"col{number}" for number in range(1, width + 1))
