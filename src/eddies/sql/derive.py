"""Derived sources: what Spark computes and an eddy joins.

A subquery in FROM, a WITH table and the rows of `x IN (SELECT ...)` are not base tables, but they are
rows all the same: Spark computes them from a text of their own, and the block reads them like any
other source. That keeps the whole join in the eddy, and with it the aggregation: the condition
`IN (SELECT ... HAVING ...)` of TPC-H Q18 leaves a handful of six million joined rows.

`x IN (SELECT y ...)` that has to be true is a join with the distinct values of y: no value and NULL
both drop the row. The two types must be the same, or both integers: another cast could make equal
what DISTINCT had told apart.

A derived text may read base tables, outputs of blocks and WITH tables, which it then spells out. Its
columns are those of the text as written, over base tables only, so they are known before any of it
is rewritten. What depends on rows of the query around it (a correlated subquery) cannot be derived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from sqlglot import exp

from eddies.core.state.columns import normal_type
from eddies.sql.block import Member
from eddies.sql.known_types import known_columns
from eddies.sql.parse import DIALECT
from eddies.sql.plain import nondeterministic
from eddies.sql.references import referenced_tables
from eddies.sql.settings import DEFAULT, Settings
from eddies.sql.types import is_integral

__all__ = ["Deriving", "SchemaOf", "comparable_exactly", "once_each"]

SchemaOf = Callable[[str, Mapping[str, pa.Schema]], pa.Schema]
"""The columns of a Spark SQL text over tables of the given schemas."""


class Deriving:
    """Makes members of blocks from queries.

    First ask for the columns (`columns_of_item`, `columns_of_values`), with the query as written;
    then, with the query rewritten over blocks, for the member. `texts` and `trees` hold the queries
    by the name of their rows.
    """

    def __init__(
        self,
        schema_of: SchemaOf | None,
        schemas: Mapping[str, pa.Schema],
        settings: Settings = DEFAULT,
    ) -> None:
        self._schema_of = schema_of
        self._schemas = schemas
        self._settings = settings
        self._written: dict[str, exp.CTE] = {}
        self._rewritten: dict[str, exp.CTE] = {}
        self._names: dict[str, str] = {}  # text -> name: equal texts are one table
        self.texts: dict[str, str] = {}
        self.trees: dict[str, exp.Query] = {}

    @property
    def possible(self) -> bool:
        """Whether the host says what a text gives."""
        return self._schema_of is not None

    def define(self, written: exp.CTE, rewritten: exp.CTE) -> None:
        """A WITH table that texts may read from now on."""
        self._written[written.alias] = written
        self._rewritten[written.alias] = rewritten

    def may_be_source(self, item: exp.Expr) -> bool:
        """Whether a FROM item is a query that Spark can answer beforehand."""
        if any(value and key not in ("this", "alias") for key, value in item.args.items()):
            return False
        if isinstance(item, exp.Table):
            table = self._written.get(item.name)
            return table is not None and _is_definite(table.this)
        return isinstance(item, exp.Subquery) and _is_definite(item.this)

    def columns_of_item(self, item: exp.Expr) -> pa.Schema | None:
        """The columns of a FROM item; None if it cannot be a derived source."""
        if not self.may_be_source(item):
            return None
        query = self._written[item.name].this if isinstance(item, exp.Table) else item.this
        holders = [item, self._written[item.name]] if isinstance(item, exp.Table) else [item]
        plain = not any(holder.alias_column_names for holder in holders)
        schema = (
            known_columns(query, self._schemas, self._written, self._settings) if plain else None
        )
        schema = schema or self._analysed(_everything(item))
        names = {field.name.lower() for field in schema}
        return schema if len(names) == len(schema) else None

    def member_of_item(self, item: exp.Expr, schema: pa.Schema) -> Member:
        """The FROM item, rewritten, as a member."""
        return self._member(item.alias, _everything(item), schema)

    def columns_of_values(self, query: exp.Query, compared: pa.DataType) -> pa.Schema | None:
        """The column of distinct values of `query`, if values of type `compared` can be sought."""
        if not _is_definite(query):
            return None
        known = known_columns(query, self._schemas, self._written, self._settings)
        if known is None or len(known) != 1:
            schema = self._analysed(_distinct(query))
        else:
            schema = pa.schema([known.field(0).with_name("value")])
        fits = len(schema) == 1 and comparable_exactly(schema.field(0).type, compared)
        return schema if fits else None

    def member_of_values(self, relation: str, query: exp.Query, schema: pa.Schema) -> Member:
        """The distinct values of `query`, rewritten, as a member with the column `value`."""
        return self._member(relation, _distinct(query), schema)

    def _analysed(self, tree: exp.Select) -> pa.Schema:
        assert self._schema_of is not None
        text = _with_tables(tree, self._written).sql(DIALECT, identify=True)
        schema = self._schema_of(text, self._schemas)
        return pa.schema([field.with_type(normal_type(field.type)) for field in schema])

    def _member(self, relation: str, tree: exp.Select, schema: pa.Schema) -> Member:
        tree = _with_tables(tree, self._rewritten)
        text = tree.sql(DIALECT, identify=True, pretty=True)
        name = self._names.setdefault(text, f"__derived_{len(self._names)}")
        self.texts[name] = text
        self.trees[name] = tree
        return Member(relation, name, schema)


def _with_tables(tree: exp.Select, known: Mapping[str, exp.CTE]) -> exp.Select:
    """`tree` with the WITH tables it reads, directly or through others, in order of definition."""
    found: set[str] = set()
    waiting = referenced_tables(tree) & known.keys()
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= (referenced_tables(known[name].this) & known.keys()) - found
    if found:
        needed = [table.copy() for name, table in known.items() if name in found]
        tree.set("with_", exp.With(expressions=needed))
    return tree


def _everything(item: exp.Expr) -> exp.Select:
    item = item.copy()
    item.args["alias"].set("this", exp.to_identifier("derived", quoted=True))
    select = exp.Select(expressions=[exp.Star()])
    select.set("from_", exp.From(this=item))
    return select


def once_each(query: exp.Query) -> exp.Query:
    """The same values, each once, if the query can say so itself: then a block may drop the others."""
    clauses = ("limit", "offset", "order", "sort", "distinct", "kind")
    if isinstance(query, exp.Select) and not any(query.args.get(clause) for clause in clauses):
        query.set("distinct", exp.Distinct())
    return query


def _distinct(query: exp.Query) -> exp.Select:
    label = exp.TableAlias(this=exp.to_identifier("derived", quoted=True))
    label.set("columns", [exp.to_identifier("value", quoted=True)])
    select = exp.Select(expressions=[exp.Star()])
    if not (isinstance(query, exp.Select) and query.args.get("distinct")):
        select.set("distinct", exp.Distinct())
    select.set("from_", exp.From(this=exp.Subquery(this=query.copy(), alias=label)))
    return select


def _is_definite(query: exp.Expr) -> bool:
    """Whether all columns have known names, and the rows are the same from run to run."""
    if any(nondeterministic(node) for node in query.walk()):
        return False
    while not isinstance(query, exp.Select):
        if not isinstance(query, exp.SetOperation | exp.Subquery):
            return False
        query = query.this
    return all(isinstance(item, exp.Alias) for item in query.expressions)


def comparable_exactly(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values that DISTINCT or GROUP BY tell apart on one side are never equal to one value of
    the other.
    """
    if pa.types.is_floating(left) or pa.types.is_nested(left) or pa.types.is_null(left):
        return False
    return bool(left == right) or (is_integral(left) and is_integral(right))
