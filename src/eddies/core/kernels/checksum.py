"""A checksum of what is written to disk, fast enough to be made and tested for every byte.

Four sums run side by side over the 64-bit words, so that one multiplication need not wait for the
last; each word is multiplied into its sum, so that words in another order give another checksum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import kernel, ro, u64

__all__ = ["checksum"]


@kernel(types.uint64(ro(u64)))
def checksum(words: npt.NDArray[np.uint64]) -> np.uint64:
    """The checksum of a vector of words; its length counts, too."""
    step = np.uint64(0x9E3779B97F4A7C15)
    turn, rest = np.uint64(29), np.uint64(35)
    n = words.shape[0]
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(n)
    i = 0
    while i + 4 <= n:
        a = ((a << turn | a >> rest) ^ words[i]) * step
        b = ((b << turn | b >> rest) ^ words[i + 1]) * step
        c = ((c << turn | c >> rest) ^ words[i + 2]) * step
        d = ((d << turn | d >> rest) ^ words[i + 3]) * step
        i += 4
    while i < n:
        a = ((a << turn | a >> rest) ^ words[i]) * step
        i += 1
    total = a
    total = ((total << turn | total >> rest) ^ b) * step
    total = ((total << turn | total >> rest) ^ c) * step
    total = ((total << turn | total >> rest) ^ d) * step
    return total ^ (total >> np.uint64(32))
