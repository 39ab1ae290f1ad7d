"""Answers what waits: rows on disk are read back, and the tuples waiting for them stream by.

Rows of a few partitions are read into memory, as many as fit; each of the tuples that wait for these
partitions meets them once. A partition that does not fit is read in chunks, and its tuples stream by
once for each: slower, never wrong. The next rows, and the next tuples, are read while the ones before
meet (`ahead`), so only half of the room is for the rows in use; if some partition needs more than
that, it gets all of it, and nothing is read ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.spill.ahead import ReadAhead
from eddies.core.spill.pending import Taken, Waiting
from eddies.core.spill.probes import ChunkProbe
from eddies.core.spill.runs import Chunk, FlushedRows, Group
from eddies.core.spill.stamps import StampTable
from eddies.core.state.scratch import Scratch

__all__ = ["Answers"]

WORTH_A_THREAD = 1 << 20  # bytes to be read: with fewer, threads only wait for each other


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Rows in memory, and the tuples that are to meet them, each with its way to probe them."""

    chunk: Chunk
    tuples: list[tuple[Taken, ChunkProbe]]


class Answers:
    """Answers pending probes of an eddy, those of one relation at a time."""

    def __init__(
        self, graph: Graph, table: StampTable, batch_rows: int, give_back: Callable[[], None]
    ) -> None:
        self._graph = graph
        self._table = table
        self._give_back = give_back
        self._batch_rows = batch_rows
        self._ahead = ReadAhead(2)  # rows, and tuples
        self._scratch = Scratch(batch_rows)
        self._scratch_ahead = Scratch(batch_rows)
        self.n_bytes = 0  # of rows in memory, those included that are read ahead

    def of(
        self, flushed: FlushedRows, column: str | None, waiting: Sequence[Waiting], room: int
    ) -> Iterator[tuple[Signature, RoutedBatch]]:
        """All that the tuples waiting at places by `column` find among the rows on disk."""
        groups = flushed.groups(column, room // 2)
        reads_ahead = True
        if any(group.n_bytes > room // 2 for group in groups):
            groups = flushed.groups(column, room)
            reads_ahead = False
        is_much = sum(group.n_bytes for group in groups) >= WORTH_A_THREAD
        meetings = self._meetings(flushed, groups, waiting, room)
        for meeting in self._ahead.items(meetings) if is_much and reads_ahead else meetings:
            self.n_bytes = meeting.chunk.n_bytes * (2 if reads_ahead else 1)
            try:
                yield from self._met(meeting, is_much)
            finally:
                meeting.chunk.release()
                self.n_bytes = 0
                self._give_back()

    def _meetings(
        self, flushed: FlushedRows, groups: Sequence[Group], waiting: Sequence[Waiting], room: int
    ) -> Generator[_Meeting]:
        for group in groups:
            taken = [tuples for place in waiting if (tuples := place.of(group.partitions)).n_rows]
            if not taken:
                continue
            for chunk in flushed.chunks(group, room):
                meeting = _Meeting(
                    chunk, [(tuples, self._probe(tuples, chunk)) for tuples in taken]
                )
                for _, probe in meeting.tuples:
                    probe.prepare(self._scratch_ahead)
                yield meeting

    def _probe(self, tuples: Taken, chunk: Chunk) -> ChunkProbe:
        place = tuples.place
        return ChunkProbe(self._graph, chunk, place.target, place.signature, self._table)

    def _met(self, meeting: _Meeting, is_much: bool) -> Iterator[tuple[Signature, RoutedBatch]]:
        for tuples, probe in meeting.tuples:
            place = tuples.place
            after = Move(target=place.target).after(place.signature)
            batches = self._batches(tuples)
            for batch, runs in self._ahead.items(batches) if is_much else batches:
                for found in probe.answer(batch, runs, self._scratch):
                    yield after, found

    def _batches(self, tuples: Taken) -> Generator[tuple[RoutedBatch, npt.NDArray[np.int32] | int]]:
        for rows in tuples.batches(self._batch_rows):
            yield from tuples.layout.decode(rows, self._table)

    def close(self) -> None:
        """Nothing more is to be answered. May be called again."""
        self._ahead.close()
