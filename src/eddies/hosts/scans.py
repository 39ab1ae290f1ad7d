"""Scans that compete: which of several mirrors is read, and what happens when one stalls or dies.

All scans of a relation start together, as a race. After each has had its chance the fastest is the
*leader*, and only it is read: reading two mirrors to the end would be twice the work. When the leader
delivers nothing for several times as long as it usually takes, the others are read again, and whoever
delivers most leads. When it dies, the next one leads. What mirrors deliver twice is dropped where it is
built, so nothing here can make an answer wrong.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from eddies.core.clock import Clock
from eddies.errors import SourceError
from eddies.sources.arrivals import Arrivals
from eddies.sources.simulated import NEVER_NS

__all__ = ["Racer", "ScanRace", "ThreadedScan"]

_BATCHES_AHEAD = 2  # that a thread reads before somebody takes them
_TRIAL_BATCHES = 2  # of one scan after which the race has a winner
_PATIENCE = 4.0  # times the leader's longest pause so far, after which it is believed to stall
_LEAST_PATIENCE_NS = 20_000_000


class ThreadedScan:
    """Arrivals read by a thread of its own, so that a slow source keeps nobody waiting.

    A batch is due at once when it is there, and never while it is not; `poke` is called when that
    changes. Errors are raised by `due_ns`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        n_rows: int | None,
        open_: Callable[[], Iterator[pa.RecordBatch]],
        poke: Callable[[], None],
    ) -> None:
        self.schema = schema
        self._n_rows = n_rows
        self._open = open_
        self._poke = poke
        self._batches: deque[pa.RecordBatch] = deque()
        self._changed = threading.Condition()
        self._is_ended = False
        self._is_closed = False
        self._error: str = ""
        self._thread: threading.Thread | None = None

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    def start(self) -> None:
        """Begin to read."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="scan", daemon=True)
            self._thread.start()

    def _read(self) -> None:
        try:
            for batch in self._open():
                with self._changed:
                    while len(self._batches) >= _BATCHES_AHEAD and not self._is_closed:
                        self._changed.wait()
                    if self._is_closed:
                        return
                    if batch.num_rows:
                        self._batches.append(batch)
                self._poke()
        except BaseException as error:  # noqa: BLE001 - whatever ended the thread, this was not the end
            self._error = f"{error}" if isinstance(error, SourceError) else repr(error)
        finally:
            self._is_ended = True
            self._poke()

    def due_ns(self) -> int | None:
        """Now, or nobody knows when, or None at the end."""
        self.start()
        is_ended = self._is_ended  # before looking: a batch may come in between
        if self._batches:
            return 0
        if not is_ended:
            return NEVER_NS
        if self._error:
            raise SourceError(self._error)
        return None

    def take(self) -> pa.RecordBatch:
        """The batch that is due."""
        with self._changed:
            batch = self._batches.popleft()
            self._changed.notify()
        return batch

    def close(self) -> None:
        """Let the thread go when it next has a batch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()


@dataclass(slots=True, eq=False)
class Racer:
    """One scan of a relation and how it does."""

    name: str
    arrivals: Arrivals
    n_batches: int = 0
    n_rows: int = 0
    last_ns: int = 0
    longest_ns: int = 0

    def took(self, n_rows: int, now_ns: int) -> None:
        """It delivered."""
        self.longest_ns = max(self.longest_ns, now_ns - self.last_ns)
        self.last_ns = now_ns
        self.n_batches += 1
        self.n_rows += n_rows


class ScanRace:
    """All scans of one relation. `due` says which of them to read now."""

    def __init__(self, relation: str, racers: list[Racer], clock: Clock) -> None:
        self.relation = relation
        self.racers = racers
        self._clock = clock
        self._leader: Racer | None = racers[0] if len(racers) == 1 else None
        self._turn = 0

    def start(self) -> None:
        """The query begins now: pauses are counted from here."""
        for racer in self.racers:
            racer.last_ns = self._clock.now_ns()

    def lose(self, racer: Racer) -> None:
        """A scan has failed."""
        self.racers.remove(racer)
        if self._leader is racer:
            self._leader = None
            for other in self.racers:
                other.last_ns = self._clock.now_ns()

    def finish(self) -> None:
        """The race is over: one scan has ended, or nobody wants the rest. Threads are let go."""
        for racer in self.racers:
            if isinstance(racer.arrivals, ThreadedScan):
                racer.arrivals.close()
        self.racers.clear()

    def reading(self) -> list[Racer]:
        """The scans to read at this moment, those that had a turn longest ago first."""
        leader = self._leader
        if leader is not None and len(self.racers) > 1:
            silent_ns = self._clock.now_ns() - leader.last_ns
            if silent_ns >= self._patience_ns(leader):
                self._leader = leader = None
                for racer in self.racers:
                    racer.n_batches = 0
        if leader is not None:
            return [leader]
        return sorted(self.racers, key=lambda racer: racer.last_ns)

    def _patience_ns(self, leader: Racer) -> int:
        return max(int(_PATIENCE * leader.longest_ns), _LEAST_PATIENCE_NS)

    def patience_ends_ns(self) -> int | None:
        """When the leader is given up unless it delivers; None if there is nobody else."""
        if self._leader is None or len(self.racers) == 1:
            return None
        return self._leader.last_ns + self._patience_ns(self._leader)

    def took(self, racer: Racer, n_rows: int) -> None:
        """A scan delivered. The first to have delivered enough leads."""
        racer.took(n_rows, self._clock.now_ns())
        if self._leader is None and racer.n_batches >= _TRIAL_BATCHES:
            self._leader = racer
