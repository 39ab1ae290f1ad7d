"""The query graph: a `Query` worked out once, before the first row, into what routing needs.

Nothing in here is an order. From the query's facts it derives

* per relation: the columns to keep, *derived columns* (join-key expressions, computed as rows enter),
  and per role the cheap selections applied on entry;
* *key classes*: columns that every result row holds equal. Equality is transitive, so `a.x = b.y` and
  `b.y = c.z` let a and c meet without b; and no spanning tree is ever fixed, so cycles need nothing
  special: all classes between a batch and a new source are checked when it probes that source;
* *optional predicates*: expensive ones and those that ask a source whether it has a matching row, each
  a module of its own;
* *filters*: predicates over several sources, checked by the probe that first spans them all, and
  which of them are comparisons that a sorted index can answer.

Known limitation: equality of floating-point keys in a class follows SQL (NaN equals NaN), so a class
is transitive there too; keys of different types are never put into one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from eddies.core.evaluate import render, type_of
from eddies.core.expr import Call, Cast, Column, Expr, Literal, columns_of, conjuncts
from eddies.core.query import MAX_SOURCES, Aggregation, Exists, Query, UserFunction
from eddies.core.state.columns import is_key_type, normal_type
from eddies.core.state.sorted_index import is_sortable
from eddies.errors import PlanError, TypeMismatchError, UnknownNameError

__all__ = [
    "Band",
    "ExistsPlan",
    "FilterPlan",
    "Graph",
    "KeyClass",
    "Optional",
    "PartPlan",
    "Relation",
    "Role",
    "make_graph",
]


@dataclass(frozen=True, slots=True)
class Role:
    """One source of the query. `flag` names the stored column that says which rows of a shared
    relation pass this role's selections; None when all stored rows do.
    """

    source_id: int
    name: str
    relation: int
    selections: tuple[Expr, ...]
    flag: str | None


@dataclass(frozen=True, slots=True)
class Relation:
    """One base table with all its roles; what is read, derived and kept of it.

    `derived_for[name]` are the roles that use the derived column `name`: for rows that none of them
    wants it has no value, because computing it there might fail.
    """

    name: str
    roles: tuple[int, ...]
    read: pa.Schema
    derived: tuple[tuple[str, Expr], ...]
    derived_for: Mapping[str, frozenset[int]]
    stored: pa.Schema


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Columns that are equal in every result row, at most one a source.

    `type` is what they are compared as; a column of whole numbers may itself be narrower.
    """

    type: pa.DataType
    column_by_source: Mapping[int, str]
    mask: int = field(init=False, compare=False)  # of the sources

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", sum(1 << source for source in self.column_by_source))


@dataclass(frozen=True, slots=True)
class Band:
    """`probe <= column` or `probe >= column` as far as a sorted index is concerned.

    `column` is a stored column of source `target`; `shift` is added to the probe's value. Bounds are
    inclusive and may let too much through: the filter itself is checked afterwards.
    """

    target: int
    column: str
    probe: Expr
    probe_mask: int
    is_lower: bool  # the probe's value is a lower bound of the column
    shift: float | int


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """A cheap predicate over several sources."""

    expr: Expr
    mask: int
    bands: tuple[Band, ...]
    connects: bool = True


@dataclass(frozen=True, slots=True)
class ExistsPlan:
    """How the rows of source `target` are sought that match a tuple: by equal keys, as (source, stored
    column there, stored column of the target), and all of `filters`.
    """

    target: int
    keys: tuple[tuple[int, str, str], ...]
    filters: tuple[Expr, ...]
    negated: bool
    null_aware: bool


@dataclass(frozen=True, slots=True)
class Optional:
    """A predicate that is a module of its own: done bit and sources. It is an expensive expression, or
    asks whether a source has a matching row (`exists`).
    """

    expr: Expr
    mask: int
    name: str
    exists: ExistsPlan | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """What it evaluates."""
        return (self.expr,) if self.exists is None else self.exists.filters


@dataclass(frozen=True, slots=True)
class PartPlan:
    """What a result of one query spans: sources and optional predicates, both as masks."""

    sources: int
    done: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything routing needs to know of a query."""

    query: Query
    roles: tuple[Role, ...]
    relations: tuple[Relation, ...]
    classes: tuple[KeyClass, ...]
    filters: tuple[FilterPlan, ...]
    optionals: tuple[Optional, ...]
    functions: Mapping[str, UserFunction]
    parts: tuple[PartPlan, ...]  # of several queries that share the eddy; of one there is one

    @property
    def all_sources(self) -> int:
        """The sources that results span: not those that are only asked for matches."""
        return (1 << len(self.roles)) - 1 & ~self.asked

    @property
    def asked(self) -> int:
        """The sources that are only asked whether they have a matching row."""
        return sum(1 << o.exists.target for o in self.optionals if o.exists is not None)

    def is_asked(self, relation: int) -> bool:
        """Whether a relation has a role that is only asked, so that it must be complete before that."""
        return any(self.asked >> role & 1 for role in self.relations[relation].roles)

    def part_of(self, sources: int) -> int:
        """The query that a batch with these sources belongs to."""
        return next(n for n, part in enumerate(self.parts) if part.sources & sources)

    def relation_of(self, source_id: int) -> Relation:
        return self.relations[self.roles[source_id].relation]

    def stored_expr(self, source_id: int, column: str) -> Expr:
        """A stored column of a source as an expression; derived columns are stored like any other."""
        return Column(self.roles[source_id].name, column)


class _Builder:
    """Collects derived columns while the query is worked through."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.functions = {function.name: function for function in query.functions}
        self.ids = {source.name: i for i, source in enumerate(query.sources)}
        self.derived: dict[tuple[str, Expr], str] = {}
        self.derived_for: dict[str, set[int]] = {}
        self._derived_prefix = self._unused("__derived_")
        self._flag_prefix = self._unused("__role_")

    def _unused(self, prefix: str) -> str:
        """`prefix`, made longer until no column of any source begins with it."""
        names = [name for source in self.query.sources for name in source.schema.names]
        while any(name.startswith(prefix) for name in names):
            prefix = f"_{prefix}"
        return prefix

    def flag(self, source_id: int) -> str:
        """The name of the column that says which rows of a relation a role wants."""
        return f"{self._flag_prefix}{source_id}"

    def mask_of(self, expr: Expr) -> int:
        mask = 0
        for column in columns_of(expr):
            if column.source not in self.ids:
                raise UnknownNameError(f"the query has no source named {column.source!r}")
            mask |= 1 << self.ids[column.source]
        return mask

    def type_of(self, expr: Expr) -> pa.DataType:
        return type_of(expr, self.column_type, self.functions)

    def column_type(self, column: Column) -> pa.DataType:
        source = self.query.sources[self.ids[column.source]]
        position = source.schema.get_field_index(column.name)
        if position < 0:
            raise UnknownNameError(
                f"source {source.name!r} has no column {column.name!r}; "
                f"it has {', '.join(source.schema.names)}"
            )
        return normal_type(source.schema.field(position).type)

    def stored_column(self, expr: Expr) -> tuple[int, str]:
        """The source of `expr` and the stored column that holds its value, derived if need be."""
        source_id = self.mask_of(expr).bit_length() - 1
        if isinstance(expr, Column):
            return source_id, expr.name
        table = self.query.sources[source_id].table
        key = (table, _in_table(expr, table))
        name = self.derived.setdefault(key, f"{self._derived_prefix}{len(self.derived)}")
        self.derived_for.setdefault(name, set()).add(source_id)
        return source_id, name


def _in_table(expr: Expr, table: str) -> Expr:
    """`expr` with its columns named by table instead of role, so that roles share derived columns."""
    match expr:
        case Column(name=name):
            return Column(table, name)
        case Cast(arg=arg, type=type_, lenient=lenient):
            return Cast(_in_table(arg, table), type_, lenient)
        case Call(function=function, args=args):
            return Call(function, tuple(_in_table(arg, table) for arg in args))
        case Literal():
            return expr


def make_graph(query: Query) -> Graph:
    """Work out `query`; raises `PlanError` and its kinds when it makes no sense."""
    _check_sources(query)
    builder = _Builder(query)
    selections: list[list[Expr]] = [[] for _ in query.sources]
    optionals: list[Optional] = []
    for selection in query.selections:
        mask = builder.mask_of(selection.expr)
        if mask.bit_count() != 1:
            raise PlanError(f"selection {render(selection.expr)} must read exactly one source")
        _check_boolean(builder, selection.expr)
        if selection.expensive:
            optionals.append(_optional(selection.expr, mask, optionals))
        else:
            selections[mask.bit_length() - 1].append(selection.expr)
    classes = _key_classes(builder, selections)
    filters: list[FilterPlan] = []
    for predicate in query.filters:
        mask = builder.mask_of(predicate.expr)
        if mask.bit_count() < 2:
            raise PlanError(f"filter {render(predicate.expr)} must read two sources or more")
        _check_boolean(builder, predicate.expr)
        if predicate.expensive:
            optionals.append(_optional(predicate.expr, mask, optionals))
        else:
            for part in conjuncts(predicate.expr):
                bands = _bands(builder, part, classes)
                filters.append(FilterPlan(part, builder.mask_of(part), bands, predicate.connects))
    for exists in query.exists:
        optionals.append(_exists(builder, exists, len(optionals)))
    for output in (*query.output, *(o for part in query.parts for o in part.output)):
        builder.type_of(output.expr)
    if query.aggregation is not None:
        _check_aggregation(builder, query.aggregation)
    relations = _relations(builder, selections, classes, filters, optionals)
    relation_by_table = {relation.name: i for i, relation in enumerate(relations)}
    roles = tuple(
        Role(
            i,
            source.name,
            relation_by_table[source.table],
            tuple(selections[i]),
            builder.flag(i) if builder.flag(i) in _names(relations, source.table) else None,
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


def _parts(builder: _Builder, optionals: list[Optional]) -> tuple[PartPlan, ...]:
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


def _check_boolean(builder: _Builder, expr: Expr) -> None:
    found = builder.type_of(expr)
    if not pa.types.is_boolean(found):
        raise TypeMismatchError(f"predicate {render(expr)} has type {found}, not boolean")


def _check_aggregation(builder: _Builder, aggregation: Aggregation) -> None:
    for group in aggregation.groups:
        found = builder.type_of(group.expr)
        if pa.types.is_nested(found):
            raise TypeMismatchError(
                f"{render(group.expr)} of type {found} cannot be grouped by{_cast_hint(found)}"
            )
    for aggregate in aggregation.aggregates:
        if aggregate.arg is not None:
            builder.type_of(aggregate.arg)


def _cast_hint(type_: pa.DataType) -> str:
    """What to do about a type that cannot be compared by a hash table."""
    if pa.types.is_fixed_size_binary(type_):
        return "; cast the column to binary before it is read"
    if pa.types.is_decimal256(type_):
        return f"; cast the column to decimal128(38, {type_.scale}) before it is read"
    if pa.types.is_nested(type_):
        return "; use its parts as columns of their own, or cast it to a string before it is read"
    return ""


def _optional(expr: Expr, mask: int, before: list[Optional]) -> Optional:
    name = f"select:{render(expr)}"
    taken = {optional.name for optional in before}
    unique, count = name, 2
    while unique in taken:
        unique, count = f"{name}#{count}", count + 1
    return Optional(expr, mask, unique)


def _exists(builder: _Builder, exists: Exists, number: int) -> Optional:
    target = builder.ids[exists.source]
    keys: list[tuple[int, str, str]] = []
    filters, mask = list(exists.filters), 0
    for equality in exists.equalities:
        _check_key(builder, equality.left, equality.type)
        _check_key(builder, equality.right, equality.type)
        source_id, outer = builder.stored_column(_unwidened(builder, equality.left))
        _, inner = builder.stored_column(_unwidened(builder, equality.right))
        if any(column == inner for _, _, column in keys):  # a column is part of a key once
            filters.append(Call("eq", (equality.left, equality.right)))
        else:
            keys.append((source_id, outer, inner))
            mask |= 1 << source_id
    for predicate in filters:
        _check_boolean(builder, predicate)
        mask |= builder.mask_of(predicate) & ~(1 << target)
    if not keys or mask >> target & 1:
        raise PlanError(
            f"source {exists.source!r} must be equal to others in some column to be asked"
        )
    name = f"{'no' if exists.negated else 'some'}:{exists.source}#{number}"
    plan = ExistsPlan(target, tuple(keys), tuple(filters), exists.negated, exists.null_aware)
    return Optional(Literal(True, pa.bool_()), mask, name, plan)


def _check_key(builder: _Builder, side: Expr, type_: pa.DataType) -> None:
    if builder.mask_of(side).bit_count() != 1:
        raise PlanError(f"{render(side)} must read exactly one source to be a join key")
    found = builder.type_of(side)
    if found != type_:
        raise TypeMismatchError(
            f"join key {render(side)} has type {found}, but is compared as {type_}"
        )
    if not is_key_type(found):
        raise TypeMismatchError(
            f"{render(side)} of type {found} cannot be a join key{_cast_hint(found)}"
        )


def _unwidened(builder: _Builder, side: Expr) -> Expr:
    """A key without a cast to a wider integer: whole numbers of all widths are the same key words, and
    a column itself can be hashed, looked up and shared where a derived one cannot.
    """
    if isinstance(side, Cast) and isinstance(side.arg, Column):
        types = builder.column_type(side.arg), side.type
        if all(map(pa.types.is_signed_integer, types)) and types[0].bit_width <= types[1].bit_width:
            return side.arg
    return side


def _key_classes(builder: _Builder, selections: list[list[Expr]]) -> tuple[KeyClass, ...]:
    """Merge equalities into classes; a source's second column in a class becomes a selection."""
    groups: list[tuple[pa.DataType, set[tuple[int, str]]]] = []
    exprs: dict[tuple[int, str], Expr] = {}
    for equality in builder.query.equalities:
        members = set()
        for side in (equality.left, equality.right):
            _check_key(builder, side, equality.type)
            member = builder.stored_column(_unwidened(builder, side))
            exprs.setdefault(member, side)
            members.add(member)
        if len({source for source, _ in members}) != 2:
            raise PlanError("the two sides of an equality must read different sources")
        merged = [g for g in groups if g[0] == equality.type and g[1] & members]
        groups = [g for g in groups if g not in merged]
        groups.append((equality.type, members.union(*(g[1] for g in merged))))
    classes = []
    for type_, group in groups:
        column_by_source: dict[int, str] = {}
        for source_id, column in sorted(group):
            if source_id in column_by_source:
                first = exprs[(source_id, column_by_source[source_id])]
                selections[source_id].append(Call("eq", (first, exprs[(source_id, column)])))
            else:
                column_by_source[source_id] = column
        classes.append(KeyClass(type_, column_by_source))
    return tuple(classes)


_MICROS_PER_DAY = 86_400_000_000
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def _bands(builder: _Builder, expr: Expr, classes: tuple[KeyClass, ...]) -> tuple[Band, ...]:
    """How a sorted index can narrow down a comparison, seen from either side.

    None where the two sides share a key class: there the hash index answers. An equality comes here if
    one side reads several sources, as in `a.x = b.y + c.z`: who has b and c finds a by two bounds.
    """
    if not (isinstance(expr, Call) and expr.function in _MIRRORED and len(expr.args) == 2):
        return ()
    found = []
    left, right = expr.args
    sides = ((left, expr.function, right), (right, _MIRRORED[expr.function], left))
    for target, comparison, probe in sides:
        # target <comparison> probe
        mask, probe_mask = builder.mask_of(target), builder.mask_of(probe)
        type_ = builder.type_of(target)
        if mask.bit_count() != 1 or probe_mask == 0 or mask & probe_mask or not is_sortable(type_):
            continue
        if any(c.mask & mask and c.mask & probe_mask for c in classes):
            continue
        if comparison == "eq" and pa.types.is_floating(type_):
            continue  # equality of NaN is not an interval
        target, shift = _without_shift(builder, target)
        source_id, column = builder.stored_column(target)
        bounds = {"gt": (True,), "ge": (True,), "eq": (True, False)}.get(comparison, (False,))
        found += [Band(source_id, column, probe, probe_mask, b, shift) for b in bounds]
    return tuple(found)


def _without_shift(builder: _Builder, expr: Expr) -> tuple[Expr, float | int]:
    """`x + 5` as (x, -5): the shift that, added to the other side, compares with x alone.

    So `a.x between b.x - 5 and b.x + 5` is one range of b.x, not two half-open ones. Times are
    numbers of microseconds or days.
    """
    if isinstance(expr, Call) and expr.function == "add_interval":
        moment, *interval = expr.args
        months, days, micros = (int(str(p.value)) for p in interval if isinstance(p, Literal))
        if isinstance(moment, Column) and not months:
            is_date = pa.types.is_date(builder.type_of(moment))
            return moment, -(days if is_date else days * _MICROS_PER_DAY + micros)
    if isinstance(expr, Call) and expr.function in ("add", "subtract") and len(expr.args) == 2:
        left, right = expr.args
        if (
            isinstance(left, Column)
            and isinstance(right, Literal)
            and isinstance(right.value, int | float)
            and _is_number(builder.type_of(left))
        ):
            return left, right.value if expr.function == "subtract" else -right.value
    return expr, 0


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _relations(
    builder: _Builder,
    selections: list[list[Expr]],
    classes: tuple[KeyClass, ...],
    filters: Iterable[FilterPlan],
    optionals: Iterable[Optional],
) -> tuple[Relation, ...]:
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


def _derived_type(builder: _Builder, read: pa.Schema, expr: Expr) -> pa.DataType:
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


def _names(relations: tuple[Relation, ...], table: str) -> list[str]:
    return next(list(r.stored.names) for r in relations if r.name == table)
