"""What is known of sizes and selectivities, from the rows themselves (section 4.2 of STAIRs).

The state after any history is a matter of which rows have come and how they match; so statistics are
taken from the stored rows, not from what happened to be routed where. For each join a sample of one
side is looked up in a sample of the other: matches by pairs is the join's selectivity. That costs
about a tenth of a millisecond a join, is repeated when sizes have grown, and says the same whatever
was routed where before.

With `window` the sample of a side comes from its latest rows: selectivities of data whose character
depends on when it arrives (section 5.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree
from eddies.core.kernels.sampling import n_equal_pairs, n_equal_picked
from eddies.core.modules.stem import SteM
from eddies.core.stairs.stair import History
from eddies.core.state.columns import FixedColumn, Ids
from eddies.core.state.keys import key_words
from eddies.core.state.rows import Block

__all__ = ["Statistics"]

SAMPLED_ROWS = 2048  # of each side of a join
FORESEEN = 1.0  # rows of all sources to come for each that has come, where nobody knows
MOST = 1.0  # rows of a source to come for each that has come
_UNSEEN = 0.5  # matches assumed where a sample has none


class Statistics:
    """Rows so far, rows expected, and selectivities of joins; `refresh` takes new samples."""

    def __init__(
        self, graph: Graph, tree: JoinTree, stems: Sequence[SteM], history: History, seed: int = 0
    ) -> None:
        self._graph = graph
        self._tree = tree
        self._stores = [stems[role.relation].store for role in graph.roles]
        self._sources = range(len(graph.roles))
        self._history = history
        self._places = _places(seed)
        self._sampled_at: dict[int, tuple[int, ...]] = {}
        self.selectivity = [0.0] * len(tree.edges)
        self.ended = [False] * len(graph.relations)
        self.streamed = [0] * len(graph.roles)  # rows that came but were not stored
        self._n_offered = [0] * len(graph.roles)  # of these, before selections
        self._began_at = [0] * len(graph.roles)
        self._rate = [0.0] * len(graph.roles)
        self._last_look = [(0, 0)] * len(graph.roles)
        self.n_samples = 0
        self._latest: dict[int, Block] = {}  # of sources whose rows are not stored

    def follow(self, other: Statistics) -> None:
        """Go on with what `other`, of another tree over the same rows, knows of arrivals."""
        self.ended, self.streamed, self._latest = other.ended, other.streamed, other._latest
        self._began_at, self._rate, self._last_look = other._began_at, other._rate, other._last_look
        self._n_offered = other._n_offered

    def note_streamed(
        self, source: int, block: Block, n_before: int = 0, n_offered_before: int = 0
    ) -> None:
        """Rows of `source` came that are not stored: they can be sampled now or never. Before them came
        `n_before` others that nobody noted, of `n_offered_before` before selections.
        """
        if not self.rows(source) and not self.streamed[source]:
            self.begin(source)
        self.streamed[source] += block.n_rows + n_before
        self._n_offered[source] += block.n_offered + n_offered_before
        self._latest[source] = block

    def rows(self, source: int) -> int:
        """Rows of `source` that are stored."""
        return self._stores[source].n_rows

    @property
    def n_seen(self) -> int:
        """Rows of all sources so far: the clock by which arrival rates are measured."""
        return sum(map(self.rows, self._sources)) + sum(self.streamed)

    def begin(self, source: int, n_seen: int | None = None) -> None:
        """The first rows of `source` are about to be stored; or were, when `n_seen` rows had come."""
        self._began_at[source] = self.n_seen if n_seen is None else n_seen

    def look(self) -> None:
        """Measure arrival rates anew, from here on."""
        seen = self.n_seen
        for source in self._sources:
            n_rows = self.rows(source) + self.streamed[source]
            before, at = self._last_look[source]
            if seen > at:
                self._rate[source] = (n_rows - before) / (seen - at)
            self._last_look[source] = (n_rows, seen)

    def rows_to_come(self, source: int) -> float:
        """How many more are expected: what the host said; else it goes on as it arrived of late (or at
        half of its average rate, if it stalls) for as many rows of all sources as have come so far; but
        no more than have come of it, or for one that has just begun, halfway (as orders of magnitude
        go) to what has come of a source on average.
        """
        store = self._stores[source]
        if self.ended[self._graph.roles[source].relation]:
            return float(max(0, store.n_rows - self._history.routed[source]))
        n_rows = self.rows(source) + self.streamed[source]
        expected = store.expected_rows or self._announced(source)
        if expected > n_rows:
            return float(expected - n_rows)
        if expected:
            return 0.05 * n_rows  # more than announced
        seen = self.n_seen
        average = n_rows / max(1, seen - self._began_at[source], n_rows)
        by_rate = FORESEEN * seen * max(self._rate[source], 0.5 * average)
        like_others = sqrt(n_rows * seen / len(self._stores))
        return max(1.0, min(by_rate, max(MOST * n_rows, like_others)))

    def is_certain(self, source: int) -> bool:
        """Whether `rows_to_come` is known, not only expected."""
        if self.ended[self._graph.roles[source].relation]:
            return True
        return bool(self._stores[source].expected_rows or self._announced(source))

    def _announced(self, source: int) -> int:
        """Rows expected of a source that is not stored, by the share its selections let through."""
        if not self.streamed[source]:
            return 0
        return self._stores[source].offered_rows * self.streamed[source] // self._n_offered[source]

    def refresh(self, growth: float = 1.5) -> None:
        """Sample joins whose sides have grown by `growth` since they were sampled."""
        for edge in self._tree.edges:
            sizes = tuple(self.rows(s) + self.streamed[s] for s in (edge.left, edge.right))
            before = self._sampled_at.get(edge.number, (0, 0))
            if sizes[0] > before[0] * growth or sizes[1] > before[1] * growth:
                self._sampled_at[edge.number] = sizes
                self.selectivity[edge.number] = self.sampled(edge)
                self.n_samples += 1

    def sampled(
        self, edge: JoinEdge, window: int | None = None, probing: int | None = None
    ) -> float:
        """Matches by pairs of rows; from the last `window` rows of source `probing` if given."""
        if window is None and probing is None:
            known = self._sampled_in_place(edge)
            if known is not None:
                return known
        probing = edge.left if probing is None else probing
        stored = edge.other(probing)
        looked_up = self._words(edge, probing, window)
        held = self._words(edge, stored)
        if looked_up.shape[0] == 0 or held.shape[0] == 0:
            return 1.0 / max(1, self.rows(edge.left), self.rows(edge.right))
        n_pairs = float(looked_up.shape[0]) * float(held.shape[0])
        few, many = sorted((looked_up, held), key=len)
        return max(_UNSEEN, float(n_equal_pairs(few, many))) / n_pairs

    def _sampled_in_place(self, edge: JoinEdge) -> float | None:
        """`sampled` in the usual case: two large vectors of words that are keys of wanted rows."""
        sides = []
        for side, source in enumerate((edge.left, edge.right)):
            place = self._latest.get(source) or self._stores[source]
            column = place.column(edge.keys[0][side]) if place.n_rows > SAMPLED_ROWS else None
            if (
                len(edge.keys) > 1
                or self._graph.roles[source].flag is not None
                or not isinstance(column, FixedColumn)
                or not column.words_are_values
                or column.valid(None) is not None
            ):
                return None
            sides.append(column.words(None))
        left, right = self._places
        n_found = n_equal_picked(sides[0], left, sides[1], right)
        return max(_UNSEEN, float(n_found)) / (SAMPLED_ROWS * SAMPLED_ROWS)

    def _words(
        self, edge: JoinEdge, source: int, window: int | None = None
    ) -> npt.NDArray[np.uint64]:
        block = self._latest.get(source)
        place = self._stores[source] if block is None else block
        n_rows = place.n_rows
        first = 0 if window is None else max(0, n_rows - window)
        if n_rows - first <= SAMPLED_ROWS:
            rows = np.arange(first, n_rows, dtype=np.int32)
        else:
            places = self._places[0 if source == edge.left else 1]
            rows = (first + places * (n_rows - first)).astype(np.int32)
        return self.words_of(edge, source, rows, block)

    def words_of(
        self, edge: JoinEdge, source: int, rows: Ids, block: Block | None = None
    ) -> npt.NDArray[np.uint64]:
        """The key words of stored `rows` (or those of `block`), without rows that are NULL or not
        wanted in this role.
        """
        store = self._stores[source] if block is None else block
        flag = self._graph.roles[source].flag
        if flag is not None:
            rows = rows[store.column(flag).words(rows) != 0]
        side = 0 if source == edge.left else 1
        words, valid = key_words([(store.column(key[side]), rows) for key in edge.keys])
        return words if valid is None else words[valid != 0]

    def keys_of(
        self, edge: JoinEdge, source: int, rows: Ids
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_] | None]:
        """The key words of stored `rows`, and which of them can match at all (None: all)."""
        store, side = self._stores[source], 0 if source == edge.left else 1
        words, valid = key_words([(store.column(key[side]), rows) for key in edge.keys])
        is_asked = None if valid is None else valid != 0
        flag = self._graph.roles[source].flag
        if flag is not None:
            is_wanted = store.column(flag).words(rows) != 0
            is_asked = is_wanted if is_asked is None else is_asked & is_wanted
        return words, is_asked


@lru_cache(maxsize=8)
def _places(seed: int) -> npt.NDArray[np.float64]:
    """Where samples are taken. Rows that match may lie at the same places of both sides of a join: if
    both samples came from the same places, it would seem that everything matches.
    """
    places = np.random.default_rng(seed).random((2, SAMPLED_ROWS))
    places.flags.writeable = False  # all eddies of a process have the same
    return places


def matches(words: npt.NDArray[np.uint64], held: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """For each of `words` how many of `held` are equal."""
    ordered = np.sort(held)
    found: npt.NDArray[np.int64] = np.searchsorted(ordered, words, "right") - np.searchsorted(
        ordered, words, "left"
    )
    return found
