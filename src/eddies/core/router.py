"""The loop: take a batch, ask the policy, run the module, take what comes back.

Depth first: everything that descends from one base batch is finished before the next base batch
starts. What is not finished is a stack of paused steps (the overhead study's stack of active
operators, section 3.3), so memory is bounded by the depth of a route and the size of a piece, and
when the stack is empty nothing is in flight: a *safe point*.

One router belongs to one thread. Several may share SteMs while nobody builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eddies.core.batch import RoutedBatch
from eddies.core.clock import Clock
from eddies.core.diversion import Diversion
from eddies.core.events import EventSink, Indexed, Reoptimized, Routed
from eddies.core.module import Step
from eddies.core.policies.base import RoutingPolicy
from eddies.core.route import Route, RouteTable, Way
from eddies.core.state.scratch import Scratch

__all__ = ["WORTH_A_BATCH", "Router"]

_UNTIL_REOPTIMIZED = 2**62
WORTH_A_BATCH = 16_384  # rows: smaller pieces are not made
_CALM = 50  # work between two automatic re-optimizations, in units of what deciding costs: 2 %
_TIMED_BY_WORK = 4096  # rows of a probe that is timed by the processor: to ask costs a microsecond
_EXPLODES = 256  # matches for each row after which a decision for a few rows is looked at again
_SURPRISED = 4  # the same when the policy was surprised; doubles with each surprise in a row


class Router:
    """Routes one base batch at a time to completion.

    Legal order of calls: `start` when idle, then `step` until it returns False.
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
        self._clock = clock
        self._now = clock.now_ns
        self._worked = clock.worked_ns
        self._collect = collect
        self._events = events
        self._reoptimize_every = reoptimize_every
        self._batch_rows = batch_rows
        self._current: RoutedBatch | None = None
        self._stack: list[Iterator[RoutedBatch]] = []
        self._epoch = 0
        self._n_since_reoptimized = 0
        self._worked_before_ns = 0  # work and decisions up to the last re-optimization
        self._decided_before_ns = 0
        self._patience = _SURPRISED
        self.n_driver_rows = 0
        self.n_decisions = 0
        self.ns_deciding = 0
        self.ns_working = 0
        self.ns_indexing = 0
        self._diversion = Diversion()
        self.has_indexed = False  # since somebody last reset this: some index grew

    @property
    def n_in_flight(self) -> int:
        """Batches and paused steps not finished yet."""
        return len(self._stack) + (self._current is not None)

    def rows_within(self, ns: int) -> int:
        """Driver rows that are likely to be finished within `ns`; at least what is worth a batch."""
        if not self.n_driver_rows or not self.ns_working:
            return _UNTIL_REOPTIMIZED
        return max(WORTH_A_BATCH, ns * self.n_driver_rows // self.ns_working)

    def start(self, batch: RoutedBatch) -> None:
        """Take up a base batch. Called at a safe point only."""
        is_idle = self._current is None and not self._stack
        assert is_idle, "safe points: a base batch may start only when none is in flight"
        n_rows = batch.n_rows
        every = self._reoptimize_every
        if self._is_calm() if every is None else self._n_since_reoptimized >= every:
            self._reoptimize()
        self._n_since_reoptimized += n_rows
        self.n_driver_rows += n_rows
        self._current = batch

    def drop(self) -> None:
        """Forget what is in flight: nobody wants the rest."""
        self._current = None
        self._stack.clear()

    def release(self) -> None:
        """Give memory back; nothing is routed any more."""
        self.scratch.release()
        self.table.close()

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
        self._worked_before_ns, self._decided_before_ns = self.ns_working, self.ns_deciding
        if not self.policy.reoptimize():
            self._epoch += 1
        self._n_since_reoptimized = 0
        elapsed = self._now() - started
        self.ns_deciding += elapsed
        if self._events is not None:
            self._events.emit(Reoptimized(started, self.n_driver_rows, elapsed))

    def step(self) -> bool:
        """Take one batch as far as it goes: it becomes a result, or nothing is left of it. False when
        nothing is in flight any more.
        """
        batch = self._current
        if batch is None:
            if not self._stack:
                return False
            batch = self._next_paused()
            if batch is None:
                return False
        self._current = None
        policy = self.policy
        while batch is not None:
            route = batch.route
            ways = route.ways
            if not ways:
                if not route.is_expanded:
                    self.table.expand(route)
                    continue
                self._collect(batch)
                break
            if batch.n_rows > self._batch_rows:
                batch = self._first_of(batch, self._batch_rows)
            if len(ways) == 1:
                batch = self._run(batch, route, ways[0])
                continue
            n_rows = batch.n_rows
            if route.epoch != self._epoch or n_rows > route.n_left or policy.every_batch:
                self._decide(route, n_rows)
                if n_rows > route.n_left:
                    n_rows = route.n_left
                    batch = self._first_of(batch, n_rows)
            route.n_left -= n_rows
            way = ways[route.choice]
            if policy.diverts and (
                way.has_heavy_keys or way.n_out > self._diversion.fan_out * way.n_in
            ):
                self._stack.append(self._apart(batch, route, way.number))
                break
            batch = self._run(batch, route, way)
        return True

    def _next_paused(self) -> RoutedBatch | None:
        """The next batch of the latest step that has more to give."""
        stack = self._stack
        while stack:
            top = len(stack) - 1
            batch = next(stack[top], None)  # which may put more on the stack
            if batch is not None:
                return batch
            del stack[top]
        return None

    def _apart(self, batch: RoutedBatch, route: Route, choice: int) -> Iterator[RoutedBatch]:
        """What comes of a batch some of whose rows may be better off elsewhere."""
        for number, part in self._diversion.apart(batch, route, choice, self._prepare):
            out = self._run(part, route, route.ways[number], number == choice)
            if out is not None:
                yield out

    def _first_of(self, batch: RoutedBatch, n_rows: int) -> RoutedBatch:
        """The first `n_rows` rows; the others wait on the stack.

        A probe gives back up to four rows for each it gets. Cutting keeps that from multiplying
        along a route: memory stays bounded by depth times piece.
        """
        first, rest = batch.split(n_rows)
        self._stack.append(iter((rest,)))
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
        started = self._now()
        decision = self.policy.choose(route.fork)
        route.choice = decision.choice
        route.n_left = _UNTIL_REOPTIMIZED if decision.n_rows is None else max(1, decision.n_rows)
        route.epoch = self._epoch
        self.n_decisions += 1
        self.ns_deciding += self._now() - started
        if route.n_left < n_rows and decision.n_found:
            step = route.ways[decision.choice].step
            self._prepare(step)
            n_sure = int(decision.n_found / max(1.0, step.most_matches))
            route.n_left = max(route.n_left, min(n_rows, n_sure))

    def _run(
        self, batch: RoutedBatch, route: Route, way: Way, is_told: bool = True
    ) -> RoutedBatch | None:
        """Run a step. Unless `is_told`, the policy does not hear of it."""
        step = way.step
        n_in = batch.n_rows
        scratch = self.scratch
        # Whoever takes the processor away in a long probe must not make it look dear.
        now = self._worked if n_in >= _TIMED_BY_WORK and way.is_probe else self._now
        try:
            started = now()
            n_indexed = step.prepare(scratch)
            if n_indexed:
                began, started = started, now()
                self._note_indexed(step, n_indexed, started - began)
            out, more = step.run(batch, scratch)
            elapsed = now() - started
        except Exception as error:
            error.add_note(f"while {n_in} rows went to module {step.name}")
            raise
        n_out = 0 if out is None else out.n_rows
        way.n_runs += 1
        way.n_in += n_in
        way.n_out += n_out
        way.ns += elapsed
        self.table.n_handled += n_in + n_out
        self.ns_working += elapsed
        if is_told:
            self.policy.observe(way.fork, way.number, n_in, n_out, elapsed)
        if self._events is not None:
            self._emit(way, n_in, n_out, elapsed)
        if n_out > _EXPLODES * n_in and route.n_left < _UNTIL_REOPTIMIZED // 2:
            route.n_left = 0
        if more is not None:
            self._stack.append(self._paused(more, way, is_told))
        return out

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

    def _paused(
        self, more: Iterator[RoutedBatch], way: Way, is_told: bool
    ) -> Iterator[RoutedBatch]:
        """The rest of a step that did not return everything at once."""
        while True:
            started = self._now()
            batch = next(more, None)
            elapsed = self._now() - started
            n_out = 0 if batch is None else batch.n_rows
            way.n_out += n_out
            way.ns += elapsed
            self.table.n_handled += n_out
            self.ns_working += elapsed
            if is_told:
                self.policy.observe(way.fork, way.number, 0, n_out, elapsed)
            if self._events is not None:
                self._emit(way, 0, n_out, elapsed)
            if batch is None:
                return
            yield batch

    def _emit(self, way: Way, n_in: int, n_out: int, elapsed: int) -> None:
        assert self._events is not None
        signature, name = way.fork.signature, way.fork.candidates[way.number].name
        self._events.emit(Routed(self._now(), signature, name, n_in, n_out, elapsed))
