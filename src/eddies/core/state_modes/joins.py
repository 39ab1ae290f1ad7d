"""state="joins": EddyJoins along a spanning tree of the query, which keep what is routed to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move, is_result, legal_joins, may_skip_build
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree, make_join_tree
from eddies.core.lineage import Signature
from eddies.core.live import EVERYTHING, Live
from eddies.core.module import Module, Step
from eddies.core.modules.eddy_join import JoinStep
from eddies.core.modules.stem import SteM
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.stairs.operations import Stairs
from eddies.core.stairs.plan import World
from eddies.core.stairs.statistics import Statistics
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import BaseBatches, Resumed, StateMode, select_step
from eddies.errors import OptionError

__all__ = ["JoinsMode"]


class JoinsMode(StateMode):
    """The original eddy's architecture: two STAIRs a join, never rewritten.

    SteMs hold the rows; the STAIRs hold tuples of row ids. A source with one join only keeps all its
    rows there, so its STAIR is a view of the SteM.
    """

    name = "joins"
    stores_on_the_way = True
    n_pending = 0

    def __init__(self, graph: Graph, stems: Sequence[SteM], stamps: StampRule) -> None:
        self._graph = graph
        self._stems = stems
        self._stamps = stamps
        self._base = BaseBatches(graph, stems)
        self._ended = [False] * len(graph.relations)
        self._may_close = False  # whether something has ended that is not closed yet
        self._taken = [0] * len(graph.roles)  # by source: rows below have been given out as batches
        self._given_out = [0] * len(graph.roles)  # the same, before the last batch
        self._streams = [False] * len(graph.relations)  # whether rows come that are not stored
        self._driven: tuple[int, list[int], tuple[int, ...]] | None = None
        self._budget_bytes: int | None = None
        self._plant(make_join_tree(graph))

    def _plant(self, tree: JoinTree) -> None:
        """Make empty joins along `tree`."""
        self.tree = tree
        self.stairs = Stairs(self._graph, tree, self._stems)
        self._live = Live(self._graph, tree)
        self.joins = self.stairs.joins
        self._all_stairs = self.stairs.all_stairs()
        self.modules: list[Module] = [*self._stems, *self.joins]
        self._closed = 0  # sources that are complete, as a mask
        self.statistics = Statistics(self._graph, tree, self._stems, self.stairs.history)
        self._sides = {id(stair): self.stairs.side(stair) for stair in self.stairs.all_stairs()}
        self._show_leaves()

    def _show_leaves(self) -> None:
        n_joins = [0] * len(self._graph.roles)
        for edge in self.tree.edges:
            n_joins[edge.left] += 1
            n_joins[edge.right] += 1
        for stair in self.stairs.all_stairs():
            has_predicate = any(o.mask >> stair.source & 1 for o in self._graph.optionals)
            if n_joins[stair.source] == 1 and not has_predicate:
                self.stairs.demote_to_rows(stair)
        # A row of such a source has nowhere else to go: its STAIR holds what is routed there.
        self.stairs.history.is_rewritten = False

    def check(self, n_threads: int) -> None:
        if n_threads > 1:
            raise OptionError(
                f"threads={n_threads} with state='{self.name}': joins store whatever goes through "
                "them, so one thread must do it; use threads=1, or state='stems'"
            )

    def module_names(self) -> list[str]:
        return [join.name for join in self.joins]

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        numbers = range(len(self._graph.relations))
        self._streams = [may_skip_build(self._graph, number, ended) for number in numbers]
        self._may_close = True
        self.still_until = 0.0
        return self._streams

    def take_in(self, relation: int, block: Block) -> list[RoutedBatch]:
        before = self._base.lengths()
        if not before[relation]:
            for source_id in self._graph.relations[relation].roles:
                self.statistics.begin(source_id)
        self._stems[relation].build(block)
        after = self._base.lengths()
        batches = []
        for source_id in self._graph.relations[relation].roles:
            limits = self._stamps.limits(self._graph, source_id, before, after)
            rows = self._base.wanted(source_id, block)
            batch = self._base.stored_batch(source_id, block, limits, before[relation], rows)
            if batch.n_rows:
                ids = batch.ids[source_id]
                assert ids is not None
                self._given_out[source_id] = self._taken[source_id]
                self._taken[source_id] = int(ids[-1]) + 1
                batches.append(batch)
        return batches

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        lengths = self._base.lengths()
        source_id = self._graph.relations[relation].roles[0]
        driven = self._driven
        if driven is None or driven[0] != source_id or driven[1] != lengths:
            # Nothing is stored any more: what holds for this batch holds for all that follow.
            limits = self._stamps.limits(self._graph, source_id, lengths, lengths)
            driven = self._driven = source_id, lengths, limits
        self.statistics.note_streamed(source_id, block)
        return self._base.batch(source_id, block, driven[2], -1)

    def live(self, signature: Signature) -> int:
        """Tuples that may be stored keep all their ids: others may look at them there."""
        return self._live.at(signature) if is_result(self._graph, signature) else EVERYTHING

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return legal_joins(self._graph, self.tree, signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if move.optional >= 0:
            return select_step(self._graph, move, signature, table)
        join = JoinStep(self._graph, self.tree, self.joins[move.join], signature, table)
        edge = self.tree.edges[move.join]
        own = edge.left if signature.sources >> edge.left & 1 else edge.right
        number = len(self._graph.roles) + len(self._graph.optionals) + move.join
        return join, Candidate(
            number, join.name, "probe", forecast=partial(self._forecast, edge, own)
        )

    def moves_over_rows(self, signature: Signature) -> tuple[Move, ...]:
        """Where `signature` may go when nothing but rows is kept: there every join is complete."""
        return legal_joins(self._graph, self.tree, signature)

    def _forecast(self, edge: JoinEdge, own: int) -> float:
        """Tuples that come of one that contains `own` joined with everything beyond `edge`."""
        self.statistics.refresh(1.2)
        rows = [float(n) for n in self.stairs.history.routed]
        beyond = self._sides[id(self.stairs.dual(self.stairs.stair(own, edge.number)))]
        selectivity = self.statistics.selectivity
        return World(rows, selectivity, self.tree).size(beyond) * selectivity[edge.number]

    def end(self, relation: int) -> None:
        self._ended[relation] = self._may_close = True
        self.statistics.ended[relation] = True
        self.still_until = 0.0

    def at_safe_point(self) -> None:
        if self._may_close:
            self._close()
        if self._budget_bytes is not None:
            self._share_memory()

    # Memory

    def keep_within(self, budget_bytes: int) -> None:
        """Pools of tuples must leave room for rows: see `_share_memory`."""
        self._budget_bytes = budget_bytes
        for stair in self.stairs.all_stairs():
            stair.may_become_view_of(self._stems[self._graph.roles[stair.source].relation])
        self._share_memory()

    def _share_memory(self) -> None:
        """Pools get what rows and their indexes leave, with room for those to grow by a half until the
        next look; the largest go when rows have taken their place.
        """
        budget = self._budget_bytes
        if budget is None:
            return
        history = self.stairs.history
        rows = sum(stem.n_bytes for stem in self._stems)
        history.allowance = max(0, budget - rows * 3 // 2)
        while not history.has_room(0):
            largest = max(self.stairs.all_stairs(), key=lambda stair: stair.n_bytes_at_most)
            self.stairs.demote_to_rows(largest)
            history.n_demoted += 1

    # Ends

    def _close(self) -> None:
        """STAIRs that nobody will probe any more need not keep anything."""
        closed = self._closed
        self._may_close = False
        for role in self._graph.roles:
            source = role.source_id
            if not self._ended[role.relation] or self._streams[role.relation]:
                continue
            if self.stairs.history.routed[source] >= self._taken[source]:
                closed |= 1 << source
            else:
                self._may_close = True  # when its last rows have been routed
        if closed == self._closed:
            return
        self._closed = closed
        for stair in self.stairs.all_stairs():
            beyond = self._sides[id(self.stairs.dual(stair))]
            if beyond & ~closed == 0:
                stair.close()

    def resume(self) -> Resumed | None:
        needs_care = self._may_close or self._budget_bytes is not None
        self.still_until = 0.0 if needs_care else self._calm_until()
        return None

    def _calm_until(self) -> float:
        """`still_until` if nothing ends and there is no budget: these joins are never rearranged."""
        return inf
