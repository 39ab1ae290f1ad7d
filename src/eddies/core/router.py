"""The loop: take a batch, ask the policy, run the module, take what comes back.

Depth first: everything that descends from one base batch is finished before the next base batch
starts. What is not finished is a stack of paused steps (the overhead study's stack of active
operators, section 3.3), so memory is bounded by the depth of a route and the size of a piece, and
when the stack is empty nothing is in flight: a *safe point*.

One router belongs to one thread. Several may share SteMs while nobody builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import sub

from eddies.core.batch import RoutedBatch
from eddies.core.clock import Clock
from eddies.core.diversion import Diversion
from eddies.core.events import EventSink, Indexed, Reoptimized, Routed
from eddies.core.module import Step
from eddies.core.policies.base import NEWS_ROWS, RoutingPolicy
from eddies.core.route import UNTIL_REOPTIMIZED, Path, Route, RouteTable, Way
from eddies.core.state.scratch import Scratch

__all__ = ["WORTH_A_BATCH", "Router"]

WORTH_A_BATCH = 16_384  # rows: smaller pieces are not made
_CALM = 50  # work between two automatic re-optimizations, in units of what deciding costs: 2 %
_TIMED_BY_WORK = 4096  # rows of a probe that is timed by the processor: to ask costs a microsecond
_UNTIMED = 31  # of thirty-two batches that take the same path
_EXPLODES = 256  # matches for each row after which a decision for a few rows is looked at again
_SURPRISED = 4  # the same when the policy was surprised; doubles with each surprise in a row


class Router:
    """Routes one base batch at a time to completion.

    Legal order of calls: `start` when idle, then `step` until it returns False, or until nothing is
    `paused`; or `run`, which is `start` and the first `step`.
    """

    def __init__(
        self,
        table: RouteTable,
        policy: RoutingPolicy,
        clock: Clock,
        collect: Callable[[RoutedBatch], None],
        reoptimize_every: int | None,
        batch_rows: int,
        events: EventSink | None,
    ) -> None:
        self.table = table
        self.policy = policy
        self.scratch = Scratch(batch_rows)
        self._may_settle = policy.news_ns is not None and events is None
        self._now = clock.now_ns
        self._worked = clock.worked_ns
        self._collect = collect
        self._events = events
        self._reoptimize_every = reoptimize_every
        self._batch_rows = batch_rows
        self._current: RoutedBatch | None = None
        self.paused: list[Iterator[RoutedBatch]] = []  # steps that have more to give
        self._routes: set[Route] = set()  # decided since the last re-optimization
        self._settled: list[Route] = []  # those with a path
        self._forced: tuple[Way | None, bool] = (
            None,
            True,
        )  # see `_apart`: where the next part goes
        self._observe = policy.observe if policy.news_ns is None else None  # each run at once
        self._news: list[Way] = []  # where runs went that the policy does not know of
        self._told_at_rows = 0  # so many driver rows: when the policy is told, at the latest...
        self._told_at_ns = 0  # ...or so much work
        self._n_told = self._ns_told = 0  # rows, and work, of which it knows
        if reoptimize_every is not None:
            self._told_at_rows, self._told_at_ns = reoptimize_every, UNTIL_REOPTIMIZED
        self._worked_before_ns = 0  # work and decisions up to the last re-optimization
        self._decided_before_ns = 0
        self._patience = _SURPRISED
        self.n_driver_rows = 0
        self.n_decisions = 0
        self.ns_deciding = 0
        self.ns_working = 0
        self.ns_indexing = 0
        self.diversion = Diversion()
        self.has_indexed = False  # since somebody last reset this: some index grew

    @property
    def n_in_flight(self) -> int:
        """Batches and paused steps not finished yet."""
        return len(self.paused) + (self._current is not None)

    def rows_within(self, ns: int) -> int:
        """Driver rows that are likely to be finished within `ns`; at least what is worth a batch."""
        if not self.n_driver_rows or not self.ns_working:
            return UNTIL_REOPTIMIZED
        return max(WORTH_A_BATCH, ns * self.n_driver_rows // self.ns_working)

    def start(self, batch: RoutedBatch) -> None:
        """Take up a base batch. Called at a safe point only."""
        is_idle = self._current is None and not self.paused
        assert is_idle, "safe points: a base batch may start only when none is in flight"
        n_driver_rows = self.n_driver_rows
        if n_driver_rows >= self._told_at_rows or self.ns_working >= self._told_at_ns:
            self._use_safe_point()
        self.n_driver_rows = n_driver_rows + batch.n_rows
        self._current = batch

    def run(self, batch: RoutedBatch) -> None:
        """Take up a base batch, at a safe point, and take it as far as it goes. What is not finished
        then is `paused`.
        """
        assert not self.paused, "safe points: a base batch may start only when none is in flight"
        n_driver_rows = self.n_driver_rows
        if n_driver_rows >= self._told_at_rows or self.ns_working >= self._told_at_ns:
            self._use_safe_point()
        route, n_in = batch.route, batch.n_rows
        self.n_driver_rows = n_driver_rows + n_in
        path = route.path
        if path is None or n_in > path.n_left:
            self._current = batch
            self.step(_TIMED_BY_WORK if path is None else 0)
            if self._may_settle and n_in <= route.n_left and n_in < _TIMED_BY_WORK:
                self._settle(route, n_in)
            return
        # What `step` does, less what does not change from batch to batch. Where anything is unusual,
        # `step` takes over.
        path.n_left -= n_in
        self.ns_working += path.last_ns
        scratch, way = self.scratch, path.ways[0]
        n_handled = n_in
        try:
            for way in path.ways:
                step = way.step
                n_indexed = step.prepare(scratch)
                if n_indexed:
                    self.has_indexed = True
                    self.ns_indexing += way.last_indexing_ns
                found, more = step.run(batch, scratch)
                way.n_runs += 1
                way.n_in += n_in
                way.ns += way.last_ns
                if found is None:
                    if more is not None:
                        self._leave(way, 0, 0, more)
                    break
                batch = found
                n_out = batch.n_rows
                way.n_out += n_out
                n_handled += n_out + n_out
                if n_out > n_in or more is not None:
                    n_handled -= n_out
                    self._current = batch
                    self._leave(way, n_in, n_out, more)
                    break
                n_in = n_out
            else:
                n_handled -= n_in
                if path.leads_out:
                    self._collect(batch)
                else:
                    self._current = batch
        except Exception as error:
            error.add_note(f"while {n_in} rows went to module {way.step.name}")
            raise
        self.table.n_handled += n_handled
        if self._current is not None:
            self.step()

    def _leave(self, way: Way, n_in: int, n_out: int, more: Iterator[RoutedBatch] | None) -> None:
        """A batch on a path multiplied, or there is more of it: such go step by step."""
        self._unsettle()
        self._look_at_growth(self.table.route(way.fork.signature), way, n_in, n_out)
        if more is not None:
            self.paused.append(self._rest(more, way, True))

    def _settle(self, entry: Route, n_rows: int) -> None:
        """Give the base batches of a route a path, if one of so many rows found decisions for as many
        on its way, and the policy is not about to learn something: it wants to know what each run took.
        """
        if not self.policy.news_ns or self.paused:
            return
        n_left = _UNTIMED * n_rows
        routes: list[Route] = []
        route = entry
        while route.ways and route.n_left >= n_rows and route.way.is_steady:
            routes.append(route)
            n_left = min(n_left, route.n_left)
            if not route.way.n_out:
                break
            route = self.table.route(route.way.fork.leads_to[route.way.number])
        if not routes:
            return
        for passed in routes:
            passed.n_left -= n_left
            passed.way.is_on_path = True
            if passed.way.before is None:
                self._note(passed.way, 0, 0, 0, 0, True)
        if entry.path is None:
            self._settled.append(entry)
        ways = tuple(passed.way for passed in routes)
        leads_out = route.is_expanded and not route.ways
        entry.path = Path(ways, leads_out, n_left)

    def _unsettle(self) -> None:
        """Base batches are routed step by step again."""
        for route in self._settled:
            assert route.path is not None
            for way in route.path.ways:
                way.is_on_path = False
            route.path = None
        self._settled.clear()

    def drop(self) -> None:
        """Forget what is in flight: nobody wants the rest."""
        self._current = None
        self.paused.clear()

    def release(self) -> None:
        """Give memory back; nothing is routed any more."""
        self.scratch.release()
        self.table.close()

    def _use_safe_point(self) -> None:
        """Tell the policy what it does not know, and let it decide anew if it is time."""
        every = self._reoptimize_every
        if every is None:
            self._tell()
            self._told_at_rows = self.n_driver_rows + NEWS_ROWS
            self._told_at_ns = self.ns_working + (self.policy.news_ns or 0)
            if self._is_calm():
                self._worked_before_ns, self._decided_before_ns = self.ns_working, self.ns_deciding
                self._reoptimize()
            return
        if self._observe is None:
            if not self._has_news():
                # It is time, so what is waited for now is only news.
                self._told_at_rows = self._n_told + NEWS_ROWS
                self._told_at_ns = self._ns_told + (self.policy.news_ns or 0)
                return
            self._tell()
        self._told_at_rows, self._told_at_ns = self.n_driver_rows + every, UNTIL_REOPTIMIZED
        self._reoptimize()

    def _has_news(self) -> bool:
        """Whether the policy should be told of what was done since it was last told."""
        if self.n_driver_rows - self._n_told >= NEWS_ROWS:
            return True
        return self.ns_working - self._ns_told >= (self.policy.news_ns or 0)

    def _is_calm(self) -> bool:
        """Whether so much was done since the last decisions that new ones cost little beside it."""
        worked_ns = self.ns_working - self._worked_before_ns
        decided_ns = self.ns_deciding - self._decided_before_ns
        if worked_ns >= _CALM * decided_ns:
            self._patience = _SURPRISED
            return True
        if self.policy.is_surprised and worked_ns >= self._patience * decided_ns:
            self._patience *= 2
            return True
        return False

    def _reoptimize(self) -> None:
        started = self._now()
        if not self.policy.reoptimize():
            for route in self._routes:
                route.n_left = 0
            self._routes.clear()
            self._unsettle()
        elapsed = self._now() - started
        self.ns_deciding += elapsed
        if self._events is not None:
            self._events.emit(Reoptimized(started, self.n_driver_rows, elapsed))

    def _tell(self) -> None:
        """Tell the policy of all runs that it has not been told of."""
        if not self._news:
            return
        started = self._now()
        policy = self.policy
        waiting: list[Way] = []  # on a path: nobody notes them when they run
        for way in self._news:
            before, now = way.before, (way.n_runs, way.n_in, way.n_out, way.ns)
            if way.is_on_path:
                way.before = now
                waiting.append(way)
            else:
                way.before = None
            if now != before:
                assert before is not None
                n_runs, n_in, n_out, ns = map(sub, now, before)
                policy.observe(way.fork, way.number, n_in, n_out, ns, n_runs)
        self._news = waiting
        self._n_told, self._ns_told = self.n_driver_rows, self.ns_working
        self.ns_deciding += self._now() - started

    def step(self, timed_rows: int = _TIMED_BY_WORK) -> bool:
        """Take one batch as far as it goes: it becomes a result, or nothing is left of it. False when
        nothing is in flight any more. Probes of so many rows are timed by the processor.
        """
        batch, self._current = self._current, None
        way: Way | None = None
        is_told = True
        if batch is None:
            batch = self._next_paused()
            if batch is None:
                return False
            way, is_told = self._forced
            self._forced = (None, True)
        now, scratch = self._now, self.scratch
        while batch is not None:
            route = batch.route
            n_rows = batch.n_rows
            if way is None:
                n_left = route.n_left - n_rows
                if n_left < 0 or n_rows > self._batch_rows:
                    batch = self._decided(batch, route)
                    if batch is None:
                        break
                    n_rows = batch.n_rows
                else:
                    route.n_left = n_left
                way = route.way
                if way.is_watched and self.policy.diverts and self._may_divert(route, way):
                    self.paused.append(self._apart(batch, route, way.number))
                    break
            step = way.step
            # Whoever takes the processor away in a long probe must not make it look dear.
            if n_rows >= timed_rows and way.is_probe:
                now = self._worked
            try:
                started = now()
                n_indexed = step.prepare(scratch)
                if n_indexed:
                    began, started = started, now()
                    way.last_indexing_ns = started - began
                    self._note_indexed(step, n_indexed, started - began)
                batch, more = step.run(batch, scratch)
                elapsed = now() - started
            except Exception as error:
                error.add_note(f"while {n_rows} rows went to module {step.name}")
                raise
            n_out = 0 if batch is None else batch.n_rows
            observe = self._observe
            if observe is not None and is_told:
                observe(way.fork, way.number, n_rows, n_out, elapsed)
            elif way.before is None or not is_told:
                self._note(way, 1, n_rows, n_out, elapsed, is_told)
            way.n_runs += 1
            way.n_in += n_rows
            way.n_out += n_out
            way.ns += elapsed
            way.last_ns = elapsed
            self.table.n_handled += n_rows + n_out
            self.ns_working += elapsed
            if self._events is not None:
                self._emit(way, n_rows, n_out, elapsed)
            if n_out > n_rows:
                self._look_at_growth(route, way, n_rows, n_out)
            if more is not None:
                self.paused.append(self._rest(more, way, is_told))
            way, is_told, now = None, True, self._now
        return True

    def _decided(self, batch: RoutedBatch, route: Route) -> RoutedBatch | None:
        """Decide where a batch goes, and maybe others on its route; the part of it that the decision is
        good for. None if it is a result.
        """
        if not route.ways:
            if not route.is_expanded:
                self.table.expand(route)
            if not route.ways:
                self._collect(batch)
                return None
        if batch.n_rows > self._batch_rows:
            batch = self._first_of(batch, self._batch_rows)
        n_rows = batch.n_rows
        if n_rows > route.n_left:
            self._decide(route, n_rows)
            if n_rows > route.n_left:
                n_rows = route.n_left
                batch = self._first_of(batch, n_rows)
            if self.policy.every_batch:
                route.n_left = n_rows
        route.n_left -= n_rows
        return batch

    def _next_paused(self) -> RoutedBatch | None:
        """The next batch of the latest step that has more to give."""
        paused = self.paused
        while paused:
            top = len(paused) - 1
            batch = next(paused[top], None)  # which may put more on the stack
            if batch is not None:
                return batch
            del paused[top]
        return None

    def _may_divert(self, route: Route, way: Way) -> bool:
        """Whether it is worth a look at whether some rows are better off on another way."""
        if len(route.ways) == 1:
            return False
        return way.has_heavy_keys or way.n_out > self.diversion.fan_out * way.n_in

    def _apart(self, batch: RoutedBatch, route: Route, choice: int) -> Iterator[RoutedBatch]:
        """The parts of a batch some of whose rows may be better off elsewhere. The policy does not hear
        of those that go there.
        """
        for number, part in self.diversion.apart(batch, route, choice, self._prepare):
            self._forced = (route.ways[number], number == choice)
            yield part

    def _first_of(self, batch: RoutedBatch, n_rows: int) -> RoutedBatch:
        """The first `n_rows` rows; the others wait on the stack.

        A probe gives back up to four rows for each it gets. Cutting keeps that from multiplying
        along a route: memory stays bounded by depth times piece.
        """
        first, rest = batch.split(n_rows)
        self.paused.append(iter((rest,)))
        return first

    def prepare_in_turn(self, number: int, n_threads: int) -> None:
        """Bring the indexes the current batch may need up to date, for thread `number` of so many.

        Threads begin at different indexes, so they build different ones at the same time.
        """
        if self._current is None:
            return
        route = self._current.route
        if not route.is_expanded:
            self.table.expand(route)
        n_ways = len(route.ways)
        first = number * n_ways // n_threads
        for turn in range(n_ways):
            if route.ways[(first + turn) % n_ways].step.prepare(self.scratch):
                self.has_indexed = True

    def _decide(self, route: Route, n_rows: int) -> None:
        """Decide about a batch of `n_rows` rows, and maybe others."""
        assert route.fork is not None
        self._tell()
        if self._reoptimize_every is not None and self._told_at_ns < UNTIL_REOPTIMIZED:
            self._told_at_ns = 0  # it may want to know of what comes sooner
        started = self._now()
        decision = self.policy.choose(route.fork)
        way = route.way = route.ways[decision.choice]
        if (route.signature, way.number) in self.diversion.met:
            way.is_watched = way.has_heavy_keys = True
        n_left = decision.n_rows
        route.n_left = UNTIL_REOPTIMIZED if n_left is None else max(1, n_left)
        self._routes.add(route)
        self.n_decisions += 1
        self.ns_deciding += self._now() - started
        if route.n_left < n_rows and decision.n_found:
            self._prepare(way.step)
            n_sure = int(decision.n_found / max(1.0, way.step.most_matches))
            route.n_left = max(route.n_left, min(n_rows, n_sure))

    def _note(
        self, way: Way, n_runs: int, n_in: int, n_out: int, elapsed: int, is_told: bool
    ) -> None:
        """What is counted next is the first of what the policy will be told, or not for it at all."""
        if is_told:
            way.before = (way.n_runs, way.n_in, way.n_out, way.ns)
            self._news.append(way)
        elif way.before is not None:
            runs, rows_in, rows_out, ns = way.before
            way.before = (runs + n_runs, rows_in + n_in, rows_out + n_out, ns + elapsed)

    def _look_at_growth(self, route: Route, way: Way, n_in: int, n_out: int) -> None:
        """More rows came back than went there."""
        if n_out > self.diversion.fan_out * n_in:
            way.is_watched = True
        if n_out > _EXPLODES * n_in and route.n_left < UNTIL_REOPTIMIZED // 2:
            route.n_left = 0

    def _prepare(self, step: Step) -> None:
        """Bring the state behind a step up to date."""
        started = self._now()
        n_indexed = step.prepare(self.scratch)
        if n_indexed:
            self._note_indexed(step, n_indexed, self._now() - started)

    def _note_indexed(self, step: Step, n_indexed: int, elapsed: int) -> None:
        """An index has grown."""
        self.has_indexed = True
        self.ns_indexing += elapsed
        if self._events is not None:
            self._events.emit(Indexed(self._now() - elapsed, step.name, n_indexed, elapsed))

    def _rest(self, more: Iterator[RoutedBatch], way: Way, is_told: bool) -> Iterator[RoutedBatch]:
        """The rest of a step that did not return everything at once."""
        while True:
            started = self._now()
            batch = next(more, None)
            elapsed = self._now() - started
            n_out = 0 if batch is None else batch.n_rows
            if self._observe is not None and is_told:
                self._observe(way.fork, way.number, 0, n_out, elapsed)
            elif way.before is None or not is_told:
                self._note(way, 0, 0, n_out, elapsed, is_told)
            way.n_out += n_out
            way.ns += elapsed
            self.table.n_handled += n_out
            self.ns_working += elapsed
            way.is_watched = True
            if self._events is not None:
                self._emit(way, 0, n_out, elapsed)
            if batch is None:
                return
            yield batch

    def _emit(self, way: Way, n_in: int, n_out: int, elapsed: int) -> None:
        assert self._events is not None
        self._events.emit(Routed(self._now(), way.fork.signature, way.name, n_in, n_out, elapsed))
