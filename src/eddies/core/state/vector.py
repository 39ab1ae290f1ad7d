"""A growing vector that copies as late as it can.

Rows of a table in memory come as slices of one long buffer. As long as each slice begins where the
last one ended, the vector is simply a longer view of that buffer: nothing is copied, nothing is
allocated. The first slice from elsewhere makes the vector move to memory of its own, which grows by
doubling and comes from a shelf (`buffers`), because fresh pages cost more than copying.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.state.buffers import SHELF

__all__ = ["Values", "Vector"]

Values = npt.NDArray[Any]  # the dtype varies by column type


class Vector:
    """Entries of one dtype. `values` is a view of all of them, valid until the next `append`."""

    __slots__ = ("_address", "_first", "_lent", "_whole", "values")

    def __init__(self, values: Values) -> None:
        self.values = values
        self._whole: Values | None = None  # the buffer `values` is a part of, ...
        self._address = 0
        self._first = 0  # ... and where it begins there
        self._lent: npt.NDArray[np.uint64] | None = None

    @classmethod
    def of_buffer(cls, buffer: pa.Buffer | None, dtype: Any, first: int, n: int) -> Self:
        """The entries `first:first+n` of an Arrow buffer, which is kept alive."""
        if n == 0 or buffer is None:
            return cls(np.empty(0, dtype=dtype))
        dtype = np.dtype(dtype)
        whole = np.frombuffer(buffer, dtype=dtype, count=buffer.size // dtype.itemsize)
        vector = cls(whole[first : first + n])
        vector._whole, vector._first, vector._address = whole, first, buffer.address
        return vector

    def __len__(self) -> int:
        return len(self.values)

    def append(self, other: Vector, room: int) -> None:
        """Add the entries of `other`; if memory must be found, find it for `room` entries."""
        n, more = len(self.values), len(other.values)
        if more == 0:
            return
        if self._lent is None and other._whole is not None:
            if n == 0:
                self._whole, self._first = other._whole, other._first
                self._address, self.values = other._address, other.values
                return
            if self._address == other._address and other._first == self._first + n:
                self.values = other._whole[self._first : self._first + n + more]
                return
        own = self._own_memory(n + more, room)
        own[n : n + more] = other.values
        self.values = own[: n + more]

    def _own_memory(self, n: int, room: int) -> Values:
        """Memory of this vector's own for at least `n` entries, holding those it has."""
        dtype = self.values.dtype
        if self._lent is not None:
            own = self._lent.view(dtype)
            if len(own) >= n:
                return own
        n_words = max(n, min(room, 1 << 31), 2 * len(self.values)) * dtype.itemsize // 8 + 1
        lent = SHELF.take(1 << (n_words - 1).bit_length())
        own = lent.view(dtype)
        own[: len(self.values)] = self.values
        if self._lent is not None:
            SHELF.put(self._lent)
        self._lent, self._whole, self._address = lent, None, 0
        return own

    def release(self) -> None:
        """Give the memory back. The vector and all views of it must not be used afterwards."""
        if self._lent is not None:
            SHELF.put(self._lent)
        self._lent = self._whole = None
        self.values = self.values[:0]

    @property
    def n_bytes(self) -> int:
        """Memory in use: of its own, or the part of a shared buffer that it keeps alive. Room for
        entries to come is not counted: it is untouched, or was on the shelf before.
        """
        return self.values.nbytes
