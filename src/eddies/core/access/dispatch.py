"""The dispatcher: keys wait in queues, indexes answer them, failures are asked again.

Every set of bind columns of a relation has one `KeyQueue`. Its indexes take keys from it, each as many
at a time and as many calls at once as it allows, so that the limits are full while keys wait. A call
that fails or is overdue gives its keys back: another index of the queue may have them at once, the one
that failed after a pause that doubles. When every index has failed for a key as often as it may, the
key is given up: that is harmless while the relation has a scan, and the end of the query otherwise.

Invariants: a key is in one place (waiting, in one call, or answered); the answer of a call that was
given up is ignored, so no row is delivered by two calls for one key.

A call to an index that has been silent for several times the answering time of a mirror is treated as
overdue: a stalled mirror costs little more than the time in which the other one answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.access.choice import AccessPolicy, IndexState
from eddies.core.access.eot import Eots
from eddies.core.access.method import IndexAccess
from eddies.core.access.requests import LookupExecutor, LookupReply, LookupRequest
from eddies.core.batch import Ids
from eddies.core.clock import Clock
from eddies.core.events import EventSink, LookupFailed, LookupIssued, LookupReturned
from eddies.errors import SourceError

__all__ = ["Answer", "Dispatcher", "KeyQueue"]

_NEVER_NS = 1 << 62
_OVERDUE = 5.0  # times the latency of a mirror after which a silent index is overdue


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys to be asked for, and how often each index of the queue has failed for them."""

    ids: Ids
    failures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    request: LookupRequest
    queue: KeyQueue
    keys: _Keys
    index_number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """All rows of the source that have one of the keys `ids` of `queue`."""

    queue: KeyQueue
    ids: Ids
    index: IndexAccess
    rows: pa.RecordBatch


class KeyQueue:
    """Keys of one set of bind columns, and the indexes that answer them."""

    def __init__(
        self,
        relation: int,
        name: str,
        bind_set: int,
        eots: Eots,
        indexes: Sequence[IndexAccess],
        own: pa.Schema | None = None,
    ) -> None:
        self.own = own or eots.table.schema  # the bind columns as the source has them
        self.relation = relation
        self.name = name
        self.bind_set = bind_set
        self.eots = eots
        self.indexes = [IndexState(index) for index in indexes]
        self.waiting: deque[_Keys] = deque()
        self.n_waiting = 0
        self.n_calls = 0
        self.given_up: list[Ids] = []  # keys that no index answered, while a scan brings their rows
        self.is_closed = False

    @property
    def n_pending(self) -> int:
        """Keys waiting and calls outstanding."""
        return self.n_waiting + self.n_calls

    def keys(self, ids: Ids, bind: Sequence[str]) -> pa.RecordBatch:
        """The keys with these numbers, in the types of the source, without those that do not fit: no
        row of the source has them.
        """
        keys = self.eots.keys(ids)
        for position, field in enumerate(self.own):
            column = keys.column(position)
            if column.type != field.type:
                narrow = column.cast(field.type, safe=False)
                keys = keys.set_column(position, field, narrow)
                keys = keys.filter(pc.equal(narrow.cast(column.type), column))
        return keys.select(list(bind))

    def add(self, keys: _Keys, *, first: bool = False) -> None:
        """Let keys wait."""
        if first:
            self.waiting.appendleft(keys)
        else:
            self.waiting.append(keys)
        self.n_waiting += keys.ids.shape[0]

    def take(self, most: int) -> _Keys:
        """Up to `most` keys with the same past."""
        taken = self.waiting.popleft()
        parts, n_keys = [taken.ids[:most]], min(most, taken.ids.shape[0])
        rest = taken.ids[most:]
        if rest.shape[0]:
            self.waiting.appendleft(_Keys(rest, taken.failures))
        while n_keys < most and self.waiting and self.waiting[0].failures == taken.failures:
            more = self.waiting.popleft()
            room = most - n_keys
            parts.append(more.ids[:room])
            n_keys += parts[-1].shape[0]
            if more.ids.shape[0] > room:
                self.waiting.appendleft(_Keys(more.ids[room:], more.failures))
        self.n_waiting -= n_keys
        return _Keys(np.concatenate(parts), taken.failures)

    def promote(self, ids: Ids) -> None:
        """Of the keys that wait, those in `ids` go first."""
        if not self.waiting:
            return
        first: deque[_Keys] = deque()
        rest: deque[_Keys] = deque()
        for keys in self.waiting:
            chosen = np.isin(keys.ids, ids)
            for part, to in ((keys.ids[chosen], first), (keys.ids[~chosen], rest)):
                if part.shape[0]:
                    to.append(_Keys(part, keys.failures))
        self.waiting = first + rest

    def busy_ns(self) -> float:
        """How long a key keeps the indexes busy, all calls at once sharing the time."""
        known = [s for s in self.indexes if s.latency_ns is not None and not s.n_failed]
        rate = sum(
            s.index.concurrency * s.index.keys_per_lookup / max(1.0, s.latency_ns or 0.0)
            for s in known
        )
        return 1.0 / rate if rate else 0.0

    def expected_ns(self) -> float:
        """How long a key that comes now is likely to wait for its answer; 0: nobody knows."""
        known = [s for s in self.indexes if s.latency_ns is not None and not s.n_failed]
        if not known:
            return 0.0
        best = min(known, key=lambda state: state.latency_ns or 0.0)
        rounds = self.n_waiting / (best.index.concurrency * best.index.keys_per_lookup)
        return (best.latency_ns or 0.0) * (1.0 + rounds)


class Dispatcher:
    """All look-ups of an eddy. `pump` issues and expires; `answers` takes what came back."""

    def __init__(
        self,
        queues: Sequence[KeyQueue],
        executor: LookupExecutor,
        policy: AccessPolicy,
        clock: Clock,
        events: EventSink | None,
    ) -> None:
        self.queues = queues
        self.executor = executor
        self._policy = policy
        self._clock = clock
        self._events = events
        self._calls: dict[int, _Call] = {}
        self._at_once: list[LookupReply] = []  # to calls that nobody needs to make
        self._n_requests = 0

    @property
    def n_pending(self) -> int:
        """Keys waiting and calls outstanding, of relations that still need them."""
        return sum(queue.n_pending for queue in self.queues)

    @property
    def n_calls(self) -> int:
        """Calls outstanding."""
        return len(self._calls)

    def want(self, queue: KeyQueue, ids: Ids, *, preferred: bool = False) -> None:
        """Have these keys looked up, before others if `preferred`."""
        if ids.shape[0] and not queue.is_closed:
            queue.add(_Keys(ids, (0,) * len(queue.indexes)), first=preferred)

    def ask_again(self, relation: int) -> None:
        """The scan that was to bring the rows of keys given up is gone."""
        for queue in self.queues:
            if queue.relation == relation:
                given_up, queue.given_up = queue.given_up, []
                for ids in given_up:
                    self.want(queue, ids)

    def close(self, relation: int) -> None:
        """The relation is complete: nobody needs its look-ups any more."""
        for queue in self.queues:
            if queue.relation == relation:
                queue.is_closed = True
                queue.waiting.clear()
                queue.n_waiting = 0
                for state in queue.indexes:
                    self._recall(queue, state)
        for number, call in list(self._calls.items()):
            if call.queue.relation == relation:
                self._drop(number)

    def pump(self, has_scan: Sequence[bool]) -> None:
        """Give up what is overdue, then ask for as much as limits allow.

        `has_scan[relation]`: whether rows of keys that nobody answers come by a scan.
        """
        now_ns = self._clock.now_ns()
        for call in list(self._calls.values()):
            if now_ns >= self._deadline_ns(call) and call.request.number in self._calls:
                began_ns = self.executor.began_ns(call.request)
                self.executor.abandon(call.request)
                self._fail(call, "", has_scan, began_ns)
        for queue in self.queues:
            while queue.waiting and self._issue(queue, now_ns):
                pass

    def answers(self, has_scan: Sequence[bool]) -> Iterator[Answer]:
        """What has come back."""
        replies = [*self._at_once, *self.executor.replies()]
        self._at_once.clear()
        for reply in replies:
            call = self._calls.get(reply.number)
            if call is None:
                continue  # given up meanwhile
            if reply.rows is None:
                self._fail(call, reply.error, has_scan, reply.began_ns)
                continue
            self._drop(reply.number)
            now_ns = self._clock.now_ns()
            began_ns = call.request.issued_ns if reply.began_ns is None else reply.began_ns
            elapsed_ns = now_ns - began_ns
            state = call.queue.indexes[call.index_number]
            state.answered(elapsed_ns)
            n_keys, n_rows = call.keys.ids.shape[0], reply.rows.num_rows
            state.n_rows += n_rows
            if self._events is not None:
                name, index = call.queue.name, state.index
                event = LookupReturned(now_ns, name, index.name, n_keys, n_rows, elapsed_ns)
                self._events.emit(event)
            yield Answer(call.queue, call.keys.ids, state.index, reply.rows)

    def next_moment_ns(self) -> int | None:
        """When `pump` or `answers` has something to do again, as far as is known."""
        moments = [self._deadline_ns(call) for call in self._calls.values()]
        reply_ns = self.executor.next_reply_ns()
        if reply_ns is not None:
            moments.append(reply_ns)
        now_ns = self._clock.now_ns()
        if self._at_once:
            moments.append(now_ns)
        for queue in self.queues:
            if queue.waiting:
                paused = [s.paused_until_ns for s in queue.indexes if s.paused_until_ns > now_ns]
                moments += paused
        return min(moments, default=None)

    def _issue(self, queue: KeyQueue, now_ns: int) -> bool:
        keys = queue.waiting[0]
        willing = [
            number
            for number, state in enumerate(queue.indexes)
            if keys.failures[number] <= state.index.retries
        ]
        able = [number for number in willing if queue.indexes[number].is_free(now_ns)]
        if not able and len(willing) == 1 and self._keeps_at_hand(queue, willing[0]):
            able = willing
        if not able:
            return False
        free = [queue.indexes[number] for number in able]
        contenders = [queue.indexes[number] for number in willing]
        chosen = self._policy.choose(free, contenders, queue.n_waiting)
        if chosen < 0:
            return False
        state = free[chosen]
        taken = queue.take(state.index.keys_per_lookup)
        self._n_requests += 1
        attempt = 1 + sum(taken.failures)
        request = LookupRequest(
            self._n_requests,
            queue.name,
            state.index,
            queue.keys(taken.ids, state.index.bind),
            attempt,
            now_ns,
        )
        self._calls[request.number] = _Call(request, queue, taken, able[chosen])
        queue.n_calls += 1
        state.n_out += 1
        state.n_lookups += 1
        state.n_keys += taken.ids.shape[0]
        if self._events is not None:
            n_keys = taken.ids.shape[0]
            self._events.emit(LookupIssued(now_ns, queue.name, state.index.name, n_keys))
        if request.keys.num_rows:
            self.executor.start(request)
        else:
            nothing = pa.RecordBatch.from_pylist([], schema=request.keys.schema)
            self._at_once.append(LookupReply(request.number, nothing))
        return True

    def _keeps_at_hand(self, queue: KeyQueue, number: int) -> bool:
        """Whether a busy index may be given calls to begin when others return: if it works well, as
        many as it makes at once, and only whole ones.
        """
        state = queue.indexes[number]
        has_room = state.n_out < 2 * state.index.concurrency
        has_room &= queue.n_waiting >= state.index.keys_per_lookup
        is_well = state.latency_ns is not None and not state.n_failed
        return has_room and is_well and self.executor.keeps_at_hand

    def _recall(self, queue: KeyQueue, state: IndexState) -> None:
        """Let the keys of calls wait again that have not begun."""
        for number in self.executor.recall(queue.name, state.index):
            keys = self._drop(number).keys
            state.n_lookups -= 1
            state.n_keys -= keys.ids.shape[0]
            if not queue.is_closed:
                queue.add(keys, first=True)

    def _deadline_ns(self, call: _Call) -> int:
        began_ns = self.executor.began_ns(call.request)
        if began_ns is None:
            return _NEVER_NS
        queue, number = call.queue, call.index_number
        allowed_ns = queue.indexes[number].index.timeout_s * 1e9
        for other_number, other in enumerate(queue.indexes):
            can = call.keys.failures[other_number] <= other.index.retries
            if other_number != number and can and other.latency_ns and not other.n_failed:
                allowed_ns = min(allowed_ns, _OVERDUE * other.latency_ns)
        return began_ns + int(allowed_ns)

    def _drop(self, number: int) -> _Call:
        call = self._calls.pop(number)
        call.queue.n_calls -= 1
        call.queue.indexes[call.index_number].n_out -= 1
        return call

    def _fail(
        self, call: _Call, reason: str, has_scan: Sequence[bool], began_ns: int | None
    ) -> None:
        if began_ns is None:
            began_ns = call.request.issued_ns
        self._drop(call.request.number)
        queue, number = call.queue, call.index_number
        now_ns = self._clock.now_ns()
        state = queue.indexes[number]
        self._recall(queue, state)
        waited_s = (now_ns - began_ns) / 1e9
        is_slow = not reason and waited_s < state.index.timeout_s  # no failure: a mirror is faster
        reason = reason or f"no answer after {waited_s:g} s"
        state.failed(now_ns, began_ns)
        n_keys = call.keys.ids.shape[0]
        if self._events is not None:
            event = LookupFailed(now_ns, queue.name, state.index.name, n_keys, reason)
            self._events.emit(event)
        failures = call.keys.failures
        if not is_slow:
            failures = tuple(n + (i == number) for i, n in enumerate(failures))
        if any(n <= s.index.retries for n, s in zip(failures, queue.indexes, strict=True)):
            queue.add(_Keys(call.keys.ids, failures), first=True)
        elif has_scan[queue.relation]:
            queue.given_up.append(call.keys.ids)
        else:
            tried = ", ".join(f"{s.index.name!r}" for s in queue.indexes)
            raise SourceError(
                f"{queue.name!r} could not be looked up by {', '.join(queue.eots.bind)}: "
                f"{sum(failures)} attempts with {tried} failed, at last: {reason}. Repair the "
                "source, add a mirror, or allow more retries or a longer timeout_s"
            )
