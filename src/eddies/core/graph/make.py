"""From a query to its graph: the steps from top to bottom, and the checks that a query makes sense."""

from __future__ import annotations

import pyarrow as pa

from eddies.core.evaluate import render
from eddies.core.expr import Expr, conjuncts
from eddies.core.graph.builder import Builder
from eddies.core.graph.facts import FilterPlan, Graph, Optional, PartPlan, Role
from eddies.core.graph.predicates import (
    bands_of,
    cast_hint,
    check_boolean,
    exists_of,
    make_key_classes,
    optional_of,
)
from eddies.core.graph.relations import make_relations, stored_names
from eddies.core.query import MAX_SOURCES, Aggregation, Query
from eddies.errors import PlanError, TypeMismatchError

__all__ = ["make_graph"]


def make_graph(query: Query) -> Graph:
    """Work out `query`; raises `PlanError` and its kinds when it makes no sense."""
    _check_sources(query)
    builder = Builder(query)
    selections: list[list[Expr]] = [[] for _ in query.sources]
    optionals: list[Optional] = []
    for selection in query.selections:
        mask = builder.mask_of(selection.expr)
        if mask.bit_count() != 1:
            raise PlanError(f"selection {render(selection.expr)} must read exactly one source")
        check_boolean(builder, selection.expr)
        if selection.expensive:
            optionals.append(optional_of(selection.expr, mask, optionals))
        else:
            selections[mask.bit_length() - 1].append(selection.expr)
    classes = make_key_classes(builder, selections)
    filters: list[FilterPlan] = []
    for predicate in query.filters:
        mask = builder.mask_of(predicate.expr)
        if mask.bit_count() < 2:
            raise PlanError(f"filter {render(predicate.expr)} must read two sources or more")
        check_boolean(builder, predicate.expr)
        if predicate.expensive:
            optionals.append(optional_of(predicate.expr, mask, optionals))
        else:
            for part in conjuncts(predicate.expr):
                bands = bands_of(builder, part, classes)
                filters.append(FilterPlan(part, builder.mask_of(part), bands, predicate.connects))
    for exists in query.exists:
        optionals.append(exists_of(builder, exists, len(optionals)))
    for output in (*query.output, *(o for part in query.parts for o in part.output)):
        builder.type_of(output.expr)
    if query.aggregation is not None:
        _check_aggregation(builder, query.aggregation)
    relations = make_relations(builder, selections, classes, filters, optionals)
    relation_by_table = {relation.name: i for i, relation in enumerate(relations)}
    roles = tuple(
        Role(
            i,
            source.name,
            relation_by_table[source.table],
            tuple(selections[i]),
            builder.flag(i) if builder.flag(i) in stored_names(relations, source.table) else None,
        )
        for i, source in enumerate(query.sources)
    )
    return Graph(
        query=query,
        roles=roles,
        relations=relations,
        classes=classes,
        filters=tuple(filters),
        optionals=tuple(optionals),
        functions=builder.functions,
        parts=_parts(builder, optionals),
    )


def _parts(builder: Builder, optionals: list[Optional]) -> tuple[PartPlan, ...]:
    query = builder.query
    if not query.parts:
        asked = sum(1 << o.exists.target for o in optionals if o.exists is not None)
        return (PartPlan((1 << len(query.sources)) - 1 & ~asked, (1 << len(optionals)) - 1),)
    parts = []
    for part in query.parts:
        sources = sum(1 << builder.ids[name] for name in part.sources)
        for predicate in [s.expr for s in query.selections] + [f.expr for f in query.filters]:
            _check_within(builder.mask_of(predicate), sources, part.name)
        for equality in query.equalities:
            both = builder.mask_of(equality.left) | builder.mask_of(equality.right)
            _check_within(both, sources, part.name)
        done = sum(1 << n for n, optional in enumerate(optionals) if optional.mask & sources)
        parts.append(PartPlan(sources, done))
    return tuple(parts)


def _check_within(mask: int, sources: int, part: str) -> None:
    if mask & sources and mask & ~sources:
        raise PlanError(f"a predicate of query {part!r} reads a source of another query")


def _check_sources(query: Query) -> None:
    if not query.sources:
        raise PlanError("a query needs at least one source")
    if len(query.sources) > MAX_SOURCES:
        raise PlanError(f"{len(query.sources)} sources; at most {MAX_SOURCES} are possible")
    names = [source.name for source in query.sources]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"two sources are named {name!r}; give each role its own alias")


def _check_aggregation(builder: Builder, aggregation: Aggregation) -> None:
    for group in aggregation.groups:
        found = builder.type_of(group.expr)
        if pa.types.is_nested(found):
            raise TypeMismatchError(
                f"{render(group.expr)} of type {found} cannot be grouped by{cast_hint(found)}"
            )
    for aggregate in aggregation.aggregates:
        if aggregate.arg is not None:
            builder.type_of(aggregate.arg)
