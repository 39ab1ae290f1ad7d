"""Partial results: what can be said while a source stalls.

When one source delivers nothing, the rows of the others can still be joined with each other. A
`PartialAnswer` is that join, with NULL in place of the missing source's columns and its name in the
column `missing`. It is a query of its own over the rows that the eddy has stored, computed by another
eddy that is fed from the SteMs, so it costs nothing until somebody asks, and cannot disturb the exact
answer. Partial rows are promises, not results: each is replaced by as many rows of the exact answer as
the missing source has matches for it, possibly none.

    partial = PartialAnswer(eddy, "t")
    while (rows := partial.poll()) is not None: ...      # now, and again when more has arrived

Known limitations: rows must be stored (`Options(partial=True)` sees to that). A query that falls apart
without the missing source has no partial results: they would be a Cartesian product.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddies.core.constraints import is_connected
from eddies.core.expr import Call, Cast, Column, Expr, Literal, sources_of
from eddies.core.graph import Graph
from eddies.core.query import Equality, Filter, Output, Query, Selection, Source
from eddies.errors import OptionError

if TYPE_CHECKING:
    from eddies.core.eddy import Eddy

__all__ = ["PartialAnswer", "partial_query"]

MISSING = "missing"


def partial_query(graph: Graph, relation: int) -> Query | None:
    """The query over stored rows without all roles of a relation; None if it falls apart."""
    gone = {graph.roles[source].name for source in graph.relations[relation].roles}
    kept = [role for role in graph.roles if role.name not in gone]
    if graph.query.aggregation is not None or not kept or not _is_connected(graph, relation):
        return None
    sources = tuple(
        Source(r.name, graph.relations[r.relation].name, graph.relations[r.relation].stored)
        for r in kept
    )
    selections = [Selection(Column(role.name, role.flag)) for role in kept if role.flag]
    filters = [
        Filter(f.expr, connects=f.connects) for f in graph.filters if not sources_of(f.expr) & gone
    ]
    for optional in graph.optionals:
        if not sources_of(optional.expr) & gone:
            if optional.mask.bit_count() == 1:
                selections.append(Selection(optional.expr, expensive=True))
            else:
                filters.append(Filter(optional.expr, expensive=True))
    equalities = []
    for key_class in graph.classes:
        keys: list[Expr] = []
        for s, column in key_class.column_by_source.items():
            if graph.roles[s].name in gone:
                continue
            key: Expr = Column(graph.roles[s].name, column)
            is_narrow = graph.relation_of(s).stored.field(column).type != key_class.type
            keys.append(Cast(key, key_class.type) if is_narrow else key)
        pairs = pairwise(keys)
        equalities += [Equality(left, right, key_class.type) for left, right in pairs]
    outputs = [replace(o, expr=_without(o.expr, gone, graph)) for o in graph.query.output]
    name = graph.relations[relation].name
    outputs.append(Output(MISSING, Literal(name, pa.string()), pa.string()))
    return Query(
        sources,
        tuple(selections),
        tuple(equalities),
        tuple(filters),
        tuple(outputs),
        functions=graph.query.functions,
        never=graph.query.never,
    )


def _is_connected(graph: Graph, relation: int) -> bool:
    rest = [s for s, role in enumerate(graph.roles) if role.relation != relation]
    if not rest:
        return False
    reached = 1 << rest[0]
    for _ in rest:
        for source in rest:
            if not reached >> source & 1 and is_connected(graph, reached, source):
                reached |= 1 << source
    return all(reached >> source & 1 for source in rest)


def _without(expr: Expr, gone: set[str], graph: Graph) -> Expr:
    """`expr` with NULL for columns of sources that are not there."""
    match expr:
        case Column(source=source, name=name) if source in gone:
            role = next(role for role in graph.roles if role.name == source)
            return Literal(None, graph.relation_of(role.source_id).read.field(name).type)
        case Cast(arg=arg, type=type_, lenient=lenient):
            return Cast(_without(arg, gone, graph), type_, lenient)
        case Call(function=function, args=args):
            return Call(function, tuple(_without(arg, gone, graph) for arg in args))
        case _:
            return expr


class PartialAnswer:
    """The join of everything but one relation. See the module docstring."""

    def __init__(self, eddy: Eddy, missing: str) -> None:
        from eddies.core.eddy import Eddy as PlainEddy
        from eddies.core.options import Options

        if not eddy.options.partial:
            raise OptionError("partial results need Options(partial=True): rows must be stored")
        names = [relation.name for relation in eddy.graph.relations]
        if missing not in names:
            raise OptionError(f"the query reads no relation {missing!r}; it reads {names}")
        self._stems = eddy.stems
        self._graph = eddy.graph
        self._missing = names.index(missing)
        self._n_fed = [0] * len(names)
        query = partial_query(eddy.graph, self._missing)
        self._eddy = None
        if query is not None:
            self._eddy = PlainEddy(query, Options(batch_rows=eddy.options.batch_rows))

    @property
    def is_possible(self) -> bool:
        """Whether the query holds together without the missing relation."""
        return self._eddy is not None

    def poll(self) -> pa.RecordBatch | None:
        """Partial rows of what is stored and was not told yet; None if there are none now."""
        if self._eddy is None:
            return None
        rows = self._eddy.poll()
        if rows is None and self._feed():
            rows = self._eddy.poll()
        return rows

    def _feed(self) -> bool:
        assert self._eddy is not None
        is_fed = False
        for number, stem in enumerate(self._stems):
            first, last = self._n_fed[number], stem.store.n_rows
            if number == self._missing or first == last:
                continue
            relation = self._graph.relations[number]
            rows = np.arange(first, last, dtype=np.int32)
            arrays = [stem.store.column(name).take(rows) for name in relation.stored.names]
            self._eddy.push(relation.name, pa.record_batch(arrays, schema=relation.stored))
            self._n_fed[number] = last
            is_fed = True
        return is_fed

    def close(self) -> None:
        """Give memory back."""
        if self._eddy is not None:
            self._eddy.close()
