"""state="auto": SteMs, and STAIRs as soon as they pay.

SteMs keep nothing that depends on routing, cost nothing to keep and stream the last source by
unstored; most queries need no more. They compute intermediate results again for every row that needs
them, though, and where rows keep arriving from several sources that can cost many times what keeping
them would. So: begin with SteMs; now and then, when nothing waits, estimate from the rows that have
come what the rows to come will cost with SteMs and with the best intermediate results kept, building
those included (`stairs.migration.CostAware`). When keeping is cheaper, the same rows go on as STAIRs.
From then on the decision is renewed all the time, and may be to keep nothing again.

The way back needs no change of mode: STAIRs that hold only rows are SteMs.

Known limitations: cyclic queries, several threads and a memory budget stay with SteMs, which probe by
all equalities at once, share work and spill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.join_tree import make_join_tree
from eddies.core.lineage import Signature
from eddies.core.module import Module, Step
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.stairs.plan import Planner
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import Resumed, StateMode
from eddies.core.state_modes.stairs import StairsMode
from eddies.core.state_modes.stems import StemsMode
from eddies.errors import UnsupportedError

__all__ = ["AutoMode", "may_need_stairs"]


def may_need_stairs(graph: Graph, options: Options) -> bool:
    """Whether intermediate results could ever be worth keeping: see the known limitations."""
    if len(graph.roles) < 3 or options.threads > 1 or options.memory is not None:
        return False
    if options.policy not in ("auto", "cumulative"):
        return False
    try:
        tree = make_join_tree(graph)
    except UnsupportedError:
        return False
    is_acyclic = len(tree.checks) == len(graph.filters)
    return is_acyclic and Planner(tree, len(graph.roles)).is_able


class AutoMode(StateMode):
    """Delegates to SteMs, then to the STAIRs that `make_stairs` makes."""

    stores_on_the_way = False

    def __init__(
        self,
        graph: Graph,
        stems: Sequence[SteM],
        stamps: StampRule,
        make_stairs: Callable[[], StairsMode],
    ) -> None:
        self._stems_mode = StemsMode(graph, stems, stamps)
        self._stairs_mode = make_stairs()
        self._now: StemsMode | StairsMode = self._stems_mode
        self._graph = graph
        self._stems = stems
        self._ended = [False] * len(graph.relations)
        self._tables: list[RouteTable] = []
        self._has_begun = False
        self._is_before_last = False  # rows of the last relation are about to come

    @property
    def modules(self) -> list[Module]:  # type: ignore[override]  # of whichever mode is in force
        return self._now.modules

    @property
    def n_pending(self) -> int:
        return 0

    @property
    def stairs(self) -> StairsMode | None:
        """The STAIRs in force, or None while there are SteMs."""
        return self._now if isinstance(self._now, StairsMode) else None

    def check(self, n_threads: int) -> None:
        self._stems_mode.check(n_threads)

    def module_names(self) -> list[str]:
        return self._stems_mode.module_names()

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        self._stairs_mode.skips_build(ended)
        return self._stems_mode.skips_build(ended)

    def take_in(self, relation: int, block: Block) -> Iterator[RoutedBatch]:
        if self._now is self._stems_mode and self._begins_in_turns(relation):
            self._switch()
        elif not self._stems[relation].store.n_rows:
            for source in self._graph.relations[relation].roles:
                self._stairs_mode.statistics.begin(source)
        return self._now.take_in(relation, block)

    def _begins_in_turns(self, relation: int) -> bool:
        """Whether these are the first rows of the last relation to begin, while others go on.

        No row has been routed before: nothing could come of it. And what to keep is best decided before
        the first result is computed.
        """
        if self._has_begun or self._ended.count(False) < 2:
            return False
        sizes = [stem.store.n_rows for stem in self._stems]
        self._has_begun = all(n or number == relation for number, n in enumerate(sizes))
        return self._has_begun and sizes[relation] == 0

    def _should_switch(self) -> bool:
        """Whether to go on with STAIRs. Not if SteMs have removed dead ends (`reduction`): STAIRs know
        rows by ids, and there is less to save.
        """
        is_whole = all(stem.generation == 0 for stem in self._stems)
        return is_whole and self._stairs_mode.would_pay()

    def _switch(self) -> None:
        """From now on rows are kept as STAIRs. Every row stored must have been routed."""
        self._now = self._stairs_mode
        self._stairs_mode.take_over()
        for table in self._tables:
            table.forget()

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        if self._now is not self._stems_mode:
            return self._now.drive(relation, block)
        source = self._graph.relations[relation].roles[0]
        self._stairs_mode.statistics.note_streamed(source, block)
        if self._should_switch():
            self._switch()
            self._stairs_mode.at_safe_point()
        elif self._is_before_last:
            self._is_before_last = False
            self._stems_mode.before_last(relation)
        return self._stems_mode.drive(relation, block)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return self._now.moves(signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if table not in self._tables:
            self._tables.append(table)
        return self._now.step(move, signature, table)

    def end(self, relation: int) -> None:
        self._ended[relation] = True
        self._stairs_mode.end(relation)

    def before_last(self, relation: int) -> None:
        """SteMs would remove dead ends now, and there would be no way to STAIRs any more. Whether those
        pay is known when the first rows of the last relation can be sampled: see `drive`.
        """
        if self._now is self._stems_mode:
            self._is_before_last = True
        else:
            self._now.before_last(relation)

    def at_safe_point(self) -> None:
        if self._now is self._stairs_mode:
            self._stairs_mode.at_safe_point()

    def resume(self) -> Resumed | None:
        """Nothing waits: every row stored has been routed, so the state may change hands."""
        if self._now is self._stems_mode and self._should_switch():
            self._switch()
        return self._now.resume()
