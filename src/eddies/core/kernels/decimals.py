"""Products of decimals, as pairs of 64-bit words, the lower first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import multiply_high
from eddies.core.kernels.jit import i64, kernel, ro, rw

__all__ = ["multiply_small"]

Words = npt.NDArray[np.int64]


@kernel(types.boolean(ro(i64), ro(i64), rw(i64)))
def multiply_small(left: Words, right: Words, product: Words) -> bool:
    """Multiply numbers that fit into one word each, so that every product fits into two and has at most
    38 digits. False, and no product, if one does not fit.
    """
    for at in range(0, product.shape[0], 2):
        a = left[at]
        b = right[at]
        if left[at + 1] != a >> np.int64(63) or right[at + 1] != b >> np.int64(63):
            return False
        product[at] = a * b
        product[at + 1] = multiply_high(a, b)
    return True
