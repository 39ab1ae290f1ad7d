"""How many keys of two samples are equal: the selectivity of a join, from a handful of keys.

The smaller sample goes into a little table of keys and counts, the larger one is looked up in it. That
is several times quicker than sorting one of them, and samples are taken all the time. `best_cut` says
where a sample should be cut in two if each part may then take another join.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import f64, i64, inlined, kernel, ro, rw, u64

__all__ = ["best_cut", "n_equal_each", "n_equal_pairs", "n_equal_picked"]

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@inlined
def slot_of(word: np.uint64, keys: Words, counts: Numbers, shift: np.uint64) -> np.int64:
    """Where the table has `word`, or the free slot where it would be: one with count 0."""
    slot = np.int64((word * np.uint64(0x9E3779B97F4A7C15)) >> shift)
    while counts[slot] and keys[slot] != word:
        slot = (slot + 1) & (keys.shape[0] - 1)
    return slot


@inlined
def counted(few: Words) -> tuple[Words, Numbers, np.uint64]:
    """A table of the words of `few`: keys and counts by slot, and how far to shift a hash for a slot.

    It has twice as many slots as words, so that one is free for words that are not there.
    """
    shift = np.uint64(63)
    size = 2
    while size < 2 * few.shape[0]:
        size *= 2
        shift -= np.uint64(1)
    keys = np.empty(size, np.uint64)
    counts = np.zeros(size, np.int64)
    for i in range(few.shape[0]):
        slot = slot_of(few[i], keys, counts, shift)
        keys[slot] = few[i]
        counts[slot] += 1
    return keys, counts, shift


@kernel(types.int64(ro(u64), ro(u64)))
def n_equal_pairs(few: Words, many: Words) -> int:
    """Pairs of a word of `few` and an equal one of `many`; `few` should be the shorter vector."""
    keys, counts, shift = counted(few)
    total = 0
    for i in range(many.shape[0]):
        total += counts[slot_of(many[i], keys, counts, shift)]
    return total


@kernel(types.int64(ro(u64), ro(f64), ro(u64), ro(f64)))
def n_equal_picked(few: Words, few_places: Floats, many: Words, many_places: Floats) -> int:
    """`n_equal_pairs` of the words at some places of two vectors: a place is a share of the length."""
    picked = np.empty(few_places.shape[0], np.uint64)
    for i in range(picked.shape[0]):
        picked[i] = few[np.int64(few_places[i] * few.shape[0])]
    keys, counts, shift = counted(picked)
    total = 0
    for i in range(many_places.shape[0]):
        word = many[np.int64(many_places[i] * many.shape[0])]
        total += counts[slot_of(word, keys, counts, shift)]
    return total


@kernel(types.void(ro(u64), ro(u64), rw(i64)))
def n_equal_each(few: Words, many: Words, found: Numbers) -> None:
    """For each word of `few` how many of `many` are equal."""
    keys, counts, shift = counted(few)
    n_equal = np.zeros(keys.shape[0], np.int64)
    for i in range(many.shape[0]):
        n_equal[slot_of(many[i], keys, counts, shift)] += 1  # nobody asks what a free slot counts
    for i in range(few.shape[0]):
        found[i] = n_equal[slot_of(few[i], keys, counts, shift)]


@kernel(types.int64(ro(i64), ro(f64), i64, rw(f64)))
def best_cut(values: Numbers, costs: Floats, fewest: int, cost: Floats) -> int:
    """Where to cut ordered `values` in two: the last place of the first part, or -1.

    `costs` has, place by place, what a row costs at each join. Both parts take their cheapest join
    and have at least `fewest` rows; equal values stay together. The cost goes to `cost[0]`.
    """
    n_rows = values.shape[0]
    n_joins = costs.shape[0] // max(1, n_rows)
    left, right = np.zeros(n_joins, np.float64), np.zeros(n_joins, np.float64)
    for i in range(n_rows):
        for join in range(n_joins):
            right[join] += costs[i * n_joins + join]
    best, place = np.inf, -1
    for i in range(n_rows - fewest):
        for join in range(n_joins):
            left[join] += costs[i * n_joins + join]
            right[join] -= costs[i * n_joins + join]
        if i + 1 < fewest or values[i] == values[i + 1]:
            continue
        least_left, least_right = left[0], right[0]
        for join in range(1, n_joins):
            least_left = min(least_left, left[join])
            least_right = min(least_right, right[join])
        if least_left + least_right < best:
            best, place = least_left + least_right, i
    cost[0] = best
    return place
