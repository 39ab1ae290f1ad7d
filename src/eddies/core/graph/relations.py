"""What is kept of each relation: the columns that are read, derived columns and flags of roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from eddies.core.evaluate import type_of
from eddies.core.expr import Column, Expr, columns_of
from eddies.core.graph.builder import Builder
from eddies.core.graph.facts import FilterPlan, KeyClass, Optional, Relation
from eddies.core.query import Query
from eddies.core.state.columns import normal_type
from eddies.errors import TypeMismatchError

__all__ = ["make_relations", "stored_names"]


def make_relations(
    builder: Builder,
    selections: list[list[Expr]],
    classes: tuple[KeyClass, ...],
    filters: Iterable[FilterPlan],
    optionals: Iterable[Optional],
) -> tuple[Relation, ...]:
    """All relations of the query, in the order of their first role."""
    query = builder.query
    tables = list(dict.fromkeys(source.table for source in query.sources))
    kept: dict[str, set[str]] = {table: set() for table in tables}
    for expr in _kept_exprs(query, filters, optionals):
        for column in columns_of(expr):
            kept[query.sources[builder.ids[column.source]].table].add(column.name)
    for key_class in classes:
        for source_id, name in key_class.column_by_source.items():
            kept[query.sources[source_id].table].add(name)
    for predicate in filters:
        for band in predicate.bands:
            kept[query.sources[band.target].table].add(band.column)
    for optional in optionals:
        if optional.exists is not None:
            for source_id, outer, inner in optional.exists.keys:
                kept[query.sources[source_id].table].add(outer)
                kept[query.sources[optional.exists.target].table].add(inner)
    relations = []
    for table in tables:
        role_ids = tuple(i for i, source in enumerate(query.sources) if source.table == table)
        derived = tuple((n, e) for (of, e), n in builder.derived.items() if of == table)
        read = _merged_schema(table, [query.sources[i].schema for i in role_ids])
        fields = [pa.field(f.name, f.type) for f in read if f.name in kept[table]]
        fields += [pa.field(name, _derived_type(builder, read, e)) for name, e in derived]
        if len(role_ids) > 1:
            fields += [pa.field(builder.flag(i), pa.bool_()) for i in role_ids if selections[i]]
        derived_for = {name: frozenset(builder.derived_for[name]) for name, _ in derived}
        stored = pa.schema(fields)
        relations.append(Relation(table, role_ids, read, derived, derived_for, stored))
    return tuple(relations)


def _kept_exprs(
    query: Query, filters: Iterable[FilterPlan], optionals: Iterable[Optional]
) -> Iterator[Expr]:
    if query.aggregation is None:
        yield from (output.expr for output in query.output)
        yield from (output.expr for part in query.parts for output in part.output)
    else:
        yield from (group.expr for group in query.aggregation.groups)
        yield from (a.arg for a in query.aggregation.aggregates if a.arg is not None)
    yield from (predicate.expr for predicate in filters)
    for optional in optionals:
        yield from optional.exprs
    yield from query.stored


def _derived_type(builder: Builder, read: pa.Schema, expr: Expr) -> pa.DataType:
    def column_type(column: Column) -> pa.DataType:
        return read.field(column.name).type

    return type_of(expr, column_type, builder.functions)


def _merged_schema(table: str, schemas: list[pa.Schema]) -> pa.Schema:
    types: dict[str, pa.DataType] = {}
    for schema in schemas:
        for column in schema:
            type_ = normal_type(column.type)
            if types.setdefault(column.name, type_) != type_:
                raise TypeMismatchError(
                    f"column {column.name!r} of {table!r} has type {types[column.name]} in one role "
                    f"and {type_} in another"
                )
    return pa.schema(list(types.items()))


def stored_names(relations: tuple[Relation, ...], table: str) -> list[str]:
    """The columns that are kept of a table."""
    return next(list(r.stored.names) for r in relations if r.name == table)
