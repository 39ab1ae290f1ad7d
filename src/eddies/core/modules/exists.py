"""Module that asks a source whether it has a row that matches: semi-joins and anti-joins.

Like an expensive predicate it lets a tuple pass or not, and the eddy orders it among the others. It is
a probe of the source's SteM whose matches are not joined but counted, at most one a tuple. All rows of
the source are there before anybody asks, so there are no stamps: every stored row counts.
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
from eddies.core.modules.stem import Probe, SteM, key_side
from eddies.core.route import Route
from eddies.core.state.hash_index import HashIndex, PendingChains
from eddies.core.state.keys import is_exact, key_words
from eddies.core.state.scratch import Scratch

__all__ = ["Ask"]


class Ask(Probe):
    """The step that applies optional predicate `number`, one with `exists`, to a batch."""

    def __init__(
        self, graph: Graph, stem: SteM, number: int, signature: Signature, to: Route
    ) -> None:
        plan = wanted_of(graph, number)
        super().__init__(graph, stem, plan.target, signature, to)
        self.name = graph.optionals[number].name
        self._plan = plan
        self._is_empty: bool | None = None  # of a source that is complete; None: nobody has looked
        self._has_null = False
        self._hit: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def _wire(self) -> None:
        self._parts = key_parts_of(self._plan)
        self._filters = list(self._plan.filters)
        self._bands = []

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        hit = self._hit = np.zeros(batch.n_rows, dtype=np.bool_)
        if self._plan.null_aware and (decided := self._decided(batch)) is not None:
            kept = decided
        else:
            _, rest = super().run(batch, scratch)
            for _ in rest or ():
                pass
            kept = ~hit if self._plan.negated else hit
            if self._plan.null_aware:
                kept &= self._known(batch)
        passed = batch.kept(self._to, kept)
        return (passed if passed.n_rows else None), None

    def _look_up(self, batch: RoutedBatch, index: HashIndex, scratch: Scratch) -> Outcome:
        """One match is enough; where equal words say so, nobody looks for a second."""
        stored = [self._stem.store.column(name) for name in index.columns]
        if self._filters or len(index.columns) < len(self._parts) or not is_exact(stored):
            return super()._look_up(batch, index, scratch)
        words, valid = key_words(key_side(batch, self._asked))
        self._hit |= index.has(words, scratch)
        if valid is not None:
            self._hit &= valid != 0
        return None, None

    def _resumed(
        self,
        batch: RoutedBatch,
        pending: PendingChains | None,
        chosen: Ids | None,
        index: HashIndex,
        scratch: Scratch,
    ) -> Iterator[RoutedBatch]:
        while pending is not None:
            rows = pending.positions if chosen is None else chosen[pending.positions]
            sought = ~self._hit[rows]
            if not sought.any():
                return
            pending = PendingChains(pending.positions[sought], pending.links[sought])
            found, pending = index.resume(pending, scratch)
            self._matched(batch, found, chosen, index, scratch)
        yield from ()

    def _limit(self, batch: RoutedBatch) -> int:
        return self._stem.store.n_rows

    def _checked(self, batch: RoutedBatch, positions: Ids, rows: Ids) -> RoutedBatch | None:
        """Note which rows of the batch have a match among these."""
        if positions.shape[0] and self._filters:
            joined = batch.joined(self._to, self._target, positions, rows)
            _, positions = passing(self._filters, joined, positions, self._to, self._functions)
        self._hit[positions] = True
        return None

    # NOT IN

    def _decided(self, batch: RoutedBatch) -> npt.NDArray[np.bool_] | None:
        """The answer for all rows, where the source alone decides: it is empty, or has a NULL."""
        if self._is_empty is None:
            store, n = self._stem.store, self._stem.store.n_rows
            wanted = np.ones(n, dtype=np.bool_)
            if self._flag is not None:
                wanted = store.column(self._flag).words(None, 0, n) != 0
            valid = store.column(self._parts[0].column).valid(None, 0, n)
            self._is_empty = not wanted.any()
            self._has_null = valid is not None and bool((wanted & (valid == 0)).any())
        if not (self._is_empty or self._has_null):
            return None
        return np.full(batch.n_rows, self._is_empty, dtype=np.bool_)

    def _known(self, batch: RoutedBatch) -> npt.NDArray[np.bool_]:
        """Which rows of the batch have a value to look for."""
        part = self._parts[0]
        column = batch.origin.places[part.source].column(part.probe)
        valid = column.valid(batch.ids[part.source])
        if valid is None:
            return np.ones(batch.n_rows, dtype=np.bool_)
        return np.not_equal(valid[: batch.n_rows], 0)
