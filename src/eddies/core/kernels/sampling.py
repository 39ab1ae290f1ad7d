"""How many pairs of two samples are equal: the selectivity of a join, from a handful of keys.

The smaller sample goes into a little table of keys and counts, the larger one is looked up in it. That
is several times quicker than sorting one of them, and samples are taken all the time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import kernel, ro, u64

__all__ = ["n_equal_pairs"]

Words = npt.NDArray[np.uint64]


@kernel(types.int64(ro(u64), ro(u64)))
def n_equal_pairs(few: Words, many: Words) -> int:
    """Pairs of a word of `few` and an equal one of `many`; `few` should be the shorter vector."""
    spread = np.uint64(0x9E3779B97F4A7C15)
    shift = np.uint64(63)
    size = 2
    while size < 2 * few.shape[0]:
        size *= 2
        shift -= np.uint64(1)
    keys = np.empty(size, np.uint64)
    counts = np.zeros(size, np.int64)
    for i in range(few.shape[0]):
        slot = np.int64((few[i] * spread) >> shift)
        while counts[slot] and keys[slot] != few[i]:
            slot = (slot + 1) & (size - 1)
        keys[slot] = few[i]
        counts[slot] += 1
    total = 0
    for i in range(many.shape[0]):
        slot = np.int64((many[i] * spread) >> shift)
        while counts[slot] and keys[slot] != many[i]:
            slot = (slot + 1) & (size - 1)
        total += counts[slot]
    return total
