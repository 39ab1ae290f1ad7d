"""The eddy: joins many sources without a plan. Push batches in, poll results out.

    eddy = Eddy(query)
    eddy.push("fact", batch)          # any relation, any time, any size
    eddy.end("fact")                  # when a relation has delivered its last row
    while (rows := eddy.poll()) is not None:
        ...                           # results so far; None: nothing more to do with what was pushed
    eddy.is_done                      # all relations ended and everything is out

A pushed batch is cut to pieces that are stored (build first) and stamped at once, and wait to be
routed. `poll` routes them, one after another, each to its end. So the answer does not depend on when
`poll` is called, and several pushes in a row make exactly the race between builds and probes that the
stamps decide (`exactly_once`).

The query has ended when every relation has ended and nothing waits or is in flight, by counting.

Known limitations: one process; under a memory budget only base rows go to disk, other state is made
again; with access methods nothing does, and an eddy that exceeds its budget raises; several threads
route only when nothing is stored any more: while the last relation streams in, or, if that has two
roles and is stored, what still waits of it when it has ended.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

import numpy as np
import pyarrow as pa

from eddies.core.access import Access, LookupExecutor
from eddies.core.access.preference import Preference
from eddies.core.batch import RoutedBatch, Unbuilt
from eddies.core.bounds import key_bounds
from eddies.core.budget import Budget
from eddies.core.clock import Clock, RealClock
from eddies.core.crew import PIECE_NS, Crew
from eddies.core.entry import Entry
from eddies.core.events import Built, EventSink, Finished, SourceEnded
from eddies.core.exactly_once import EarlierOnly, StampRule
from eddies.core.expr import Expr
from eddies.core.graph import make_graph
from eddies.core.graph.distance import distances
from eddies.core.lineage import Signature
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.output import Output
from eddies.core.partners import PartnerFilter, Partners
from eddies.core.policies import make_policy
from eddies.core.policies.base import RoutingPolicy
from eddies.core.policies.shared import SharedPolicy
from eddies.core.progress import Progress, report_progress
from eddies.core.query import Query
from eddies.core.regret import RegretLog, RegretRouter
from eddies.core.route import RouteTable
from eddies.core.router import WORTH_A_BATCH, Router
from eddies.core.state.rows import Block
from eddies.core.state_modes import StateMode, make_access_mode, make_state_mode, with_stems
from eddies.core.state_modes.access import AccessMode
from eddies.core.state_modes.spilling import batch_rows_within
from eddies.core.wiring import Wiring
from eddies.errors import OptionError, SourceError

__all__ = ["Eddy"]

_FIRST_ROWS = 524_288  # rows of a relation that come in ...
_FIRST_PIECE_ROWS = 65_536  # ... pieces of at most this size


class Eddy:
    """One running query. See the module docstring for the order of calls."""

    def __init__(
        self,
        query: Query,
        options: Options | None = None,
        *,
        clock: Clock | None = None,
        events: EventSink | None = None,
        policy: RoutingPolicy | None = None,
        stamps: StampRule | None = None,
        expected_rows: Mapping[str, int] | None = None,
        regret: RegretLog | None = None,
        access: Mapping[str, Access] | None = None,
        lookups: LookupExecutor | None = None,
        completes_probes: bool = True,
        folds: bool = True,
    ) -> None:
        self.options = options or Options()
        if self.options.window:
            raise OptionError(
                "Options(window=...) is for streaming queries; this is an eddy by itself, whose rows "
                "stay until they are evicted (Eddy.evict)"
            )
        self.graph = make_graph(query)
        self._clock = clock or RealClock()
        self._events = events
        self._stamps = stamps or EarlierOnly()
        self._regret = regret
        # Regret counts what reaches a signature on all ways.
        self._may_fold = folds and regret is None
        # A relation goes by its own name, or by that of one of its roles.
        self._relation_ids = {role.name: role.relation for role in self.graph.roles}
        self._relation_ids |= {r.name: i for i, r in enumerate(self.graph.relations)}
        self._expected_rows = expected = expected_rows or {}
        is_bounded = self.options.memory is not None  # rows may be flushed before they are many
        self.stems = [
            SteM(r, 0 if is_bounded else expected.get(r.name, 0)) for r in self.graph.relations
        ]
        self.mode: StateMode
        self.access: AccessMode | None = None
        if access is None:
            # Regret is that of one way to keep state.
            kept = self.options if regret is None else replace(self.options, state="stems")
            self.mode = make_state_mode(
                kept, self.graph, self.stems, self._stamps, self._clock, events, expected
            )
        else:
            self.access = self.mode = make_access_mode(
                self.options,
                self.graph,
                self.stems,
                self._stamps,
                access,
                lookups,
                self._clock,
                events,
                expected,
                completes_probes,
            )
        self.mode = with_stems(self.options.stem, self.mode, self.graph, self.stems)
        self.mode.check(self.options.threads)
        self._partners = Partners(self.graph, self.stems)
        self._entries = [Entry(self.graph, relation) for relation in self.graph.relations]
        self._ended = [False] * len(self.graph.relations)
        for relation in self.access.without_scan() if self.access is not None else ():
            self._ended[relation] = True
        self._n_arrived = [0] * len(self.graph.relations)
        self._skips_build = self.mode.skips_build(self._ended)
        self._batch_rows = batch_rows_within(self.options.batch_rows, self.options.memory_bytes)
        self._piece_rows = self._batch_rows
        if self.options.reoptimize_every is not None:
            self._piece_rows = min(self._piece_rows, self.options.reoptimize_every)
        self._uncut_rows = min(self._piece_rows, WORTH_A_BATCH)  # batches up to this are never cut
        self._is_never = query.never
        self._is_crewed = self.options.threads > 1
        self._wiring = Wiring(self.graph, self.mode)
        self._budget = Budget(self.options.memory_bytes, self.stems, self.mode)
        self._is_limited = self._budget.is_limited
        self._waiting: deque[RoutedBatch | Unbuilt] = deque()
        self.output = Output(self.graph)
        self._routers = [self._make_router(p) for p in self._make_policies(policy)]
        for router in self._routers:
            router.diversion.met = self._routers[0].diversion.met
        self._crew = Crew(self._routers, self._waiting, self.output, self._budget)
        self._is_to_prepare = False  # whether rows wait that are the first of the last relation
        self._is_prepared = False  # whether state knows that only the last relation is to come
        self._is_waiting_for_asked = self._is_held = bool(self.graph.asked)
        self.is_hopeless = False  # whether a relation ended without rows: there can be no result
        self._is_finished = False
        self._error: BaseException | None = None

    # Set-up

    def _make_policies(self, given: RoutingPolicy | None) -> list[RoutingPolicy]:
        """One for each thread; they are views of one that all share."""
        options = self.options
        self._wiring.check_order(options.order)
        rng = random.Random(f"{options.seed}/0")
        policy = given or make_policy(options.policy, rng, options.order)
        if self.access is not None or given is None:
            policy = self.mode.informed(policy)
        if options.threads == 1:
            return [policy]
        shared = SharedPolicy(policy)
        return [shared.view() for _ in range(options.threads)]

    def _make_router(self, policy: RoutingPolicy) -> Router:
        options = self.options
        if self._regret is not None and (
            options.threads > 1 or options.state not in ("auto", "stems") or self.mode.spills
        ):
            raise OptionError(
                "regret is measured with one thread, state='stems' and no bound on memory"
            )
        table = RouteTable(self._wiring.expand, self.mode.live, self._may_fold)
        collect = self.output.collector().collect
        sizes = (options.reoptimize_every, self._batch_rows)
        if self._regret is not None:
            return RegretRouter(self._regret, table, policy, self._clock, collect, *sizes)
        return Router(table, policy, self._clock, collect, *sizes, self._events)

    # The public verbs

    def push(self, source: str, batch: pa.RecordBatch, n_dropped: int = 0) -> None:
        """Rows of a relation have arrived. `source` names the relation, or one of its roles.
        `n_dropped` others came with them and have no partners (`partner_filter`).

        The batch's buffers are kept, not copied: whoever made it must not write into them again.
        A batch that cannot be taken in fails the whole eddy: see `poll`.
        """
        relation = self._relation_ids.get(source, -1)
        if relation < 0 or self._error is not None or self._ended[relation]:
            relation = self._open(source)  # which raises
        if n_dropped:
            self._n_arrived[relation] += n_dropped
            self.stems[relation].store.skip(n_dropped)
        n_rows = batch.num_rows
        if self._is_never:
            self._n_arrived[relation] += n_rows
            return
        try:
            if 0 < n_rows <= self._uncut_rows:
                self._take_in(relation, batch)
                self._n_arrived[relation] += n_rows
                return
            start = 0
            while start < n_rows:
                piece_rows = self._piece_rows
                if self._n_arrived[relation] < _FIRST_ROWS:
                    piece_rows = min(piece_rows, _FIRST_PIECE_ROWS)
                else:
                    piece_rows = min(piece_rows, self._routers[0].rows_within(PIECE_NS))
                whole = start == 0 and n_rows <= piece_rows
                self._take_in(relation, batch if whole else batch.slice(start, piece_rows))
                self._n_arrived[relation] += min(piece_rows, n_rows - start)
                start += piece_rows
        except BaseException as error:
            # A part of the batch may be stored: going on would give a wrong answer.
            self._fail(error)
            raise

    def end(self, source: str) -> None:
        """A relation has delivered its last row."""
        relation = self._open(source)
        self._ended[relation] = True
        self.stems[relation].store.is_complete = True
        if (
            not self._skips_build[relation]
            and self.stems[relation].n_built == 0
            and not self.graph.only_refuses(relation)
        ):
            self.is_hopeless = len(self.graph.parts) == 1
        if self._is_waiting_for_asked:
            numbers = range(len(self._ended))
            self._is_waiting_for_asked = any(
                self.graph.is_asked(n) and not self._ended[n] for n in numbers
            )
            self._is_held = self._is_waiting_for_asked
        self._skips_build = self.mode.skips_build(self._ended)
        self.mode.end(relation)
        if self._events is not None:
            name, n_rows = self.graph.relations[relation].name, self._n_arrived[relation]
            self._events.emit(SourceEnded(self._clock.now_ns(), name, n_rows))

    def bounds(self, source: str) -> tuple[Expr, ...]:
        """What rows of a relation must fulfil to find partners, as far as the keys of relations tell
        that have ended; nothing if that cannot be said.
        """
        relation = self._relation(source)
        if not self._knows_partners(relation):
            return ()
        is_known = self._is_complete()
        return key_bounds(self.graph, self.stems, is_known, relation)

    def partner_filter(
        self, source: str, expected_rows: Mapping[str, int], last: str | None = None
    ) -> PartnerFilter | None:
        """A function that drops rows of a relation which find no partner in those that have ended, from
        batches before they are pushed; None if that is not worth while. `expected_rows` are those of
        relations in all, before any selection; `last` is the relation that will stream by.
        """
        relation = self._relation(source)
        if not self._knows_partners(relation):
            return None
        driver = None if last is None else self._relation(last)
        return self._partners.filter(relation, self._is_complete(), expected_rows, driver)

    def rows_to_come(self, source: str, expected_rows: Mapping[str, int]) -> tuple[float, float]:
        """A guess how many rows of a relation have partners in those that have ended, and how few rows
        such a partner has; infinite if none has ended. `expected_rows` are those of relations in all.
        """
        relation = self._relation(source)
        if not self._knows_partners(relation):
            return float(expected_rows.get(self.graph.relations[relation].name, inf)), inf
        return self._partners.rows_to_come(relation, self._is_complete(), expected_rows)

    def n_joins_between(self, source: str, other: str) -> int:
        """How many equality joins lead from one relation to another; 0 if none do."""
        start, end = (
            self.graph.relations[self._relation(name)].roles[0] for name in (source, other)
        )
        return distances(self.graph, start).get(end, 0)

    def _knows_partners(self, relation: int) -> bool:
        """Whether what has ended tells which rows of a relation can be in a result."""
        if len(self.graph.relations[relation].roles) > 1 or len(self.graph.parts) > 1:
            return False
        return not (self.mode.spills or self.access is not None or self.graph.query.never)

    def _is_complete(self) -> list[bool]:
        """By relation, whether its SteM holds all its rows."""
        return [
            ended and stem.n_built == stem.store.n_rows
            for ended, stem in zip(self._ended, self.stems, strict=True)
        ]

    def restore(self, source: str, batch: pa.RecordBatch) -> None:
        """Rows that came in an earlier life of this query: stored like others, but not routed, because
        what they match among themselves was put out then.

        Only where state is base rows (SteMs), and while nothing waits to be routed.
        """
        relation = self._open(source)
        assert not self._waiting, "restored rows come before all others"
        self._n_arrived[relation] += batch.num_rows
        if self._skips_build[relation] or self.graph.query.never:
            return
        try:
            for start in range(0, batch.num_rows, self._piece_rows):
                piece = batch.slice(start, self._piece_rows)
                block = self._entries[relation].admit(piece)
                if self._events is not None:
                    self._emit_built(relation, piece, block, stored=True)
                if block.n_rows:
                    for _ in self.mode.take_in(relation, block):
                        pass
                self._budget.check()
                self.mode.at_safe_point()
        except BaseException as error:
            self._fail(error)
            raise

    def settle(self) -> Iterator[pa.RecordBatch]:
        """All results of the rows pushed so far, also those that wait for rows on disk: the end of an
        epoch. State stays, and more rows may come. Groups of an aggregation are given out as they are
        and begun anew, to be merged by whoever reads them.
        """
        self.mode.is_settling = True
        try:
            while (rows := self.poll()) is not None:
                yield rows
        finally:
            self.mode.is_settling = False
        if self._error is None and not self._is_finished:
            assert self.n_in_flight == 0, "nothing waits at the end of an epoch"
            self.output.finish_part()
            while (rows := self.output.pop()) is not None:
                yield rows

    @property
    def forgets(self) -> bool:
        """Whether `evict` works with this way of keeping state."""
        return self.mode.forgets

    def evict(self, source: str, column: str, upto: int, least: float = 0.0) -> int:
        """Forget the stored rows of a relation whose `column`, an integer or a time, is at most `upto`,
        if they are at least the share `least` of all. Returns how many went.

        Between epochs only (`settle`). Rows that come later do not find them: whoever calls this says
        that they would not match, or must not.
        """
        relation = self._relation(source)
        if self._is_finished:
            return 0
        assert self.forgets, "state that can forget rows"
        assert self.n_in_flight == 0, "row ids change, so nobody may hold any"
        store = self.stems[relation].store
        alive = store.column(column).words(None).view(np.int64) > upto
        n_dead = store.n_rows - int(np.count_nonzero(alive))
        if n_dead == 0 or n_dead < least * store.n_rows:
            return 0
        self.mode.keep_only(relation, np.flatnonzero(alive).astype(np.int32))
        return n_dead

    def push_by(self, source: str, scan: str, batch: pa.RecordBatch) -> None:
        """`push`, when a relation has several scans: these rows come by `scan`."""
        self.arrive_by(source, scan)
        self.push(source, batch)

    def arrive_by(self, source: str, scan: str) -> None:
        """The next rows of a relation come by `scan`."""
        if self.access is not None:
            self.access.arrives_by(self._relation(source), scan)

    def lose_scan(self, source: str, scan: str, reason: str) -> None:
        """A scan has failed for good. Others of the relation go on, or its indexes take over."""
        relation = self._open(source)
        if self.access is None:
            raise SourceError(f"source {source!r} failed: {reason}")
        if not self.access.lose_scan(relation, scan, reason):
            self._ended[relation] = True
            self.mode.end(relation)
            self._skips_build = self.mode.skips_build(self._ended)

    def answered(self) -> list[str]:
        """Relations whose scans have not ended, but of which nothing more is needed: look-ups have
        brought all that matters. They may be ended.
        """
        if self.access is None:
            return []
        numbers = [number for number in self.access.answered if not self._ended[number]]
        return [self.graph.relations[number].name for number in numbers]

    def prefer(self, predicate: Expr | None) -> None:
        """Rows that fulfil `predicate`, on one source, should come out early; None: no preference.

        May be called at any time. The answer is the same, only its order changes.
        """
        if self.access is None:
            raise OptionError("a preference needs access methods: give access=..., if only scans")
        self.access.prefer(None if predicate is None else Preference(self.graph, predicate))

    def await_lookups(self, until_ns: int | None) -> bool:
        """Wait until a look-up is answered, something about them must be done, or it is `until_ns`
        on the eddy's clock; False, at once, if no look-up is under way.
        """
        if self.access is None or not self.access.lookups.dispatcher.n_pending:
            return False
        moment_ns = self.access.lookups.dispatcher.next_moment_ns()
        moments = [moment for moment in (until_ns, moment_ns) if moment is not None]
        self.access.lookups.dispatcher.executor.wait(min(moments, default=None))
        return True

    def poll(self) -> pa.RecordBatch | None:
        """Route what waits until some results are ready; None when there is nothing left to do.

        A failed eddy stays failed: the same error is raised again.
        """
        if self._error is not None:
            raise self._error
        try:
            output = self.output
            while not output.ready:
                if self._go_on():
                    continue
                if all(self._ended) and not self._is_finished and not self.mode.n_pending:
                    self._finish()
                    continue
                output.flush()
                if not output.ready:
                    return None
            rows = output.pop()
            if self._is_crewed:
                self._crew.results_were_read()
            return rows
        except BaseException as error:
            self._fail(error)
            raise

    def use_silence(self) -> bool:
        """All sources are silent: do a piece of work that waits for that; False if there is none.

        Poll afterwards. Whoever never calls this gets the same results, some of them later.
        """
        if self._error is not None:
            raise self._error
        if (
            self._is_finished
            or self._crew.is_at_work
            or self._waiting
            or self._routers[0].n_in_flight
        ):
            return False
        try:
            return self._work_in_silence()
        except BaseException as error:
            self._fail(error)
            raise

    def _work_in_silence(self) -> bool:
        router = self._routers[0]
        self.mode.at_safe_point()
        self.mode.at_rest()
        self.mode.is_silent = True
        resumed = self.mode.resume()
        self.mode.is_silent = False
        if resumed is None:
            return False
        self._begin(router, resumed.batch, resumed.signature)
        while router.step():
            pass
        return True

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._crew.stop()
        self.mode.abandon()

    @property
    def is_done(self) -> bool:
        """Whether every result has been polled."""
        return self._is_finished and not self.output.has_ready

    @property
    def n_in_flight(self) -> int:
        """Batches waiting, under way, paused, or pending in state: zero at the end."""
        under_way = sum(router.n_in_flight for router in self._routers)
        return len(self._waiting) + under_way + self.mode.n_pending

    def progress(self) -> Progress:
        """A snapshot of rows, routes and memory."""
        return report_progress(self.graph, self.stems, self._routers, self._n_arrived, self._ended)

    def memory(self) -> dict[str, int]:
        """Bytes of state by module. While a thread makes an index, waits for it."""
        return self._budget.sizes()

    def close(self) -> None:
        """Stop working and give memory back. Afterwards `push`, `end` and `poll` raise.

        An eddy that is not polled to its end must be closed if it has threads. Closing twice, or
        after the end, does no harm.
        """
        self._fail(self._error or SourceError("this eddy was closed; make a new one"))
        self._waiting.clear()
        for router in self._routers:
            router.drop()
        self._release()

    def _release(self) -> None:
        for router in self._routers:
            router.release()
        for module in self.mode.modules:
            module.release()

    # In

    def _relation(self, source: str) -> int:
        relation = self._relation_ids.get(source)
        if relation is None:
            known = ", ".join(relation.name for relation in self.graph.relations)
            raise SourceError(f"the query reads no relation {source!r}; it reads {known}")
        return relation

    def _open(self, source: str) -> int:
        """The number of a relation of which more may come."""
        relation = self._relation(source)
        if self._error is not None:
            raise self._error
        if self._ended[relation]:
            name = self.graph.relations[relation].name
            raise SourceError(f"relation {name!r} has ended; nothing may be pushed or ended again")
        return relation

    def _take_in(self, relation: int, piece: pa.RecordBatch) -> None:
        if self._skips_build[relation] and not self.options.partial:
            if not self._is_prepared:
                self._is_to_prepare = True
            self._waiting.append(Unbuilt(relation, piece))
            return
        block = self._entries[relation].admit(piece)
        if self._events is not None:
            self._emit_built(relation, piece, block, stored=True)
        if block.n_rows == 0:
            return
        mode = self.mode
        self._waiting.extend(mode.take_in(relation, block))
        if self._is_limited:
            self._budget.check()
        if mode.needs_safe_point:
            self._reach_safe_point()

    def _emit_built(
        self, relation: int, piece: pa.RecordBatch, block: Block, *, stored: bool
    ) -> None:
        assert self._events is not None
        name, now = self.graph.relations[relation].name, self._clock.now_ns()
        self._events.emit(Built(now, name, piece.num_rows, block.n_rows, stored))

    # On

    def _reach_safe_point(self) -> None:
        """Route everything that waits, so that state may be rearranged before more is stored."""
        router = self._routers[0]
        while True:
            while router.step():
                pass
            self.mode.at_safe_point()
            if self._has_routed_all_stored:
                self.mode.at_rest()
            if not self._waiting:
                return
            self._start(router, self._waiting.popleft())

    @property
    def _has_routed_all_stored(self) -> bool:
        """Whether no stored batch waits. Once rows come that are not stored, only such rows come."""
        return not self._waiting or isinstance(self._waiting[0], Unbuilt)

    def _go_on(self) -> bool:
        """Work until results are ready; False when there is no more work, or it is held: nothing may be
        routed before all rows of a source that is asked are there, or after the end.
        """
        if self._is_held:
            return False
        if self._is_crewed and self._crew.is_at_work:
            self._crew.go_on()
            return True
        router, ready, waiting, mode = self._routers[0], self.output.ready, self._waiting, self.mode
        limited, paused = self._is_limited, router.paused
        while True:
            while paused:
                router.step()
                if limited and mode.stores_on_the_way:
                    self._budget.check()
                if ready:
                    return True
            if limited:
                self._budget.check_growth(router)
            is_still = router.table.n_handled < mode.still_until
            if not is_still:
                mode.at_safe_point()
            if not waiting:
                if is_still:
                    return False
                mode.at_rest()
                resumed = mode.resume()
                if resumed is None:
                    return False
                self._begin(router, resumed.batch, resumed.signature)
                router.step()
            else:
                if (not is_still or self._is_to_prepare) and isinstance(waiting[0], Unbuilt):
                    # Then all that is stored has been routed.
                    if not is_still:
                        mode.at_rest()
                    if self._is_to_prepare:
                        self._prepare_last(waiting[0].relation)
                if self._is_crewed and self._stores_no_more():
                    self._crew.spread(self._start)
                    return True
                batch = self._base_batch(router, waiting.popleft())
                if batch is not None:
                    router.run(batch)
            if limited and mode.stores_on_the_way:
                self._budget.check()
            if ready:
                return True

    def _prepare_last(self, relation: int) -> None:
        """Only rows of this relation are to come."""
        self._is_to_prepare = False
        self._is_prepared = True
        self.mode.before_last(relation, self._n_to_come(relation))

    def _n_to_come(self, relation: int) -> int:
        """Rows of the last relation: those that wait, or what the host said if that is more."""
        n_waiting = sum(waiting.n_rows for waiting in self._waiting)
        return max(n_waiting, self._expected_rows.get(self.graph.relations[relation].name, 0))

    def _stores_no_more(self) -> bool:
        """Whether what waits may be routed by several threads, because nobody builds."""
        n_unbuilt = sum(isinstance(waiting, Unbuilt) for waiting in self._waiting)
        if n_unbuilt == 0:
            return self.mode.shares and all(self._ended)
        return n_unbuilt == len(self._waiting)

    def _start(self, router: Router, waiting: RoutedBatch | Unbuilt) -> None:
        batch = self._base_batch(router, waiting)
        if batch is not None:
            router.start(batch)

    def _base_batch(self, router: Router, waiting: RoutedBatch | Unbuilt) -> RoutedBatch | None:
        """What waited, on its route; None if nothing can come of it."""
        batch: RoutedBatch | None
        if isinstance(waiting, RoutedBatch):
            batch = waiting
        else:
            relation, piece = waiting
            block = self._entries[relation].admit(piece)
            if self._events is not None:
                self._emit_built(relation, piece, block, stored=False)
            batch = self.mode.drive(relation, block) if block.n_rows else None
            if batch is None:
                return None
        batch.route = router.table.entry(batch.origin.driver)
        return batch

    def _begin(self, router: Router, batch: RoutedBatch, signature: Signature) -> None:
        batch.route = router.table.route(signature)
        router.start(batch)

    def _finish(self) -> None:
        assert self.n_in_flight == 0, (
            "termination: results are complete only with nothing in flight"
        )
        self.output.finish()
        self._crew.stop()
        self._is_finished = self._is_held = True
        self._release()
        if self._events is not None:
            self._events.emit(Finished(self._clock.now_ns(), self.output.n_rows))
