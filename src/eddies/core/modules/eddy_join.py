"""EddyJoin: a symmetric hash join that keeps the tuples routed to it; two dual STAIRs.

The original eddy's join module (Avnur and Hellerstein 2000, section 2.2): a tuple that comes is stored
on its side and meets everything stored on the other side, atomically. The tuple is then *absorbed*:
only its concatenations go on. A tuple may be a base row or an intermediate result, so what a join
holds depends on how tuples were routed before: the burden of history that STAIRs lift, by opening the
two halves (`eddies.core.stairs`).

*Exactly once* needs no stamps here: of any two tuples that match, the one that comes second finds the
first, and each tuple goes to exactly one of the joins open to it.

A tuple is not stored if nobody can look for it any more: see `Stair.close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import inf

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import keep
from eddies.core.expr import Expr
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree
from eddies.core.lineage import Signature, bits
from eddies.core.module import Outcome
from eddies.core.route import Route, RouteTable
from eddies.core.stairs.stair import History, Match, Stair, Tuples
from eddies.core.state.hash_index import PendingChains
from eddies.core.state.keys import KeySide
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["EddyJoin", "JoinStep", "cross", "tuples_of"]


class EddyJoin:
    """Both sides of one join: `stairs` by source.

    All joins of a query share one `history`; `note` keeps it up to date as base tuples are routed.
    """

    def __init__(
        self,
        graph: Graph,
        edge: JoinEdge,
        stores: Sequence[RowStore],
        history: History | None = None,
    ) -> None:
        self.name = edge.name
        self.edge = edge
        self.history = history or History(len(graph.roles))
        self.stairs = {
            source: Stair(graph, edge, source, stores[graph.roles[source].relation], self.history)
            for source in (edge.left, edge.right)
        }

    def dual(self, source: int) -> Stair:
        """The STAIR that tuples containing `source` probe."""
        return self.stairs[self.edge.other(source)]

    def note(self, source: int, ids: Ids) -> None:
        """Base tuples of `source` are being routed. Their rows are in the order of arrival."""
        routed = self.history.routed
        routed[source] = max(routed[source], int(ids[-1]) + 1)

    @property
    def n_stored(self) -> dict[int, int]:
        """Tuples stored on the side of each of the two sources."""
        return {source: stair.n_live for source, stair in self.stairs.items()}

    @property
    def n_bytes(self) -> int:
        return sum(stair.n_bytes for stair in self.stairs.values())

    def release(self) -> None:
        """Drop everything stored."""
        for stair in self.stairs.values():
            stair.release()


class JoinStep:
    """An EddyJoin as seen from one signature."""

    most_matches = inf

    def __init__(
        self, graph: Graph, tree: JoinTree, join: EddyJoin, signature: Signature, table: RouteTable
    ) -> None:
        self.name = join.name
        self._graph = graph
        self._join = join
        self._tree = tree
        self._table = table
        edge = join.edge
        self._own = edge.left if signature.sources >> edge.left & 1 else edge.right
        self._sources = signature.sources
        self._is_base = signature.sources == 1 << self._own
        self._stair, self._dual = join.stairs[self._own], join.dual(self._own)
        self._met: Signature | None = None  # of the tuples met last, and what is known of those
        self._to: Route | None = None
        self._checks: list[Expr] = []

    def prepare(self, scratch: Scratch) -> int:
        return self._dual.catch_up(scratch)

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        origin, stair = batch.origin, self._stair
        if origin.places[origin.driver] is origin.home:  # else its rows are stored nowhere
            if self._is_base:
                ids = batch.ids[self._own]
                assert ids is not None, "tuples stored in joins have a row id for every source"
                self._join.note(self._own, ids)
            if stair.takes(self._sources, origin.driver):
                stair.insert(tuples_of(batch), origin.driver, scratch)
        side = _keys(batch, stair)
        rows = self._dual.find_rows(side, scratch)
        if rows is not None:
            found, pending = rows
            met = self._met_rows(batch, found, scratch) if found else None
            return met, None if pending is None else self._next_rows(batch, pending, scratch)
        match, more = self._dual.probe(side, scratch)
        first = None if match is None else self._crossed(batch, match)
        if more is None:
            return first, None
        crossed = (self._crossed(batch, match) for match in more)
        return first, (piece for piece in crossed if piece is not None)

    def _crossed(self, batch: RoutedBatch, match: Match) -> RoutedBatch | None:
        to = self._after(batch, match.stored.signature)
        return _crossed(self._graph, batch, match, to, self._checks)

    def _met_rows(self, batch: RoutedBatch, found: int, scratch: Scratch) -> RoutedBatch | None:
        """`batch` joined with the rows of a view that the scratch has."""
        dual = self._dual
        to, rows = self._after(batch, dual.base), scratch.rows[:found]
        joined = batch.joined(to, dual.source, scratch.positions[:found], rows)
        return _checked(self._graph, joined, self._checks) if self._checks else joined

    def _next_rows(
        self, batch: RoutedBatch, pending: PendingChains | None, scratch: Scratch
    ) -> Iterator[RoutedBatch]:
        while pending is not None:
            found, pending = self._dual.find_more(pending, scratch)
            met = self._met_rows(batch, found, scratch) if found else None
            if met is not None:
                yield met

    def _after(self, batch: RoutedBatch, met: Signature) -> Route:
        """Where tuples go that come of `batch` and tuples of signature `met`."""
        if met is not self._met:  # mostly it is: a STAIR holds tuples of one signature
            old = batch.route.signature
            self._met, self._to = met, self._table.route(_united(old, met))
            self._checks = _newly_covered(self._tree, old, met)
        assert self._to is not None
        return self._to


def tuples_of(batch: RoutedBatch) -> Tuples:
    """The row ids of a batch as tuples that can be stored."""
    signature = batch.route.signature
    ids: dict[int, Ids] = {}
    for source in bits(signature.sources):
        vector = batch.ids[source]
        assert vector is not None, "tuples stored in joins have a row id for every source"
        ids[source] = vector
    return Tuples(signature, ids)


def cross(
    graph: Graph,
    tree: JoinTree,
    batch: RoutedBatch,
    own: Stair,
    dual: Stair,
    route: Callable[[Signature], Route],
    scratch: Scratch,
) -> Iterator[RoutedBatch]:
    """`batch` joined with the tuples in `dual`, in pieces of at least one row."""
    first, more = dual.probe(_keys(batch, own), scratch)
    for match in chain(() if first is None else (first,), more or ()):
        old, met = batch.route.signature, match.stored.signature
        to, checks = route(_united(old, met)), _newly_covered(tree, old, met)
        joined = _crossed(graph, batch, match, to, checks)
        if joined is not None:
            yield joined


def _keys(batch: RoutedBatch, own: Stair) -> KeySide:
    """The columns by which `batch` looks for tuples on the other side of the join."""
    place, ids = batch.origin.places[own.source], batch.ids[own.source]
    return [(place.column(name), ids) for name in own.columns]


def _united(old: Signature, met: Signature) -> Signature:
    return Signature(old.sources | met.sources, old.done | met.done)


def _newly_covered(tree: JoinTree, old: Signature, met: Signature) -> list[Expr]:
    """Predicates that tuples of the two signatures cover only together."""
    both = old.sources | met.sources
    return [
        predicate
        for mask, predicate in tree.checks
        if mask & ~both == 0 and mask & ~old.sources and mask & ~met.sources
    ]


def _crossed(
    graph: Graph, batch: RoutedBatch, match: Match, to: Route, checks: Sequence[Expr]
) -> RoutedBatch | None:
    """`batch` joined with the tuples it met, `checks` made on the way; None if nothing passes."""
    joined = batch.picked(to, match.positions)
    for source in match.stored.ids:
        if to.live >> source & 1:
            joined.ids[source] = match.stored.ids[source]
    return _checked(graph, joined, checks) if checks else joined


def _checked(graph: Graph, joined: RoutedBatch, checks: Sequence[Expr]) -> RoutedBatch | None:
    """What passes all `checks`."""
    for predicate in checks:
        kept = keep(predicate, joined.column, joined.n_rows, graph.functions)
        if kept is not None:
            joined = joined.kept(joined.route, kept)
            if joined.n_rows == 0:
                return None
    return joined
