"""Pairs from ranges: what block and band joins enumerate.

A probe that has no equality to look up meets a range of a sequence of rows: all rows of a SteM (block
ripple join) or a stretch of a sorted run (band join). `expand_ranges` writes the pairs out in pieces
of bounded size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import i32, i64, kernel, ro, rw

__all__ = ["expand_ranges"]

Rows = npt.NDArray[np.int32]
Bounds = npt.NDArray[np.int64]


@kernel(types.int64(ro(i64), ro(i64), ro(i32), i64, rw(i64), rw(i32), rw(i32)))
def expand_ranges(
    starts: Bounds,
    stops: Bounds,
    sequence: Rows,
    limit: int,
    cursor: Bounds,
    positions: Rows,
    rows: Rows,
) -> int:
    """Write pairs (j, sequence[k]) for k in starts[j]:stops[j] with sequence[k] < limit.

    `cursor` holds the next j and k and is moved on; the call stops when the output is full. Finished
    when `cursor[0]` is the number of ranges. Returns the number of pairs written.
    """
    n = starts.shape[0]
    capacity = positions.shape[0]
    j = cursor[0]
    k = cursor[1]
    written = 0
    while j < n:
        if k < starts[j]:
            k = starts[j]
        while k < stops[j]:
            if written == capacity:
                cursor[0] = j
                cursor[1] = k
                return written
            row = sequence[k]
            positions[written] = j
            rows[written] = row
            written += row < limit
            k += 1
        j += 1
        k = 0
    cursor[0] = j
    cursor[1] = 0
    return written
