"""Module that joins a source whether it matches or not: LEFT JOIN.

A tuple comes out once for each row of the source that matches it, and if there is none, once with a
row of NULLs (it is *padded*). Whether there is none can be said only when all rows of the source are
there, so nobody comes here before: there are no stamps, and every stored row counts. Like any other
module it is ordered by the eddy; no predicate elsewhere reads the source, so a padded tuple is like
others.

The row of NULLs is the last one in the source's SteM. NULL keys are in no index: nothing matches it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.module import Outcome
from eddies.core.modules.matching import key_parts_of, passing, wanted_of
from eddies.core.modules.stem import Probe, SteM
from eddies.core.route import Route
from eddies.core.state.scratch import Scratch

__all__ = ["Pad"]


class Pad(Probe):
    """The step that applies optional predicate `number`, one with `exists` that pads, to a batch."""

    def __init__(
        self, graph: Graph, stem: SteM, number: int, signature: Signature, to: Route
    ) -> None:
        plan = wanted_of(graph, number)
        super().__init__(graph, stem, plan.target, signature, to)
        self.name = graph.optionals[number].name
        self._plan = plan
        # By identity of a batch whose matches are under way: which of its rows have one.
        self._hit_by_batch: dict[int, npt.NDArray[np.bool_]] = {}

    def _wire(self) -> None:
        self._parts = key_parts_of(self._plan)
        self._filters = list(self._plan.filters)
        self._bands = []

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        pieces = self._pieces(batch, scratch)
        return next(pieces, None), pieces

    def _pieces(self, batch: RoutedBatch, scratch: Scratch) -> Iterator[RoutedBatch]:
        """Matches in pieces, then the rows without any."""
        hit = self._hit_by_batch[id(batch)] = np.zeros(batch.n_rows, dtype=np.bool_)
        try:
            first, rest = super().run(batch, scratch)
            if first is not None:
                yield first
            yield from rest or ()
        finally:
            del self._hit_by_batch[id(batch)]
        alone = np.flatnonzero(~hit).astype(np.int32)
        if alone.shape[0]:
            nulls = np.full(alone.shape[0], self._stem.null_row, dtype=np.int32)
            yield batch.joined(self._to, self._target, alone, nulls)

    def _limit(self, batch: RoutedBatch) -> int:
        return self._stem.null_row

    def _checked(self, batch: RoutedBatch, positions: Ids, rows: Ids) -> RoutedBatch | None:
        """The matches that pass the other conditions of ON, and a note whose they are."""
        if positions.shape[0] == 0:
            return None
        joined = batch.joined(self._to, self._target, positions, rows)
        joined, positions = passing(self._filters, joined, positions, self._to, self._functions)
        self._hit_by_batch[id(batch)][positions] = True
        return joined if joined.n_rows else None
