"""How many keys of two samples are equal: the selectivity of a join, from a handful of keys.

The smaller sample goes into a little table of keys and counts, the larger one is looked up in it. That
is several times quicker than sorting one of them, and samples are taken all the time. `best_cut` says
where a sample should be cut in two if each part may then take another join.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import f64, i64, kernel, ro, rw, u64

__all__ = ["best_cut", "n_equal_each", "n_equal_pairs"]

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@kernel(types.int64(ro(u64), ro(u64)))
def n_equal_pairs(few: Words, many: Words) -> int:
    """Pairs of a word of `few` and an equal one of `many`; `few` should be the shorter vector."""
    spread = np.uint64(0x9E3779B97F4A7C15)
    shift = np.uint64(63)
    size = 2
    while size < 2 * few.shape[0]:
        size *= 2
        shift -= np.uint64(1)
    keys = np.empty(size, np.uint64)
    counts = np.zeros(size, np.int64)
    for i in range(few.shape[0]):
        slot = np.int64((few[i] * spread) >> shift)
        while counts[slot] and keys[slot] != few[i]:
            slot = (slot + 1) & (size - 1)
        keys[slot] = few[i]
        counts[slot] += 1
    total = 0
    for i in range(many.shape[0]):
        slot = np.int64((many[i] * spread) >> shift)
        while counts[slot] and keys[slot] != many[i]:
            slot = (slot + 1) & (size - 1)
        total += counts[slot]
    return total


@kernel(types.void(ro(u64), ro(u64), rw(i64)))
def n_equal_each(few: Words, many: Words, found: Numbers) -> None:
    """For each word of `few` how many of `many` are equal."""
    spread = np.uint64(0x9E3779B97F4A7C15)
    shift = np.uint64(63)
    size = 2
    while size < 2 * few.shape[0]:
        size *= 2
        shift -= np.uint64(1)
    keys = np.empty(size, np.uint64)
    is_taken = np.zeros(size, np.bool_)
    counts = np.zeros(size, np.int64)
    for i in range(few.shape[0]):
        slot = np.int64((few[i] * spread) >> shift)
        while is_taken[slot] and keys[slot] != few[i]:
            slot = (slot + 1) & (size - 1)
        keys[slot] = few[i]
        is_taken[slot] = True
    for i in range(many.shape[0]):
        slot = np.int64((many[i] * spread) >> shift)
        while is_taken[slot] and keys[slot] != many[i]:
            slot = (slot + 1) & (size - 1)
        counts[slot] += 1  # a free slot counts what nobody asks for
    for i in range(few.shape[0]):
        slot = np.int64((few[i] * spread) >> shift)
        while keys[slot] != few[i] or not is_taken[slot]:
            slot = (slot + 1) & (size - 1)
        found[i] = counts[slot]


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
