"""Large arrays that are used again: an allocator for index tables and row stores.

A fresh page must be found, zeroed and mapped by the system, which costs several times what filling
it costs. So arrays go back to a shelf when their owner is dropped, and the next owner of the same
size takes them from there. The shelf is bounded; what does not fit goes back to the
system. Safe to use from several threads.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["SHELF", "SHELF_BYTES", "Shelf"]

SHELF_BYTES = 512 << 20  # most memory kept for later
_SMALLEST_BYTES = 1 << 20
_LINE_WORDS = 8


class Shelf:
    """Arrays of 64-bit words, by length."""

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
        """An array of `n_words` with any content."""
        array = self._kept(n_words)
        return np.empty(n_words, dtype=np.uint64) if array is None else array

    def take_zeros(self, n_words: int) -> npt.NDArray[np.uint64]:
        """A zeroed array of `n_words` that starts on a cache line."""
        array = self._kept(n_words)
        if array is not None and array.ctypes.data % 64 == 0:
            array.fill(0)
            return array
        padded = np.zeros(n_words + _LINE_WORDS, dtype=np.uint64)
        skip = (-padded.ctypes.data % 64) // 8
        return padded[skip : skip + n_words]

    def _kept(self, n_words: int) -> npt.NDArray[np.uint64] | None:
        with self._lock:
            kept = self._arrays.get(n_words)
            array = kept.pop() if kept else None
            if array is not None:
                self._n_bytes -= array.nbytes
        return array

    def put(self, array: npt.NDArray[np.uint64]) -> None:
        """Give an array back. Nobody may use it afterwards."""
        with self._lock:
            if array.nbytes >= _SMALLEST_BYTES and self._n_bytes + array.nbytes <= self._most_bytes:
                self._arrays.setdefault(array.shape[0], []).append(array)
                self._n_bytes += array.nbytes

    def trim(self, most_bytes: int) -> None:
        """Give memory back to the system until at most `most_bytes` are kept."""
        with self._lock:
            while self._n_bytes > most_bytes:
                n_words = max(n for n, kept in self._arrays.items() if kept)
                self._n_bytes -= self._arrays[n_words].pop().nbytes


SHELF = Shelf()
"""The shelf of this process."""
