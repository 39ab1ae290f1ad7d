"""Who sends each row of a source to the join that suits its part of the data.

A *chooser* belongs to a source with several joins. It knows what can be asked about a row (its number
of arrival, its stored columns), what a sample of rows would meet at each join, and the regions in
force: which join a row goes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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

__all__ = ["GLIMPSE", "STUDY", "Care", "Chooser", "make_choosers"]

_LATEST = 2048  # rows that stand for those to come


class Care(NamedTuple):
    """How much is looked at: rows of the source, half of them among the latest, and of the other side
    of each join.
    """

    n_rows: int
    n_held: int


GLIMPSE, STUDY = Care(256, 4096), Care(512, 16_384)


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

    def sample(self, n_rows: int, care: Care, rng: np.random.Generator) -> Ids:
        """Some of the first `n_rows` rows: first of the latest, then as many from anywhere."""
        n_each = care.n_rows // 2
        rows = rng.integers(0, n_rows, 2 * n_each, dtype=np.int32)
        n_latest = min(_LATEST, n_rows)
        rows[:n_each] %= n_latest
        rows[:n_each] += n_rows - n_latest
        return rows

    def expected(self, statistics: Statistics, n_rows: Sequence[int]) -> list[float]:
        """Tuples that come of a row on average joined with everything beyond each of the joins."""
        world = World([float(n) for n in n_rows], statistics.selectivity, self._tree)
        selectivity = statistics.selectivity
        return [
            world.size(beyond) * selectivity[edge.number]
            for edge, beyond in zip(self.joins, self._beyond, strict=True)
        ]

    def further(self, statistics: Statistics, n_rows: Sequence[int]) -> list[float]:
        """For each join the tuples that come of one match there, joined with everything beyond; at
        least the match itself.
        """
        world = World([float(n) for n in n_rows], statistics.selectivity, self._tree)
        return [
            max(1.0, world.size(beyond) / max(1, n_rows[edge.other(self.source)]))
            for edge, beyond in zip(self.joins, self._beyond, strict=True)
        ]

    def matches(
        self,
        rows: Ids,
        n_rows: Sequence[int],
        care: Care,
        statistics: Statistics,
        rng: np.random.Generator,
    ) -> Costs:
        """For each row (line) how many rows it meets on the other side of each of the joins (column),
        when so many rows of all sources have come.
        """
        found = np.zeros((rows.shape[0], len(self.joins)))
        n_matches = np.empty(rows.shape[0], dtype=np.int64)
        for number, edge in enumerate(self.joins):
            other = edge.other(self.source)
            n_held = n_rows[other]
            if not n_held:
                continue
            if n_held > care.n_held:
                held_rows = rng.integers(0, n_held, care.n_held, dtype=np.int32)
            else:
                held_rows = np.arange(n_held, dtype=np.int32)
            words, is_asked = statistics.keys_of(edge, self.source, rows)
            n_equal_each(words, statistics.words_of(edge, other, held_rows), n_matches)
            found[:, number] = n_matches * (n_held / held_rows.shape[0])
            if is_asked is not None:
                found[~is_asked, number] = 0.0
        return found


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
