"""Memory that kernels write into and that is used again for the next batch. One per thread.

Fresh pages cost more than hashing, so the buffers of a probe are made once. What must outlive the
probe is copied out by whoever needs it.
"""

from __future__ import annotations

import numpy as np

from eddies.core.kernels.lines import AHEAD

__all__ = ["Scratch"]

_EXPANSION = 4  # output rows for each input row before a probe pauses


class Scratch:
    """Buffers for probes of up to `batch_rows` rows.

    `positions` and `rows` hold matches. They have room for one round of chain expansion of any batch
    that fits, so that an expansion always moves on.
    """

    __slots__ = (
        "capacity",
        "homes",
        "leftovers",
        "marked",
        "passed_positions",
        "passed_words",
        "positions",
        "rows",
    )

    def __init__(self, batch_rows: int) -> None:
        self.capacity = 0
        self.reserve(batch_rows)

    def reserve(self, n_rows: int) -> None:
        """Make room for a batch of `n_rows`."""
        if n_rows <= self.capacity:
            return
        self.capacity = n_rows
        self.homes = np.empty(2 * (n_rows + AHEAD), dtype=np.uint32)
        self.leftovers = np.empty(n_rows + 1, dtype=np.int32)
        self.passed_positions = np.empty(n_rows + 1, dtype=np.int32)
        self.passed_words = np.empty(n_rows + 1, dtype=np.uint64)
        n_matches = max(_EXPANSION * n_rows, 64) + 1
        self.positions = np.empty(n_matches, dtype=np.int32)
        self.rows = np.empty(n_matches, dtype=np.int32)
        self.marked = np.empty(n_matches, dtype=np.int32)
