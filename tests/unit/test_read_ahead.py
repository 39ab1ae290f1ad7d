"""Splits that threads read ahead come as if one reader had read them in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from eddies.sources.inline import InlineSource
from eddies.sources.source import Split
from eddies.spark.read_ahead import read_ahead


class Splits:
    """Splits of two rows each, and a reader for each of some threads that notes who reads what."""

    def __init__(self, n_splits: int, n_readers: int) -> None:
        self.splits: list[Split] = []
        for n in range(n_splits):
            self.splits += InlineSource(pa.table({"id": [2 * n, 2 * n + 1]})).splits()
        self.begun: list[Split] = []
        self.fails_at: Split | None = None
        self.most_at_once = 0
        self._n_at_once = 0
        self._lock = threading.Lock()
        self.readers = [self._reader(n) for n in range(n_readers)]

    def _reader(self, number: int) -> Reader:
        return Reader(self, number)

    def enter(self, split: Split) -> None:
        with self._lock:
            self.begun.append(split)
            self._n_at_once += 1
            self.most_at_once = max(self.most_at_once, self._n_at_once)

    def leave(self) -> None:
        with self._lock:
            self._n_at_once -= 1


class Reader:
    """Reads a split in two batches, the first splits slowest; never two at a time."""

    def __init__(self, splits: Splits, number: int) -> None:
        self._splits = splits
        self._number = number
        self._is_busy = False

    def __call__(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert not self._is_busy, "a reader is used by one thread at a time"
        self._is_busy = True
        self._splits.enter(split)
        try:
            time.sleep(0.02 if len(self._splits.begun) < 3 else 0.001)
            if split is self._splits.fails_at:
                raise ValueError("torn")
            for batch in split.read(["id"]):
                yield batch.slice(0, 1)
                yield batch.slice(1)
        finally:
            self._is_busy = False
            self._splits.leave()


@pytest.mark.parametrize("n_readers", [1, 2, 3])
@pytest.mark.parametrize("n_splits", [0, 1, 2, 20])
def test_rows_come_in_the_order_of_the_splits(n_splits: int, n_readers: int) -> None:
    made = Splits(n_splits, n_readers)
    found = [x for b in read_ahead(made.splits, made.readers) for x in b["id"].to_pylist()]
    assert found == list(range(2 * n_splits))
    assert made.most_at_once <= n_readers
    if n_readers > 1 and n_splits == 20:
        assert made.most_at_once > 1


def test_no_more_is_read_ahead_than_a_few_splits_a_thread() -> None:
    made = Splits(50, 2)
    rows = read_ahead(made.splits, made.readers)
    next(rows)
    time.sleep(0.1)
    assert len(made.begun) <= 2 * 2 + 1
    rows.close()  # type: ignore[attr-defined]
    n_begun = len(made.begun)
    time.sleep(0.05)
    assert len(made.begun) == n_begun


def test_an_error_comes_when_its_split_does_and_ends_reading() -> None:
    made = Splits(30, 2)
    made.fails_at = made.splits[4]
    rows = read_ahead(made.splits, made.readers)
    found = [x for _ in range(8) for x in next(rows)["id"].to_pylist()]
    with pytest.raises(ValueError, match="torn"):
        next(rows)
    assert found == list(range(8))
    assert len(made.begun) < 12
