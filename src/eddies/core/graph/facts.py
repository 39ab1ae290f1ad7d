"""What a query graph consists of. See `eddies.core.graph`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from eddies.core.expr import Column, Expr
from eddies.core.query import Query, UserFunction

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
    padded: bool = False


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
    asked: int = field(init=False, compare=False)  # sources only asked whether a row matches

    def __post_init__(self) -> None:
        asked = sum(1 << o.exists.target for o in self.optionals if o.exists is not None)
        object.__setattr__(self, "asked", asked)

    @property
    def all_sources(self) -> int:
        """The sources that results span: not those that are only asked for matches."""
        return (1 << len(self.roles)) - 1 & ~self.asked

    def is_asked(self, relation: int) -> bool:
        """Whether a relation has a role that is only asked, so that it must be complete before that."""
        if not self.asked:
            return False
        return any(self.asked >> role & 1 for role in self.relations[relation].roles)

    def only_refuses(self, relation: int) -> bool:
        """Whether all rows pass that a relation does not match: it only refuses rows, or pads them."""
        refusing = {
            o.exists.target
            for o in self.optionals
            if o.exists is not None and (o.exists.negated or o.exists.padded)
        }
        return refusing.issuperset(self.relations[relation].roles)

    def pads(self, relation: int) -> bool:
        """Whether a relation is joined to rows whether it matches them or not."""
        if not self.asked:
            return False
        targets = {o.exists.target for o in self.optionals if o.exists and o.exists.padded}
        return not targets.isdisjoint(self.relations[relation].roles)

    def part_of(self, sources: int) -> int:
        """The query that a batch with these sources belongs to."""
        if len(self.parts) == 1:
            return 0
        return next(n for n, part in enumerate(self.parts) if part.sources & sources)

    def relation_of(self, source_id: int) -> Relation:
        return self.relations[self.roles[source_id].relation]

    def stored_expr(self, source_id: int, column: str) -> Expr:
        """A stored column of a source as an expression; derived columns are stored like any other."""
        return Column(self.roles[source_id].name, column)
