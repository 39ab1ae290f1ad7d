"""Keys that lie close together: a slot for every possible key, no hash and nothing to compare.

Numbers that count things (order numbers, days, codes) fill most of the range they lie in. A *slot
table* has a 32-bit link (see `lines`) for every word from `base` on, so a look-up is one load at a
place given by the key itself. Rows that come in the order of their keys then meet memory in order,
where a hash would send each of them somewhere else.

`slots` has one entry more than the range has words. The last stays zero: words outside of the range
read it, and are found to be absent without a branch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import prefetch
from eddies.core.kernels.jit import brief, i32, i64, kernel, ro, rw, u64

__all__ = ["insert_slots", "probe_slots", "word_range", "word_range_brief"]

_AHEAD = 32

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]


@kernel(types.UniTuple(i64, 2)(ro(u64)))
def word_range(words: Words) -> tuple[np.int64, np.int64]:
    """The lowest and the highest word, read as signed integers. There must be a word."""
    lowest = highest = np.int64(words[0])
    for j in range(words.shape[0]):
        word = np.int64(words[j])
        lowest = min(lowest, word)
        highest = max(highest, word)
    return lowest, highest


word_range_brief = brief(word_range)


@kernel(types.int64(ro(u64), ro(i32), rw(i32), u64, rw(i32)))
def insert_slots(words: Words, rows: Rows, slots: Rows, base: np.uint64, chain: Rows) -> int:
    """Enter `rows[j]` under `words[j]`, all of which have a slot; returns how many were chained.

    Rows must be larger than every row entered before, else chains do not fall.
    """
    n = words.shape[0]
    address = slots.ctypes.data
    n_duplicates = 0
    for j in range(n):
        ahead = words[min(j + _AHEAD, n - 1)] - base
        prefetch(address + np.int64(ahead) * 4)
        slot = words[j] - base
        row = rows[j]
        older = slots[slot]
        if older == 0:
            slots[slot] = row + 1
        else:
            chain[row] = older
            slots[slot] = -row - 1
            n_duplicates += 1
    return n_duplicates


@kernel(types.int64(ro(u64), ro(i32), u64, rw(i32), rw(i32)))
def probe_slots(words: Words, slots: Rows, base: np.uint64, positions: Rows, links: Rows) -> int:
    """The newest row of every word found: position in `words`, and link. Returns how many.

    `positions` and `links` need `len(words) + 1` entries. Positions ascend.
    """
    n = words.shape[0]
    n_slots = np.uint64(slots.shape[0] - 1)
    address = slots.ctypes.data
    found = 0
    for j in range(n):
        ahead = min(words[min(j + _AHEAD, n - 1)] - base, n_slots)
        prefetch(address + np.int64(ahead) * 4)
        link = slots[min(words[j] - base, n_slots)]
        positions[found] = j
        links[found] = link
        found += link != 0
    return found
