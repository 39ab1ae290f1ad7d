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

Known limitations: one process, state in memory (a budget that is exceeded raises); several threads
route only while the last relation streams in, when nothing is stored any more. A relation with two
roles is always stored, so when it comes last, one thread routes it.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddies.core.batch import Origin, RoutedBatch
from eddies.core.clock import Clock, RealClock
from eddies.core.constraints import Move, is_result, legal_joins, legal_moves, may_skip_build
from eddies.core.entry import Entry
from eddies.core.events import Built, EventSink, Finished, SourceEnded
from eddies.core.exactly_once import EarlierOnly, StampRule, can_match
from eddies.core.graph import make_graph
from eddies.core.join_tree import make_join_tree
from eddies.core.lineage import Signature
from eddies.core.module import Module, Step
from eddies.core.modules.eddy_join import EddyJoin, JoinStep
from eddies.core.modules.selection import Select
from eddies.core.modules.stem import Probe, SteM
from eddies.core.options import Options
from eddies.core.output import Output
from eddies.core.policies import make_policy
from eddies.core.policies.base import Candidate, Fork, RoutingPolicy
from eddies.core.policies.static import check_order
from eddies.core.progress import Progress, report_progress
from eddies.core.query import Query
from eddies.core.regret import RegretLog, RegretRouter
from eddies.core.route import Route, RouteTable
from eddies.core.router import Router
from eddies.core.state.rows import Block, RowStore
from eddies.errors import MemoryBudgetError, OptionError, SourceError

__all__ = ["Eddy"]

_FIRST_ROWS = 524_288  # rows of a relation that come in ...
_FIRST_PIECE_ROWS = 65_536  # ... pieces of at most this size
_MOST_READY = 64  # unread result batches at which several threads pause
_GLANCE_S = 0.005  # how often the polling thread looks whether they have results


@dataclass(frozen=True, slots=True)
class _Unbuilt:
    """A piece of the last relation: not stored, not even admitted yet."""

    relation: int
    batch: pa.RecordBatch


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
    ) -> None:
        self.options = options or Options()
        self.graph = make_graph(query)
        self._clock = clock or RealClock()
        self._events = events
        self._stamps = stamps or EarlierOnly()
        self._regret = regret
        self._source_ids = {role.name: role.source_id for role in self.graph.roles}
        self._relation_ids = {r.name: i for i, r in enumerate(self.graph.relations)}
        expected = expected_rows or {}
        self.stems = [SteM(r, expected.get(r.name, 0)) for r in self.graph.relations]
        self._stores = [stem.store for stem in self.stems]
        self._tree = make_join_tree(self.graph) if self.options.state == "joins" else None
        self.joins = [EddyJoin(self.graph, e) for e in self._tree.edges] if self._tree else []
        self.modules: list[Module] = [*self.stems, *self.joins]
        self._entries = [Entry(self.graph, relation) for relation in self.graph.relations]
        self._ended = [False] * len(self.graph.relations)
        self._n_arrived = [0] * len(self.graph.relations)
        self._skips_build = self._find_skips()
        self._piece_rows = self.options.batch_rows
        if self.options.reoptimize_every is not None:
            self._piece_rows = min(self._piece_rows, self.options.reoptimize_every)
        self._budget_bytes = self.options.memory_bytes
        self._waiting: deque[RoutedBatch | _Unbuilt] = deque()
        self.output = Output(self.graph)
        self._routers = [self._make_router(n, policy) for n in range(self.options.threads)]
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[Future[None], int] = {}  # to numbers of routers
        self._stop = threading.Event()  # asks the threads of the pool to leave their work
        self._is_finished = False
        self._error: BaseException | None = None

    # Set-up

    def _make_router(self, number: int, policy: RoutingPolicy | None) -> Router:
        options = self.options
        if policy is not None and options.threads > 1:
            raise OptionError("a policy object serves one thread; give its name in Options instead")
        if options.threads > 1 and self._tree is not None:
            raise OptionError(
                f"threads={options.threads} with state='joins': joins store whatever goes through "
                "them, so one thread must do it; use threads=1, or state='stems'"
            )
        if self._regret is not None and (options.threads > 1 or self._tree is not None):
            raise OptionError("regret is measured with one thread and state='stems'")
        self._check_order(options.order)
        rng = random.Random(f"{options.seed}/{number}")
        policy = policy or make_policy(options.policy, rng, options.order)
        table, collect = RouteTable(self._expand), self.output.collector().collect
        sizes = (options.reoptimize_every, options.batch_rows)
        if self._regret is not None:
            return RegretRouter(self._regret, table, policy, self._clock, collect, *sizes)
        return Router(table, policy, self._clock, collect, *sizes, self._events)

    def _find_skips(self) -> list[bool]:
        """For each relation whether its batches need not be stored any more."""
        return [
            self._tree is None and may_skip_build(self.graph, number, self._ended)
            for number in range(len(self.graph.relations))
        ]

    def _check_order(self, order: tuple[str, ...]) -> None:
        """Every module must be named, except one source: the one whose rows drive."""
        if not order:
            return
        sources = [] if self._tree else [f"stem:{role.name}" for role in self.graph.roles]
        unnamed = [s for s in sources if s not in order and s.removeprefix("stem:") not in order]
        if len(unnamed) == 1:
            sources.remove(unnamed[0])
        joins = [join.name for join in self.joins]
        check_order(order, [*sources, *joins, *(o.name for o in self.graph.optionals)])

    def _expand(self, route: Route, table: RouteTable) -> tuple[Fork | None, list[Step]]:
        """The legal steps of a route: constraints decide which, this only makes them."""
        signature = route.signature
        if is_result(self.graph, signature):
            return None, []
        if self._tree is not None:
            moves = legal_joins(self.graph, self._tree, signature)
        else:
            moves = legal_moves(self.graph, signature)
        steps: list[Step] = []
        candidates = []
        for move in moves:
            step, candidate = self._step(move, signature, table)
            steps.append(step)
            candidates.append(candidate)
        leads_to = tuple(move.after(signature) for move in moves)
        fork = Fork(table.n_forks, signature, tuple(candidates), leads_to)
        table.n_forks += 1
        return fork, steps

    def _step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        """A move as something to run, and as a policy sees it. Numbers of modules: sources (or
        joins) first, optional predicates after them.
        """
        n_first = len(self.graph.roles)
        if move.optional >= 0:
            select = Select(self.graph, move.optional, table.route(move.after(signature)))
            return select, Candidate(n_first + move.optional, select.name, "select")
        if self._tree is not None:
            join = JoinStep(self.graph, self._tree, self.joins[move.join], signature, table)
            return join, Candidate(move.join, join.name, "probe")
        stem = self.stems[self.graph.roles[move.target].relation]
        to = table.route(move.after(signature))
        probe = Probe(self.graph, stem, move.target, signature, to)
        return probe, Candidate(move.target, probe.name, "probe", move.cross)

    # The public verbs

    def push(self, source: str, batch: pa.RecordBatch) -> None:
        """Rows of a relation have arrived. `source` names the relation, or one of its roles.

        The batch's buffers are kept, not copied: whoever made it must not write into them again.
        A batch that cannot be taken in fails the whole eddy: see `poll`.
        """
        relation = self._relation(source)
        self._check_open(relation)
        if self.graph.query.never:
            self._n_arrived[relation] += batch.num_rows
            return
        n_rows = batch.num_rows
        try:
            start = 0
            while start < n_rows:
                piece_rows = self._piece_rows
                if self._n_arrived[relation] < _FIRST_ROWS:
                    piece_rows = min(piece_rows, _FIRST_PIECE_ROWS)
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
        relation = self._relation(source)
        self._check_open(relation)
        self._ended[relation] = True
        self._skips_build = self._find_skips()
        if self._events is not None:
            name, n_rows = self.graph.relations[relation].name, self._n_arrived[relation]
            self._events.emit(SourceEnded(self._clock.now_ns(), name, n_rows))

    def poll(self) -> pa.RecordBatch | None:
        """Route what waits until some results are ready; None when there is nothing left to do.

        A failed eddy stays failed: the same error is raised again.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._poll()
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._stop.set()
        self._shut_pool()

    def _poll(self) -> pa.RecordBatch | None:
        output = self.output
        while not output.has_ready:
            if self._go_on():
                continue
            if not self._is_finished and all(self._ended):
                self._finish()
                continue
            output.flush()
            break
        rows = output.pop()
        if self._running and output.n_ready < _MOST_READY // 2:
            self._resume_paused()
        return rows

    @property
    def is_done(self) -> bool:
        """Whether every result has been polled."""
        return self._is_finished and not self.output.has_ready

    @property
    def n_in_flight(self) -> int:
        """Batches waiting, under way, or paused: zero at the end."""
        return len(self._waiting) + sum(router.n_in_flight for router in self._routers)

    def progress(self) -> Progress:
        """A snapshot of rows, routes and memory."""
        return report_progress(self.graph, self.stems, self._routers, self._n_arrived, self._ended)

    def memory(self) -> dict[str, int]:
        """Bytes of state by module. While a thread makes an index, waits for it."""
        sizes = {}
        for stem in self.stems:
            with stem.lock:
                sizes[stem.name] = stem.n_bytes
        return sizes | {join.name: join.n_bytes for join in self.joins}

    def close(self) -> None:
        """Stop working and give memory back. Afterwards `push`, `end` and `poll` raise.

        An eddy that is not polled to its end must be closed if it has threads. Closing twice, or
        after the end, does no harm.
        """
        self._fail(self._error or SourceError("this eddy was closed; make a new one"))
        self._waiting.clear()
        for router in self._routers:
            router.drop()
        for module in self.modules:
            module.release()

    # In

    def _relation(self, source: str) -> int:
        relation = self._relation_ids.get(source)
        if relation is None and source in self._source_ids:
            relation = self.graph.roles[self._source_ids[source]].relation
        if relation is None:
            known = ", ".join(self._relation_ids)
            raise SourceError(f"the query reads no relation {source!r}; it reads {known}")
        return relation

    def _check_open(self, relation: int) -> None:
        if self._error is not None:
            raise self._error
        if self._ended[relation]:
            name = self.graph.relations[relation].name
            raise SourceError(f"relation {name!r} has ended; nothing may be pushed or ended again")

    def _take_in(self, relation: int, piece: pa.RecordBatch) -> None:
        if self._skips_build[relation]:
            self._waiting.append(_Unbuilt(relation, piece))
            return
        block = self._admit(relation, piece, stored=True)
        if block.n_rows == 0:
            return
        before = [store.n_rows for store in self._stores]
        self.stems[relation].build(block)
        self._check_budget()
        after = [store.n_rows for store in self._stores]
        for source_id in self.graph.relations[relation].roles:
            limits = self._stamps.limits(self.graph, source_id, before, after)
            self._enqueue(source_id, block, limits, before[relation])

    def _admit(self, relation: int, piece: pa.RecordBatch, *, stored: bool) -> Block:
        block = self._entries[relation].admit(piece)
        if self._events is not None:
            name = self.graph.relations[relation].name
            now = self._clock.now_ns()
            self._events.emit(Built(now, name, piece.num_rows, block.n_rows, stored))
        return block

    def _enqueue(self, source_id: int, block: Block, limits: tuple[int, ...], first: int) -> None:
        if self._tree is None and not can_match(limits, source_id):
            return
        flag = self.graph.roles[source_id].flag
        rows = None
        if flag is not None:
            rows = np.flatnonzero(block.column(flag).words(None)).astype(np.int32)
            if rows.shape[0] == 0:
                return
        batch = self._driver(source_id, block, limits, first)
        if rows is not None and rows.shape[0] < block.n_rows:
            batch.ids[source_id] = rows
            batch.n_rows = rows.shape[0]
        if self._tree is not None:
            # Joins keep tuples beyond the life of the block: address rows by their stored ids.
            local = np.arange(block.n_rows, dtype=np.int32) if rows is None else rows
            batch.ids[source_id] = local + np.int32(first)
            batch.origin.places = [self._stores[role.relation] for role in self.graph.roles]
            batch.origin.first_row = -1
        self._waiting.append(batch)

    def _driver(
        self, source_id: int, block: Block, limits: tuple[int, ...], first_row: int
    ) -> RoutedBatch:
        """A base batch, not yet on any route (routers set that: each has a table of its own)."""
        places: list[Block | RowStore] = [self._stores[r.relation] for r in self.graph.roles]
        home = self._stores[self.graph.roles[source_id].relation]
        places[source_id] = block
        origin = Origin(source_id, places, limits, first_row, home, self._source_ids)
        return RoutedBatch(_NOWHERE, origin, [None] * len(self.graph.roles), block.n_rows)

    def _check_growth(self, router: Router) -> None:
        """The budget at a safe point: indexes are made when a probe needs them, after building."""
        if router.has_indexed or self._tree is not None:
            router.has_indexed = False
            self._check_budget()

    def _check_budget(self) -> None:
        budget = self._budget_bytes
        if budget is None:
            return
        size_by_module = self.memory()
        held = sum(size_by_module.values())
        if held > budget:
            sizes = ", ".join(f"{name} {size:,}" for name, size in size_by_module.items())
            raise MemoryBudgetError(
                f"state needs {held:,} bytes, Options(memory=...) allows {budget:,} ({sizes}); "
                "allow more memory or split the query into more cells"
            )

    # On

    def _go_on(self) -> bool:
        """Work until results are ready; False when there is no more work."""
        if self._running:
            self._await_some()
            return True
        router, output, waiting = self._routers[0], self.output, self._waiting
        limited = self._budget_bytes is not None
        inserts = limited and self._tree is not None  # joins store in the middle of a route, too
        while True:
            while router.step():
                if inserts:
                    self._check_budget()
                if output.has_ready:
                    return True
            if limited:
                self._check_growth(router)
            if not waiting:
                return False
            if len(self._routers) > 1 and all(isinstance(w, _Unbuilt) for w in waiting):
                self._spread()
                return True
            self._start(router, waiting.popleft())

    def _start(self, router: Router, waiting: RoutedBatch | _Unbuilt) -> None:
        batch: RoutedBatch | None
        if isinstance(waiting, _Unbuilt):
            batch = self._unbuilt_driver(waiting)
            if batch is None:
                return
        else:
            batch = waiting
        signature = Signature(1 << batch.origin.driver)
        batch.route = router.table.route(signature)
        router.start(batch)

    def _unbuilt_driver(self, waiting: _Unbuilt) -> RoutedBatch | None:
        block = self._admit(waiting.relation, waiting.batch, stored=False)
        if block.n_rows == 0:
            return None
        lengths = [store.n_rows for store in self._stores]
        source_id = self.graph.relations[waiting.relation].roles[0]
        limits = self._stamps.limits(self.graph, source_id, lengths, lengths)
        if not can_match(limits, source_id):
            return None
        return self._driver(source_id, block, limits, -1)

    def _spread(self) -> None:
        """Give everything that waits to all routers; nothing is stored any more, so they may share."""
        self._pool = self._pool or ThreadPoolExecutor(len(self._routers), "eddy")
        for number in range(len(self._routers)):
            self._submit(number)

    def _submit(self, number: int) -> None:
        assert self._pool is not None
        self._running[self._pool.submit(self._drain, number)] = number

    def _drain(self, number: int) -> None:
        """What one thread does: go on where its router paused, then take from what waits.

        It pauses when many results are unread. It does not wait for a reader, who may never come.
        """
        router, output, stop = self._routers[number], self.output, self._stop
        while True:
            while router.step():
                if output.n_ready >= _MOST_READY or stop.is_set():
                    return
            if self._budget_bytes is not None:
                self._check_growth(router)
            try:
                waiting = self._waiting.popleft()
            except IndexError:
                return
            self._start(router, waiting)
            if number and router.n_in_flight and not router.n_decisions:
                router.prepare_in_turn(number)

    def _await_some(self) -> None:
        wait(self._running, _GLANCE_S, FIRST_COMPLETED)
        self._resume_paused()

    def _resume_paused(self) -> None:
        """Look after threads that returned: they are through, have failed, or paused."""
        for future in [future for future in self._running if future.done()]:
            number = self._running.pop(future)
            future.result()
            if self._routers[number].n_in_flight or self._waiting:
                self._submit(number)

    def _shut_pool(self) -> None:
        if self._pool is not None:
            self._waiting.clear()
            self._pool.shutdown(wait=True)
            self._pool = None
            self._running = {}

    def _finish(self) -> None:
        assert self.n_in_flight == 0, (
            "termination: results are complete only with nothing in flight"
        )
        self.output.finish()
        self._shut_pool()
        self._is_finished = True
        for module in self.modules:
            module.release()
        if self._events is not None:
            self._events.emit(Finished(self._clock.now_ns(), self.output.n_rows))


_NOWHERE = Route(Signature(0))
