"""The routed batch: row ids instead of rows.

Inside the eddy a tuple is one row id per source it spans (the overhead study's indirect format,
section 3.4), and a batch is one vector of ids per source. Joining two tuples copies ids, never
values; columns are gathered where a predicate or the output needs them.

Every batch descends from one base batch, its driver, and shares the driver's `Origin`: where the rows
of each source are, and which rows the batch may still match.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.expr import Column
from eddies.core.kernels.gather import copy_brief, copy_rows, gather, gather_brief
from eddies.core.kernels.jit import BRIEF_ROWS
from eddies.core.state.rows import Block, RowStore

if TYPE_CHECKING:
    from eddies.core.modules.folding import Folded
    from eddies.core.route import Route

__all__ = ["Ids", "Origin", "RoutedBatch", "Unbuilt"]

Ids = npt.NDArray[np.int32]


class Origin:
    """The driver of a batch: its source, the limits it got when stored, and where rows are.

    `places[s]` holds the rows of source s: the driver's own block for the driver, a row store for all
    others. `first_row` is the row id of the block's first row in the store `home`, or -1 if the block
    was not stored.
    """

    __slots__ = ("driver", "first_row", "home", "limits", "places", "source_ids")

    def __init__(
        self,
        driver: int,
        places: Sequence[Block | RowStore],
        limits: tuple[int, ...],
        first_row: int,
        home: RowStore,
        source_ids: dict[str, int],
    ) -> None:
        self.driver = driver
        self.places = places
        self.limits = limits
        self.first_row = first_row
        self.home = home
        self.source_ids = source_ids


class RoutedBatch:
    """`ids[s]` are the rows of source s, or None: not spanned, not live (`core.live`), or (for the
    driver) all in order.
    """

    __slots__ = ("_arrays", "folded", "ids", "n_rows", "origin", "route")

    def __init__(
        self,
        route: Route,
        origin: Origin,
        ids: list[Ids | None],
        n_rows: int,
        arrays: dict[tuple[int, str], pa.Array] | None = None,
    ) -> None:
        self.route = route
        self.origin = origin
        self.ids = ids
        self.n_rows = n_rows
        self._arrays = {} if arrays is None else arrays
        self.folded: Folded | None = None  # if its rows stand for several results each

    def column(self, column: Column) -> pa.Array:
        """The values of `column` for the rows of this batch."""
        source_id = self.origin.source_ids[column.source]
        key = (source_id, column.name)
        array = self._arrays.get(key)
        if array is None:
            assert self.route.live >> source_id & 1, "whoever is looked at is live"
            array = self.origin.places[source_id].take(column.name, self.ids[source_id])
            self._arrays[key] = array
        return array

    def joined(self, route: Route, target: int, positions: Ids, rows: Ids) -> RoutedBatch:
        """The rows at `positions`, each with row `rows[i]` of source `target`. Copies both vectors; of
        sources that are not live on `route`, none.
        """
        ids = self._picked(positions, route.live)
        if route.live >> target & 1:
            ids[target] = _copied(rows)
        return RoutedBatch(route, self.origin, ids, positions.shape[0])

    def kept(self, route: Route, keep: npt.NDArray[np.bool_] | None) -> RoutedBatch:
        """The rows where `keep` is true (all when it is None)."""
        if keep is None or keep.all():
            return RoutedBatch(route, self.origin, self.ids, self.n_rows, self._arrays)
        return self.picked(route, np.flatnonzero(keep).astype(np.int32))

    def picked(self, route: Route, positions: Ids) -> RoutedBatch:
        """The rows at `positions`."""
        ids = self._picked(positions, route.live)
        return RoutedBatch(route, self.origin, ids, positions.shape[0])

    def split(self, n_rows: int) -> tuple[RoutedBatch, RoutedBatch]:
        """The first `n_rows` rows, and the rest."""
        return self._cut(0, n_rows), self._cut(n_rows, self.n_rows)

    def _cut(self, start: int, stop: int) -> RoutedBatch:
        ids: list[Ids | None] = [None if v is None else v[start:stop] for v in self.ids]
        if ids[self.origin.driver] is None:
            ids[self.origin.driver] = np.arange(start, stop, dtype=np.int32)
        return RoutedBatch(self.route, self.origin, ids, stop - start)

    def _picked(self, positions: Ids, live: int) -> list[Ids | None]:
        picked: list[Ids | None] = [None] * len(self.ids)
        pick = gather_brief if positions.shape[0] <= BRIEF_ROWS else gather
        for source_id, ids in enumerate(self.ids):
            if ids is not None and live >> source_id & 1:
                taken = np.empty(positions.shape[0], dtype=np.int32)
                pick(ids, positions, taken)
                picked[source_id] = taken
        driver = self.origin.driver
        if picked[driver] is None and live >> driver & 1:
            picked[driver] = _copied(positions)
        return picked


def _copied(rows: Ids) -> Ids:
    copy = np.empty(rows.shape[0], dtype=np.int32)
    (copy_brief if rows.shape[0] <= BRIEF_ROWS else copy_rows)(rows, copy)
    return copy


class Unbuilt(NamedTuple):
    """A piece of the last relation that waits to be routed: not stored, not even admitted yet."""

    relation: int
    batch: pa.RecordBatch

    @property
    def n_rows(self) -> int:
        return int(self.batch.num_rows)

    def split(self, n_rows: int) -> tuple[Unbuilt, Unbuilt]:
        """The first `n_rows` rows, and the rest."""
        first, rest = self.batch.slice(0, n_rows), self.batch.slice(n_rows)
        return Unbuilt(self.relation, first), Unbuilt(self.relation, rest)
