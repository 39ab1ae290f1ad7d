"""state="auto": SteMs; STAIRs as soon as they pay; orders for parts of the data where it has such.

SteMs keep nothing that depends on routing, cost nothing to keep and stream the last source by
unstored; most queries need no more. They compute intermediate results again for every row that needs
them, though, and where rows keep arriving from several sources that can cost many times what keeping
them would. So: begin with SteMs; now and then, when nothing waits, estimate from the rows that have
come what the rows to come will cost with SteMs and with the best intermediate results kept, building
those included (`stairs.migration.CostAware`). When keeping is cheaper, the same rows go on as STAIRs.
From then on the decision is renewed all the time, and may be to keep nothing again.

The way back needs no change of mode: STAIRs that hold only rows are SteMs.

*Parts.* Where data has horizontal partitions, no one order is good for all rows. Now and then, and when
steps suddenly find far more than they did (`stairs.drift`), a sample of each source with several joins
is searched for parts (`stairs.partitions`). If orders of their own pay, the same rows go on regionally
(`regional`). When no parts are left, STAIRs take over again; the next parts must pay twice as much.

*A look is not free.* It takes as long as ten thousand tuples, which is more than a small query has. So
STAIRs are not even made before it is likely that a look pays for itself:

* when ten thousand tuples were work done again (`stairs.repeats`), which costs a glance at the router's
  counters; and a glance is worth its microseconds only when so many more tuples were handled than
  every row needs;
* when a hundred looks' worth of tuples was handled, whatever they were;
* when the last relation begins late, after many batches of others that go on, before anything was
  routed: to keep the right things from the first result on saves most;
* when rows of the last relation are about to multiply. Dead ends are removed before (`reduction`): that
  costs a look-up a row, and samples are taken of what is left: they cannot tell that a join matches
  nothing, and an intermediate result that leads nowhere would seem to pay.

Known limitations: cyclic queries, several threads and a memory budget stay with SteMs, which probe by
all equalities at once, share work and spill. Rows that are pushed without a poll in between are routed
before the next look. A source whose rows are never stored is not searched for parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinTree, make_join_tree
from eddies.core.lineage import Signature
from eddies.core.module import Module, Step
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.stairs.partitions import pays
from eddies.core.stairs.plan import Planner
from eddies.core.stairs.repeats import Repeats
from eddies.core.stairs.search import Search
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import Resumed, StateMode
from eddies.core.state_modes.joins import JoinsMode
from eddies.core.state_modes.regional import RegionalMode
from eddies.core.state_modes.stairs import StairsMode
from eddies.core.state_modes.stems import StemsMode
from eddies.errors import UnsupportedError

__all__ = ["AutoMode", "tree_of_stairs"]

LOOK = 10_000  # tuples that take as long as a look
SHARE = 0.01  # of all work that looks may take, if nothing is seen to be done again
GROWTH = 1.5  # of work between two looks
LATE_ROWS, LATE_BATCHES = 4000, 6  # of other relations before the last begins, to call it late


def tree_of_stairs(graph: Graph, options: Options) -> JoinTree | None:
    """The tree along which intermediate results could be worth keeping; None if they never could: see
    the known limitations.
    """
    if len(graph.roles) < 3 or options.threads > 1 or options.memory is not None:
        return None
    if options.policy not in ("auto", "cumulative"):
        return None
    try:
        tree = make_join_tree(graph)
    except UnsupportedError:
        return None
    is_acyclic = len(tree.checks) == len(graph.filters)
    return tree if is_acyclic and Planner(tree, len(graph.roles)).is_able else None


class AutoMode(StateMode):
    """Delegates to SteMs, then to STAIRs, which `make_stairs` makes when a look first needs them, or to
    the regional mode that `make_regional` makes when parts of the data want orders of their own.
    """

    stores_on_the_way = False

    def __init__(
        self,
        graph: Graph,
        tree: JoinTree,
        stems: Sequence[SteM],
        stamps: StampRule,
        make_stairs: Callable[[], StairsMode],
        make_regional: Callable[[], RegionalMode],
        seed: int = 0,
    ) -> None:
        self._stems_mode = StemsMode(graph, stems, stamps)
        self._now: StemsMode | StairsMode | RegionalMode = self._stems_mode
        self._make_stairs = make_stairs
        self._make_regional = make_regional
        self._made: StairsMode | None = None
        self._graph = graph
        self._stems = stems
        self._stores = [stems[role.relation].store for role in graph.roles]
        self._ended = [False] * len(graph.relations)
        self._tables: list[RouteTable] = []
        self._began_at = [0] * len(graph.roles)  # rows of all that had come before the first
        self._n_streamed = [0] * len(graph.roles)  # rows that came but were not stored
        self._n_offered = 0  # of these, before selections
        self._latest: Block | None = None  # of these
        self._n_batches = 0  # stored
        self._repeats = Repeats(tree, len(graph.roles))
        self._next_glance = LOOK  # at which count of tuples handled to count those handled again
        self._look_at, self._look_again_at = int(LOOK / SHARE), LOOK  # of these two
        self._search = Search(graph, stems, seed)
        self._n_parted = 0  # how often parts were found so far
        self.still_until = float(LOOK)
        self._multiplies = False  # whether rows of the last relation, about to come, may multiply

    @property
    def modules(self) -> list[Module]:  # type: ignore[override]  # of whichever mode is in force
        return self._now.modules

    @property
    def n_pending(self) -> int:
        return 0

    @property
    def stairs(self) -> JoinsMode | None:
        """The STAIRs in force, or None while there are SteMs."""
        return self._now if isinstance(self._now, JoinsMode) else None

    @property
    def is_regional(self) -> bool:
        """Whether parts of the data have orders of their own."""
        return isinstance(self._now, RegionalMode)

    def check(self, n_threads: int) -> None:
        self._stems_mode.check(n_threads)

    def module_names(self) -> list[str]:
        return self._stems_mode.module_names()

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        for mode in self._modes_made():
            mode.skips_build(ended)
        return self._stems_mode.skips_build(ended)

    def _modes_made(self) -> list[JoinsMode]:
        """STAIRs that are in force, or may be."""
        found: list[JoinsMode] = [] if self._made is None else [self._made]
        if self._now is not self._stems_mode and isinstance(self._now, RegionalMode):
            found.append(self._now)
        return found

    def take_in(self, relation: int, block: Block) -> Iterable[RoutedBatch]:
        if self._now is self._stems_mode:
            self._n_batches += 1
            if not self._stems[relation].store.n_rows:
                self._begin(relation)
        return self._now.take_in(relation, block)

    def _begins_in_turns(self, relation: int) -> bool:
        """Whether these are the first rows of the last relation to begin, while others go on.

        No row has been routed before: nothing could come of it. And what to keep is best decided before
        the first result is computed.
        """
        if self._ended.count(False) < 2:
            return False
        return all(stem.store.n_rows or n == relation for n, stem in enumerate(self._stems))

    def _begin(self, relation: int) -> None:
        """The first rows of a relation come."""
        n_seen = sum(self._n_rows())
        for source in self._graph.relations[relation].roles:
            self._began_at[source] = n_seen
            if self._made is not None:
                self._made.statistics.begin(source)
        is_late = n_seen >= LATE_ROWS and self._n_batches > LATE_BATCHES
        if is_late and self._begins_in_turns(relation):
            self._switch()

    def _n_rows(self) -> list[int]:
        """Rows that have come, by source."""
        return [s.n_rows + n for s, n in zip(self._stores, self._n_streamed, strict=True)]

    def _n_handled(self) -> int:
        """Tuples that were routed so far."""
        tables = self._tables
        if len(tables) == 1:
            return tables[0].n_handled
        return sum(table.n_handled for table in tables)

    def _is_worth_a_look(self) -> bool:
        """Whether a look is little beside the work done since the last, or that done again."""
        n_handled = self._n_handled()
        if n_handled < self._next_glance:
            return False
        n_rows = self._n_rows()
        n_first = sum(n_rows)  # each has asked once
        if n_handled < LOOK + n_first:
            self._next_glance = LOOK + n_first
            return False
        routes = (route for table in self._tables for route in table.routes())
        n_again = self._repeats.n_tuples(routes, n_rows)
        missing = min(self._look_at - n_handled, self._look_again_at - n_again)
        if missing > 0:
            self._next_glance = n_handled + max(missing, n_handled // 4)
            return False
        self._look_at = int(GROWTH * n_handled + LOOK / SHARE)
        self._look_again_at = int(GROWTH * n_again + LOOK)
        return True

    def _stairs_mode(self) -> StairsMode:
        """STAIRs as they would be if they had been there from the beginning."""
        if self._made is None:
            self._made = self._make_stairs()
            self._made.skips_build(self._ended)
            for relation, has_ended in enumerate(self._ended):
                if has_ended:
                    self._made.end(relation)
            statistics = self._made.statistics
            for source, n_seen in enumerate(self._began_at):
                statistics.begin(source, n_seen)
            for source, n_rows in enumerate(self._n_streamed):  # at most one, the last
                if n_rows and (block := self._latest) is not None:
                    n_before, n_offered = n_rows - block.n_rows, self._n_offered - block.n_offered
                    statistics.note_streamed(source, block, n_before, n_offered)
        return self._made

    def _switch(self) -> None:
        """From now on rows are kept as STAIRs. Every row stored must have been routed."""
        self._now = self._stairs_mode()
        self.still_until = 0.0
        self._now.begin()
        self._forget_routes()

    def _forget_routes(self) -> None:
        for table in self._tables:
            table.forget()

    # Parts of the data

    def _glances(self) -> bool:
        """Whether it was time to compare what steps found with what they found before."""
        return self._search.glances(self._n_handled(), self._tables)

    def _searches(self) -> bool:
        """Whether parts of the data should be searched for. Asked after every batch."""
        n_handled = self._n_handled()
        if n_handled < self._search.next_glance:
            return False
        return self._glances() and self._search.is_due(n_handled)

    def _turn_to_parts(self) -> bool:
        """Search for parts, and give them orders of their own if that pays. Every row stored must have
        been routed.
        """
        self._search.began(self._n_handled())
        if all(self._ended) or (self._made is not None and self._made.is_moving):
            return False
        sampled = None if self._made is None else self._made.statistics
        parting = self._search.parting(sampled)
        if parting is None:
            return False
        made = self._stairs_mode()
        if not pays(made.outlook_now(), parting, 2.0**self._n_parted):
            return False
        self._n_parted += 1
        regional = self._make_regional()
        regional.take_over(parting.source, parting.regions, made.stairs.kept_forms())
        self._hand_over(made, regional)
        self._now, self._made = regional, None
        self.still_until = 0.0
        self._forget_routes()
        return True

    def _leave_parts(self, regional: RegionalMode) -> None:
        """No parts are left: STAIRs go on, as views of the SteMs at first."""
        made = self._make_stairs()
        self._hand_over(regional, made)
        self._made = made
        self._switch()

    def _hand_over(self, old: JoinsMode, new: JoinsMode) -> None:
        """`new` goes on with what `old` knows of the past; the tuples that `old` kept are forgotten."""
        new.skips_build(self._ended)
        new.statistics.follow(old.statistics)
        new.stairs.n_handled += old.stairs.n_handled + old.stairs.n_stored
        for relation, has_ended in enumerate(self._ended):
            if has_ended:
                new.end(relation)
        for stair in old.stairs.all_stairs():
            stair.release()

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        if self._now is not self._stems_mode:
            return self._now.drive(relation, block)
        source = self._graph.relations[relation].roles[0]
        self._n_streamed[source] += block.n_rows
        self._n_offered += block.n_offered
        self._latest = block
        if self._made is not None:
            self._made.statistics.note_streamed(source, block)
        if self._multiplies or (self._n_handled() >= self._next_glance and self._is_worth_a_look()):
            self._multiplies = False
            if self._look():
                self._now.at_safe_point()
        return self._stems_mode.drive(relation, block)

    def live(self, signature: Signature) -> int:
        return self._now.live(signature)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return self._now.moves(signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if table not in self._tables:
            self._tables.append(table)
        return self._now.step(move, signature, table)

    def option(
        self, move: Move, signature: Signature, table: RouteTable
    ) -> tuple[Callable[[], Step], Candidate]:
        if table not in self._tables:
            self._tables.append(table)
        return self._now.option(move, signature, table)

    def end(self, relation: int) -> None:
        self._ended[relation] = True
        self.still_until = 0.0
        for mode in self._modes_made():
            mode.end(relation)

    def before_last(self, relation: int, n_to_come: int) -> None:
        """SteMs remove dead ends now. Whether STAIRs pay for what is left is known when the first rows
        of the last relation can be sampled: see `drive`.
        """
        if self._now is not self._stems_mode:
            self._now.before_last(relation, n_to_come)
            return
        self._multiplies = self._stems_mode.may_multiply(relation)
        self._stems_mode.before_last(relation, n_to_come)
        if any(stem.generation for stem in self._stems):
            self._made = None  # it knew rows by ids that others have now

    def at_safe_point(self) -> None:
        self._now.at_safe_point()

    def resume(self) -> Resumed | None:
        """Nothing waits: every row stored has been routed, so the state may change hands."""
        now = self._now
        if now is not self._stems_mode and isinstance(now, RegionalMode):
            if now.is_undivided:
                self._leave_parts(now)
            elif self._glances() and self._search.has_drifted:
                now.learn_soon()
        elif self._searches():
            self._turn_to_parts()
        if self._now is self._stems_mode:
            if now is self._stems_mode and self._is_worth_a_look():
                self._look()
            self.still_until = float(min(self._next_glance, self._search.next_glance))
            return None
        resumed = self._now.resume()
        self.still_until = min(self._now.still_until, self._search.next_glance)
        return resumed

    def _look(self) -> bool:
        """Whether STAIRs go on instead of SteMs."""
        if not self._stairs_mode().would_pay():
            return False
        self._switch()
        return True
