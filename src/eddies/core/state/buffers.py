"""Large zeroed arrays that are used again: an allocator for index tables.

A fresh page must be found, zeroed and mapped by the system, which for an index table costs several
times what filling it costs. So tables go back to a shelf when their index is dropped, and the next
index of the same size takes them from there. The shelf is bounded; what does not fit goes back to the
system. Safe to use from several threads.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["SHELF_BYTES", "Shelf", "TABLES"]

SHELF_BYTES = 256 << 20  # most memory kept for later
_SMALLEST_BYTES = 1 << 20
_LINE_WORDS = 8


class Shelf:
    """Arrays of 64-bit words that start on a cache line, by length."""

    def __init__(self, most_bytes: int = SHELF_BYTES) -> None:
        self._most_bytes = most_bytes
        self._n_bytes = 0
        self._arrays: dict[int, list[npt.NDArray[np.uint64]]] = {}
        self._lock = threading.Lock()

    @property
    def n_bytes(self) -> int:
        """Memory on the shelf now."""
        return self._n_bytes

    def take(self, n_words: int) -> npt.NDArray[np.uint64]:
        """A zeroed array of `n_words`."""
        with self._lock:
            kept = self._arrays.get(n_words)
            array = kept.pop() if kept else None
            if array is not None:
                self._n_bytes -= array.nbytes
        if array is not None:
            array.fill(0)
            return array
        padded = np.zeros(n_words + _LINE_WORDS, dtype=np.uint64)
        skip = (-padded.ctypes.data % 64) // 8
        return padded[skip : skip + n_words]

    def put(self, array: npt.NDArray[np.uint64]) -> None:
        """Give an array back. Nobody may use it afterwards."""
        with self._lock:
            if array.nbytes >= _SMALLEST_BYTES and self._n_bytes + array.nbytes <= self._most_bytes:
                self._arrays.setdefault(array.shape[0], []).append(array)
                self._n_bytes += array.nbytes


TABLES = Shelf()
"""The shelf of this process."""
