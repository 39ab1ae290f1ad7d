"""Rows to groups, and values added up by group.

`assign_groups` numbers the distinct words of a stream in the order they first appear. The table is an
array of slots of two words each, (word, group + 1), zero for an empty slot; a slot is found by the
word's hash and the next free one is taken when it is occupied.

The other kernels add the values of rows to running totals of their groups. `valid` has one byte a
row, zero for NULL, or no byte at all when there is no NULL; `seen` tells which groups have a value.
Totals do not overflow: integers are added in two halves, decimals in 192 bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import multiply_fold, prefetch
from eddies.core.kernels.jit import f64, i32, i64, inlined, kernel, ro, rw, u8, u64
from eddies.core.kernels.words import HASHED, same_bytes

__all__ = [
    "assign_groups",
    "count_rows",
    "count_valid",
    "enter_groups",
    "keep_greatest",
    "keep_least",
    "same_text",
    "same_words",
    "sum_decimals",
    "sum_floats",
    "sum_integers",
]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_AHEAD = 16
_SLOT_BYTES = 16

Words = npt.NDArray[np.uint64]
Groups = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


@inlined
def slot_of(word: np.uint64, n_slots: int) -> np.int64:
    """Where the search for `word` begins; `n_slots` is a power of two."""
    return np.int64(multiply_fold(word ^ _SEED, _SEED) & np.uint64(n_slots - 1))


@kernel(types.void(ro(u64), rw(u64), rw(i64), i64, rw(i32), rw(i32)))
def assign_groups(
    words: Words,
    table: Words,
    progress: Counts,
    most_groups: int,
    groups: Groups,
    first_rows: Groups,
) -> None:
    """The group of every row from row `progress[0]` on; stops when a group too many appears.

    `progress` holds the next row, the number of groups, and how many of them there were before this
    batch; the first row of each group of this batch goes to `first_rows`.
    """
    n = words.shape[0]
    n_slots = table.shape[0] // 2
    base = table.ctypes.data
    row = progress[0]
    n_groups = progress[1]
    while row < n:
        prefetch(base + slot_of(words[min(row + _AHEAD, n - 1)], n_slots) * _SLOT_BYTES)
        word = words[row]
        slot = slot_of(word, n_slots)
        while table[2 * slot + 1] != 0 and table[2 * slot] != word:
            slot = (slot + 1) & (n_slots - 1)
        if table[2 * slot + 1] == 0:
            if n_groups == most_groups:
                break
            table[2 * slot] = word
            table[2 * slot + 1] = np.uint64(n_groups + 1)
            first_rows[n_groups - progress[2]] = row
            n_groups += 1
        groups[row] = np.int32(table[2 * slot + 1]) - np.int32(1)
        row += 1
    progress[0] = row
    progress[1] = n_groups


@kernel(types.void(ro(u64), rw(u64)))
def enter_groups(words: Words, table: Words) -> None:
    """Enter group i with `words[i]` into an empty table; the words differ."""
    n_slots = table.shape[0] // 2
    for group in range(words.shape[0]):
        slot = slot_of(words[group], n_slots)
        while table[2 * slot + 1] != 0:
            slot = (slot + 1) & (n_slots - 1)
        table[2 * slot] = words[group]
        table[2 * slot + 1] = np.uint64(group + 1)


@kernel(types.boolean(ro(i32), ro(u64), ro(u64)))
def same_words(groups: Groups, words: Words, group_words: Words) -> bool:
    """Whether each row has the word of its group."""
    different = np.uint64(0)
    for row in range(groups.shape[0]):
        different |= words[row] ^ group_words[groups[row]]
    return different == 0


@kernel(types.boolean(ro(i32), ro(u64), ro(i64), ro(i32), ro(i64), ro(i32)))
def same_text(
    groups: Groups,
    words: Words,
    addresses: Counts,
    lengths: Groups,
    group_addresses: Counts,
    group_lengths: Groups,
) -> bool:
    """Whether each row whose word is a hash has the byte string of its group."""
    for row in range(groups.shape[0]):
        if words[row] < HASHED:
            continue
        group = groups[row]
        length = np.int64(lengths[row])
        if np.int64(group_lengths[group]) != length:
            return False
        if not same_bytes(addresses[row], group_addresses[group], length):
            return False
    return True


@kernel(types.void(ro(i32), rw(i64)))
def count_rows(groups: Groups, counts: Counts) -> None:
    """Count the rows of each group."""
    for row in range(groups.shape[0]):
        counts[groups[row]] += 1


@kernel(types.void(ro(i32), ro(u8), rw(i64)))
def count_valid(groups: Groups, valid: Bytes, counts: Counts) -> None:
    """Count the rows of each group that are not NULL."""
    for row in range(groups.shape[0]):
        counts[groups[row]] += np.int64(valid[row] != 0)


@kernel(types.void(ro(i32), ro(i64), ro(u8), rw(i64), rw(u8)))
def sum_integers(groups: Groups, values: Counts, valid: Bytes, halves: Counts, seen: Bytes) -> None:
    """Add upper and lower 32 bits apart: `halves` has two numbers a group, the upper one first."""
    for row in range(groups.shape[0]):
        if valid.shape[0] != 0 and valid[row] == 0:
            continue
        group = groups[row]
        halves[2 * group] += values[row] >> np.int64(32)
        halves[2 * group + 1] += values[row] & np.int64(0xFFFFFFFF)
        seen[group] = 1


@kernel(types.void(ro(i32), ro(f64), ro(u8), rw(f64), rw(u8)))
def sum_floats(groups: Groups, values: Floats, valid: Bytes, totals: Floats, seen: Bytes) -> None:
    """Add floating-point numbers."""
    for row in range(groups.shape[0]):
        if valid.shape[0] != 0 and valid[row] == 0:
            continue
        totals[groups[row]] += values[row]
        seen[groups[row]] = 1


@kernel(types.void(ro(i32), ro(u64), ro(u8), rw(u64), rw(u8)))
def sum_decimals(groups: Groups, pairs: Words, valid: Bytes, totals: Words, seen: Bytes) -> None:
    """Add 128-bit integers, low word first, to totals of four words (the fourth is the sign)."""
    for row in range(groups.shape[0]):
        if valid.shape[0] != 0 and valid[row] == 0:
            continue
        at = 4 * np.int64(groups[row])
        low = pairs[2 * row]
        high = pairs[2 * row + 1]
        sign = np.uint64(0) - (high >> np.uint64(63))
        total = totals[at] + low
        carry = np.uint64(total < low)
        totals[at] = total
        total = totals[at + 1] + high
        next_carry = np.uint64(total < high)
        with_carry = total + carry
        next_carry += np.uint64(with_carry < total)
        totals[at + 1] = with_carry
        totals[at + 2] += sign + next_carry
        seen[groups[row]] = 1


@kernel(types.void(ro(i32), ro(i64), ro(u8), rw(i64), rw(u8)))
def keep_least(groups: Groups, values: Counts, valid: Bytes, least: Counts, seen: Bytes) -> None:
    """Keep the least value of each group."""
    for row in range(groups.shape[0]):
        if valid.shape[0] != 0 and valid[row] == 0:
            continue
        group = groups[row]
        if seen[group] == 0 or values[row] < least[group]:
            least[group] = values[row]
        seen[group] = 1


@kernel(types.void(ro(i32), ro(i64), ro(u8), rw(i64), rw(u8)))
def keep_greatest(
    groups: Groups, values: Counts, valid: Bytes, greatest: Counts, seen: Bytes
) -> None:
    """Keep the greatest value of each group."""
    for row in range(groups.shape[0]):
        if valid.shape[0] != 0 and valid[row] == 0:
            continue
        group = groups[row]
        if seen[group] == 0 or values[row] > greatest[group]:
            greatest[group] = values[row]
        seen[group] = 1
