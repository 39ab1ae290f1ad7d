"""Who sends each row of a source to the join that suits its part of the data.

A *chooser* belongs to a source with several joins. It knows what can be asked about a row (its number
of arrival, its stored columns), what a sample of rows would meet at each join, and the regions in
force: which join a row goes to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree
from eddies.core.kernels.sampling import n_equal_each
from eddies.core.stairs.plan import World
from eddies.core.stairs.regions import ARRIVAL, Costs, Features, Leaf, Regions, choices
from eddies.core.stairs.statistics import Statistics
from eddies.core.state.rows import Block, RowStore

__all__ = ["Chooser", "make_choosers"]

_HELD_ROWS = 16_384  # looked at on the other side of a join: all, or so many of them
_LATEST = 2048  # rows that stand for those to come
_SAMPLE_ROWS = 512  # of which half are among the latest


def make_choosers(
    graph: Graph, tree: JoinTree, stores: Sequence[RowStore], *, by_content: bool
) -> dict[int, Chooser]:
    """Choosers by source; `by_content`, columns may be asked for, and not only arrival."""
    found = {}
    for role in graph.roles:
        joins = [e for e in tree.edges if role.source_id in (e.left, e.right)]
        if len(joins) > 1:
            columns = _ordered_columns(graph, role.source_id) if by_content else []
            store = stores[role.relation]
            found[role.source_id] = Chooser(role.source_id, joins, tree, store, columns)
    return found


def _ordered_columns(graph: Graph, source: int) -> list[str]:
    """Stored columns of integers and dates: those a part can be told by."""
    return [
        field.name
        for field in graph.relation_of(source).stored
        if pa.types.is_signed_integer(field.type) or pa.types.is_date32(field.type)
    ]


class Chooser:
    """The parts of one source, and which join each part goes to."""

    def __init__(
        self,
        source: int,
        joins: Sequence[JoinEdge],
        tree: JoinTree,
        store: RowStore,
        columns: Sequence[str],
    ) -> None:
        self.source = source
        self.joins = list(joins)
        self.regions: Regions = Leaf(0)
        self._beyond = [_beyond(tree, edge, source) for edge in joins]
        self._tree = tree
        self._store = store
        self._columns = list(columns)

    # What is in force

    def choose(self, rows: Ids) -> npt.NDArray[np.int64]:
        """For each stored row the number of its join among `joins`."""
        if isinstance(self.regions, Leaf):
            return np.full(rows.shape[0], self.regions.choice, dtype=np.int64)
        return choices(self.regions, self.features(rows), rows.shape[0])

    def choose_unstored(self, block: Block, rows: Ids | None) -> npt.NDArray[np.int64]:
        """The same for rows of `block`, which come after all that are stored."""
        n_rows = block.n_rows if rows is None else rows.shape[0]
        if isinstance(self.regions, Leaf):
            return np.full(n_rows, self.regions.choice, dtype=np.int64)
        features = {name: block.column(name).words(rows).view(np.int64) for name in self._columns}
        features[ARRIVAL] = np.full(n_rows, self._store.n_rows, dtype=np.int64)
        return choices(self.regions, features, n_rows)

    # What can be known of rows

    def features(self, rows: Ids) -> dict[str, npt.NDArray[np.int64]]:
        """What can be asked about rows: their arrival number and stored columns."""
        found = {ARRIVAL: rows.astype(np.int64)}
        for name in self._columns:
            found[name] = self._store.column(name).words(rows).view(np.int64)
        return found

    def to_come(self, features: Features, n_rows: int) -> Features:
        """The features of rows like these that come after the first `n_rows`."""
        return {**features, ARRIVAL: np.full_like(features[ARRIVAL], n_rows)}

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Some of the first `n_rows` rows: of the latest, and from anywhere."""
        n_each = _SAMPLE_ROWS // 2
        latest = rng.integers(max(0, n_rows - _LATEST), n_rows, n_each, dtype=np.int32)
        return latest, rng.integers(0, n_rows, n_each, dtype=np.int32)

    def costs(
        self, rows: Ids, n_rows: Sequence[int], statistics: Statistics, rng: np.random.Generator
    ) -> Costs:
        """For each row (line) the tuples that come of it joined with everything beyond each of the
        joins (column), when so many rows of all sources have come.
        """
        world = World([float(n) for n in n_rows], statistics.selectivity, self._tree)
        found = np.zeros((rows.shape[0], len(self.joins)))
        for number, edge in enumerate(self.joins):
            n_held = n_rows[edge.other(self.source)]
            if n_held:
                further = world.size(self._beyond[number]) / n_held
                n_matches = self.matches(edge, rows, n_held, statistics, rng)
                found[:, number] = n_matches * max(1.0, further)
        return found

    def matches(
        self,
        edge: JoinEdge,
        rows: Ids,
        n_held: int,
        statistics: Statistics,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.float64]:
        """For each row how many of the first `n_held` rows on the other side of a join it meets."""
        held_rows = np.arange(n_held, dtype=np.int32)
        if n_held > _HELD_ROWS:
            held_rows = rng.integers(0, n_held, _HELD_ROWS, dtype=np.int32)
        held = statistics.words_of(edge, edge.other(self.source), held_rows)
        words, is_asked = statistics.keys_of(edge, self.source, rows)
        found = np.empty(words.shape[0], dtype=np.int64)
        n_equal_each(words, held, found)
        n_matches = found.astype(np.float64)
        n_matches *= n_held / held_rows.shape[0]
        if is_asked is not None:
            n_matches[~is_asked] = 0.0
        return n_matches


def _beyond(tree: JoinTree, edge: JoinEdge, source: int) -> int:
    """The sources on the other side of a join, as a mask."""
    mask = 1 << edge.other(source)
    while True:
        grown = mask
        for other in tree.edges:
            ends = 1 << other.left | 1 << other.right
            if other.number != edge.number and ends & grown:
                grown |= ends
        if grown == mask:
            return mask
        mask = grown
