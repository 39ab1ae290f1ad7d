"""Demotion and promotion: the two operations that rewrite history (sections 3.2 and 3.3 of STAIRs).

    demotion(S.b, rs, s)       rs in S.b is replaced by its part s
    promotion(S.b, s, S.a)     s leaves S.b for S.a, meets the dual R.a, and what comes of it, r1s and
                               r2s, takes its place in S.b

Both keep Invariant A; Invariant B is enforced by the STAIRs as tuples are put in. Both are applied at
points of stasis only: between two base batches, when everything derived from the last has been
processed. Whatever operations are applied then, in whatever order, every result is produced once.

A part must be connected in the join tree (the paper does not say so): if a tuple r·s·t could become
r·t, later probes would join s again without checking that it fits both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eddies.core.batch import Ids, Origin, RoutedBatch
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinTree
from eddies.core.lineage import Signature, bits
from eddies.core.modules.eddy_join import EddyJoin, cross, tuples_of
from eddies.core.modules.stem import SteM
from eddies.core.route import Route
from eddies.core.stairs.stair import History, Stair, Tuples
from eddies.core.state.scratch import Scratch
from eddies.errors import StateError

__all__ = ["Stairs", "is_connected"]

_PIECE_ROWS = 65_536  # tuples promoted at a time: bounds what a promotion holds in flight


def is_connected(tree: JoinTree, mask: int) -> bool:
    """Whether the sources of `mask` form one piece of the join tree."""
    if not mask:
        return False
    reached = mask & -mask
    while True:
        grown = reached
        for edge in tree.edges:
            ends = 1 << edge.left | 1 << edge.right
            if ends & ~mask == 0 and ends & grown:
                grown |= ends
        if grown == reached:
            return reached == mask
        reached = grown


class Stairs:
    """All STAIRs of a query: two for each join of its spanning tree.

    `n_handled` counts tuples that promotions probed with or produced; what they stored counts in
    `n_stored` with everything else that was ever stored.
    """

    def __init__(self, graph: Graph, tree: JoinTree, stems: Sequence[SteM]) -> None:
        self.graph = graph
        self.tree = tree
        self.stems = stems
        self.history = History(len(graph.roles))
        stores = [stem.store for stem in stems]
        self.joins = [EddyJoin(graph, edge, stores, self.history) for edge in tree.edges]
        self.n_handled = 0
        self._stores = stores
        self._source_ids = {role.name: role.source_id for role in graph.roles}

    def all_stairs(self) -> list[Stair]:
        """Every STAIR, join by join."""
        return [stair for join in self.joins for stair in join.stairs.values()]

    @property
    def n_stored(self) -> int:
        """Tuples that were put into pools so far, wherever they are now."""
        return sum(stair.n_inserted for stair in self.all_stairs())

    def stair(self, source: int, join: int) -> Stair:
        """The STAIR of `source` at join number `join`."""
        return self.joins[join].stairs[source]

    def dual(self, stair: Stair) -> Stair:
        """The other half of the same join."""
        return self.joins[stair.edge.number].dual(stair.source)

    def side(self, stair: Stair) -> int:
        """The sources on the STAIR's side of its join, as a mask."""
        mask = 1 << stair.source
        while True:
            grown = mask
            for edge in self.tree.edges:
                ends = 1 << edge.left | 1 << edge.right
                if edge is not stair.edge and ends & mask:
                    grown |= ends
            if grown == mask:
                return mask
            mask = grown

    def kept_forms(self) -> dict[int, list[Tuples]]:
        """All tuples over some sets of sources, by mask: those that STAIRs hold as complete forms."""
        return {
            stair.form: list(stair)
            for stair in self.all_stairs()
            if stair.form and not stair.is_on_demand
        }

    def demote(
        self, stair: Stair, signature: Signature, to: int, scratch: Scratch, rows: Ids | None = None
    ) -> None:
        """Replace tuples of `signature` in `stair` by their parts over the sources `to`.

        `rows` are rows of the pool; all of them when None.
        """
        if signature not in stair.pools:
            raise StateError(
                f"STAIR {stair.name} holds no tuples of {self._names(signature.sources)}"
            )
        if not to >> stair.source & 1 or to & ~signature.sources or not is_connected(self.tree, to):
            raise StateError(
                f"a tuple of {self._names(signature.sources)} in STAIR {stair.name} cannot be demoted "
                f"to {self._names(to)}: the part must contain {self._names(1 << stair.source)} and be "
                "connected in the join tree"
            )
        taken = stair.take_out(signature, rows)
        done = sum(
            1 << number
            for number in bits(signature.done)
            if self.graph.optionals[number].mask & ~to == 0
        )
        parts = Tuples(Signature(to, done), {s: ids for s, ids in taken.ids.items() if to >> s & 1})
        stair.put(parts, scratch)

    def promote(
        self,
        stair: Stair,
        signature: Signature,
        to: Stair,
        scratch: Scratch,
        rows: Ids | None = None,
    ) -> int:
        """Move tuples of `signature` from `stair` to `to`; what they meet in the dual of `to` takes
        their place. Returns how many tuples that is.
        """
        beyond = to.edge.other(to.source)
        if signature not in stair.pools:
            raise StateError(
                f"STAIR {stair.name} holds no tuples of {self._names(signature.sources)}"
            )
        if to is stair or not signature.sources >> to.source & 1 or signature.sources >> beyond & 1:
            raise StateError(
                f"a tuple of {self._names(signature.sources)} in STAIR {stair.name} cannot be promoted "
                f"to STAIR {to.name}: that must be another STAIR of a source it contains, whose join "
                "leads to a source it lacks"
            )
        taken = stair.take_out(signature, rows)
        made = self.joined(taken, to, scratch)
        to.put(taken, scratch)
        for tuples in made:
            stair.put(tuples, scratch)
        self.history.is_rewritten = True
        return sum(tuples.n_rows for tuples in made)

    def joined(
        self, tuples: Tuples, own: Stair, scratch: Scratch, mark: Sequence[int] | None = None
    ) -> list[Tuples]:
        """`tuples`, which contain the source of `own`, joined with the dual of `own`.

        With `mark`, only results whose rows are all below it, by source.
        """
        dual = self.dual(own)
        dual.catch_up(scratch)
        made: list[Tuples] = []
        for start in range(0, tuples.n_rows, _PIECE_ROWS):
            piece = {s: v[start : start + _PIECE_ROWS] for s, v in tuples.ids.items()}
            batch = self.batch(Tuples(tuples.signature, piece))
            for batch_made in cross(self.graph, self.tree, batch, own, dual, Route, scratch):
                result = tuples_of(batch_made)
                if mark is not None:
                    result = _below(result, mark)
                if result.n_rows:
                    made.append(result)
        self.n_handled += tuples.n_rows + sum(result.n_rows for result in made)
        return made

    def rows(self, source: int, start: int, stop: int) -> Tuples:
        """Base tuples of the rows `start:stop` that `source` wants."""
        rows = np.arange(start, stop, dtype=np.int32)
        role = self.graph.roles[source]
        if role.flag is not None:
            wanted = self._stores[role.relation].column(role.flag).words(rows)
            rows = rows[wanted != 0]
        return Tuples(Signature(1 << source), {source: rows})

    def demote_to_rows(self, stair: Stair) -> None:
        """Let `stair` hold every row of its relation and nothing else: the state of a SteM.

        It is free (the SteM is there anyway), and right at any point of stasis: whatever part of a
        tuple was here, its row of this source is here now.
        """
        stair.show(self.stems[self.graph.roles[stair.source].relation])

    def batch(self, tuples: Tuples) -> RoutedBatch:
        """Stored tuples as a batch that predicates and probes can read."""
        places = [self._stores[role.relation] for role in self.graph.roles]
        driver = bits(tuples.signature.sources)[0]
        limits = tuple(store.n_rows for store in places)
        origin = Origin(driver, places, limits, -1, places[driver], self._source_ids)
        ids: list[Ids | None] = [None] * len(places)
        for source, vector in tuples.ids.items():
            ids[source] = np.ascontiguousarray(vector)
        return RoutedBatch(Route(tuples.signature), origin, ids, tuples.n_rows)

    def _names(self, mask: int) -> str:
        return "{" + ", ".join(self.graph.roles[source].name for source in bits(mask)) + "}"


def _below(tuples: Tuples, mark: Sequence[int]) -> Tuples:
    """The tuples whose rows are all below `mark`."""
    kept = np.logical_and.reduce([ids < mark[source] for source, ids in tuples.ids.items()])
    if kept.all():
        return tuples
    return tuples.picked(np.flatnonzero(kept).astype(np.int32))
