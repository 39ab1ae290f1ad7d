"""What a Spark task does: one eddy for one cell.

The task takes in the relations of its cell, small ones first and to their end, then lets the last one
stream by: it is never stored. Results are handed to Spark as soon as the eddy has some.

A relation comes to the task in one of three ways (`eddies.spark.cells`): the task reads it itself
(`reading`), it comes as packed blobs through an exchange (`exchange`), or it is what Spark feeds the
task with, the partitions of a DataFrame.

Where a relation has mirrors or indexes, the task reads all relations at once and asks (`cell_access`).

Rows that have no partner in a relation that has ended are dropped before they are stored
(`core.partners`), so small relations and those that were thinned out by others come first.

If a relation ends without a single row that passes its selections, there is no result, and nothing
more is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from eddies.core.answer import Answer
from eddies.core.eddy import Eddy
from eddies.core.expr import Expr
from eddies.core.options import Options
from eddies.core.partners import PartnerFilter
from eddies.core.query import Query
from eddies.sources.decoded import DecodedColumns, decoded_columns
from eddies.spark.cell_access import CellAccess, cell_run
from eddies.spark.cells import CellPlan
from eddies.spark.exchange import Blobs, gathered, named, together
from eddies.spark.heavy_keys import heavy_keys
from eddies.spark.reading import Heavy, Reading
from eddies.spark.slots import SlotRows, Slots
from eddies.spark.trace import Trace

__all__ = ["EddyTask"]

_SMALL_ROWS = 16_384  # of a batch: for fewer, routing costs more than the work
_AHEAD = 4  # batches that wait for each of several threads
_SMALL_BYTES = 32 << 20  # and no more of them are kept waiting

Arrivals = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class EddyTask:
    """The function that `mapInArrow` runs. Travels to the executors, so it holds no rows.

    `fed` says what the incoming batches are: numbers of cells ("cells"), blobs of exchanged relations
    ("blobs") or their rows in slots ("slots"), or rows of the last relation ("rows").
    """

    block: str
    query: Query
    options: Options
    plan: CellPlan
    order: tuple[str, ...]
    readings: Mapping[str, Reading]
    expected_rows: Mapping[str, int]
    fed: str
    names: tuple[str, ...]  # of the columns that Spark gets
    schemas: Mapping[str, pa.Schema]  # of what is read, by relation
    access: Mapping[str, CellAccess] = field(default_factory=dict)  # relations with several ways
    prefer: Expr | None = None
    slots: Slots | None = None  # of the incoming rows, if they are of all exchanged relations
    answer: Answer | None = None  # what the task gives out, instead of the groups of its only cell

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = self._results(batches)
        for rows in results if self.answer is None else self._answered(self.answer, results):
            yield (
                rows if tuple(rows.schema.names) == self.names else rows.rename_columns(self.names)
            )

    def _answered(
        self, answer: Answer, results: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The answer from the groups of the only cell."""
        yield answer.of(pa.concat_batches(list(results)))

    def _results(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.fed == "rows":
            rows = named(batches, self.schemas[self.order[-1]].names)
            yield from self._run(_partition(), (0,), {self.order[-1]: lambda: gathered(rows)})
            return
        if self.fed == "blobs":
            for cell, blobs in Blobs.by_cell(batches, self.order):
                yield from self._run(cell, self.plan.coordinates(cell), blobs.arrivals())
            return
        if self.slots is not None:
            by_cell = SlotRows.by_cell(batches, self.order, self.slots, self.schemas)
            for cell, found in by_cell:
                yield from self._run(cell, self.plan.coordinates(cell), found.arrivals())
            return
        for batch in batches:
            for cell in batch.column(0).to_pylist():
                yield from self._run(cell, self.plan.coordinates(cell), {})

    def _run(
        self, cell: int, coordinates: tuple[int, ...], fed: Mapping[str, Arrivals]
    ) -> Iterator[pa.RecordBatch]:
        trace = Trace.begin(self.options.trace_dir, self.block, cell)
        options = replace(self.options, seed=self.options.seed + cell)
        if self.access or self.prefer is not None:
            yield from self._run_access(cell, options, coordinates, fed, trace)
            return
        eddy = Eddy(self.query, options, events=trace, expected_rows=self.expected_rows)
        try:
            heavy = self._heavy()
            decoded = decoded_columns(options.cache_bytes)
            for name in self._in_turn(eddy):
                if trace is not None:
                    trace.see(eddy)
                deliver = fed.get(name) or partial(
                    self._read, eddy, name, coordinates, heavy, decoded
                )
                with _ending(deliver()) as arrivals:
                    yield from self._take_in(eddy, name, arrivals)
            while (rows := eddy.poll()) is not None:
                yield rows
            assert eddy.is_done, "termination: all relations have ended"
        except Exception as error:
            error.add_note(f"in cell {cell} of {self.plan.n_cells} of {self.block}")
            raise
        finally:
            if trace is not None:
                trace.end(eddy)
            eddy.close()

    def _in_turn(self, eddy: Eddy) -> Iterator[str]:
        """Relations in the order in which they are taken in: next comes the one of which the fewest
        rows are likely to be stored, as far as those tell that are there; among equals the one that
        is farthest from the last, because what has no partners there is not stored on the way. The
        last stays the last.
        """
        left = list(self.order[:-1])
        n_joins = {name: eddy.n_joins_between(name, self.order[-1]) for name in left}
        while left:
            guesses = [
                (*eddy.rows_to_come(name, self.expected_rows), -n_joins[name]) for name in left
            ]
            yield left.pop(guesses.index(min(guesses)))
        yield self.order[-1]

    def _run_access(
        self,
        cell: int,
        options: Options,
        coordinates: tuple[int, ...],
        fed: Mapping[str, Arrivals],
        trace: Trace | None,
    ) -> Iterator[pa.RecordBatch]:
        """All relations at once, each by whichever of its ways is fast."""
        run = cell_run(
            self.query,
            options,
            coordinates,
            self.access,
            self.readings,
            fed,
            self.schemas,
            self.expected_rows,
            trace,
        )
        if self.prefer is not None:
            run.eddy.prefer(self.prefer)
        try:
            for rows in run:
                if trace is not None:
                    trace.see(run.eddy)
                yield rows
        except Exception as error:
            error.add_note(f"in cell {cell} of {self.plan.n_cells} of {self.block}")
            raise
        finally:
            if trace is not None:
                trace.end(run.eddy)

    def _heavy(self) -> Heavy:
        """Heavy keys of the last relation, for dimensions that no exchanged relation is hashed on."""
        last = self.readings.get(self.order[-1])
        if last is None:
            return {}
        exchanged = {
            on.dimension
            for delivery in self.plan.deliveries.values()
            if delivery.how != "direct"
            for on in delivery.hashed
        }
        return {d: keys for d, keys in heavy_keys(last).items() if d not in exchanged}

    def _read(
        self,
        eddy: Eddy,
        name: str,
        coordinates: tuple[int, ...],
        heavy: Heavy,
        decoded: DecodedColumns | None,
    ) -> Iterator[pa.RecordBatch]:
        """What the cell reads itself. An exchanged relation of which nothing came has no rows here."""
        if name in self.readings:
            is_last = name == self.order[-1]
            reading = self.readings[name]
            uses_bounds = reading.uses_bounds and not (is_last and heavy)
            bounds = eddy.bounds(name) if uses_bounds and not eddy.is_hopeless else ()
            last = None if is_last else self.order[-1]
            n_readers = self.options.threads if self._reads_ahead(reading, heavy, decoded) else 1
            filters: list[PartnerFilter | None] = [None] * n_readers
            if uses_bounds and not eddy.is_hopeless:
                filters = [
                    eddy.partner_filter(name, self.expected_rows, last) for _ in range(n_readers)
                ]
            if n_readers > 1:
                arrivals = reading.batches_ahead(bounds, filters)
            else:
                arrivals = reading.batches(
                    coordinates,
                    heavy,
                    is_last=is_last,
                    bounds=bounds,
                    partners=filters[0],
                    decoded=decoded,
                )
            n_told = 0
            for batch in _in_larger_batches(arrivals):
                n_dropped = sum(one.n_dropped for one in filters if one is not None)
                if not is_last and n_dropped > n_told:
                    eddy.push(name, batch.slice(0, 0), n_dropped - n_told)
                    n_told = n_dropped
                yield batch

    def _reader_drops(self, name: str) -> bool:
        """Whether rows without partners are dropped by whoever reads them."""
        reading = self.readings.get(name)
        return reading is not None and reading.drops_rows

    def _reads_ahead(self, reading: Reading, heavy: Heavy, decoded: DecodedColumns | None) -> bool:
        """Whether the task's threads share the reading of a relation."""
        if self.options.threads == 1 or heavy or decoded is not None or not reading.is_whole:
            return False
        return len(reading.splits) > 1 and reading.uses_bounds

    def _take_in(
        self, eddy: Eddy, name: str, arrivals: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        n_rows = n_routed = 0
        # Of the last relation several threads share what waits.
        shares = self.options.threads > 1 and name == self.order[-1]
        n_ahead = _AHEAD * self.options.threads if shares else 1
        if not eddy.is_hopeless:
            kept = None
            if name != self.order[-1] and not self._reader_drops(name):
                kept = eddy.partner_filter(name, self.expected_rows, self.order[-1])
            for batch in arrivals:
                n_rows += batch.num_rows
                with _naming(name, n_routed, n_rows):
                    chosen = batch if kept is None else kept(batch)
                    eddy.push(name, chosen, batch.num_rows - chosen.num_rows)
                    if eddy.n_in_flight >= n_ahead:
                        while (rows := eddy.poll()) is not None:
                            yield rows
                        n_routed = n_rows
            with _naming(name, n_routed, n_rows):
                while (rows := eddy.poll()) is not None:
                    yield rows
        eddy.end(name)


@contextmanager
def _ending(arrivals: Iterator[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
    """Reading ends with whoever takes the rows in: an error would keep its threads and files."""
    try:
        yield arrivals
    finally:
        if isinstance(arrivals, Generator):
            arrivals.close()


@contextmanager
def _naming(name: str, begin: int, end: int) -> Iterator[None]:
    """Errors say which rows of a relation were worked on."""
    try:
        yield
    except Exception as error:
        error.add_note(f"rows {begin:,} to {end:,} of {name!r}")
        raise


def _in_larger_batches(arrivals: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows; small batches that follow each other come as one."""
    small: list[pa.RecordBatch] = []
    n_rows = n_bytes = 0
    for batch in arrivals:
        if batch.num_rows >= _SMALL_ROWS or (small and batch.schema != small[0].schema):
            yield from together(small)
            small, n_rows, n_bytes = [], 0, 0
        if batch.num_rows >= _SMALL_ROWS:
            yield batch
            continue
        small.append(batch)
        n_rows += batch.num_rows
        n_bytes += batch.nbytes
        if n_rows >= _SMALL_ROWS or n_bytes >= _SMALL_BYTES:
            yield from together(small)
            small, n_rows, n_bytes = [], 0, 0
    yield from together(small)


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
