"""Selection module: one expensive predicate that the eddy orders among the others (OV-2, SteM-4).

A predicate over one source is evaluated at most once for each stored row, however many joined tuples
contain the row: its answers are remembered beside the rows. (Two threads that meet a row at the same
time may both evaluate it, so a function must allow that.) Predicates over several sources are evaluated
on every tuple that comes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import RoutedBatch
from eddies.core.evaluate import keep
from eddies.core.expr import Column
from eddies.core.graph import Graph
from eddies.core.lineage import bits
from eddies.core.module import Outcome
from eddies.core.route import Route
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["Select"]

_UNKNOWN, _FALSE, _TRUE = -1, 0, 1


class Select:
    """The step that applies optional predicate `number` to a batch."""

    most_matches = 1.0

    def __init__(self, graph: Graph, number: int, to: Route) -> None:
        optional = graph.optionals[number]
        self.name = optional.name
        self._number = number
        self._expr = optional.expr
        self._functions = graph.functions
        self._sources = bits(optional.mask)
        self._to = to

    def prepare(self, scratch: Scratch) -> int:
        return 0

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        kept: npt.NDArray[np.bool_] | None
        if len(self._sources) == 1 and self._may_come_again(batch):
            kept = self._remembered(batch, self._sources[0])
        else:
            kept = keep(self._expr, batch.column, batch.n_rows, self._functions)
        passed = batch.kept(self._to, kept)
        return (passed if passed.n_rows else None), None

    def _may_come_again(self, batch: RoutedBatch) -> bool:
        """Whether a row can be in several tuples: not while it is alone and stored nowhere."""
        origin = batch.origin
        return origin.first_row >= 0 or batch.route.signature.sources != 1 << origin.driver

    def _remembered(self, batch: RoutedBatch, source: int) -> npt.NDArray[np.bool_]:
        """Answers for the batch's rows of `source`, evaluating only rows not seen before."""
        origin = batch.origin
        place = origin.places[source]
        ids = batch.ids[source]
        if source == origin.driver and origin.first_row >= 0:
            # The driver's rows are stored too: use the store's memory, by row id.
            place = origin.home
            local = np.arange(batch.n_rows, dtype=np.int32) if ids is None else ids
            ids = local + np.int32(origin.first_row)
        memo = self._memo(place)
        known = memo[: batch.n_rows] if ids is None else memo[ids]
        if (known == _UNKNOWN).any():
            if ids is None:
                unknown = np.flatnonzero(known == _UNKNOWN).astype(np.int32)
            else:
                unknown = np.unique(ids[known == _UNKNOWN])

            def column(wanted: Column) -> pa.Array:
                return place.column(wanted.name).take(unknown)

            true = keep(self._expr, column, unknown.shape[0], self._functions)
            memo[unknown] = _TRUE if true is None else np.where(true, _TRUE, _FALSE)
            known = memo[: batch.n_rows] if ids is None else memo[ids]
        return np.equal(known, _TRUE)

    def _memo(self, place: Block | RowStore) -> npt.NDArray[np.int8]:
        memo = place.memo.get(self._number)
        if memo is None or memo.shape[0] < place.n_rows:
            grown = np.full(max(place.n_rows, 64), _UNKNOWN, dtype=np.int8)
            if memo is not None:
                grown = np.full(max(place.n_rows, 2 * memo.shape[0]), _UNKNOWN, dtype=np.int8)
                grown[: memo.shape[0]] = memo
            memo = place.memo[self._number] = grown
        return memo
