"""Sums of integers: of a column, without overflow; of two columns row by row, with a check for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import boolean, brief, i64, kernel, ro, rw

__all__ = ["add_rows", "add_rows_brief", "sum_parts", "sum_parts_brief"]

Integers = npt.NDArray[np.int64]


@kernel(types.UniTuple(i64, 2)(ro(i64)))
def sum_parts(values: Integers) -> tuple[int, int]:
    """Sums of the upper (signed) and lower (unsigned) 32 bits: the total is `high * 2**32 + low`.

    Neither part can overflow for fewer than 2**31 values.
    """
    high = np.int64(0)
    low = np.int64(0)
    for i in range(values.shape[0]):
        high += values[i] >> np.int64(32)
        low += values[i] & np.int64(0xFFFFFFFF)
    return int(high), int(low)


sum_parts_brief = brief(sum_parts)


@kernel(boolean(rw(i64), ro(i64)))
def add_rows(totals: Integers, values: Integers) -> bool:
    """Add `values` to `totals`, row by row; False if some total is beyond its type, and then wrong."""
    overflows = np.int64(0)
    for i in range(totals.shape[0]):
        total = totals[i] + values[i]
        # Two numbers of one sign must not give one of the other.
        overflows |= (total ^ totals[i]) & (total ^ values[i])
        totals[i] = total
    return bool(overflows >= 0)


add_rows_brief = brief(add_rows)
