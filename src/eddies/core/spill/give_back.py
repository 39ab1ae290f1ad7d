"""Give freed memory back to the system, so that what was flushed is also gone from the process.

Allocators keep what is freed: Arrow's pool for the next batch, the C library's heap wherever something
small lies above it. After a flush that is memory which counts. But to get it again costs a page fault
for every four kilobytes, and there is always a next batch: so it is given back only when the process
holds more than it should.

The C library learns from what is freed: after the first array of 30 MB it puts all up to that size on
its heap, where each leaves a hole that only a smaller one can use. With a budget it is told to map
arrays of four megabytes and more by themselves, unless its heap has a free piece that large, so that
they are gone when they are freed. That is a setting of the whole process, and stays. What comes again
and again is on the shelf (`state.buffers`).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

import pyarrow as pa

from eddies.core.state.buffers import SHELF

__all__ = ["GiveBack"]


def _of_c_library(name: str) -> Callable[..., int] | None:
    """A function of the C library, where there is one (glibc)."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), name, None)


_TRIM = _of_c_library("malloc_trim")
_SET = _of_c_library("mallopt")
_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3  # how `mallopt` calls them
_MAPPED_BYTES = 4 << 20
_URGENT = 1.2  # times the budget that the process may hold before it gives back
_KEPT_BYTES = 32 << 20  # free at the end of the heap: what batches use again and again


def _resident_bytes() -> int | None:
    """Memory that the process holds; None where the system does not tell in passing."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


class GiveBack:
    """Lets the process grow by `budget_bytes` from now on; a `shelf_share`th may be on the shelf."""

    def __init__(self, budget_bytes: int, shelf_share: int) -> None:
        self._budget_bytes = budget_bytes
        self._shelf_bytes = budget_bytes // shelf_share
        if _SET is not None:
            _SET(_MAP_THRESHOLD, _MAPPED_BYTES)
            _SET(_TRIM_THRESHOLD, _KEPT_BYTES)
        self._before = _resident_bytes()

    def __call__(self) -> None:
        """Much has been freed."""
        SHELF.trim(self._shelf_bytes)
        self.if_urgent()

    def if_urgent(self) -> None:
        """A little has been freed, and will be again and again."""
        held = _resident_bytes()
        most = _URGENT * self._budget_bytes
        if held is None or self._before is None or held > self._before + most:
            pa.default_memory_pool().release_unused()
            if _TRIM is not None:
                _TRIM(0)
