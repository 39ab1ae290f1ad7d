"""Reads ahead: a thread makes the next piece of something while the one before is in use.

What is read back from disk is known long before it is needed. To read it, to test its checksums and to
put it into memory takes about as long as what is then done with it, and nearly all of both happens
outside of the interpreter, so both go on at the same time. One piece more than before is in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["ReadAhead"]

T = TypeVar("T")


class ReadAhead:
    """Threads that read ahead, made when they are needed: one for each of `n_at_once` iterators."""

    def __init__(self, n_at_once: int) -> None:
        self._n_at_once = n_at_once
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def items(self, items: Generator[T]) -> Iterator[T]:
        """The same `items`; the next is always under way. Errors come where the item would."""
        following = self._next(items)
        try:
            while (found := following.result()) is not None:
                following = self._next(items)
                yield found
        finally:
            following.cancel()
            wait([following])
            items.close()

    def _next(self, items: Iterator[T]) -> Future[T | None]:
        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(self._n_at_once, "eddy-ahead")
            return self._pool.submit(next, items, None)

    def close(self) -> None:
        """End the threads. May be called again, and from any thread."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)
