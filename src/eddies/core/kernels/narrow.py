"""Numbers of 64 bits into 32: copied as if they fitted, with the bits they really need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.jit import i32, i64, kernel, ro, rw, u64

__all__ = ["copy_narrow", "gather_narrow"]

Numbers = npt.NDArray[np.int64]
Narrow = npt.NDArray[np.int32]


@kernel(u64(ro(i64), rw(i32)))
def copy_narrow(values: Numbers, out: Narrow) -> np.uint64:
    """`out[i] = values[i]`, cut off; returns the bits that differ from the sign in any of them, so that
    all fit into n bits if and only if that is below `2 ** (n - 1)`.
    """
    bits = np.int64(0)
    for i in range(values.shape[0]):
        value = values[i]
        out[i] = np.int32(value)
        bits |= value ^ (value >> 63)
    return np.uint64(bits)


@kernel(u64(ro(i64), ro(i32), rw(i32)))
def gather_narrow(values: Numbers, ids: npt.NDArray[np.int32], out: Narrow) -> np.uint64:
    """`out[i] = values[ids[i]]`, as `copy_narrow`."""
    bits = np.int64(0)
    for i in range(ids.shape[0]):
        value = values[ids[i]]
        out[i] = np.int32(value)
        bits |= value ^ (value >> 63)
    return np.uint64(bits)
