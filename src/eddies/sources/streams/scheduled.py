"""A stream on a schedule: rows can be had when they are due, failures come where they are asked for.

The schedule (`eddies.sources.streams.schedule`) hangs on the wall-clock moment at which the stream
began. The moment is part of every offset: a query that is stopped and resumed finds the rows that were
due meanwhile. Failures are counted by the process that plans, so one that starts anew sees them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.streams.base import Offset, Part, Stream, offset_at
from eddies.sources.streams.schedule import Schedule
from eddies.sources.streams.wrapped import Wrapped

__all__ = ["SimulatedStream"]


class SimulatedStream(Wrapped):
    """`stream` on a schedule. `now_s` is the wall clock."""

    is_patient: ClassVar[bool] = False

    def __init__(
        self, stream: Stream, schedule: Schedule, now_s: Callable[[], float] = time.time
    ) -> None:
        super().__init__(stream)
        self._schedule = schedule
        self._now_s = now_s
        self._n_failures = 0
        self.schema: pa.Schema = stream.schema

    def __reduce__(self) -> tuple[object, ...]:
        return SimulatedStream, (self._stream, self._schedule, self._now_s)

    @property
    def label(self) -> str:
        return f"simulated {self._stream.label}"

    def narrowed(self, columns: Sequence[str]) -> SimulatedStream:
        return SimulatedStream(self._stream.narrowed(columns), self._schedule, self._now_s)

    def start(self) -> Offset:
        return self._offset(self._stream.start(), int(self._now_s() * 1000))

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        inner, began_ms = offset["at"], offset["began_ms"]
        if self._stream.is_end(inner):
            return offset
        rows = offset["rows"]
        most_rows = self._unfailed(rows, most_rows)
        elapsed_s = self._now_s() - began_ms / 1000
        n_due = self._schedule.n_due(elapsed_s, rows, most_rows)
        is_empty = self._stream.n_rows == 0 and elapsed_s >= self._schedule.delay_s
        if n_due == 0 and not is_empty:
            return offset
        end = self._stream.latest(inner, max(n_due, 1))
        return offset if end == inner else self._offset(end, began_ms)

    def _unfailed(self, rows: int, most_rows: int) -> int:
        """How far it goes before it fails; raises if it fails here."""
        schedule = self._schedule
        if schedule.fail_after is None or rows > schedule.fail_after:
            return most_rows
        if rows < schedule.fail_after:
            return min(most_rows, schedule.fail_after - rows)
        if schedule.fail_times is None or self._n_failures < schedule.fail_times:
            self._n_failures += 1
            raise SourceError(f"{self.label} failed after {rows} rows, as asked")
        return most_rows

    def _offset(self, inner: Offset, began_ms: int) -> Offset:
        return offset_at(
            inner["rows"], is_end=self._stream.is_end(inner), began_ms=began_ms, at=inner
        )

    def is_end(self, offset: Offset) -> bool:
        return self._stream.is_end(offset["at"])

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        return self._stream.parts(start["at"], end["at"])
