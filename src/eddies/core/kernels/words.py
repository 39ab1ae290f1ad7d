"""Keys as 64-bit words, and the check that follows when a word is only a hash.

Integers, dates, timestamps, booleans, floats and small decimals are their own word (*exact*); byte
strings of at most seven bytes are too (bytes and length in one word). Longer strings and wide
composite keys are hashed: equal keys have equal words, and whoever matches words must then compare
the keys themselves. Byte strings are given as (address, length) pairs, wherever their bytes lie.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import load8, load64, multiply_fold, prefetch
from eddies.core.kernels.jit import i32, i64, inlined, kernel, ro, rw, u64

__all__ = ["HASHED", "mix_words", "text_words", "verify_text", "verify_words"]

_SEED = np.uint64(0xA0761D6478BD642F)
_STEP = np.uint64(0xE7037ED1A0B428DB)
HASHED = np.uint64(0xFF00000000000000)  # top byte of the word of a string longer than 7 bytes
_AHEAD = 32

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]
Addresses = npt.NDArray[np.int64]


@kernel(types.int64(ro(i64), ro(i32), rw(u64)))
def text_words(addresses: Addresses, lengths: Rows, words: Words) -> int:
    """The word of every byte string; returns how many are hashed (longer than seven bytes)."""
    n = lengths.shape[0]
    n_hashed = 0
    for i in range(n):
        prefetch(addresses[min(i + _AHEAD, n - 1)])
        address = addresses[i]
        length = np.int64(lengths[i])
        if length <= 7:
            word = np.uint64(length) << np.uint64(56)
            for b in range(length):
                word |= np.uint64(load8(address + b)) << np.uint64(8 * b)
            words[i] = word
        else:
            h = _SEED ^ np.uint64(length)
            position = address
            end = address + length
            while position + 8 < end:
                h = multiply_fold(h ^ load64(position), _STEP)
                position += 8
            h = multiply_fold(h ^ load64(end - 8), _SEED)
            words[i] = h | HASHED
            n_hashed += 1
    return n_hashed


@inlined
def same_bytes(left: int, right: int, length: np.int64) -> bool:
    """Whether two strings of equal length, at least eight, hold the same bytes."""
    done = 0
    while done + 8 <= length:
        if load64(left + done) != load64(right + done):
            return False
        done += 8
    return load64(left + length - 8) == load64(right + length - 8)


@inlined
def same_short_bytes(left: int, right: int, length: np.int64) -> bool:
    """Whether two strings of equal length hold the same bytes; reads one byte at a time."""
    for b in range(length):  # noqa: SIM110 - numba has no generators
        if load8(left + b) != load8(right + b):
            return False
    return True


@kernel(types.int64(rw(i32), rw(i32), i64, ro(i64), ro(i32), ro(i64), ro(i32)))
def verify_text(
    positions: Rows,
    rows: Rows,
    n: int,
    probe_addresses: Addresses,
    probe_lengths: Rows,
    addresses: Addresses,
    lengths: Rows,
) -> int:
    """Keep, in place, the matches whose byte strings are equal.

    Short strings are compared too: in a composite key it is the mixed words that are known to be
    equal, not the words of the strings.
    """
    kept = 0
    address_base = addresses.ctypes.data
    length_base = lengths.ctypes.data
    for a in range(n):
        # First the place where the address lies, later the bytes it points at.
        farther = np.int64(rows[min(a + 2 * _AHEAD, n - 1)])
        prefetch(address_base + farther * 8)
        prefetch(length_base + farther * 4)
        prefetch(addresses[rows[min(a + _AHEAD, n - 1)]])
        j = positions[a]
        row = rows[a]
        length = np.int64(probe_lengths[j])
        same = np.int64(lengths[row]) == length
        if same:
            if length > 7:
                same = same_bytes(probe_addresses[j], addresses[row], length)
            else:
                same = same_short_bytes(probe_addresses[j], addresses[row], length)
        positions[kept] = j
        rows[kept] = row
        kept += same
    return kept


@kernel(types.int64(rw(i32), rw(i32), i64, ro(u64), ro(u64)))
def verify_words(positions: Rows, rows: Rows, n: int, probe_words: Words, words: Words) -> int:
    """Keep, in place, the matches with `probe_words[position] == words[row]`."""
    kept = 0
    base = words.ctypes.data
    for a in range(n):
        prefetch(base + np.int64(rows[min(a + _AHEAD, n - 1)]) * 8)
        j = positions[a]
        row = rows[a]
        positions[kept] = j
        rows[kept] = row
        kept += probe_words[j] == words[row]
    return kept


@kernel(types.void(rw(u64), ro(u64)))
def mix_words(into: Words, words: Words) -> None:
    """Fold one more component of a composite key into a hash of those before it."""
    for i in range(into.shape[0]):
        h = into[i]
        h ^= h >> np.uint64(32)
        h *= np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(32)
        into[i] = multiply_fold(h ^ _SEED, words[i] ^ _STEP)
