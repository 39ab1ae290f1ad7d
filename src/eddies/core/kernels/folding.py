"""Rows with the same key added up at the newest of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import i32, i64, kernel, ro, rw

__all__ = ["count_heads", "sum_heads"]

Heads = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]


@kernel(types.void(ro(i32), rw(i64)))
def count_heads(heads: Heads, counts: Integers) -> None:
    """Add one at `heads[row]` for each row; rows without a key have -1 there."""
    for row in range(heads.shape[0]):
        if heads[row] >= 0:
            counts[heads[row]] += 1


@kernel(types.void(ro(i32), ro(i64), rw(i64)))
def sum_heads(heads: Heads, values: Integers, sums: Integers) -> None:
    """Add `values[row]` at `heads[row]` for each row; rows without a key have -1 there."""
    for row in range(heads.shape[0]):
        if heads[row] >= 0:
            sums[heads[row]] += values[row]
