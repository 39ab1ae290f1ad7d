"""Access methods inside a cell: mirrors that compete and indexes that are asked, in every task.

A cell holds a part of each relation (`eddies.spark.cells`), whichever way its rows come. Scans are read
and filtered as in `reading`; what an index returns goes through the same filter, so that mirrors and
indexes of one cell still hold the same rows and may compete. A relation with several ways is never
divided by row numbers: those of two mirrors differ, and what is looked up has none. It is hashed, or
every cell has all of it. Mirrors that differ under one key differ in every cell, which says so: one
version counts in a cell, and it may be another one in the next.

Every eddy asks for a key at most once. Cells that hold the same key, because the relation is replicated
to them, ask each for itself; `concurrency` of an index is that of one eddy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from eddies.core.access.binding import plan_access
from eddies.core.access.method import Access, IndexAccess, Lookup
from eddies.core.clock import RealClock
from eddies.core.events import EventSink
from eddies.core.graph import Graph
from eddies.core.options import Options
from eddies.core.query import Query
from eddies.core.state.columns import is_key_type
from eddies.errors import OptionError
from eddies.hosts.access import AccessRun, has_access_methods
from eddies.hosts.lookups import ThreadLookups
from eddies.hosts.scans import ThreadedScan
from eddies.sources.arrivals import Arrivals, arrivals_of
from eddies.sources.delivered import convert
from eddies.sources.reachable import AccessSource, access_of, access_source
from eddies.sources.source import Source
from eddies.spark.reading import Reading

__all__ = ["CellAccess", "access_methods", "cell_run", "competing", "may_use_access"]


def may_use_access(options: Options) -> bool:
    """Whether eddies with these options take rows from several access methods. If not, tasks read the
    scans alone.
    """
    return options.state in ("auto", "stems") and options.memory is None and options.threads == 1


def access_methods(source: Source | None) -> AccessSource | None:
    """The source with its access methods, if there is more than one scan; otherwise None."""
    if source is not None and has_access_methods(source):
        found = access_source(source)
        if found.indexes or len(found.scans) != 1:
            return found
    return None


def competing(
    graph: Graph, sources: Mapping[str, AccessSource], options: Options
) -> dict[str, AccessSource]:
    """Of the relations `sources`, those with several ways that this query can use, and these ways: no
    index whose bind columns nobody knows, and none if rows cannot be compared.

    Raises `UnreachableError` if a relation cannot be reached, `OptionError` if `options` exclude the
    only way to it.
    """
    if not may_use_access(options):
        for name, source in sources.items():
            if not source.scans:
                raise OptionError(
                    f"{name!r} has no scan, and look-ups need state='stems' or 'auto', threads=1 and "
                    "no bound on memory; give it a scan or change the options"
                )
        return {}
    methods = {name: access_of(source)[0] for name, source in sources.items()}
    plan = plan_access(graph, [methods.get(r.name, Access()) for r in graph.relations])
    found = {}
    for relation in graph.relations:
        if relation.name not in sources:
            continue
        source, bind_sets = sources[relation.name], methods[relation.name].bind_sets
        usable = {frozenset(bind_sets[o.bind_set]) for r in relation.roles for o in plan.options[r]}
        if source.scans and not all(is_key_type(field.type) for field in relation.stored):
            usable = set()
        indexes = tuple(index for index in source.indexes if frozenset(index.bind) in usable)
        if indexes or len(source.scans) != 1:
            found[relation.name] = replace(source, indexes=indexes)
    return found


@dataclass(frozen=True, slots=True)
class CellAccess:
    """All ways to one relation, as every cell gets them. Travels to the executors."""

    scans: tuple[Reading, ...]
    indexes: tuple[IndexAccess, ...]
    key: tuple[str, ...]
    unread: Reading  # knows which rows are a cell's, whichever way they come
    schema: pa.Schema

    @classmethod
    def make(cls, source: AccessSource, unread: Reading, schema: pa.Schema) -> CellAccess:
        """The ways to `source`; `unread` is how the relation, of `schema`, is read, without splits."""
        scans = tuple(
            replace(unread, splits=tuple(scan.splits(unread.where))) for scan in source.scans
        )
        return cls(scans, source.indexes, source.key, unread, schema)

    def at(self, coordinates: tuple[int, ...]) -> Access:
        """The access methods of the cell at `coordinates`."""
        indexes = tuple(
            replace(index, lookup=_CellLookup(index.lookup, self.unread, self.schema, coordinates))
            for index in self.indexes
        )
        return Access(tuple(map(_scan_name, range(len(self.scans)))), indexes, self.key)


def _scan_name(number: int) -> str:
    return f"scan {number}"


@dataclass(frozen=True, slots=True)
class _CellLookup:
    """A look-up that returns the rows of one cell."""

    lookup: Lookup
    unread: Reading
    schema: pa.Schema
    coordinates: tuple[int, ...]

    def __call__(self, keys: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        rows = self.lookup(keys)
        if not self.unread.filters or not rows.num_rows:
            return rows
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        for one in self.unread.filters:  # a hash is that of the value in the type of the relation
            position = table.schema.get_field_index(one.column)
            if position < 0:
                return rows  # the eddy says what is missing
            field = self.schema.field(one.column)
            arrays = [convert(chunk, field.type) for chunk in table.column(position).chunks]
            table = table.set_column(position, field, pa.chunked_array(arrays, field.type))
        batches = [self.unread.kept(batch, self.coordinates) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, table.schema)


def cell_run(
    query: Query,
    options: Options,
    coordinates: tuple[int, ...],
    access: Mapping[str, CellAccess],
    readings: Mapping[str, Reading],
    fed: Mapping[str, Callable[[], Iterator[pa.RecordBatch]]],
    schemas: Mapping[str, pa.Schema],
    expected_rows: Mapping[str, int],
    events: EventSink | None = None,
) -> AccessRun:
    """The eddy of a cell over access methods. `readings` are relations with one scan and no index that
    the task reads itself, `fed` those that Spark brings; any other relation has no rows here.
    """
    clock = RealClock()
    lookups = ThreadLookups(clock)

    def scanned(reading: Reading) -> Arrivals:
        schema = schemas[reading.relation]
        read = partial(reading.batches, coordinates, even_empty=True)
        return ThreadedScan(schema, None, read, lookups.poke)

    scans: dict[str, dict[str, Arrivals]] = {}
    for name, schema in schemas.items():
        if name in access:
            ways = enumerate(access[name].scans)
            scans[name] = {_scan_name(number): scanned(reading) for number, reading in ways}
        elif name in readings:
            scans[name] = {"scan": scanned(readings[name])}
        else:
            arrivals = fed[name]() if name in fed else iter(())
            reader = pa.RecordBatchReader.from_batches(schema, arrivals)
            scans[name] = {"scan": arrivals_of(name, reader, options.batch_rows)}
    methods = {name: ways.at(coordinates) for name, ways in access.items()}
    return AccessRun(
        query,
        {},
        options,
        clock=clock,
        events=events,
        lookups=lookups,
        access={name: methods.get(name, Access()) for name in schemas},
        scans=scans,
        expected_rows=expected_rows,
    )
