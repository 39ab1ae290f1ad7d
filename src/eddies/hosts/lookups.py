"""Who carries look-ups: threads in a real run, a list of due moments in virtual time."""

from __future__ import annotations

import heapq
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from eddies.core.access.method import IndexAccess
from eddies.core.access.requests import LookupReply, LookupRequest
from eddies.core.clock import Clock

__all__ = ["Fate", "ThreadLookups", "VirtualLookups"]

_LONGEST_WAIT_S = 0.5  # in one go, so that an interrupt is noticed


def _answer(request: LookupRequest) -> LookupReply:
    """Call the look-up; whatever it raises is an error of the source, to be asked again."""
    try:
        rows = request.index.lookup(request.keys)
        if isinstance(rows, pa.Table):
            rows = _as_batch(rows)
    except BaseException as error:  # noqa: BLE001 - a source may raise anything, also on its way out
        return LookupReply(request.number, None, f"{type(error).__name__}: {error}")
    if not isinstance(rows, pa.RecordBatch):
        kind = type(rows).__name__
        return LookupReply(
            request.number, None, f"the look-up returned a {kind}, not a RecordBatch or Table"
        )
    return LookupReply(request.number, rows)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


@dataclass(slots=True)
class _Lane:
    """The calls of one index: how many are under way, and those at hand."""

    n_busy: int = 0
    at_hand: deque[LookupRequest] = field(default_factory=deque)


class ThreadLookups:
    """Daemon threads that call look-ups, as many as there are calls at once.

    A thread whose call has returned begins the next call at hand of the same index without waiting for
    the eddy, which may be at work meanwhile: so an index is as busy as it allows to be.

    A call that was abandoned keeps its thread until it returns, and nobody waits for that: a look-up
    that hangs for ever does not keep the process alive.
    """

    keeps_at_hand: ClassVar[bool] = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: queue.SimpleQueue[LookupRequest | None] = queue.SimpleQueue()
        self._has_reply = threading.Condition()
        self._replies: list[LookupReply] = []
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._began_ns: dict[
            int, int
        ] = {}  # of calls that nobody has abandoned, until replies are taken
        self._n_threads = 0
        self._n_busy = 0  # threads that have something to do
        self._is_poked = False
        self._is_closed = False

    def start(self, request: LookupRequest) -> None:
        """Give the request to a free thread, a new one if there is none, unless its index is busy."""
        with self._has_reply:
            lane = self._lane(request)
            if lane.n_busy >= request.index.concurrency:
                lane.at_hand.append(request)
                return
            lane.n_busy += 1
            self._began_ns[request.number] = self._clock.now_ns()
            self._n_busy += 1
            needs_thread = self._n_busy > self._n_threads
        if needs_thread:
            self._n_threads += 1
            name = f"lookup-{self._n_threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._requests.put(request)

    def _lane(self, request: LookupRequest) -> _Lane:
        return self._lanes.setdefault((request.relation, request.index.name), _Lane())

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            following: LookupRequest | None = request
            while following is not None:
                reply = _answer(following)
                with self._has_reply:
                    following = self._next(following, reply)
            if self._is_closed:
                return

    def _next(self, request: LookupRequest, reply: LookupReply) -> LookupRequest | None:
        """Hand over a reply; the call that its thread makes next, if there is one at hand."""
        if self._is_closed:
            return None
        began_ns = self._began_ns.get(request.number)
        if began_ns is None:  # abandoned: its place is taken
            self._n_busy -= 1
            return None
        self._replies.append(replace(reply, began_ns=began_ns))
        self._has_reply.notify()
        lane = self._lane(request)
        if lane.at_hand and not reply.error:
            following = lane.at_hand.popleft()
            self._began_ns[following.number] = self._clock.now_ns()
            return following
        lane.n_busy -= 1
        self._n_busy -= 1
        return None

    def began_ns(self, request: LookupRequest) -> int | None:
        """When a thread took it; None while it is at hand."""
        return self._began_ns.get(request.number)

    def recall(self, relation: str, index: IndexAccess) -> list[int]:
        """Take back what no thread has begun."""
        with self._has_reply:
            lane = self._lanes.get((relation, index.name))
            if lane is None:
                return []
            numbers = [request.number for request in lane.at_hand]
            lane.at_hand.clear()
            return numbers

    def replies(self) -> list[LookupReply]:
        """What threads have brought."""
        if not self._replies:
            return []
        with self._has_reply:
            found, self._replies = self._replies, []
            for reply in found:
                self._began_ns.pop(reply.number, None)
        return found

    def poke(self) -> None:
        """Wake whoever waits: there is something else to do. Called by any thread."""
        with self._has_reply:
            self._is_poked = True
            self._has_reply.notify()

    def abandon(self, request: LookupRequest) -> None:
        """Its thread goes on alone, its place is free; the reply will be ignored."""
        with self._has_reply:
            is_answered = any(reply.number == request.number for reply in self._replies)
            if self._began_ns.pop(request.number, None) is not None and not is_answered:
                self._lane(request).n_busy -= 1

    def next_reply_ns(self) -> int | None:
        """Nobody knows."""
        return None

    def wait(self, until_ns: int | None) -> None:
        """Sleep until a thread has a reply, somebody pokes, or until then."""
        with self._has_reply:
            while not (self._replies or self._is_closed or self._is_poked):
                wait_s = _LONGEST_WAIT_S
                if until_ns is not None:
                    wait_s = min(wait_s, (until_ns - self._clock.now_ns()) / 1e9)
                    if wait_s <= 0:
                        return
                self._has_reply.wait(wait_s)
            self._is_poked = False

    def close(self) -> None:
        """Let the threads go. Those inside a look-up leave when it returns."""
        with self._has_reply:
            self._is_closed = True
            self._replies = []
            self._has_reply.notify_all()
        for _ in range(self._n_threads):
            self._requests.put(None)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a simulated look-up: an answer, or `error`, after `after_s`; never if None."""

    after_s: float | None
    error: str = ""


class VirtualLookups:
    """Look-ups on a virtual clock: `fate` says how long each takes and whether it fails."""

    keeps_at_hand: ClassVar[bool] = False

    def __init__(self, clock: Clock, fate: Callable[[LookupRequest], Fate]) -> None:
        self._clock = clock
        self._fate = fate
        self._due: list[tuple[int, int, LookupRequest, str]] = []

    def start(self, request: LookupRequest) -> None:
        """Decide when it comes back."""
        fate = self._fate(request)
        if fate.after_s is not None:
            due_ns = self._clock.now_ns() + int(fate.after_s * 1e9)
            heapq.heappush(self._due, (due_ns, request.number, request, fate.error))

    def began_ns(self, request: LookupRequest) -> int | None:
        """At once."""
        return request.issued_ns

    def recall(self, relation: str, index: IndexAccess) -> list[int]:
        """All have begun."""
        return []

    def replies(self) -> list[LookupReply]:
        """Those whose moment has come."""
        found = []
        while self._due and self._due[0][0] <= self._clock.now_ns():
            _, number, request, error = heapq.heappop(self._due)
            found.append(LookupReply(number, None, error) if error else _answer(request))
        return found

    def abandon(self, request: LookupRequest) -> None:
        """Take it off the list."""
        self._due = [entry for entry in self._due if entry[1] != request.number]
        heapq.heapify(self._due)

    def next_reply_ns(self) -> int | None:
        """When the next one is due."""
        return self._due[0][0] if self._due else None

    def wait(self, until_ns: int | None) -> None:
        """Move the clock."""
        moments = [m for m in (until_ns, self.next_reply_ns()) if m is not None]
        if moments:
            self._clock.sleep_until_ns(min(moments))

    def close(self) -> None:
        """Forget everything."""
        self._due = []
