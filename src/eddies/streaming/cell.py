"""A cell of a streaming query: an eddy that is brought to the state before an epoch, then runs it.

    cell = Cell(spec, EpochLog(folder))
    for rows in cell.run(7): ...          # the results of epoch 7

The results of epoch N are those whose last part came in epoch N, a set that depends on the log only.
So the eddy may be any eddy that has the rows of earlier epochs stored: the one that ran epoch N-1, one
that has missed some epochs and catches up, or a new one. If epoch N, or a later one, was begun already,
its rows are among the stored ones and must not be: then the eddy is forgotten and made anew.

An epoch ends when everything that its rows can find has been put out (`Eddy.settle`). Nothing waits
from epoch to epoch, so nothing but rows need to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.access import Access
from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.progress import Progress
from eddies.core.query import Query
from eddies.errors import StateError
from eddies.streaming.log import BASE, Blob, EpochLog, end_mark, rows_of, serialised

if TYPE_CHECKING:
    from eddies.spark.reading import Reading

__all__ = ["Cell", "CellSpec"]

_COMPACT_EVERY = 8  # epochs


@dataclass(frozen=True, slots=True)
class CellSpec:
    """What a cell is to do. Travels with every task, so it holds no rows.

    `relations` are the names behind the numbers in the log; `statics` those of them that the cell
    reads itself, at its beginning. A relation with mirrors has a number for each of its `scans`, which
    names the scan of every number, and `keys` says by which columns its rows are told apart (none: by
    all).
    """

    query: Query
    options: Options
    relations: tuple[str, ...]
    statics: Mapping[str, Reading] = field(default_factory=dict)
    scans: tuple[str, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    number: int = 0
    coordinates: tuple[int, ...] = ()

    @property
    def mirrored(self) -> set[str]:
        """Relations whose rows may come more than once."""
        return {name for name in self.relations if self.relations.count(name) > 1}


class Cell:
    """See the module docstring. `run` calls must not overlap."""

    def __init__(self, spec: CellSpec, log: EpochLog) -> None:
        self._spec = spec
        self._log = log
        self._eddy: Eddy | None = None
        self._last_read = BASE - 1  # the epoch that was logged last among those stored
        self.next_epoch = BASE  # the eddy holds exactly the epochs before this one
        self.n_rebuilt = 0

    def run(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """The results of `epoch`, whose segment is in the log."""
        if self._eddy is not None and epoch < self.next_epoch:
            self.forget()
        eddy = self._eddy
        self._eddy = None  # whoever stops in the middle leaves an eddy that nobody may use
        if eddy is None:
            eddy = self._begin(epoch)
        try:
            self._restore(eddy, epoch)
            yield from self._drive(eddy, epoch)
        except GeneratorExit:
            eddy.close()
            raise
        except Exception as error:
            eddy.close()
            error.add_note(f"in epoch {epoch} of cell {self._spec.number}")
            raise
        self._eddy, self.next_epoch = eddy, epoch + 1

    def tidy(self, epoch: int) -> None:
        """Work on the log that may wait until the results of `epoch` are out."""
        if epoch % _COMPACT_EVERY == _COMPACT_EVERY - 1:
            while self._log.compact(epoch):
                pass

    def forget(self) -> None:
        """Drop the eddy and what it stored. The log stays."""
        if self._eddy is not None:
            self._eddy.close()
        self._eddy, self._last_read, self.next_epoch = None, BASE - 1, BASE

    def progress(self) -> Progress | None:
        """Of the eddy between epochs."""
        return None if self._eddy is None else self._eddy.progress()

    # Before the epoch

    def _begin(self, epoch: int) -> Eddy:
        self.forget()
        self.n_rebuilt += 1
        spec = self._spec
        if not self._log.has(BASE):
            if self._log.segments(epoch):
                raise StateError(
                    f"the epoch log {self._log.folder!r} has epochs before {epoch}, but its base is "
                    "lost; restore it, or start again with an empty checkpoint"
                )
            self._log.write(BASE, self._static_rows())
        options = replace(spec.options, seed=spec.options.seed + spec.number)
        if not spec.mirrored:
            return Eddy(spec.query, options)
        access = {}
        for name in dict.fromkeys(spec.relations):
            scans = [s for n, s in zip(spec.relations, spec.scans, strict=True) if n == name]
            access[name] = Access(tuple(scans), (), spec.keys.get(name, ()))
        return Eddy(spec.query, options, access=access)

    def _static_rows(self) -> Iterator[Blob]:
        for name, reading in self._spec.statics.items():
            relation = self._spec.relations.index(name)
            for batch in reading.batches(self._spec.coordinates):
                yield relation, serialised(batch)
            yield end_mark(relation)

    def _restore(self, eddy: Eddy, epoch: int) -> None:
        """Store the rows of all epochs before `epoch` that are not stored yet."""
        for segment in self._log.segments(epoch):
            if segment.last <= self._last_read:
                continue
            for relation, payload in self._log.read(segment, self._last_read):
                name = self._name(eddy, relation)
                if not payload.size:
                    eddy.end(name)
                for batch in rows_of(payload):
                    eddy.restore(name, batch)
            self._last_read = segment.last

    def _name(self, eddy: Eddy, number: int) -> str:
        """The relation that rows under `number` belong to; the eddy learns by which scan they come."""
        if eddy.access is not None:
            eddy.arrive_by(self._spec.relations[number], self._spec.scans[number])
        return self._spec.relations[number]

    # The epoch

    def _drive(self, eddy: Eddy, epoch: int) -> Iterator[pa.RecordBatch]:
        for segment in self._log.segments(epoch + 1):
            if segment.last != epoch:
                continue
            for relation, payload in self._log.read(segment, self._last_read):
                if relation < 0:
                    continue  # a tick
                name = self._name(eddy, relation)
                for batch in rows_of(payload):
                    eddy.push(name, batch)
                    while (rows := eddy.poll()) is not None:
                        yield rows
                if not payload.size:
                    eddy.end(name)
            self._last_read = epoch
        yield from eddy.settle()
