"""state="joins": EddyJoins along a spanning tree of the query, which keep what is routed to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move, legal_joins
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.join_tree import make_join_tree
from eddies.core.lineage import Signature
from eddies.core.module import Module, Step
from eddies.core.modules.eddy_join import EddyJoin, JoinStep
from eddies.core.modules.stem import SteM
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import BaseBatches, Resumed, select_step
from eddies.errors import OptionError

__all__ = ["JoinsMode"]


class JoinsMode:
    """The original eddy's architecture. SteMs hold the rows; the joins hold tuples of row ids."""

    stores_on_the_way = True
    n_pending = 0

    def __init__(self, graph: Graph, stems: Sequence[SteM], stamps: StampRule) -> None:
        self._graph = graph
        self._stems = stems
        self._stamps = stamps
        self._base = BaseBatches(graph, stems)
        self.tree = make_join_tree(graph)
        self.joins = [EddyJoin(graph, edge) for edge in self.tree.edges]
        self.modules: list[Module] = [*stems, *self.joins]

    def check(self, n_threads: int) -> None:
        if n_threads > 1:
            raise OptionError(
                f"threads={n_threads} with state='joins': joins store whatever goes through "
                "them, so one thread must do it; use threads=1, or state='stems'"
            )

    def module_names(self) -> list[str]:
        return [join.name for join in self.joins]

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        return [False] * len(self._graph.relations)

    def take_in(self, relation: int, block: Block) -> Iterator[RoutedBatch]:
        before = self._base.lengths()
        self._stems[relation].build(block)
        after = self._base.lengths()
        for source_id in self._graph.relations[relation].roles:
            limits = self._stamps.limits(self._graph, source_id, before, after)
            rows = self._base.wanted(source_id, block)
            batch = self._base.stored_batch(source_id, block, limits, before[relation], rows)
            if batch.n_rows:
                yield batch

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        raise AssertionError("joins keep every row")

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return legal_joins(self._graph, self.tree, signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if move.optional >= 0:
            return select_step(self._graph, move, signature, table)
        join = JoinStep(self._graph, self.tree, self.joins[move.join], signature, table)
        return join, Candidate(move.join, join.name, "probe")

    def end(self, relation: int) -> None:
        pass

    def at_safe_point(self) -> None:
        pass

    def resume(self) -> Resumed | None:
        return None
