"""What is known of sizes and selectivities, from the rows themselves (section 4.2 of STAIRs).

The state after any history is a matter of which rows have come and how they match; so statistics are
taken from the stored rows, not from what happened to be routed where. For each join a sample of one
side is looked up in a sample of the other: matches by pairs is the join's selectivity. That costs
about a millisecond a join, is repeated when sizes have grown, and says the same whatever was routed
where before.

With `window` the sample of a side comes from its latest rows: selectivities of data whose character
depends on when it arrives (section 5.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree
from eddies.core.modules.stem import SteM
from eddies.core.stairs.stair import History
from eddies.core.state.columns import Ids
from eddies.core.state.keys import key_words

__all__ = ["Statistics"]

PROBING_ROWS = 512
STORED_ROWS = 8192
AT_LEAST = 1.0  # of the mean of all sources: what is foreseen for one that has just begun
FORESEEN = 1.0  # rows to come for each that has come, where nobody knows
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
        self._rng = np.random.default_rng(seed)
        self._sampled_at: dict[int, tuple[int, int]] = {}
        self.selectivity = [0.0] * len(tree.edges)
        self.ended = [False] * len(graph.relations)
        self.streamed = [0] * len(graph.roles)  # rows that came but were not stored
        self.n_samples = 0

    def rows(self, source: int) -> int:
        """Rows of `source` that are stored."""
        return self._stores[source].n_rows

    def rows_to_come(self, source: int) -> float:
        """How many more are expected: what the host said, else as many as have come, but of a source
        that has just begun no fewer than a share of the mean.
        """
        store = self._stores[source]
        if self.ended[self._graph.roles[source].relation]:
            return float(max(0, store.n_rows - self._history.routed[source]))
        n_rows = self.rows(source) + self.streamed[source]
        expected = store.expected_rows
        if expected > n_rows:
            return float(expected - n_rows)
        if expected:
            return 0.05 * n_rows  # more than announced
        sizes = [
            n + more for n, more in zip(map(self.rows, self._sources), self.streamed, strict=True)
        ]
        return max(FORESEEN * n_rows, AT_LEAST * sum(sizes) / len(sizes), 1.0)

    def refresh(self, growth: float = 1.5) -> None:
        """Sample joins whose sides have grown by `growth` since they were sampled."""
        for edge in self._tree.edges:
            sizes = (self.rows(edge.left), self.rows(edge.right))
            before = self._sampled_at.get(edge.number, (0, 0))
            if sizes[0] > before[0] * growth or sizes[1] > before[1] * growth:
                self._sampled_at[edge.number] = sizes
                self.selectivity[edge.number] = self.sampled(edge)
                self.n_samples += 1

    def sampled(
        self, edge: JoinEdge, window: int | None = None, probing: int | None = None
    ) -> float:
        """Matches by pairs of rows; from the last `window` rows of source `probing` if given."""
        probing = edge.left if probing is None else probing
        stored = edge.other(probing)
        looked_up = self._words(edge, probing, PROBING_ROWS, window)
        held = self._words(edge, stored, STORED_ROWS)
        if looked_up.shape[0] == 0 or held.shape[0] == 0:
            return 1.0 / max(1, self.rows(edge.left), self.rows(edge.right))
        n_pairs = float(looked_up.shape[0]) * float(held.shape[0])
        return max(_UNSEEN, float(matches(looked_up, held).sum())) / n_pairs

    def _words(
        self, edge: JoinEdge, source: int, most: int, window: int | None = None
    ) -> npt.NDArray[np.uint64]:
        n_rows = self.rows(source)
        first = 0 if window is None else max(0, n_rows - window)
        if n_rows - first <= most:
            rows = np.arange(first, n_rows, dtype=np.int32)
        else:
            rows = self._rng.integers(first, n_rows, most, dtype=np.int32)
        return self.words_of(edge, source, rows)

    def words_of(self, edge: JoinEdge, source: int, rows: Ids) -> npt.NDArray[np.uint64]:
        """The key words of `rows`, without those that are NULL or not wanted in this role."""
        store = self._stores[source]
        flag = self._graph.roles[source].flag
        if flag is not None:
            rows = rows[store.column(flag).words(rows) != 0]
        side = 0 if source == edge.left else 1
        words, valid = key_words([(store.column(key[side]), rows) for key in edge.keys])
        return words if valid is None else words[valid != 0]


def matches(words: npt.NDArray[np.uint64], held: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """For each of `words` how many of `held` are equal."""
    ordered = np.sort(held)
    found: npt.NDArray[np.int64] = np.searchsorted(ordered, words, "right") - np.searchsorted(
        ordered, words, "left"
    )
    return found
