"""Exchange: rows of DataFrames on their way to the cells, packed into Arrow blobs.

A `Pack` runs where the rows are. It computes the cell of every row, cuts each batch by cell and makes
one blob (an Arrow IPC stream) of each piece: `cell, relation, payload`. Spark shuffles blobs instead
of rows. `Blobs` takes them apart again in the cell, without copying.

Blobs are small: Spark hands several thousand of them to a task as one Arrow batch, which must stay
below two gigabytes. The cell puts their rows together again (`gathered`).

Where a row goes is a function of its values only, never of its place in the stream: when Spark runs a
lost task again, its rows may come in another order, and each must go where it went before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from eddies.core.state.columns import is_key_type
from eddies.spark.cells import CellPlan, Delivery
from eddies.spark.reading import coordinates_of
from eddies.streaming.times import latest_mark, times_of

__all__ = [
    "BATCH_ROWS",
    "Blobs",
    "CELL_MARKS",
    "PACKED",
    "PACKED_TYPE",
    "Pack",
    "gathered",
    "make_pack",
    "named",
    "together",
]

PACKED = "cell int, relation int, payload binary"
CELL_MARKS = ("CAST(id AS int) AS cell", "-1 AS relation", "CAST('' AS binary) AS payload")
_PACKED_SCHEMA = pa.schema(
    [("cell", pa.int32()), ("relation", pa.int32()), ("payload", pa.binary())]
)
PACKED_TYPE = from_arrow_schema(_PACKED_SCHEMA)  # as Spark has it: need not be parsed again
BATCH_ROWS = 1 << 16
_BLOB_BYTES = 1 << 17  # times the rows of a batch that comes from Java: half of what Arrow can hold
_CONTENT_COLUMNS = 4  # enough to tell rows apart when they are split by content
_CONTENT = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Pack:
    """The function that `mapInArrow` runs on a DataFrame that is exchanged.

    `hashed` are (column, share, stride); `split` is (share, stride) of the row split, or None;
    `copies` are the offsets of the cells that get a copy of every row. With `time`, a column, all
    `n_cells` cells are told the latest time that came by. `names` are those of the columns, if they
    come by others.
    """

    relation: int
    hashed: tuple[tuple[str, int, int], ...]
    split: tuple[int, int] | None
    copies: tuple[int, ...]
    time: str | None = None
    n_cells: int = 1
    names: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        latest: int | None = None
        for batch in named(batches, self.names) if self.names else batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield from self._packed(batch.slice(start, BATCH_ROWS))
            if self.time is not None:
                times, valid = times_of(batch.column(self.time))
                times = times if valid is None else times[valid]
                if times.shape[0]:
                    latest = int(times.max() if latest is None else max(latest, times.max()))
        if latest is not None:
            mark = _serialised(latest_mark(latest))
            yield self._blobs(list(range(self.n_cells)), [mark] * self.n_cells)

    def _packed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        cells: list[int] = []
        blobs: list[pa.Buffer] = []
        for cell, piece in self._pieces(batch):
            for part in _cut(piece):
                blob = _serialised(part)
                for offset in self.copies:
                    cells.append(cell + offset)
                    blobs.append(blob)
        if cells:
            yield self._blobs(cells, blobs)

    def _blobs(self, cells: list[int], blobs: list[pa.Buffer]) -> pa.RecordBatch:
        columns = [
            pa.array(cells, pa.int32()),
            pa.array([self.relation] * len(cells), pa.int32()),
            _binary(blobs),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_PACKED_SCHEMA)

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not self.hashed and self.split is None:
            yield 0, batch
            return
        cells = np.zeros(batch.num_rows, dtype=np.int32)
        valid: npt.NDArray[np.bool_] | None = None
        for column, share, stride in self.hashed:
            coordinate, present = coordinates_of(batch.column(column), share)
            cells += coordinate * np.int32(stride)
            if present is not None:
                valid = present if valid is None else valid & present
        if self.split is not None:
            share, stride = self.split
            cells += _by_content(batch, share) * np.int32(stride)
        rows = np.argsort(cells, kind="stable")
        if valid is not None:
            rows = rows[valid[rows]]
        ordered = cells[rows]
        borders = np.flatnonzero(np.diff(ordered)) + 1
        sorted_batch = batch.take(pa.array(rows))
        for start, stop in zip([0, *borders], [*borders, len(rows)], strict=True):
            if stop > start:
                yield int(ordered[start]), sorted_batch.slice(start, stop - start)


def make_pack(
    number: int,
    delivery: Delivery,
    plan: CellPlan,
    time: str | None = None,
    names: tuple[str, ...] = (),
) -> Pack:
    """The packing of one exchanged relation, of whose column `time` all cells are told."""
    strides = plan.strides()
    own = {on.dimension for on in delivery.hashed}
    if delivery.is_split:
        own.add(0)
    others = [
        [coordinate * strides[d] for coordinate in range(share)]
        for d, share in enumerate(plan.shares)
        if d not in own
    ]
    return Pack(
        number,
        tuple(
            (on.column, plan.shares[on.dimension], strides[on.dimension]) for on in delivery.hashed
        ),
        (plan.shares[0], strides[0]) if delivery.is_split else None,
        tuple(sum(offsets) for offsets in product(*others)),
        time if plan.n_cells > 1 else None,
        plan.n_cells,
        names,
    )


class Blobs:
    """The blobs of one cell, by relation."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = order
        self._blobs: dict[str, list[pa.Buffer]] = {}

    @classmethod
    def by_cell(
        cls, batches: Iterator[pa.RecordBatch], relations: Sequence[str]
    ) -> Iterator[tuple[int, Blobs]]:
        """All cells that the incoming blobs belong to (usually one), each with its blobs."""
        cells: dict[int, Blobs] = {}
        for batch in batches:
            numbers, members, payloads = batch.columns
            for i, (cell, relation) in enumerate(
                zip(numbers.to_pylist(), members.to_pylist(), strict=True)
            ):
                blobs = cells.setdefault(cell, cls(relations))
                if relation < 0:
                    continue  # a mark: the cell has work, whether rows come to it or not
                name = relations[relation]
                blobs._blobs.setdefault(name, []).append(payloads[i].as_buffer())
        yield from cells.items()

    def arrivals(self) -> dict[str, Callable[[], Iterator[pa.RecordBatch]]]:
        """For each exchanged relation a function that reads its rows."""
        return {name: partial(_opened, blobs) for name, blobs in self._blobs.items()}


def named(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same rows, with these names of columns. PySpark cannot hand over names that have dots in
    them, so columns of DataFrames come by their numbers (`BlockPlan.columns`).
    """
    return (batch.rename_columns(list(names)) for batch in batches)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth a decision each."""
    waiting: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        if n_rows + batch.num_rows > BATCH_ROWS and waiting:
            yield from together(waiting)
            waiting, n_rows = [], 0
        waiting.append(batch)
        n_rows += batch.num_rows
    yield from together(waiting)


def together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in as few batches as there can be: one, unless text of two gigabytes is in them."""
    if len(batches) < 2:
        return batches
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())


def _cut(piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices that are small enough for a blob, or of one row."""
    n_blobs = -(-piece.nbytes // _BLOB_BYTES) or 1
    n_rows = -(-piece.num_rows // n_blobs)
    for start in range(0, piece.num_rows, n_rows):
        yield piece.slice(start, n_rows)


def _opened(blobs: list[pa.Buffer]) -> Iterator[pa.RecordBatch]:
    return gathered(batch for blob in blobs for batch in pa.ipc.open_stream(blob))


def _serialised(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _binary(blobs: Sequence[pa.Buffer]) -> pa.Array:
    return pa.array([memoryview(blob) for blob in blobs], pa.binary())


def _by_content(batch: pa.RecordBatch, share: int) -> npt.NDArray[np.int32]:
    """A number below `share` for every row, from its values."""
    mixed = np.zeros(batch.num_rows, dtype=np.uint64)
    columns = [c for c in batch.columns if is_key_type(c.type)][:_CONTENT_COLUMNS]
    for array in columns:
        found, valid = coordinates_of(array, 1 << 30)
        if valid is not None:
            found = np.where(valid, found, np.int32(0))
        mixed = mixed * _CONTENT + found.astype(np.uint64)
    return ((mixed * _CONTENT >> np.uint64(33)) % np.uint64(share)).astype(np.int32)
