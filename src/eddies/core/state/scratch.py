"""Memory that kernels write into and that is used again for the next batch. One per thread.

Fresh pages cost more than hashing, so the buffers of a probe are made once, in one block from the
shelf, to which it returns when the query has ended: the next query finds its pages in place. What
must outlive the probe is copied out by whoever needs it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.lines import AHEAD
from eddies.core.state.buffers import SHELF

__all__ = ["Scratch"]

_LINE_HALVES = 16  # 32-bit words of a cache line
_EXPANSION = 4  # output rows for each input row before a probe pauses


class Scratch:
    """Buffers for probes of up to `batch_rows` rows.

    `positions` and `rows` hold matches. They have room for one round of chain expansion of any batch
    that fits, so that an expansion always moves on.
    """

    __slots__ = (
        "_block",
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
        self._block: npt.NDArray[np.uint64] | None = None
        self.reserve(batch_rows)

    def reserve(self, n_rows: int) -> None:
        """Make room for a batch of `n_rows`. Buffers that were there stay with whoever holds them."""
        if n_rows <= self.capacity:
            return
        n_rows = 1 << (n_rows - 1).bit_length()  # so that the next one finds a block of its size
        self.capacity = n_rows
        n_matches = max(_EXPANSION * n_rows, 64) + 1
        lengths = (2 * (n_rows + AHEAD), *[n_rows + 1] * 2, *[n_matches] * 3, 2 * (n_rows + 1))
        homes, leftovers, passed_positions, positions, rows, marked, words = self._cut(lengths)
        self.homes = homes.view(np.uint32)
        self.leftovers = leftovers
        self.passed_positions = passed_positions
        self.passed_words = words.view(np.uint64)
        self.positions = positions
        self.rows = rows
        self.marked = marked

    def release(self) -> None:
        """Give the memory back; afterwards only `reserve` may be called.

        Whoever forgets it gives the memory to the system instead. It is not done when the scratch is
        dropped: that may happen at any moment, also while the shelf is at work.
        """
        self.capacity = 0
        if self._block is not None:
            SHELF.put(self._block)
            self._block = None

    def _cut(self, lengths: tuple[int, ...]) -> list[npt.NDArray[np.int32]]:
        """Buffers of so many 32-bit words, each from a cache line on."""
        starts = np.cumsum([0, *(-(-length // _LINE_HALVES) for length in lengths)]) * _LINE_HALVES
        self._block = SHELF.take(int(starts[-1]) // 2)
        halves = self._block.view(np.int32)
        return [
            halves[start : start + length]
            for start, length in zip(starts.tolist(), lengths, strict=False)
        ]
