"""What is to be computed: one select-project-join block, as facts without an order.

A `Query` names its sources and states what must hold of a result row. It holds no plan: which source
is read first, which join is tried next, are decisions of the eddy while it runs (Avnur and
Hellerstein 2000, section 2; Raman et al. 2003, section 2). The four kinds of predicate differ only in
what the engine can do with them:

* `Selection`: reads one source. Cheap ones are applied as rows enter; expensive ones become modules.
* `Equality`: `left = right`, each side an expression over one source. Answered by hash indexes.
* `Filter`: anything else over two or more sources (inequalities, bands, predicates over three
  sources). Checked as soon as a batch spans all its sources.
* A false constant: `Query.never`, an empty answer whatever the data.

Two sources with the same `table` are two roles of one relation (a self-join) and share one SteM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa

from eddies.core.expr import Column, Expr

__all__ = [
    "Aggregate",
    "AggregateFunction",
    "Aggregation",
    "Equality",
    "Exists",
    "Filter",
    "MAX_SOURCES",
    "Output",
    "Part",
    "Query",
    "Selection",
    "Source",
    "UserFunction",
]

MAX_SOURCES = 62  # masks are signed 64-bit integers wherever they meet a kernel


@dataclass(frozen=True, slots=True)
class Source:
    """One role in FROM: `name` is the alias, `table` the relation it reads, `schema` the columns used.

    `schema` holds only the columns the query needs; batches pushed for the table may have more.
    """

    name: str
    table: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Selection:
    """A predicate over one source. `expensive` makes it a module that the eddy orders."""

    expr: Expr
    expensive: bool = False


@dataclass(frozen=True, slots=True)
class Equality:
    """`left = right` over two different sources; both sides have type `type` (casts are explicit)."""

    left: Expr
    right: Expr
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate over two or more sources that is not an `Equality`.

    `connects=False` says that it lets most pairs through: it is checked like any other, but is no
    reason to go from one of its sources to another.
    """

    expr: Expr
    expensive: bool = False
    connects: bool = True


@dataclass(frozen=True, slots=True)
class Exists:
    """Rows stay if source `source`, which is joined to nothing else, has a row that matches them; if
    `negated`, if it has none. `equalities` have their left side in other sources and their right side
    in `source`, and `filters` read both.

    `null_aware` is SQL's NOT IN, with one equality: unless the source is empty, NULL on either side
    leaves the question open, and the row goes.

    `padded` is SQL's LEFT JOIN: all rows stay, once for each row that matches them or else with a row
    of NULLs. `source` is the only one of its table, and only outputs and aggregates read its columns.
    """

    source: str
    negated: bool
    equalities: tuple[Equality, ...]
    filters: tuple[Expr, ...] = ()
    null_aware: bool = False
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """One projected column of the result."""

    name: str
    expr: Expr
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Part:
    """One of several queries that share an eddy: its sources, and what it puts out."""

    name: str
    sources: tuple[str, ...]
    output: tuple[Output, ...]


AggregateFunction = OneOf["count_star", "count", "sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate column; `arg` is None for count(*). `type` is the type of the result."""

    name: str
    function: AggregateFunction
    arg: Expr | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Aggregation computed where the rows come out. With no `groups` there is one result row.

    The answer has the columns `groups` then `aggregates`; `Query.output` is ignored. With `partial`
    a group may be given out in several rows, which someone above merges: then memory is bounded,
    and grouping can stop where it does not pay. Of groups that are given out whole those are left out
    for which `having` is not true; it reads columns of the answer. Who states it vouches that no other
    eddy has results of the same groups.
    """

    groups: tuple[Output, ...]
    aggregates: tuple[Aggregate, ...]
    partial: bool = False
    having: Expr | None = None


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A registered function, named in expressions by `name`.

    `function` takes and returns Arrow arrays (`arrow=True`) or plain Python values, one row a call.
    It must be deterministic: a predicate on one source is evaluated at most once per stored row.
    `expensive=False` declares it cheap, so that a selection using it runs as rows enter.
    """

    name: str
    function: Callable[..., object]
    returns: pa.DataType
    arrow: bool = False
    expensive: bool = True


@dataclass(frozen=True, slots=True)
class Query:
    """A select-project-join block. See the module docstring.

    `stored` are columns to be kept with the rows although nothing reads them: for whoever has rows
    forgotten by them (`Eddy.evict`). `parts` are the queries that it was put together from, if it was
    (`eddies.core.sharing`): a result spans the sources of one of them, and `output` is not used.
    """

    sources: tuple[Source, ...]
    selections: tuple[Selection, ...] = ()
    equalities: tuple[Equality, ...] = ()
    filters: tuple[Filter, ...] = ()
    output: tuple[Output, ...] = ()
    aggregation: Aggregation | None = None
    functions: tuple[UserFunction, ...] = ()
    never: bool = False
    stored: tuple[Column, ...] = ()
    exists: tuple[Exists, ...] = ()
    parts: tuple[Part, ...] = ()

    def source_id(self, name: str) -> int:
        """Position of source `name`; its bit in every mask is `1 << source_id`."""
        for position, source in enumerate(self.sources):
            if source.name == name:
                return position
        raise KeyError(name)
