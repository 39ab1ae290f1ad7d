"""Sums of integers that cannot overflow, in one pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import i64, kernel, ro

__all__ = ["sum_parts"]


@kernel(types.UniTuple(i64, 2)(ro(i64)))
def sum_parts(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Sums of the upper (signed) and lower (unsigned) 32 bits: the total is `high * 2**32 + low`.

    Neither part can overflow for fewer than 2**31 values.
    """
    high = np.int64(0)
    low = np.int64(0)
    for i in range(values.shape[0]):
        high += values[i] >> np.int64(32)
        low += values[i] & np.int64(0xFFFFFFFF)
    return int(high), int(low)
