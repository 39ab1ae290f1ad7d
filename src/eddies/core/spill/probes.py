"""Probes of SteMs that are partly on disk.

`ResidentProbe` is the step a policy may choose: it matches the rows in memory at once, and lets the
tuples that may match rows on disk wait (`pending`). `ChunkProbe` is what answers them later: the same
probe against rows that were read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.graph import Graph
from eddies.core.lineage import Signature, bits
from eddies.core.module import Outcome
from eddies.core.modules.stem import KeyPart, Probe, key_parts
from eddies.core.route import Route
from eddies.core.spill.partitions import Partitions, partitions_of
from eddies.core.spill.pending import Pending, Place
from eddies.core.spill.resident import Resident
from eddies.core.spill.runs import Chunk, FlushedRows
from eddies.core.spill.stamps import StampTable
from eddies.core.spill.stem_groups import SAMPLED_TUPLES, ProbeCounts
from eddies.core.spill.tuples import MixedOrigin, TupleLayout
from eddies.core.state.columns import Column
from eddies.core.state.keys import key_words
from eddies.core.state.scratch import Scratch

__all__ = ["ChunkProbe", "ResidentProbe"]

_NOWHERE = Route(Signature(0))


class ResidentProbe(Probe):
    """The step that adds source `target` to a batch, as far as its rows are in memory."""

    def __init__(
        self,
        graph: Graph,
        resident: Resident,
        target: int,
        signature: Signature,
        to: Route,
        layout: TupleLayout,
        pending: Pending,
        table: StampTable,
        counts: ProbeCounts,
        residents: Sequence[Resident],
    ) -> None:
        super().__init__(graph, resident.stem, target, signature, to)
        self._wire()
        self._others = _other_keys(graph, signature, target, residents)
        self._resident = resident
        self._counts = counts
        self._is_sampled = False
        self._generation = resident.generation
        self._layout = layout
        self._pending = pending
        self._table = table
        columns = [part.column for part in self._parts]
        home = resident.flushed.home
        column = home if home in columns else (columns[0] if columns else None)
        self._place = Place(target, signature, column)

    def prepare(self, scratch: Scratch) -> int:
        if self._generation != self._resident.generation:
            self._index = self._sorted = None
            self._generation = self._resident.generation
        if self._resident.n_rows == 0:
            return 0
        return super().prepare(scratch)

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        flushed = self._resident.flushed
        self._is_sampled = self._counts.is_sampled()
        if self._is_sampled:
            self._count_probes(batch)
        if flushed.n_runs and batch.origin.limits[self._target] > flushed.first_arrival:
            self._suspend(batch)
        if self._resident.n_rows == 0:
            return None, None
        return super().run(batch, scratch)

    def _limit(self, batch: RoutedBatch) -> int:
        return self._resident.limit(batch.origin.limits[self._target])

    def _checked(self, batch: RoutedBatch, positions: Ids, rows: Ids) -> RoutedBatch | None:
        if isinstance(batch.origin, MixedOrigin):
            limits = _limits(batch, positions, self._table, self._target)
            seen = self._resident.arrivals(rows) < limits
            positions, rows = positions[seen], rows[seen]
        if self._is_sampled and self._resident.flushed.home is not None:
            self._count_matches(rows)
        return super()._checked(batch, positions, rows)

    def _count_probes(self, batch: RoutedBatch) -> None:
        home = self._resident.flushed.home
        part = next((part for part in self._parts if part.column == home), None)
        partitions: Partitions | None = None
        if part is not None:
            ids = batch.ids[part.source]
            n = min(batch.n_rows, SAMPLED_TUPLES)
            some = np.arange(n, dtype=np.int32) if ids is None else ids[:n]
            words = batch.origin.places[part.source].column(part.probe).words(some)
            partitions = partitions_of(words, self._resident.flushed.n_partitions)
        self._counts.saw_probes(partitions, batch.n_rows)

    def _count_matches(self, rows: Ids) -> None:
        flushed = self._resident.flushed
        assert flushed.home is not None
        some = np.ascontiguousarray(rows[:SAMPLED_TUPLES])
        words = self._stem.store.column(flushed.home).words(some)
        self._counts.saw_matches(partitions_of(words, flushed.n_partitions), rows.shape[0])

    def _suspend(self, batch: RoutedBatch) -> None:
        """Let those tuples wait that a row on disk may match."""
        flushed = self._resident.flushed
        chosen = self._hopeful(batch)
        partitions: Partitions | None = None
        if self._parts:
            chosen, partitions = self._candidates(batch, chosen)
        if chosen is None:
            chosen = np.arange(batch.n_rows, dtype=np.int32)
        if chosen.shape[0] == 0:
            return
        rows = self._layout.encode(batch, chosen, self._table, flushed.n_runs)
        self._pending.add(self._place, self._layout, rows, partitions, flushed.n_partitions)

    def _hopeful(self, batch: RoutedBatch) -> Ids | None:
        """Those tuples for which every other source they lack may have a row (None: all). The filter
        that stops most is asked first.
        """
        chosen: Ids | None = None
        for flushed, part in sorted(self._others, key=lambda other: other[0].share_found):
            column, local = _keys_of(batch, part, chosen)
            passing = flushed.passing(part.column, column.words(local))
            if passing is not None:
                chosen = passing if chosen is None else chosen[passing]
        return chosen

    def _candidates(self, batch: RoutedBatch, chosen: Ids | None) -> tuple[Ids | None, Partitions]:
        """Of the `chosen` tuples (None: all) those whose keys may be on disk, and their partitions by
        the place's column.
        """
        flushed = self._resident.flushed
        partitions: Partitions | None = None
        for part in sorted(self._parts, key=lambda part: part.column != self._place.column):
            words, valid = key_words([_keys_of(batch, part, chosen)])
            if partitions is None:
                partitions = partitions_of(words, flushed.n_partitions)
            passing = flushed.passing(part.column, words)
            if valid is not None and not valid.all():
                passing = _both(passing, valid != 0)
            if part.column == flushed.home and not flushed.is_on_disk.all():
                passing = _both(passing, flushed.is_on_disk[partitions])
            if passing is not None and passing.shape[0] < words.shape[0]:
                chosen = passing if chosen is None else chosen[passing]
                partitions = partitions[passing]
        assert partitions is not None
        return chosen, partitions


def _keys_of(batch: RoutedBatch, part: KeyPart, chosen: Ids | None) -> tuple[Column, Ids | None]:
    """The column of `batch` that is compared with `part`, and the rows of it that `chosen` tuples have
    (None: all in order).
    """
    ids = batch.ids[part.source]
    if chosen is not None:
        ids = chosen if ids is None else ids[chosen]
    return batch.origin.places[part.source].column(part.probe), ids


def _both(passing: Ids | None, mask: npt.NDArray[np.bool_]) -> Ids:
    """Those of `passing` (None: all) that a mask over all lets through, too."""
    if passing is None:
        return np.flatnonzero(mask).astype(np.int32)
    return passing[mask[passing]]


def _other_keys(
    graph: Graph, signature: Signature, target: int, residents: Sequence[Resident]
) -> list[tuple[FlushedRows, KeyPart]]:
    """Keys by which the batch will probe sources other than `target` that it lacks."""
    found = []
    for source in bits(graph.all_sources & ~signature.sources & ~(1 << target)):
        flushed = residents[graph.roles[source].relation].flushed
        found += [(flushed, part) for part in key_parts(graph, signature, source)]
    return found


def _limits(
    batch: RoutedBatch, positions: Ids, table: StampTable, target: int
) -> npt.NDArray[np.int32]:
    """The limit of source `target` for each of the tuples at `positions`."""
    origin = batch.origin
    assert isinstance(origin, MixedOrigin)
    ids = batch.ids[origin.driver]
    drivers = positions if ids is None else ids[positions]
    return table.limits_of(origin.stamps[drivers], target)


class ChunkProbe(Probe):
    """Answers pending probes from rows that were read back."""

    def __init__(
        self, graph: Graph, chunk: Chunk, target: int, signature: Signature, table: StampTable
    ) -> None:
        super().__init__(graph, chunk.stem, target, signature, _NOWHERE)
        self._chunk = chunk
        self._table = table
        self._seen_runs: npt.NDArray[np.int32] | int = 0
        self._sees_all_runs = False

    def answer(
        self, batch: RoutedBatch, runs: npt.NDArray[np.int32] | int, scratch: Scratch
    ) -> Iterator[RoutedBatch]:
        """What the tuples of `batch` find; `runs` says how many runs they, or each, may see."""
        self._seen_runs = runs
        fewest = runs if isinstance(runs, int) else int(runs.min())
        self._sees_all_runs = fewest > self._chunk.last_run
        places = list(batch.origin.places)
        places[self._target] = self._chunk.stem.store
        batch.origin.places = places
        self.prepare(scratch)
        first, more = self.run(batch, scratch)
        if first is not None:
            yield first
        if more is not None:
            yield from more

    def _limit(self, batch: RoutedBatch) -> int:
        return self._chunk.stem.store.n_rows

    def _checked(self, batch: RoutedBatch, positions: Ids, rows: Ids) -> RoutedBatch | None:
        chunk, origin = self._chunk, batch.origin
        if not self._sees_all_runs:
            runs = self._seen_runs
            seen = chunk.runs[rows] < (runs if isinstance(runs, int) else runs[positions])
            positions, rows = positions[seen], rows[seen]
        if isinstance(origin, MixedOrigin):
            limits = _limits(batch, positions, self._table, self._target)
            seen = chunk.arrivals[rows] < limits
            positions, rows = positions[seen], rows[seen]
        elif origin.limits[self._target] <= chunk.last_arrival:
            seen = chunk.arrivals[rows] < origin.limits[self._target]
            positions, rows = positions[seen], rows[seen]
        return super()._checked(batch, positions, rows)
