"""A cell of a streaming query: an eddy that is brought to the state before an epoch, then runs it.

    cell = Cell(spec, EpochLog(folder))
    for rows in cell.run(7): ...          # the results of epoch 7

The results of epoch N are those whose last part came in epoch N, a set that depends on the log only.
So the eddy may be any eddy that has the rows of earlier epochs stored: the one that ran epoch N-1, one
that has missed some epochs and catches up, or a new one. If epoch N, or a later one, was begun already,
its rows are among the stored ones and must not be: then the eddy is forgotten and made anew. So it is
if the last epoch that it has was written again meanwhile, elsewhere, with other rows.

An epoch that is run again at once, because the task was killed or because somebody reads the results
twice, gets the results of the first run, if they are few enough to be kept.

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
from eddies.streaming.eviction import Eviction
from eddies.streaming.log import BASE, Blob, EpochLog, end_mark, serialised
from eddies.streaming.windows import Window

if TYPE_CHECKING:
    from eddies.spark.reading import Reading

__all__ = ["Cell", "CellSpec"]

_COMPACT_EVERY = 8  # epochs
_KEPT_BYTES = 64 << 20  # of results that are kept for the case that their epoch is run again
_TRIES = 3  # to read a log that somebody else may be putting together at this moment


@dataclass(frozen=True, slots=True)
class CellSpec:
    """What a cell is to do. Travels with every task, so it holds no rows.

    `relations` are the names behind the numbers in the log; `statics` those of them that the cell
    reads itself, at its beginning. A relation with mirrors has a number for each of its `scans`, which
    names the scan of every number, and `keys` says by which columns its rows are told apart (none: by
    all). `windows` are by relation.
    """

    query: Query
    options: Options
    relations: tuple[str, ...]
    statics: Mapping[str, Reading] = field(default_factory=dict)
    scans: tuple[str, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    number: int = 0
    coordinates: tuple[int, ...] = ()

    @property
    def mirrored(self) -> set[str]:
        """Relations whose rows may come more than once."""
        return {name for name in self.relations if self.relations.count(name) > 1}


@dataclass(frozen=True, slots=True)
class _Results:
    """All results of an epoch whose segment had this content."""

    epoch: int
    content: bytes
    batches: tuple[pa.RecordBatch, ...]


class Cell:
    """See the module docstring. `run` calls must not overlap."""

    def __init__(self, spec: CellSpec, log: EpochLog) -> None:
        self._spec = spec
        self._log = log
        self._eddy: Eddy | None = None
        self._eviction = Eviction(spec, log)
        self._began = self._eviction.moment  # when the epoch began that ran last
        self._last_read = BASE - 1  # the epoch that was logged last among those stored
        self._content: bytes | None = None  # of the segment that ends with it
        self._results: _Results | None = None  # of the epoch that ran last
        self.next_epoch = BASE  # the eddy holds exactly the epochs before this one
        self.n_rebuilt = 0

    def run(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """The results of `epoch`, whose segment is in the log."""
        known = self._results
        if known is not None and known.epoch == epoch and known.content == self._log.content(epoch):
            yield from known.batches
            return
        self._results = None
        eddy = self._restored(epoch)
        self._began = self._eviction.moment
        kept: list[pa.RecordBatch] | None = []
        n_bytes = 0
        try:
            for rows in self._drive(eddy, epoch):
                if kept is not None:
                    kept.append(rows)
                    n_bytes += rows.nbytes
                    kept = kept if n_bytes <= _KEPT_BYTES else None
                yield rows
            self._eviction.evict(eddy)
        except GeneratorExit:
            eddy.close()
            raise
        except Exception as error:
            eddy.close()
            error.add_note(f"in epoch {epoch} of cell {self._spec.number}")
            raise
        self._eddy, self.next_epoch = eddy, epoch + 1
        if kept is not None and self._last_read == epoch and self._content is not None:
            self._results = _Results(epoch, self._content, tuple(kept))

    def tidy(self, epoch: int) -> None:
        """Work on the log that may wait until the results of `epoch` are out."""
        if epoch % _COMPACT_EVERY == _COMPACT_EVERY - 1:
            sieve = self._eviction.sieve(self._began)
            while self._log.compact(epoch, sieve):
                pass
            self._log.sweep(epoch)
        if self._eddy is not None and self._eviction.wants_rebuild:
            self._rebuild(epoch + 1)

    def forget(self) -> None:
        """Drop the eddy and what it stored. The log stays."""
        if self._eddy is not None:
            self._eddy.close()
        self._eddy, self._last_read, self.next_epoch = None, BASE - 1, BASE
        self._content = self._results = None
        self._eviction.forget()

    def progress(self) -> Progress | None:
        """Of the eddy between epochs."""
        return None if self._eddy is None else self._eviction.progress(self._eddy.progress())

    # Before the epoch

    def _restored(self, epoch: int) -> Eddy:
        """An eddy with the rows of all epochs before `epoch`, which the caller takes over."""
        if not self._goes_on_to(epoch):
            self.forget()
        for n_tries in range(1, _TRIES + 1):
            eddy = self._eddy
            self._eddy = None  # whoever stops in the middle leaves an eddy that nobody may use
            if eddy is None:
                eddy = self._begin(epoch)
            try:
                self._restore(eddy, epoch)
                self._eviction.evict(eddy)
                return eddy
            except Exception as error:
                eddy.close()
                # A keeper elsewhere may be putting segments together: then they are listed anew.
                if n_tries == _TRIES or not isinstance(error, StateError):
                    error.add_note(f"before epoch {epoch} of cell {self._spec.number}")
                    raise
        raise AssertionError("the last try returns or raises")

    def _goes_on_to(self, epoch: int) -> bool:
        """Whether what the eddy has stored are epochs before `epoch`, as the log has them."""
        if self._eddy is None or epoch < self.next_epoch:
            return False
        return self._last_read < BASE or self._log.content(self._last_read) == self._content

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
            self._log.write_base(self._static_rows())
        options = replace(spec.options, seed=spec.options.seed + spec.number, window=None)
        if not spec.mirrored:
            return Eddy(self._eviction.query, options)
        access = {}
        for name in dict.fromkeys(spec.relations):
            scans = [s for n, s in zip(spec.relations, spec.scans, strict=True) if n == name]
            access[name] = Access(tuple(scans), (), spec.keys.get(name, ()))
        return Eddy(self._eviction.query, options, access=access)

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
            opened = self._log.read(segment, self._last_read)
            for relation, batch in self._eviction.read(segment, opened):
                name = self._name(eddy, relation)
                if batch is None:
                    eddy.end(name)
                else:
                    eddy.restore(name, batch)
            self._last_read, self._content = segment.last, opened.content

    def _rebuild(self, epoch: int) -> None:
        """Give up an eddy that cannot forget rows, for one that does not have them."""
        moment, results = self._eviction.moment, self._results
        eddy = self._begin(epoch)
        self._eviction.leave_out(moment)
        try:
            self._restore(eddy, epoch)
        except BaseException:
            eddy.close()
            raise
        self._eddy, self.next_epoch, self._results = eddy, epoch, results

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
            opened = self._log.read(segment, self._last_read)
            for relation, batch in self._eviction.read(segment, opened):
                name = self._name(eddy, relation)
                if batch is None:
                    eddy.end(name)
                    continue
                eddy.push(name, batch)
                while (rows := eddy.poll()) is not None:
                    yield rows
            self._last_read, self._content = epoch, opened.content
        yield from eddy.settle()
