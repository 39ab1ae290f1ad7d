"""Who carries look-ups: threads in a real run, a list of due moments in virtual time."""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

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
    except Exception as error:  # noqa: BLE001 - a source may raise anything
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


class ThreadLookups:
    """Daemon threads that call look-ups, as many as there are calls at once.

    A call that was abandoned keeps its thread until it returns, and nobody waits for that: a look-up
    that hangs for ever does not keep the process alive.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: queue.SimpleQueue[LookupRequest | None] = queue.SimpleQueue()
        self._has_reply = threading.Condition()
        self._replies: list[LookupReply] = []
        self._n_threads = 0
        self._n_busy = 0  # requests started and not replied to
        self._is_poked = False
        self._is_closed = False

    def start(self, request: LookupRequest) -> None:
        """Give the request to a free thread, a new one if there is none."""
        with self._has_reply:
            self._n_busy += 1
            needs_thread = self._n_busy > self._n_threads
        if needs_thread:
            self._n_threads += 1
            name = f"lookup-{self._n_threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._requests.put(request)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            reply = _answer(request)
            with self._has_reply:
                self._n_busy -= 1
                if self._is_closed:
                    return
                self._replies.append(reply)
                self._has_reply.notify()

    def replies(self) -> list[LookupReply]:
        """What threads have brought."""
        if not self._replies:
            return []
        with self._has_reply:
            found, self._replies = self._replies, []
        return found

    def poke(self) -> None:
        """Wake whoever waits: there is something else to do. Called by any thread."""
        with self._has_reply:
            self._is_poked = True
            self._has_reply.notify()

    def abandon(self, number: int) -> None:
        """Its thread goes on alone; the reply will be ignored."""

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

    def replies(self) -> list[LookupReply]:
        """Those whose moment has come."""
        found = []
        while self._due and self._due[0][0] <= self._clock.now_ns():
            _, number, request, error = heapq.heappop(self._due)
            found.append(LookupReply(number, None, error) if error else _answer(request))
        return found

    def abandon(self, number: int) -> None:
        """Take it off the list."""
        self._due = [entry for entry in self._due if entry[1] != number]
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
