"""The compact hash index: lines that store only what their number does not say about a key.

A look-up in a large table costs a cache miss, and the more so the larger the table is. Few keys need
the 64 bits that `lines` gives them: most lie within a *domain* of 2^D values from a base on. Spread
over that domain by a function that can be undone, a key is a number h below 2^D. Its high end chooses
the line. All numbers of one line lie within 2^32 of each other, so their low 32 bits, the *remainder*,
tell them apart. An entry takes eight bytes, and seven fit where five did:

    bytes 0-27   seven remainders
    bytes 32-59  seven links, zero when the entry is empty; entries fill from the left
    bytes 60-63  flag: this line has turned keys away

Links and chains are those of `lines`. A key that finds its line full is *left over*: it goes to a
small table of ordinary lines beside this one, and the flag says that a look there is worth while. So
a key is always in its own line or not here at all, and line and remainder are enough to get it back.

A *spread* is (base, limit): a word's number in the domain is `word - base`, and limit is 2^D - 1. D is
at most 32 and the bits of the number of lines. Words outside of the domain read the line behind the
last one, which stays empty. A table therefore has a line more than it is said to.
`homes` is scratch of at least twice `len(words) + AHEAD` entries. A kernel that leaves keys over leaves
their positions in its first entries.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import (
    count_trailing_zeros,
    equal_halves8,
    prefetch,
    zero_halves8,
)
from eddies.core.kernels.jit import brief, i32, i64, inlined, kernel, ro, rw, u8, u64
from eddies.core.kernels.lines import (
    AHEAD,
    WORDS_PER_LINE,
    enter_row,
    hash_word,
    home_shift,
    link_from,
)

__all__ = [
    "REMAINDERS",
    "enter_numbers",
    "entries_of",
    "insert_left",
    "insert_remainders",
    "probe_remainders",
    "probe_remainders_brief",
    "split_remainders",
]

REMAINDERS = 7
_FIRST_LINK = np.uint64(8)  # position of the links in a line of sixteen 32-bit words
_FLAG = np.uint64(15)
_ENTRY_MASK = np.uint64(127)
_NO_ENTRY = np.uint64(128)  # eighth "entry" = the flag, read where no remainder is equal
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

# Odd, so that multiplying by them modulo a power of two can be undone by multiplying by the others.
_FIRST, _SECOND = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)
_UNDO_FIRST, _UNDO_SECOND = np.uint64(0xCFEE444D8B59A89B), np.uint64(0xF1DE83E19937733D)

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int32]


@inlined
def domain_bits(limit: np.uint64) -> np.uint64:
    """D, of a domain whose last number is `limit`."""
    return count_trailing_zeros(~limit)


@inlined
def spread_number(number: np.uint64, limit: np.uint64, fold: np.uint64) -> np.uint64:
    """Where a number of the domain goes in it; no two go to the same place."""
    h = (number * _FIRST) & limit
    h ^= h >> fold
    return (h * _SECOND) & limit


@inlined
def gathered_number(h: np.uint64, limit: np.uint64, fold: np.uint64) -> np.uint64:
    """The number that `spread_number` sent to `h`. Folding at half of the bits undoes itself."""
    number = (h * _UNDO_SECOND) & limit
    number ^= number >> fold
    return (number * _UNDO_FIRST) & limit


@inlined
def spread_at(line: int, remainder: np.uint32, n_lines: int, top: np.uint64) -> np.uint64:
    """The spread number that has this remainder in this line."""
    n = np.uint64(n_lines)
    lowest = (((np.uint64(line) << _HALF) + n - np.uint64(1)) // n) << top
    return lowest + ((np.uint64(remainder) - lowest) & _LOW)


@inlined
def find_homes(words: Words, spread: Words, n_lines: int, homes: Halves) -> int:
    """Write the line of every word, `AHEAD` zeros, and from the returned place on its remainder."""
    n = words.shape[0]
    base, limit = spread[0], spread[1]
    bits = domain_bits(limit)
    fold = (bits + np.uint64(1)) >> np.uint64(1)
    top = bits - _HALF
    outside = np.uint64(n_lines)
    second = n + AHEAD
    for j in range(n):
        number = words[j] - base
        h = spread_number(number, limit, fold)
        line = ((h >> top) * outside) >> _HALF
        homes[j] = np.uint32(line if number <= limit else outside)
        homes[second + j] = np.uint32(h & _LOW)
    for j in range(n, second):
        homes[j] = np.uint32(0)
    return second


@kernel(
    types.UniTuple(i64, 2)(ro(u64), ro(i32), rw(types.uint32), ro(u64), rw(i32), rw(types.uint32))
)
def insert_remainders(
    words: Words, rows: Rows, table: Halves, spread: Words, chain: Rows, homes: Halves
) -> tuple[int, int]:
    """Enter `rows[j]` under `words[j]`, all of the domain; returns how many met an equal word (and were
    chained), and how many are left over.

    Rows must be larger than every row entered before, else chains do not fall.
    """
    n = words.shape[0]
    n_lines = table.shape[0] // 16 - 1
    second = find_homes(words, spread, n_lines, homes)
    base = table.ctypes.data
    for j in range(min(AHEAD, n)):
        prefetch(base + np.int64(homes[j]) * 64)
    n_duplicates = 0
    n_left = 0
    for j in range(n):
        prefetch(base + np.int64(homes[j + AHEAD]) * 64)
        line = np.uint64(homes[j])
        row = rows[j]
        remainder = homes[second + j]
        address = base + np.int64(line) * 64
        empty = zero_halves8(address + 32) & _ENTRY_MASK
        equal = equal_halves8(address, remainder) & _ENTRY_MASK & ~empty
        first = line * np.uint64(16)
        if equal != np.uint64(0):
            place = first + _FIRST_LINK + count_trailing_zeros(equal)
            chain[row] = np.int32(table[place])
            table[place] = np.uint32(-row - 1)
            n_duplicates += 1
        elif empty != np.uint64(0):
            place = first + count_trailing_zeros(empty)
            table[place] = remainder
            table[place + _FIRST_LINK] = np.uint32(row + 1)
        else:
            table[first + _FLAG] = np.uint32(1)
            homes[n_left] = np.uint32(j)
            n_left += 1
    return n_duplicates, n_left


@kernel(types.int64(ro(u64), ro(i32), ro(types.uint32), rw(u64), u64, rw(i32)))
def insert_left(
    words: Words, rows: Rows, left: Halves, rest: Words, base: np.uint64, chain: Rows
) -> int:
    """Enter the rows at the positions `left` into lines of words, under their numbers in the domain
    that begins at `base`; returns how many met an equal one. There must be room (see `lines.insert`).
    """
    shift = home_shift(rest.shape[0] // WORDS_PER_LINE)
    halves = rest.view(np.uint32)
    address = rest.ctypes.data
    n_left = left.shape[0]
    n_duplicates = 0
    for a in range(n_left):
        ahead = hash_word(words[left[min(a + AHEAD, n_left - 1)]] - base) >> shift
        prefetch(address + np.int64(ahead) * 64)
        position = np.int64(left[a])
        number = words[position] - base
        home = hash_word(number) >> shift
        n_duplicates += enter_row(number, rows[position], home, halves, address, chain)
    return n_duplicates


@kernel(i64(ro(u64), ro(types.uint32), ro(u64), ro(u64), rw(types.uint32), rw(i32), rw(i32)))
def probe_remainders(
    words: Words,
    table: Halves,
    spread: Words,
    rest: Words,
    homes: Halves,
    positions: Rows,
    links: Rows,
) -> int:
    """The newest row of every word found: position in `words`, and link. Returns how many.

    `rest` are the lines of the keys that were left over, by their number in the domain; empty if there
    are none. `positions` and `links` need `len(words) + 1` entries. Matches in `rest` come last.
    """
    n = words.shape[0]
    n_lines = table.shape[0] // 16 - 1
    second = find_homes(words, spread, n_lines, homes)
    base = table.ctypes.data
    for j in range(min(AHEAD, n)):
        prefetch(base + np.int64(homes[j]) * 64)
    found = 0
    n_left = 0
    for j in range(n):
        prefetch(base + np.int64(homes[j + AHEAD]) * 64)
        line = np.uint64(homes[j])
        equal = equal_halves8(base + np.int64(line) * 64, homes[second + j]) & _ENTRY_MASK
        entry = count_trailing_zeros(equal | _NO_ENTRY)
        value = np.int32(table[line * np.uint64(16) + _FIRST_LINK + entry])
        hit = equal != np.uint64(0)
        # Branch-free, as in `lines.probe`: link 0 means that an empty entry looked equal.
        positions[found] = j
        links[found] = value
        found += hit & (value != 0)
        homes[n_left] = np.uint32(j)
        n_left += (not hit) & (value != 0)
    if n_left and rest.shape[0]:
        shift = home_shift(rest.shape[0] // WORDS_PER_LINE)
        halves = rest.view(np.uint32)
        address = rest.ctypes.data
        for a in range(n_left):
            position = np.int64(homes[a])
            number = words[position] - spread[0]
            link = link_from(number, hash_word(number) >> shift, halves, address)
            positions[found] = position
            links[found] = link
            found += link != 0
    return found


probe_remainders_brief = brief(probe_remainders)


@inlined
def place_link(
    h: np.uint64, top: np.uint64, link: np.uint32, table: Halves, n_used: npt.NDArray[np.uint8]
) -> bool:
    """Enter a spread number that is not here yet; False if its line is full. `n_used` counts the
    entries of every line.
    """
    line = ((h >> top) * np.uint64(n_used.shape[0])) >> _HALF
    first = line * np.uint64(16)
    if n_used[line] == REMAINDERS:
        table[first + _FLAG] = np.uint32(1)
        return False
    place = first + np.uint64(n_used[line])
    table[place] = np.uint32(h & _LOW)
    table[place + _FIRST_LINK] = link
    n_used[line] += 1
    return True


@kernel(types.int64(ro(types.uint32), rw(types.uint32), ro(u64), rw(u8), rw(u64), rw(i32)))
def split_remainders(
    table: Halves,
    larger: Halves,
    spread: Words,
    n_used: npt.NDArray[np.uint8],
    left: Words,
    left_links: Rows,
) -> int:
    """Copy every entry of `table` into the zeroed, larger table. Returns how many are left over; their
    numbers and links are in `left` and `left_links`, which have room for all entries.

    `n_used` is zeroed scratch, one byte for each new line (see `lines.rehash`).
    """
    limit = spread[1]
    bits = domain_bits(limit)
    fold = (bits + np.uint64(1)) >> np.uint64(1)
    top = bits - _HALF
    n_lines = table.shape[0] // 16 - 1
    n_left = 0
    for line in range(n_lines):
        for entry in range(REMAINDERS):
            link = table[line * 16 + 8 + entry]
            if link == 0:
                break
            h = spread_at(line, table[line * 16 + entry], n_lines, top)
            if not place_link(h, top, link, larger, n_used):
                left[n_left] = gathered_number(h, limit, fold)
                left_links[n_left] = np.int32(link)
                n_left += 1
    return n_left


@kernel(types.int64(rw(u64), rw(i32), rw(types.uint32), ro(u64), rw(u8)))
def enter_numbers(
    numbers: Words, links: Rows, table: Halves, spread: Words, n_used: npt.NDArray[np.uint8]
) -> int:
    """Enter different numbers of the domain with their links. Returns how many are left over; they are
    moved to the front of `numbers` and `links`. `n_used` counts the entries of every line.
    """
    limit = spread[1]
    bits = domain_bits(limit)
    fold = (bits + np.uint64(1)) >> np.uint64(1)
    top = bits - _HALF
    n_left = 0
    for j in range(numbers.shape[0]):
        h = spread_number(numbers[j], limit, fold)
        if not place_link(h, top, np.uint32(links[j]), table, n_used):
            numbers[n_left] = numbers[j]
            links[n_left] = links[j]
            n_left += 1
    return n_left


@kernel(types.int64(ro(types.uint32), ro(u64), rw(u64), rw(i32)))
def entries_of(table: Halves, spread: Words, numbers: Words, links: Rows) -> int:
    """The number and the link of every entry, into arrays with room for all. Returns how many."""
    limit = spread[1]
    bits = domain_bits(limit)
    fold = (bits + np.uint64(1)) >> np.uint64(1)
    top = bits - _HALF
    n_lines = table.shape[0] // 16 - 1
    n = 0
    for line in range(n_lines):
        for entry in range(REMAINDERS):
            link = table[line * 16 + 8 + entry]
            if link == 0:
                break
            h = spread_at(line, table[line * 16 + entry], n_lines, top)
            numbers[n] = gathered_number(h, limit, fold)
            links[n] = np.int32(link)
            n += 1
    return n
