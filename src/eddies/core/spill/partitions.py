"""Which partition a key belongs to.

The hash is unlike those of the index and of the Bloom filters, whose lines are chosen by the high
bits of theirs: rows of one partition must spread over all lines of an index.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.partition import order_by_partition, partition_words
from eddies.core.state.columns import Words

__all__ = ["Partitions", "n_partitions_for", "partitions_of", "slices_by_partition"]

Partitions = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int32]

_FEW, _SOME, _MANY = 8, 16, 64
_SMALL_BYTES, _MEDIUM_BYTES = 4 << 20, 64 << 20


def n_partitions_for(budget_bytes: int) -> int:
    """Partitions of a relation: more memory, more of them, because files are written in larger pieces
    and each partition must fit into memory again.
    """
    if budget_bytes < _SMALL_BYTES:
        return _FEW
    return _SOME if budget_bytes < _MEDIUM_BYTES else _MANY


def partitions_of(words: Words, n_partitions: int) -> Partitions:
    """The partition of each key word; `n_partitions` is a power of two, at most 256."""
    partitions = np.empty(words.shape[0], dtype=np.uint8)
    partition_words(np.ascontiguousarray(words), n_partitions, partitions)
    return partitions


def slices_by_partition(
    partitions: Partitions, n_partitions: int
) -> tuple[Positions, npt.NDArray[np.int64]]:
    """Positions in the order of their partitions, and where each partition begins in them (one entry
    more than there are partitions).
    """
    order = np.empty(partitions.shape[0], dtype=np.int32)
    starts = np.zeros(n_partitions + 1, dtype=np.int64)
    order_by_partition(partitions, starts, order)
    return order, starts
