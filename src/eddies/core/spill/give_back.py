"""Give freed memory back to the system, so that what was flushed is also gone from the process.

Allocators keep what is freed: Arrow's pool for the next batch, the C library's heap wherever something
small lies above it. After a flush that is memory nobody needs, but which counts.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import pyarrow as pa

from eddies.core.state.buffers import SHELF

__all__ = ["give_back"]


def _find_trim() -> Callable[[int], int] | None:
    """The C library's `malloc_trim`, where there is one (glibc)."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_TRIM = _find_trim()


def give_back(shelf_bytes: int) -> None:
    """Keep at most `shelf_bytes` on the shelf, and nothing else that is free."""
    SHELF.trim(shelf_bytes)
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)
