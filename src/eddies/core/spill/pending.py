"""Pending probes: tuples that have yet to meet rows on disk.

They wait by *place*: the source they are about to probe, their signature, and the key column by whose
hash they are partitioned. They gather in memory and are written out, partition by partition, when all
that waits takes more than its share. `take` gives what waits for some partitions of a relation and
forgets it; whoever took it answers it completely.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddies.core.lineage import Signature
from eddies.core.spill.files import Ordered, Segment, SpillDirectory, SpillFile
from eddies.core.spill.narrow import NarrowRows, joined
from eddies.core.spill.partitions import Partitions, slices_by_partition
from eddies.core.spill.tuples import TupleLayout

__all__ = ["Pending", "Place", "Taken", "Waiting"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where tuples wait: to probe source `target`, partitioned by `column` (None: not at all)."""

    target: int
    signature: Signature
    column: str | None


class _Group:
    """The tuples of one place."""

    def __init__(self, layout: TupleLayout, n_partitions: int) -> None:
        self.layout = layout
        self.n_partitions = n_partitions
        self.gathered: list[tuple[NarrowRows, Partitions | None]] = []
        self.n_gathered_bytes = 0
        self.n_rows = 0
        self.n_bytes = 0
        self.file: SpillFile | None = None
        self.written: list[list[Segment]] = [[] for _ in range(n_partitions)]

    def add(self, rows: NarrowRows, partitions: Partitions | None) -> None:
        self.gathered.append((rows, partitions))
        n_bytes = rows.n_bytes
        self.n_gathered_bytes += n_bytes
        self.n_bytes += n_bytes
        self.n_rows += rows.n_rows

    def gather(self) -> _Gathered:
        """What has gathered; it is forgotten."""
        gathered = _Gathered(self.gathered, self.layout.schema, self.n_partitions)
        self.gathered, self.n_gathered_bytes = [], 0
        return gathered

    def write_out(self, directory: SpillDirectory) -> None:
        """Have what has gathered written."""
        if self.file is None:
            self.file = directory.file("pending", self.layout.schema)
        n_bytes = self.n_gathered_bytes
        gathered = self.gather()

        def keep(segments: list[Segment]) -> None:
            for partition, segment in zip(gathered.partitions, segments, strict=True):
                self.written[partition].append(segment)

        self.file.write(gathered.ordered, keep, n_bytes)


class _Gathered:
    """Tuples on their way to disk, or to be answered. `partitions` is known once they are `ordered`."""

    def __init__(
        self,
        gathered: list[tuple[NarrowRows, Partitions | None]],
        schema: pa.Schema,
        n_partitions: int,
    ) -> None:
        self._gathered = gathered
        self._schema = schema
        self._n_partitions = n_partitions
        self.partitions: list[int] = []

    def ordered(self) -> Ordered:
        """The tuples in one piece, partition by partition. To be called once: it lets them go."""
        rows = joined([rows for rows, _ in self._gathered], self._schema)
        masks = [partitions for _, partitions in self._gathered if partitions is not None]
        self._gathered = []
        if not masks:
            self.partitions = [0]
            return Ordered(rows, [(0, rows.n_rows)])
        order, starts = slices_by_partition(np.concatenate(masks), self._n_partitions)
        self.partitions = np.flatnonzero(np.diff(starts)).tolist()
        slices = [(int(starts[p]), int(starts[p + 1] - starts[p])) for p in self.partitions]
        return Ordered(rows, slices, order)


@dataclass(slots=True)
class Taken:
    """Tuples to be answered. `batches` may be called once for each chunk they must meet."""

    place: Place
    layout: TupleLayout
    n_rows: int
    _in_memory: list[NarrowRows]
    _file: SpillFile | None
    _segments: list[Segment]

    def batches(self, batch_rows: int) -> Iterator[NarrowRows]:
        """The tuples, in batches of at most `batch_rows`."""
        for rows in self._pieces(batch_rows):
            for start in range(0, rows.n_rows, batch_rows):
                yield rows.slice(start, batch_rows)

    def _pieces(self, batch_rows: int) -> Iterator[NarrowRows]:
        if self._segments:
            assert self._file is not None
            yield from self._file.read(self._segments, batch_rows)
        if self._in_memory:
            yield joined(self._in_memory, self.layout.schema)


class Pending:
    """All pending probes of an eddy. Several threads may `add`; the rest is for one. `has_written` is
    called when memory has become free.
    """

    def __init__(
        self, directory: SpillDirectory, most_bytes: int, has_written: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._has_written = has_written
        self._most_bytes = most_bytes
        self._groups: dict[Place, _Group] = {}
        self._lock = threading.Lock()
        self.n_rows = 0
        self.n_ever = 0

    @property
    def n_bytes(self) -> int:
        """Memory that waiting tuples take."""
        return sum(group.n_gathered_bytes for group in list(self._groups.values()))

    def places(self) -> dict[Place, tuple[int, int]]:
        """Where tuples wait: how many, and how many bytes."""
        return {p: (g.n_rows, g.n_bytes) for p, g in self._groups.items() if g.n_rows}

    def add(
        self,
        place: Place,
        layout: TupleLayout,
        rows: NarrowRows,
        partitions: Partitions | None,
        n_partitions: int,
    ) -> None:
        """Let tuples wait; `partitions` says for each to which partition it belongs."""
        with self._lock:
            group = self._groups.get(place)
            if group is None:
                group = self._groups[place] = _Group(layout, n_partitions)
            group.add(rows, partitions)
            self.n_rows += rows.n_rows
            self.n_ever += rows.n_rows
            if self.n_bytes > self._most_bytes:
                self._write_out(self._most_bytes // 2)

    def _write_out(self, most_bytes: int) -> None:
        """Write the largest groups until at most `most_bytes` are in memory."""
        groups = sorted(self._groups.values(), key=lambda group: -group.n_gathered_bytes)
        held = self.n_bytes
        for group in groups:
            if held <= most_bytes:
                break
            held -= group.n_gathered_bytes
            if group.gathered:
                group.write_out(self._directory)
        self._has_written()

    def take(self, place: Place) -> Waiting:
        """Everything that waits at `place`, which is empty then."""
        with self._lock:
            group = self._groups.pop(place)
            self.n_rows -= group.n_rows
        return Waiting(place, group)


class Waiting:
    """What waited at one place, to be answered partition by partition. `close` it in the end."""

    def __init__(self, place: Place, group: _Group) -> None:
        self.place = place
        self.layout = group.layout
        self.n_rows = group.n_rows
        self._group = group
        self._in_memory: dict[int, NarrowRows] = {}
        if group.gathered:
            gathered = group.gather()
            ordered = gathered.ordered()
            rows = ordered.rows
            if ordered.order is not None:
                rows = rows.take(ordered.order)
            for partition, (first, n) in zip(gathered.partitions, ordered.slices, strict=True):
                self._in_memory[partition] = rows.slice(first, n)
        if group.file is not None:
            group.file.settle()

    def of(self, partitions: Sequence[int]) -> Taken:
        """The tuples of some partitions, which are forgotten here: they must be answered now."""
        in_memory = [self._in_memory.pop(p) for p in partitions if p in self._in_memory]
        segments = [segment for p in partitions for segment in self._group.written[p]]
        segments.sort(key=lambda segment: segment.offset)  # neighbours are read at once
        n_rows = sum(rows.n_rows for rows in in_memory) + sum(s.n_rows for s in segments)
        return Taken(self.place, self.layout, n_rows, in_memory, self._group.file, segments)

    def close(self) -> None:
        """Everything has been answered: delete the file."""
        if self._group.file is not None:
            self._group.file.close()
