"""Readings of splits that go on where they stopped.

A range of a split is read from the split's beginning: what lies before it is decoded and dropped. But
the process that reads a range often reads the next one, an epoch later. So it keeps a few readings
open, and goes on with one if it stands at or before the range; otherwise it begins a new one. Whether
it finds one changes nothing but the time: a split gives the same rows in the same order at every
reading.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from eddies.sources.source import Split

__all__ = ["OpenReadings", "open_readings"]

_MOST_OPEN = 16
_BATCH_ROWS = 1 << 16


class _Reading:
    """Batches of a split, of which the next one begins at row `position`."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.position = 0
        self.is_ended = False
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def rows(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `stop`, of which none lies before `position`."""
        while self.position < stop:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                self.is_ended = True
                return
            begin = min(max(first - self.position, 0), batch.num_rows)
            end = min(stop - self.position, batch.num_rows)
            self.position += end
            if end < batch.num_rows:
                self._rest = batch.slice(end)
            if begin < end:
                yield batch.slice(begin, end - begin)


class OpenReadings(threading.local):
    """The readings of a process; each of its threads has its own."""

    def __init__(self, most_open: int = _MOST_OPEN) -> None:
        self._most_open = most_open
        self._open: dict[tuple[bytes, tuple[str, ...]], _Reading] = {}

    def rows(
        self, split: Split, columns: Sequence[str], first: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `stop` of a split."""
        key = (pickle.dumps(split), tuple(columns))
        reading = self._open.pop(key, None)
        if reading is None or reading.position > first:
            reading = _Reading(split.read(columns, (), _BATCH_ROWS))
        yield from reading.rows(first, stop)
        # Only a reading whose reader has taken everything stands where it says.
        if not reading.is_ended and stop != split.n_rows:
            self._open[key] = reading
            while len(self._open) > self._most_open:
                del self._open[next(iter(self._open))]


open_readings = OpenReadings()
