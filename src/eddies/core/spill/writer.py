"""Writes what is spilled while the eddy goes on.

A disk takes its time, and whoever writes much is held up by the system. So does what comes before: rows
are put in order, packed and summed up. One thread does that for all files of an eddy, one piece after
the other, and at most `most_bytes` wait for it: whoever has more to write waits, too. A file that is
settled or closed waits for its own pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["SpillWriter"]


class SpillWriter:
    """A thread that writes, made when there is something to write. Several threads may call it."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._n_bytes = 0
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()

    def submit(self, write: Callable[[], None], n_bytes: int) -> Future[None]:
        """Have `write` called soon, which holds on to `n_bytes` until then."""
        with self._changed:
            while self._n_bytes and self._n_bytes + n_bytes > self.most_bytes:
                self._changed.wait()
            self._pool = self._pool or ThreadPoolExecutor(1, "eddy-spill")
            done = self._pool.submit(write)
            self._n_bytes += n_bytes
        done.add_done_callback(lambda _: self._forget(n_bytes))
        return done

    def _forget(self, n_bytes: int) -> None:
        with self._changed:
            self._n_bytes -= n_bytes
            self._changed.notify_all()

    def close(self) -> None:
        """All files are closed: end the thread. May be called again."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
