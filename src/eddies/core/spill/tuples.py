"""Tuples that must outlive the rows they point at: from row ids to values, and back.

Inside the eddy a tuple is one row id per source. A tuple that waits on disk cannot be that: the rows
it points at may be flushed while it waits. So it is written with the values it will still need:
those of the output, of predicates not yet checked, and of keys that lead to sources it lacks.
What served only joins behind it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids, Origin, RoutedBatch
from eddies.core.expr import Expr, columns_of
from eddies.core.graph import Graph
from eddies.core.lineage import Signature, bits
from eddies.core.route import Route
from eddies.core.spill.narrow import NarrowRows
from eddies.core.spill.stamps import StampTable
from eddies.core.state.columns import Column
from eddies.core.state.narrow_column import narrow_array, narrow_taken
from eddies.core.state.rows import Block, RowStore

__all__ = ["MixedOrigin", "TupleLayout"]

_NOWHERE = Route(Signature(0))


class MixedOrigin(Origin):
    """The origin of tuples of several drivers: `stamps[i]` is the stamp of the driver of tuple i.

    `limits` are the highest of any of them; whoever matches rows must also ask the stamps.
    """

    __slots__ = ("stamps",)

    stamps: npt.NDArray[np.int32]


class TupleLayout:
    """How tuples of one signature are written. `runs` is how many flushes of the relation they are
    about to probe had happened when they began to wait: rows flushed later are not theirs to find.
    """

    def __init__(self, graph: Graph, signature: Signature, stores: Sequence[RowStore]) -> None:
        self._graph = graph
        self._sources = bits(signature.sources)
        self._stores = [stores[role.relation] for role in graph.roles]
        self._source_ids = {role.name: role.source_id for role in graph.roles}
        needed = _needed_columns(graph, signature)
        self._columns = [(source, name) for source in self._sources for name in needed[source]]
        types = [graph.relation_of(s).stored.field(name).type for s, name in self._columns]
        fields = [pa.field(f"v{i}", type_) for i, type_ in enumerate(types)]
        fields += [pa.field("driver", pa.int8()), pa.field("stamp", pa.int32())]
        self.schema = pa.schema([*fields, pa.field("runs", pa.int32())])

    def encode(
        self, batch: RoutedBatch, positions: Ids, table: StampTable, n_runs: int
    ) -> NarrowRows:
        """The tuples at `positions` (there are some), with values."""
        origin = batch.origin
        local = {}
        for source in self._sources:
            ids = batch.ids[source]
            local[source] = positions if ids is None else ids[positions]
        values = [
            narrow_taken(origin.places[s].column(name), local[s]) for s, name in self._columns
        ]
        if isinstance(origin, MixedOrigin):
            stamps = narrow_array(pa.array(origin.stamps[local[origin.driver]]))
        else:
            stamps = table.stamp(origin.limits)
        return NarrowRows.of([*values, origin.driver, stamps, n_runs], positions.shape[0])

    def decode(
        self, rows: NarrowRows, table: StampTable
    ) -> Iterator[tuple[RoutedBatch, npt.NDArray[np.int32] | int]]:
        """The tuples again, as batches to be routed, one for each source that drove them; and how many
        runs they may see, all of them or each.
        """
        drivers = rows.numbers(len(self._columns))
        if isinstance(drivers, int):
            yield self._batch(drivers, rows, table), rows.numbers(len(self._columns) + 2)
            return
        for driver in np.unique(drivers):
            mine = rows.take(np.flatnonzero(drivers == driver).astype(np.int32))
            yield self._batch(int(driver), mine, table), mine.numbers(len(self._columns) + 2)

    def _batch(self, driver: int, rows: NarrowRows, table: StampTable) -> RoutedBatch:
        n = rows.n_rows
        columns: dict[int, dict[str, Column]] = {source: {} for source in self._sources}
        found = rows.columns(self.schema.types[: len(self._columns)])
        for (source, name), column in zip(self._columns, found, strict=True):
            columns[source][name] = column
        places: list[Block | RowStore] = list(self._stores)
        for source in self._sources:
            places[source] = Block(columns[source], n)
        ids: list[Ids | None] = [None] * len(places)
        in_order = np.arange(n, dtype=np.int32)
        for source in self._sources:
            ids[source] = None if source == driver else in_order
        home = self._stores[driver]
        stamps = rows.numbers(len(self._columns) + 1)
        if not isinstance(stamps, int) and (stamps == stamps[0]).all():
            stamps = int(stamps[0])
        origin: Origin
        if isinstance(stamps, int):
            origin = Origin(driver, places, table.limits(stamps), -1, home, self._source_ids)
        else:
            limits = table.highest(stamps)
            origin = mixed = MixedOrigin(driver, places, limits, -1, home, self._source_ids)
            mixed.stamps = stamps
        return RoutedBatch(_NOWHERE, origin, ids, n)


def _needed_columns(graph: Graph, signature: Signature) -> dict[int, list[str]]:
    """For each spanned source, in the order of its relation, the columns that may still be read."""
    wanted: dict[int, set[str]] = {source: set() for source in bits(signature.sources)}
    ids = {role.name: role.source_id for role in graph.roles}

    def want(expr: Expr) -> None:
        for column in columns_of(expr):
            if ids[column.source] in wanted:
                wanted[ids[column.source]].add(column.name)

    query = graph.query
    if query.aggregation is None:
        for output in query.output:
            want(output.expr)
    else:
        for group in query.aggregation.groups:
            want(group.expr)
        for aggregate in query.aggregation.aggregates:
            if aggregate.arg is not None:
                want(aggregate.arg)
    missing = graph.all_sources & ~signature.sources
    for predicate in graph.filters:
        if predicate.mask & missing:
            want(predicate.expr)
            for band in predicate.bands:
                want(band.probe)
    for number, optional in enumerate(graph.optionals):
        if not signature.done >> number & 1:
            want(optional.expr)
    for key_class in graph.classes:
        if key_class.mask & missing:
            for source, name in key_class.column_by_source.items():
                if source in wanted:
                    wanted[source].add(name)
    return {
        source: [name for name in graph.relation_of(source).stored.names if name in names]
        for source, names in wanted.items()
    }
