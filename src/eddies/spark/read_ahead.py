"""Reading ahead: threads decode the next splits of a relation while the task works on those before.

A cell that has the machine to itself reads by itself all that other cells would have read. Decoding is
done outside of Python's lock, so threads share it well. The rows come in the order of the splits, as
from one reader, and no more of them are decoded ahead than a few splits for each thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pyarrow as pa

from eddies.sources.source import Split

__all__ = ["read_ahead"]

_AHEAD = 2  # splits for each thread: one under way, one to turn to

Read = Callable[[Split], Iterator[pa.RecordBatch]]


def read_ahead(splits: Sequence[Split], readers: Sequence[Read]) -> Iterator[pa.RecordBatch]:
    """The rows of all splits in turn, read by as many threads as there are `readers`; each of these is
    used by one thread at a time.
    """
    idle: SimpleQueue[Read] = SimpleQueue()
    for reader in readers:
        idle.put(reader)

    def read(split: Split) -> list[pa.RecordBatch]:
        reader = idle.get()
        try:
            return list(reader(split))
        finally:
            idle.put(reader)

    pool = ThreadPoolExecutor(len(readers), "reader")
    left = iter(splits)
    ahead: deque[Future[list[pa.RecordBatch]]] = deque()

    def send() -> None:
        for split in left:
            ahead.append(pool.submit(read, split))
            if len(ahead) >= _AHEAD * len(readers):
                return

    try:
        send()
        while ahead:
            batches = ahead.popleft().result()
            send()
            yield from batches
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
