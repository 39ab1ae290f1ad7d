"""A Bloom filter that tells most misses apart before they cost a cache miss in the index.

One 64-bit word of the filter per key, four bits in it; eight bits a key let 4 % of the misses through.
The filter of a million keys takes a megabyte, where the index takes seventeen or more: it stays in the
cache. It pays where fewer than about a third of the keys hit; above that it is only extra work.

The four bits are one of 1,024 patterns, made beforehand: one load is cheaper than four shifts (1.9 ns a
key instead of 2.5, with the filter in the second cache). Words of the filter are asked for ahead of
their use: a megabyte beside a second cache of half of that takes 2.5 ns a key instead of 3.6.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import prefetch
from eddies.core.kernels.jit import i32, inlined, kernel, ro, rw, u64
from eddies.core.kernels.lines import home_shift

__all__ = ["PATTERNS", "add_words", "may_contain"]

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]

_PATTERN_BITS = 10
_AHEAD = 24  # keys between a request for a word of the filter and its use


def _make_patterns() -> Words:
    """Different words with four bits each. They never change: filters may come from other processes."""
    patterns: dict[int, None] = {}
    state = 1
    while len(patterns) < 1 << _PATTERN_BITS:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        bits = {state >> shift & 63 for shift in (58, 52, 46, 40)}
        if len(bits) == 4:
            patterns[sum(1 << bit for bit in bits)] = None
    return np.array(list(patterns), dtype=np.uint64)


PATTERNS = _make_patterns()
_PATTERN_MASK = np.uint64((1 << _PATTERN_BITS) - 1)


@inlined
def light_hash(word: np.uint64) -> np.uint64:
    """Cheaper than the index's hash: a poor spread only lets more misses through."""
    return (word ^ (word >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)


@inlined
def pattern_of(h: np.uint64) -> np.uint64:
    """The bits of a key, from the middle of its hash; the high end chooses the word."""
    return PATTERNS[(h >> np.uint64(30)) & _PATTERN_MASK]


@kernel(types.void(ro(u64), rw(u64)))
def add_words(words: Words, bloom: Words) -> None:
    """Enter `words`. The filter's length is a power of two, at least two."""
    shift = home_shift(bloom.shape[0])
    for j in range(words.shape[0]):
        h = light_hash(words[j])
        bloom[h >> shift] |= pattern_of(h)


@inlined
def is_missing(h: np.uint64, bloom: Words, shift: np.uint64) -> bool:
    """Whether a key with this hash was surely not entered."""
    return (pattern_of(h) & ~bloom[h >> shift]) != np.uint64(0)


@kernel(types.int64(ro(u64), ro(u64), rw(i32), rw(u64)))
def may_contain(words: Words, bloom: Words, positions: Rows, passed: Words) -> int:
    """The words that may have been entered, with their positions; returns how many.

    `positions` and `passed` need one entry more than there are words.
    """
    shift = home_shift(bloom.shape[0])
    base = bloom.ctypes.data
    n_asked = max(0, words.shape[0] - _AHEAD)
    n = 0
    for j in range(n_asked):
        prefetch(base + np.int64(light_hash(words[j + _AHEAD]) >> shift) * 8)
        positions[n] = j
        n += not is_missing(light_hash(words[j]), bloom, shift)
    for j in range(n_asked, words.shape[0]):
        positions[n] = j
        n += not is_missing(light_hash(words[j]), bloom, shift)
    for i in range(n):
        passed[i] = words[positions[i]]
    return n
