"""A stream that must ask somebody else how far it goes, made one that keeps nobody waiting.

A thread asks, and while it has no answer there is nothing new. When an answer is handed out, the next
question is asked at once, so that it is answered while the epoch runs. A source that hangs hangs in its
thread.

With `keeps_rows`, the rows themselves are fetched along with the answer and kept until the epoch is
planned, whose parts carry them: what `latest` has promised can then no longer fail in a task. That is
needed where fetching twice costs too much (pages of a server, a file that can only be read from its
beginning), and for mirrors, where a failure must be known before the offset is written. Two steps are
kept at most. A process that starts anew fetches again what was promised before.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.retries import Patience
from eddies.sources.streams.base import Offset, Part, Stream
from eddies.sources.streams.patient import STREAM_PATIENCE
from eddies.sources.streams.rows import CarriedRows, carried
from eddies.sources.streams.wrapped import Wrapped

__all__ = ["AheadStream"]

_IDLE_S = 10.0


@dataclass(slots=True)
class _Look:
    """One question and its answer. `is_done` is written last."""

    most_rows: int
    end: Offset
    kept: CarriedRows | None = None
    error: SourceError | None = None
    is_done: bool = False


class _Asker:
    """A thread that does one thing after the other, and goes when nobody has asked for a while.

    One thread, because connections belong to the thread that made them. A process may end while the
    thread still waits for an answer.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._is_running = False

    def ask(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._work.append(work)
            self._changed.notify()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._work, _IDLE_S):
                    self._is_running = False
                    return
                work = self._work.popleft()
            work()
            del work  # and with it the stream, if nobody else has it any more


class AheadStream(Wrapped):
    """`stream`, whose `latest` may wait, asked by a thread. See the module docstring.

    `columns` are those that are kept. Without `is_eager`, no question is asked in advance: for streams
    that are told to go less far the next time.
    """

    is_patient: ClassVar[bool] = True

    def __init__(
        self,
        stream: Stream,
        columns: Sequence[str] | None = None,
        *,
        keeps_rows: bool = False,
        is_eager: bool = True,
        patience: Patience = STREAM_PATIENCE,
    ) -> None:
        super().__init__(stream)
        self._keeps_rows = keeps_rows
        self._is_eager = is_eager
        self._patience = patience
        wanted = stream.schema.names if columns is None else columns
        self.schema = pa.schema([stream.schema.field(name) for name in wanted])
        self._looks: dict[str, _Look] = {}
        self._asker = _Asker(f"ahead {stream.label}")
        self._inner = threading.Lock()  # `stream` is asked by one thread at a time

    def __reduce__(self) -> tuple[object, ...]:
        settings = (self._stream, self.schema.names, self._keeps_rows, self._is_eager)
        return _unpickled, (*settings, self._patience)

    def narrowed(self, columns: Sequence[str]) -> AheadStream:
        return AheadStream(
            self._stream.narrowed(columns),
            columns,
            keeps_rows=self._keeps_rows,
            is_eager=self._is_eager,
            patience=self._patience,
        )

    def start(self) -> Offset:
        return self._stream.start()

    def is_end(self, offset: Offset) -> bool:
        return self._stream.is_end(offset)

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        if self.is_end(offset):
            return offset
        place = json.dumps(offset)
        look = self._looks.get(place)
        if look is None:
            self._looks = {place: self._begin(offset, most_rows)}
            return offset
        if not look.is_done:
            return offset
        if look.error is not None:
            del self._looks[place]
            raise look.error
        n_rows = look.end["rows"] - offset["rows"]
        is_too_far = n_rows > most_rows and most_rows < look.most_rows
        if look.end == offset or is_too_far:
            self._looks = {place: self._begin(offset, most_rows)}
            return offset
        following = json.dumps(look.end)
        if following not in self._looks:
            self._looks = {place: look}
            if self._is_eager and not self.is_end(look.end):
                self._looks[following] = self._begin(look.end, most_rows)
        return look.end

    def _begin(self, offset: Offset, most_rows: int) -> _Look:
        look = _Look(most_rows, offset)
        self._asker.ask(partial(self._answer, look, offset))
        return look

    def _answer(self, look: _Look, offset: Offset) -> None:
        try:
            if self._stream.is_patient:
                self._ask(look, offset)
            else:
                self._patience.call(self.label, lambda: self._ask(look, offset), _may_pass)
        except SourceError as error:
            look.error = error
        except Exception as error:  # noqa: BLE001 - a source may raise anything
            look.error = SourceError(f"{self.label} failed: {error!r}")
        finally:
            look.is_done = True

    def _ask(self, look: _Look, offset: Offset) -> None:
        with self._inner:
            end = self._stream.latest(offset, look.most_rows)
            if self._keeps_rows and end != offset:
                look.kept = self._fetched(offset, end)
        look.end = end

    def _fetched(self, start: Offset, end: Offset) -> CarriedRows:
        names = self.schema.names
        batches = (batch for part in self._stream.parts(start, end) for batch in part.read(names))
        return carried(self.schema, batches)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        look = self._looks.get(json.dumps(start))
        if look is not None and look.is_done and look.kept is not None and look.end == end:
            return [look.kept] if look.kept.n_rows else []
        with self._inner:
            if not self._keeps_rows:
                return self._stream.parts(start, end)
            found = self._fetched(start, end)
        return [found] if found.n_rows else []


def _may_pass(error: Exception) -> bool:
    return True


def _unpickled(
    stream: Stream,
    columns: Sequence[str],
    keeps_rows: bool,
    is_eager: bool,
    patience: Patience,
) -> AheadStream:
    return AheadStream(stream, columns, keeps_rows=keeps_rows, is_eager=is_eager, patience=patience)
