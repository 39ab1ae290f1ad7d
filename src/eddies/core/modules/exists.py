"""Module that asks a source whether it has a row that matches: semi-joins and anti-joins.

Like an expensive predicate it lets a tuple pass or not, and the eddy orders it among the others. It is
a probe of the source's SteM whose matches are not joined but counted, at most one a tuple. All rows of
the source are there before anybody asks, so there are no stamps: every stored row counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import keep
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.module import Outcome
from eddies.core.modules.stem import KeyPart, Probe, SteM
from eddies.core.route import Route
from eddies.core.state.scratch import Scratch

__all__ = ["Ask"]


class Ask(Probe):
    """The step that applies optional predicate `number`, one with `exists`, to a batch."""

    def __init__(
        self, graph: Graph, stem: SteM, number: int, signature: Signature, to: Route
    ) -> None:
        optional = graph.optionals[number]
        plan = optional.exists
        assert plan is not None
        super().__init__(graph, stem, plan.target, signature, to)
        self.name = optional.name
        self._parts = [KeyPart(inner, source, outer) for source, outer, inner in plan.keys]
        self._filters = list(plan.filters)
        self._bands = []
        self._plan = plan
        self._hit: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

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

    def _limit(self, batch: RoutedBatch) -> int:
        return self._stem.store.n_rows

    def _checked(self, batch: RoutedBatch, positions: Ids, rows: Ids) -> RoutedBatch | None:
        """Note which rows of the batch have a match among these."""
        if positions.shape[0] and self._filters:
            joined = batch.joined(self._to, self._target, positions, rows)
            for predicate in self._filters:
                kept = keep(predicate, joined.column, joined.n_rows, self._functions)
                if kept is not None:
                    joined, positions = joined.kept(self._to, kept), positions[kept]
                if not joined.n_rows:
                    break
        self._hit[positions] = True
        return None

    # NOT IN

    def _decided(self, batch: RoutedBatch) -> npt.NDArray[np.bool_] | None:
        """The answer for all rows, where the source alone decides: it is empty, or has a NULL."""
        store, n = self._stem.store, self._stem.store.n_rows
        wanted = np.ones(n, dtype=np.bool_)
        if self._flag is not None:
            wanted = store.column(self._flag).words(None, 0, n) != 0
        if not wanted.any():
            return np.ones(batch.n_rows, dtype=np.bool_)
        valid = store.column(self._parts[0].column).valid(None, 0, n)
        if valid is not None and (wanted & (valid == 0)).any():
            return np.zeros(batch.n_rows, dtype=np.bool_)
        return None

    def _known(self, batch: RoutedBatch) -> npt.NDArray[np.bool_]:
        """Which rows of the batch have a value to look for."""
        part = self._parts[0]
        column = batch.origin.places[part.source].column(part.probe)
        valid = column.valid(batch.ids[part.source])
        if valid is None:
            return np.ones(batch.n_rows, dtype=np.bool_)
        return np.not_equal(valid[: batch.n_rows], 0)
