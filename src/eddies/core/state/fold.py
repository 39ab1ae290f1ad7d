"""A fold: what all rows of a store that have the same key amount to, counted and added up.

Kept beside a hash index, by the newest row of each key: how many rows the key has, and the sum of some
columns over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.kernels.folding import count_heads, sum_heads
from eddies.core.state.columns import FixedColumn, Ids
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["Fold", "Integers"]

Integers = npt.NDArray[np.int64]

_INT64 = pa.int64()
_ROOM = 1 << 62  # sums stay below it, so that something can be added to them


class Fold:
    """Of the first `n_rows` rows of a store. `counts` and `sums`, by column, are read at the newest row
    of a key; `largest` is the greatest absolute value of a column, `most` the greatest count.
    """

    __slots__ = ("counts", "largest", "most", "n_rows", "sums")

    def __init__(
        self, n_rows: int, counts: Integers, sums: dict[str, Integers], largest: dict[str, int]
    ) -> None:
        self.n_rows = n_rows
        self.counts = counts
        self.sums = sums
        self.largest = largest
        self.most = int(counts.max(initial=0))

    @classmethod
    def make(
        cls, index: HashIndex, store: RowStore, columns: Sequence[str], scratch: Scratch
    ) -> Fold | None:
        """Fold `columns` by the keys of an index that is up to date; None if one is not whole numbers
        of 64 bits without NULLs, or if sums might not fit.
        """
        n_rows = index.n_rows
        values: dict[str, Integers] = {}
        for name in columns:
            column = store.column(name)
            if not isinstance(column, FixedColumn) or column.type != _INT64:
                return None
            if column.valid(None) is not None:
                return None
            values[name] = column.words(None)[:n_rows].view(np.int64)
        heads: Ids = index.newest_of_all(scratch)
        counts: Integers = np.zeros(n_rows, dtype=np.int64)
        count_heads(heads, counts)
        sums, largest = {}, {}
        for name, numbers in values.items():
            least, greatest = int(numbers.min(initial=0)), int(numbers.max(initial=0))
            largest[name] = max(-least, greatest)
            if largest[name] * int(counts.max(initial=0)) >= _ROOM:
                return None
            sums[name] = np.zeros(n_rows, dtype=np.int64)
            sum_heads(heads, np.ascontiguousarray(numbers), sums[name])
        return cls(n_rows, counts, sums, largest)

    @property
    def n_bytes(self) -> int:
        return self.counts.nbytes + sum(of_column.nbytes for of_column in self.sums.values())
