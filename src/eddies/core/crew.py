"""The crew: several threads that route what waits, while nobody stores anything.

Each thread has a router of its own, and with it a route table and scratch memory. They share SteMs,
which do not change any more, one policy (`policies.shared`), and the queue of what waits. A thread
takes a piece, routes it to its end, and takes the next. Kernels run outside of Python's lock, so two
threads do twice the work where batches are large.

Whoever polls is one of the crew: it takes pieces like the others until there are results, and waits
only when there are no more pieces. A thread more, which looks now and then whether the others have
something, would take the interpreter from them every time.

Nobody waits for a reader, who may never come: a thread that sees many unread results leaves its work
where it is, and is sent back to it when they were read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from eddies.core.batch import RoutedBatch, Unbuilt
from eddies.core.budget import Budget
from eddies.core.output import Output
from eddies.core.router import Router

__all__ = ["PIECE_NS", "Crew"]

Start = Callable[[Router, RoutedBatch | Unbuilt], None]

PIECE_NS = 10_000_000  # of work: pieces are cut so that decisions are looked at so often
_LAST_ROWS = 256  # the last pieces are cut to: few rows may have many matches
_MOST_READY = 64  # unread result batches at which threads pause
_GLANCE_S = 0.005  # how often the polling thread, with nothing left to do, looks for results


class Crew:
    """Threads of one eddy.

    Legal order of calls: `spread` when all that waits may be routed by anybody, then `go_on` while it
    `is_at_work`; `stop` at the end, or at any time.
    """

    def __init__(
        self,
        routers: Sequence[Router],
        waiting: deque[RoutedBatch | Unbuilt],
        output: Output,
        budget: Budget,
    ) -> None:
        self._routers = routers
        self._waiting = waiting
        self._output = output
        self._budget = budget
        self._start: Start | None = None  # known while at work; it knows the eddy, which knows us
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[Future[None], int] = {}  # to numbers of routers, but the first
        self._is_spread = False
        self._is_stopped = threading.Event()

    def __len__(self) -> int:
        return len(self._routers)

    @property
    def is_at_work(self) -> bool:
        return self._is_spread

    def spread(self, start: Start) -> None:
        """Give everything that waits to all routers; `start` gives a router what was taken."""
        self._start = start
        self._is_spread = True
        self._pool = self._pool or ThreadPoolExecutor(len(self._routers) - 1, "eddy")
        for number in range(1, len(self._routers)):
            self._send(number)

    def go_on(self) -> None:
        """Route a piece, or a part of one if that gives results; if there is none, wait a little. Sends
        those back who left something to do.
        """
        self._resume()
        if not self._work(0, most_ready=1) and not self._waiting:
            if self._running:
                wait(self._running, _GLANCE_S, FIRST_COMPLETED)
                self._resume()
            self._is_spread = bool(self._running)

    def results_were_read(self) -> None:
        """Send those back who paused because nobody read, if enough was read."""
        if self._running and self._output.n_ready < _MOST_READY // 2:
            self._resume()

    def stop(self) -> None:
        """End all threads as soon as they come to the end of a step; what waits is dropped."""
        self._is_stopped.set()
        if self._pool is not None:
            self._waiting.clear()
            self._pool.shutdown(wait=True)
            self._pool = None
            self._running = {}
            self._start = None
            self._is_spread = False

    def _send(self, number: int) -> None:
        assert self._pool is not None
        self._running[self._pool.submit(self._drain, number)] = number

    def _resume(self) -> None:
        """Look after threads that returned: they are through, have failed, or paused."""
        for future in [future for future in self._running if future.done()]:
            number = self._running.pop(future)
            future.result()
            if self._routers[number].n_in_flight or self._waiting:
                self._send(number)

    def _drain(self, number: int) -> None:
        """What a thread of its own does: work until nothing is left, or too much is unread."""
        output, stopped = self._output, self._is_stopped
        while self._work(number, _MOST_READY):
            if output.n_ready >= _MOST_READY or stopped.is_set():
                return

    def _work(self, number: int, most_ready: int) -> bool:
        """Go on where a router paused, then take from what waits and route it. Pauses after a step that
        leaves so many results unread. False if there was nothing to do.
        """
        router, output, stopped = self._routers[number], self._output, self._is_stopped
        start = self._start
        assert start is not None
        if not router.n_in_flight:
            try:
                waiting = self._waiting.popleft()
            except IndexError:
                return False
            start(router, self._first_of(waiting, router))
            if router.n_in_flight and not router.n_decisions:
                router.prepare_in_turn(number, len(self._routers))
        while router.step():
            if output.n_ready >= most_ready or stopped.is_set():
                return True
        if self._budget.is_limited:
            self._budget.check_growth(router)
        return True

    def _first_of(self, waiting: RoutedBatch | Unbuilt, router: Router) -> RoutedBatch | Unbuilt:
        """As many rows as one thread should take at a time; the others wait again."""
        n_rows = router.rows_within(PIECE_NS)
        if len(self._waiting) < len(self._routers):  # the last ones: everybody should have some
            n_rows = min(n_rows, max(_LAST_ROWS, waiting.n_rows // 2))
        if waiting.n_rows <= n_rows:
            return waiting
        first, rest = waiting.split(n_rows)
        self._waiting.appendleft(rest)
        return first
