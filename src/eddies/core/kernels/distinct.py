"""What of a batch is new: different words, by a little table in an eighth of the time of sorting them;
and rows that bear no mark yet.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import boolean, i32, kernel, ro, rw, u64
from eddies.core.kernels.sampling import slot_of

__all__ = ["first_of_each", "mark_new"]

Marks = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int32]


@kernel(types.int64(ro(u64), rw(i32)))
def first_of_each(words: Words, positions: Positions) -> int:
    """Where each word stands first, in `positions`, which has room for all. Returns how many differ."""
    shift = np.uint64(63)
    size = 2
    while size < 2 * words.shape[0]:
        size *= 2
        shift -= np.uint64(1)
    keys = np.empty(size, np.uint64)
    counts = np.zeros(size, np.int64)
    n = 0
    for i in range(words.shape[0]):
        slot = slot_of(words[i], keys, counts, shift)
        if counts[slot] == 0:
            keys[slot] = words[i]
            counts[slot] = 1
            positions[n] = i
            n += 1
    return n


@kernel(types.int64(ro(i32), rw(boolean), rw(i32)))
def mark_new(rows: Positions, marks: Marks, fresh: Positions) -> int:
    """Mark `rows`; those that had no mark, each once, go to `fresh`. Returns how many."""
    n = 0
    for row in rows:
        if not marks[row]:
            marks[row] = True
            fresh[n] = row
            n += 1
    return n
