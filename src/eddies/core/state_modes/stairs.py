"""state="stairs": intermediate results are kept where they pay, and rewritten when that changes.

Every STAIR begins as a view of its relation's SteM. Now and then, at a safe point, sizes and
selectivities are estimated from the rows that have come (`statistics`), a migration policy says what
STAIRs should hold (`migration`), and a migration, if one is due, goes on stage by stage. What STAIRs
hold also decides where tuples go (`plan.Routing`): the state mode offers one join for each signature,
the one with the least cost to the end; predicates stay the routing policy's business. With a routing
policy of the user's own choice (any but "auto" and "cumulative") all joins that keep forms complete are
offered.

With a memory budget, pools get what base rows leave of it; a STAIR whose tuples find no room becomes a
view again, so at worst the state is that of SteMs, which spill (`pressed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import add

from eddies.core.batch import RoutedBatch
from eddies.core.clock import Clock
from eddies.core.constraints import Move
from eddies.core.events import EventSink, Migrated
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree, joined_pairs, make_join_tree
from eddies.core.lineage import Signature
from eddies.core.live import EVERYTHING
from eddies.core.module import Step
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.stairs.migration import MIGRATIONS, Migration
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Forms, Planner, Routing, World
from eddies.core.state.rows import Block
from eddies.core.state.scratch import Scratch
from eddies.core.state_modes.base import Resumed
from eddies.core.state_modes.joins import JoinsMode

__all__ = ["StairsMode"]

_TREE_GAIN = 1.5  # how many times cheaper another spanning tree must be
_LATE_NS = 50_000_000  # without a row from anybody: then there is time for work nobody asked for


class StairsMode(JoinsMode):
    """See the module docstring."""

    name = "stairs"

    def __init__(
        self,
        graph: Graph,
        stems: Sequence[SteM],
        stamps: StampRule,
        options: Options,
        clock: Clock,
        events: EventSink | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._events = events
        self.migration_policy = MIGRATIONS[options.migration]()
        self._scratch = Scratch(min(options.batch_rows, 65_536))
        self._tables: list[RouteTable] = []
        self._next_look = 0
        self._seen_when_idle = -1
        self._idle_since_ns = 0
        self._gain_wanted = _TREE_GAIN
        self._is_cyclic = len(joined_pairs(graph)) >= len(graph.roles)  # so there are several trees
        self.n_looks = 0
        self.n_migrations = 0
        self.n_trees = 0
        super().__init__(graph, stems, stamps)

    def _plant(self, tree: JoinTree) -> None:
        super()._plant(tree)
        self._planner = Planner(tree, len(self._graph.roles))
        self._plans = self._options.policy in ("auto", "cumulative") and self._planner.is_able
        self._held: Forms = frozenset()
        self._migration: Migration | None = None
        self._routing: Routing | None = None
        self._decided: tuple[Forms, Outlook] | None = None  # before this mode was in force
        self._given: dict[int, int] = {}  # joins offered, by signature's sources
        self._n_demoted = 0
        self.n_trees += 1

    def _show_leaves(self) -> None:
        for stair in self._all_stairs:
            self.stairs.demote_to_rows(stair)

    # Where tuples go

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        legal = super().moves(signature)
        if self._routing is None:
            return legal
        predicates = tuple(move for move in legal if move.optional >= 0)
        joins = [move for move in legal if move.join >= 0]
        if not joins:
            return predicates
        if self._plans:
            chosen = self._routing.join(signature.sources)
            self._given[signature.sources] = chosen
            return (*(move for move in joins if move.join == chosen), *predicates)
        allowed = {join for join, _, _ in self._routing.allowed(signature.sources)}
        return (*(move for move in joins if move.join in allowed), *predicates)

    def live(self, signature: Signature) -> int:
        """What is a part of no form is stored nowhere: it carries what is of use, as with SteMs."""
        sources = signature.sources
        if not self._plans or self._routing is None:
            return super().live(signature)
        is_kept = any(sources & ~form.mask == 0 for form in self._routing.forms)
        return EVERYTHING if is_kept else self._live.at(signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if table not in self._tables:
            self._tables.append(table)
        return super().step(move, signature, table)

    def take_in(self, relation: int, block: Block) -> list[RoutedBatch]:
        batches = super().take_in(relation, block)
        if self._held or self._migration is not None or all(self._taken):
            return batches
        routed = []
        for batch in batches:
            source = batch.origin.driver
            if self._is_idle(source):
                ids = batch.ids[source]
                assert ids is not None
                self.joins[0].note(source, ids)
            else:
                routed.append(batch)
        return routed

    def _is_idle(self, source: int) -> bool:
        """Whether rows of `source` need not be routed while nothing but rows is kept: no result is
        possible yet, and no earlier rows of it wait. Later rows will find them where they are stored.
        """
        if self.stairs.history.routed[source] < self._given_out[source]:
            return False
        return any(not n and other != source for other, n in enumerate(self._taken))

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        batch = super().drive(relation, block)
        self.at_safe_point()  # nothing is in flight yet, and these rows can be sampled now or never
        if self._routing is None and self._planner.is_able and self._has_begun():
            # They are the last, and nobody has looked yet: nothing pays any more, but order matters.
            outlook = self._outlook()
            self._wait()
            self._route_by(self._planner.routing(self._held, outlook.moments()[0]))
        return batch

    # What is held

    def at_safe_point(self) -> None:
        if self._may_close or self._budget_bytes is not None:
            super().at_safe_point()
        if self.stairs.history.n_demoted != self._n_demoted:
            self._forget_demoted()
        is_early = self._routing is not None and self._n_seen() < self._next_look
        if is_early and self._migration is None:
            return  # as after most batches
        if self._is_over():
            self._migration = None  # whatever was not built yet, nobody will need it
        elif self._migration is not None:
            self._go_on_moving()
        elif not is_early and self._planner.is_able and self._has_begun():
            self._look()

    def _is_over(self) -> bool:
        """Whether every row that is stored has been routed and no more will be."""
        return all(self._ended) and self.stairs.history.routed == self._taken

    def _has_begun(self) -> bool:
        """Whether rows of every source have come: before, nothing can come of any."""
        return all(map(max, self._taken, self.statistics.streamed))

    def _is_probed_by_any(self) -> bool:
        """Whether some open source leads to a STAIR that could hold more than rows."""
        streams = sum(
            1 << role.source_id for role in self._graph.roles if self._streams[role.relation]
        )
        closed = self._closed & ~streams
        for stair in self.stairs.all_stairs():
            beyond = self._sides[id(self.stairs.dual(stair))]
            if beyond & ~closed and self._sides[id(stair)].bit_count() > 1:
                return True
        return False

    def _n_seen(self) -> int:
        return sum(self._taken) + sum(self.statistics.streamed)

    @property
    def is_moving(self) -> bool:
        """Whether a migration is under way."""
        return self._migration is not None

    def outlook_now(self) -> Outlook:
        """Estimates of this moment, for whoever weighs another way to keep state. All rows stored must
        have been routed.
        """
        self.take_over()
        return self._outlook()

    def _outlook(self) -> Outlook:
        """Estimates of this moment."""
        self.n_looks += 1
        statistics = self.statistics
        statistics.refresh()
        statistics.look()
        rows = [float(n) for n in map(add, self.stairs.history.routed, statistics.streamed)]
        to_come = [statistics.rows_to_come(source) for source in range(len(rows))]
        now = World(rows, statistics.selectivity, self.tree)
        certain = sum(1 << source for source in range(len(rows)) if statistics.is_certain(source))
        behind = {(s.source, s.edge.number): s.n_behind for s in self._all_stairs}
        return Outlook(
            self._planner,
            now,
            to_come,
            statistics.selectivity,
            self._held,
            self._closed,
            certain,
            behind,
            self._n_handled(),
        )

    def _decide(self, outlook: Outlook) -> Forms:
        """What the policy wants to hold. The next look waits until the rows that came cost enough."""
        wanted = self.migration_policy.decide(outlook)
        self._wait(outlook.rows_worth(self.migration_policy.stride))
        return wanted

    def _n_handled(self) -> float:
        """Tuples handled so far: arrived, stored, probing, found; 0 while others route them."""
        if not self._tables:
            return 0.0
        routed = sum(table.n_handled for table in self._tables)
        return float(self._n_seen() + routed + self.stairs.n_stored + self.stairs.n_handled)

    def _wait(self, n_rows: float = 0.0) -> None:
        """Do not look again before so many rows have come."""
        seen = self._n_seen()
        self._next_look = int(max(seen * self.migration_policy.growth, seen + n_rows)) + 1

    def would_pay(self) -> bool:
        """Whether rows that are kept as SteMs so far should go on as STAIRs. If so, `begin` at once.

        For a mode that kept the same SteMs; all rows stored must have been routed.
        """
        if all(self._ended):
            return False
        stored = sum(self._stems[role.relation].store.n_rows for role in self._graph.roles)
        if stored + sum(self.statistics.streamed) < self._next_look:
            return False
        self.take_over()
        if not self._has_begun():
            return False
        if not self._is_probed_by_any():
            self._wait()
            return False
        outlook = self._outlook()
        wanted = self._decide(outlook)
        self._decided = (wanted, outlook) if wanted else None
        return bool(wanted)

    def begin(self) -> None:
        """Go on where SteMs have kept the rows, and hold what a look has just found worth while."""
        self.take_over()
        if self._decided is not None:
            wanted, outlook = self._decided
            self._decided = None
            self._move_to(wanted, outlook, not self.migration_policy.on_demand)

    def take_over(self) -> None:
        """Go on where SteMs have kept the rows. All rows stored must have been routed."""
        for role in self._graph.roles:
            n_rows = self._stems[role.relation].store.n_rows
            self._taken[role.source_id] = self._given_out[role.source_id] = n_rows
            self.stairs.history.routed[role.source_id] = n_rows
        self._close()

    def _look(self) -> None:
        """Estimate, decide, and begin to move if something should be held elsewhere."""
        self._forget_demoted()
        outlook = self._outlook()
        better = self._better_tree(outlook)
        if better is not None:
            self._replant(better)
            outlook = self._outlook()
        self._move_to(self._decide(outlook), outlook, not self.migration_policy.on_demand)

    def _move_to(self, wanted: Forms, outlook: Outlook, at_once: bool) -> None:
        """Begin to hold what is wanted, except where nobody would find it; dear forms only on demand,
        unless all must be made `at_once`.
        """
        target = frozenset(f for f in wanted if self.stairs.stair(f.source, f.join).is_open)
        if target != self._held:
            on_demand = frozenset(f for f in target if not at_once and not outlook.is_cheap(f))
            self._migration = Migration(
                self.stairs, self._planner, self._held, target, outlook.now, on_demand
            )
            self._held = self._migration.held  # what was dropped is not looked for any more
            self._handled_before = self.stairs.n_handled + self.stairs.n_stored
            self._started_ns = self._clock.now_ns()
        self._route_by(self._planner.routing(target, outlook.moments()[0]))
        if self._migration is not None:
            self._go_on_moving()

    def _go_on_moving(self) -> None:
        migration = self._migration
        assert migration is not None
        if not migration.stage(self._scratch):
            return
        self._held = self._really_held(migration.target)
        self._migration = None
        self.n_migrations += 1
        if self._events is not None:
            now = self._clock.now_ns()
            n_handled = self.stairs.n_handled + self.stairs.n_stored - self._handled_before
            self._events.emit(
                Migrated(
                    now,
                    migration.name(),
                    migration.n_moved,
                    migration.n_made,
                    n_handled,
                    now - self._started_ns,
                )
            )

    def _route_by(self, routing: Routing) -> None:
        """Send tuples where `routing` says; routes made by another are worked out anew."""
        old, self._routing = self._routing, routing
        if (
            self._plans
            and old is not None
            and old.forms == routing.forms
            and all(routing.join(m) == join for m, join in self._given.items())
        ):
            return
        self._given.clear()
        for table in self._tables:
            table.forget()

    # Another spanning tree

    def _better_tree(self, outlook: Outlook) -> JoinTree | None:
        """For a cyclic query: the tree of the most selective joins, if it is clearly cheaper.

        What closes a cycle is only checked on matches, so the joins of the tree should be those that
        match least. Each change must gain more than the last: trees that compete are left alone.
        """
        if not self._is_cyclic or self._options.policy == "static":
            return None  # no other tree, or an order that names the joins of this one
        pairs = joined_pairs(self._graph)
        rows = outlook.now.rows
        fan_out: dict[tuple[int, int], float] = {}
        for (left, right), keys in pairs.items():
            edge = JoinEdge(-1, left, right, tuple(keys), "")
            fan_out[left, right] = self.statistics.sampled(edge) * max(rows[left], rows[right])
        tree = make_join_tree(self._graph, sorted(pairs, key=lambda pair: fan_out[pair]))
        if {(e.left, e.right) for e in tree.edges} == {(e.left, e.right) for e in self.tree.edges}:
            return None
        planner = Planner(tree, len(self._graph.roles))
        if not planner.is_able:
            return None
        selectivity = [
            fan_out[e.left, e.right] / max(1.0, rows[e.left], rows[e.right]) for e in tree.edges
        ]
        now = World(rows, selectivity, tree)
        other = Outlook(planner, now, outlook.to_come, selectivity, frozenset(), outlook.ended)
        kept = outlook.cost(outlook.held)
        if other.cost(frozenset()) * self._gain_wanted > kept:
            return None
        self._gain_wanted *= 1.5
        return tree

    def _replant(self, tree: JoinTree) -> None:
        """Go on along another spanning tree: the state as if it had always been in use.

        Rows are in SteMs whatever the tree. STAIRs of the new tree begin as views of them, which is a
        right state at any point of stasis; what is worth keeping is built as usual.
        """
        old, statistics = self.stairs, self.statistics
        for stair in old.all_stairs():
            stair.release()
        self._plant(tree)
        self.stairs.history.routed = old.history.routed
        self.stairs.n_handled = old.n_handled + old.n_stored
        self.statistics.follow(statistics)
        self._close()
        self._share_memory()
        for table in self._tables:
            table.forget()

    # A late source

    def resume(self) -> Resumed | None:
        """Nothing waits. If nothing has come either for a while, the sources are late: there is time to
        build what they will need (query scrambling).
        """
        seen, now = self._n_seen(), self._clock.now_ns()
        if seen != self._seen_when_idle:
            self._seen_when_idle, self._idle_since_ns = seen, now
        elif now - self._idle_since_ns < _LATE_NS or self._is_over():
            pass
        elif self._migration is not None:
            self._go_on_moving()
        elif self._planner.is_able and not self._has_begun():
            self._scramble()
        return super().resume()

    def _calm_until(self) -> float:
        """When the next look may be due, if rows to come are handled as often as those before them.
        Joins grow, so mostly they are handled more often; if not, the look comes a little late.
        """
        is_moving = self._migration is not None or self._routing is None
        if is_moving or not self._plans or not self._has_begun():
            return 0.0
        n_handled = sum(table.n_handled for table in self._tables)
        n_seen = self._n_seen()
        return n_handled + (self._next_look - n_seen) * max(1.0, n_handled / max(1, n_seen))

    def _scramble(self) -> None:
        """Hold what the policy would if the sources that are late came now; they are taken to have as
        many rows as others on average, and to match one row each.
        """
        if self._held or not any(self._taken):
            return
        late = {s for s, n in enumerate(map(max, self._taken, self.statistics.streamed)) if not n}
        outlook = self._outlook()
        self._wait(outlook.rows_worth(self.migration_policy.stride))
        mean = sum(outlook.now.rows) / (len(outlook.now.rows) - len(late))
        to_come = [mean if s in late else 0.0 for s in range(len(outlook.to_come))]
        rows = [1.0 if s in late else n for s, n in enumerate(outlook.now.rows)]
        # Joins between sources that are both late were never sampled.
        selectivity = [known or 1.0 / mean for known in outlook.selectivity]
        now = World(rows, selectivity, self.tree)
        # Time is not lost, so it is no matter of caution whether they will really be that many.
        certain = (1 << len(rows)) - 1
        wanted = replace(
            outlook, now=now, to_come=to_come, selectivity=selectivity, certain=certain
        )
        forms = self.migration_policy.decide(wanted)
        without_late = frozenset(f for f in forms if not any(f.mask >> s & 1 for s in late))
        self._move_to(without_late, wanted, at_once=True)

    # Memory

    def _share_memory(self) -> None:
        super()._share_memory()
        self._forget_demoted()

    def _forget_demoted(self) -> None:
        """STAIRs that became views for want of room hold no form any more."""
        if self.stairs.history.n_demoted != self._n_demoted:
            self._n_demoted = self.stairs.history.n_demoted
            held = self._really_held(self._held)
            if self._migration is not None:
                self._migration.give_up(self._held - held)
            self._held = held

    def _really_held(self, forms: Forms) -> Forms:
        """Those of `forms` that found room; the policy hears of the others that somebody would need."""
        by_form = {form: self.stairs.stair(form.source, form.join) for form in forms}
        self.migration_policy.gave_up(
            frozenset(f for f, stair in by_form.items() if stair.is_open and stair.form != f.mask)
        )
        return frozenset(form for form, stair in by_form.items() if stair.form == form.mask)
