"""Rows by partition: which partition a word belongs to, and the rows of each one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import i32, i64, kernel, ro, rw, u8, u64

__all__ = ["order_by_partition", "partition_words"]


@kernel(types.void(ro(u64), types.int64, rw(u8)))
def partition_words(
    words: npt.NDArray[np.uint64], n_partitions: int, partitions: npt.NDArray[np.uint8]
) -> None:
    """The partition of each word; `n_partitions` is a power of two, at most 256."""
    mask = np.uint64(n_partitions - 1)
    for j in range(words.shape[0]):
        mixed = (words[j] ^ (words[j] >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        partitions[j] = (mixed >> np.uint64(40)) & mask


@kernel(types.void(ro(u8), rw(i64), rw(i32)))
def order_by_partition(
    partitions: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], order: npt.NDArray[np.int32]
) -> None:
    """Positions in the order of their partitions, those of one in their own order.

    `starts`, one entry longer than there are partitions and zero, says then where each begins.
    """
    n_partitions = starts.shape[0] - 1
    for j in range(partitions.shape[0]):
        starts[partitions[j] + 1] += 1
    for p in range(n_partitions):
        starts[p + 1] += starts[p]
    for j in range(partitions.shape[0]):
        p = partitions[j]
        order[starts[p]] = j
        starts[p] += 1
    for p in range(n_partitions, 0, -1):
        starts[p] = starts[p - 1]
    starts[0] = 0
