"""A stream that is asked again after a while when it has failed, without anybody waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.retries import Patience
from eddies.sources.streams.base import Offset, Part, Stream
from eddies.sources.streams.wrapped import Wrapped

__all__ = ["STREAM_PATIENCE", "PatientStream"]

STREAM_PATIENCE = Patience(retries=4, backoff_s=0.1)


class PatientStream(Wrapped):
    """`stream`, whose failures are news only when they do not pass.

    After a failure `latest` has nothing new until a pause is over, which doubles from one failure to
    the next; after `patience.retries` of them it raises the last one. Any success begins anew.
    """

    is_patient: ClassVar[bool] = True

    def __init__(
        self,
        stream: Stream,
        patience: Patience = STREAM_PATIENCE,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self._patience = patience
        self._now_s = now_s
        self._n_failures = 0
        self._not_before_s = 0.0
        self.schema: pa.Schema = stream.schema

    def __reduce__(self) -> tuple[object, ...]:
        return PatientStream, (self._stream, self._patience, self._now_s)

    def narrowed(self, columns: Sequence[str]) -> PatientStream:
        return PatientStream(self._stream.narrowed(columns), self._patience, self._now_s)

    def start(self) -> Offset:
        return self._stream.start()

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        if self._n_failures and self._now_s() < self._not_before_s:
            return offset
        try:
            end = self._stream.latest(offset, most_rows)
        except Exception as error:
            self._n_failures += 1
            if self._stream.is_patient or self._n_failures > self._patience.retries:
                times, self._n_failures = self._n_failures, 0
                raise SourceError(f"{self.label} failed {times} times, at last: {error}") from error
            pause_s = self._patience.backoff_s * 2 ** (self._n_failures - 1)
            self._not_before_s = self._now_s() + pause_s
            return offset
        self._n_failures = 0
        return end

    def is_end(self, offset: Offset) -> bool:
        return self._stream.is_end(offset)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        return self._stream.parts(start, end)
