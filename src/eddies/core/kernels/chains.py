"""Chains by small integer keys: the state of simulated symmetric hash joins.

`head[key]` is the newest row with that key, `behind[row]` the one before it, -1 the end. Forgetting all
rows of some keys is setting their heads to -1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import i32, i64, kernel, ro, rw

__all__ = ["count_chains", "follow_chains", "link_rows"]

Rows = npt.NDArray[np.int32]


@kernel(types.void(ro(i32), i64, rw(i32), rw(i32)))
def link_rows(keys: Rows, first: int, head: Rows, behind: Rows) -> None:
    """Enter rows `first`, `first + 1`, ... with these keys."""
    for i in range(keys.shape[0]):
        row = np.int32(first + i)
        behind[row] = head[keys[i]]
        head[keys[i]] = row


@kernel(types.int64(ro(i32), ro(i32), ro(i32)))
def count_chains(keys: Rows, head: Rows, behind: Rows) -> int:
    """How many rows these keys find."""
    n = 0
    for i in range(keys.shape[0]):
        row = head[keys[i]]
        while row >= 0:
            n += 1
            row = behind[row]
    return n


@kernel(types.void(ro(i32), ro(i32), ro(i32), rw(i32), rw(i32)))
def follow_chains(keys: Rows, head: Rows, behind: Rows, positions: Rows, rows: Rows) -> None:
    """The rows these keys find, with the positions of the keys."""
    n = 0
    for i in range(keys.shape[0]):
        row = head[keys[i]]
        while row >= 0:
            positions[n] = i
            rows[n] = row
            n += 1
            row = behind[row]
