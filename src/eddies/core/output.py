"""The way out: from row ids to Arrow batches.

Columns are gathered and expressions computed only here, for rows that are results. Small pieces are
put together until they are worth a batch of their own; whoever polls when nothing else is to do gets
what is there.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from eddies.core.batch import RoutedBatch
from eddies.core.evaluate import evaluate
from eddies.core.graph import Graph
from eddies.core.modules.aggregate import Aggregator
from eddies.core.query import Output as OutputColumn
from eddies.core.query import Part, Query

__all__ = ["Output", "part_schema", "query_of", "result_schema"]

_QUERY = b"query"
SMALLEST_ROWS = 4096  # pieces below this are put together


@dataclass(slots=True)
class _Pieces:
    """Small pieces of the results of one query."""

    schema: pa.Schema
    output: tuple[OutputColumn, ...]
    small: list[pa.RecordBatch] = field(default_factory=list)
    n_rows: int = 0


class Output:
    """Collects result batches. `collect` may be called from several threads."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._query = query = graph.query
        self._functions = graph.functions
        self.schema = result_schema(query)
        self.ready: deque[pa.RecordBatch] = (
            deque()
        )  # of `pop`; others only look whether it is empty
        parts = [_Pieces(part_schema(part), part.output) for part in query.parts]
        self._parts = parts or [_Pieces(self.schema, query.output)]
        self._lock = threading.Lock()
        self._aggregators: list[Aggregator] = []
        self.n_rows = 0  # joined rows, before any aggregation

    def collector(self) -> Collector:
        """An entrance for one thread."""
        if self._query.aggregation is not None:
            aggregator = Aggregator(self._query.aggregation, self._functions)
            self._aggregators.append(aggregator)
            return Collector(self, aggregator)
        return Collector(self, None)

    def collect(self, batch: RoutedBatch) -> None:
        """Take the result rows of a complete batch in."""
        number = self._graph.part_of(batch.route.signature.sources) if len(self._parts) > 1 else 0
        part = self._parts[number]
        arrays = [
            evaluate(output.expr, batch.column, batch.n_rows, self._functions)
            for output in part.output
        ]
        if arrays:
            self._add(part, pa.RecordBatch.from_arrays(arrays, schema=part.schema))
        else:
            self._add(part, _without_columns(batch.n_rows, part.schema))

    def _add(self, part: _Pieces, rows: pa.RecordBatch) -> None:
        with self._lock:
            self.n_rows += rows.num_rows
            if rows.num_rows >= SMALLEST_ROWS:
                self.ready.append(rows)
                return
            part.small.append(rows)
            part.n_rows += rows.num_rows
            if part.n_rows >= SMALLEST_ROWS:
                self._join_small(part)

    def hand_on(self, partial_groups: list[pa.RecordBatch]) -> None:
        """Give out groups that an aggregator no longer holds; their rows are counted by it."""
        if partial_groups:
            with self._lock:
                self.ready.extend(partial_groups)

    def _join_small(self, part: _Pieces) -> None:
        if part.small:
            many = len(part.small) > 1
            self.ready.append(pa.concat_batches(part.small) if many else part.small[0])
            part.small, part.n_rows = [], 0

    def pop(self) -> pa.RecordBatch | None:
        """A batch that is ready, or None."""
        if not self.ready:
            return None
        with self._lock:
            return self.ready.popleft() if self.ready else None

    @property
    def has_ready(self) -> bool:
        """Whether `pop` would return something."""
        return bool(self.ready)

    @property
    def n_ready(self) -> int:
        """Batches that wait to be popped."""
        return len(self.ready)

    def flush(self) -> None:
        """Make everything collected so far ready."""
        for part in self._parts:
            if part.small:
                with self._lock:
                    self._join_small(part)

    def finish(self) -> None:
        """All rows are in: make the aggregates ready."""
        if self._query.aggregation is not None:
            first, *others = self._aggregators
            for other in others:
                first.merge(other)
            self.n_rows = first.n_rows
            with self._lock:
                self.ready.append(first.result())
        self.flush()

    def finish_part(self) -> None:
        """All rows of an epoch are in: make its groups ready, and begin with new ones."""
        for aggregator in self._aggregators:
            groups = aggregator.restart()
            if groups.num_rows:
                with self._lock:
                    self.ready.append(groups)
        self.flush()


class Collector:
    """Where one router leaves its results."""

    __slots__ = ("_aggregator", "_output")

    def __init__(self, output: Output, aggregator: Aggregator | None) -> None:
        self._output = output
        self._aggregator = aggregator

    def collect(self, batch: RoutedBatch) -> None:
        """Take a complete batch."""
        if self._aggregator is not None:
            self._aggregator.add(batch)
            self._output.hand_on(self._aggregator.take_out())
        else:
            self._output.collect(batch)


def result_schema(query: Query) -> pa.Schema:
    """The columns of the answer."""
    if query.aggregation is None:
        return pa.schema([pa.field(output.name, output.type) for output in query.output])
    groups, aggregates = query.aggregation.groups, query.aggregation.aggregates
    fields = [pa.field(group.name, group.type) for group in groups]
    return pa.schema(fields + [pa.field(a.name, a.type) for a in aggregates])


def part_schema(part: Part) -> pa.Schema:
    """The columns of the answer to one of several queries. It carries the name of the query, so that
    whoever gets a batch knows whose it is (`query_of`).
    """
    columns = [pa.field(output.name, output.type) for output in part.output]
    return pa.schema(columns, metadata={_QUERY: part.name})


def query_of(rows: pa.RecordBatch) -> str:
    """The query, of several in one eddy, whose results these are."""
    name: bytes = rows.schema.metadata[_QUERY]
    return name.decode()


def _without_columns(n_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that has rows but no columns."""
    struct = pa.array([{}] * n_rows, type=pa.struct([]))
    return pa.RecordBatch.from_struct_array(struct).replace_schema_metadata(schema.metadata)
