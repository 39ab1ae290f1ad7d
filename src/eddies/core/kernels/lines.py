"""The hash index: 64-byte lines of five (word, row) entries, one cache miss a look-up.

A *word* is a 64-bit key (see `words`). The table is a power of two of lines; a line is eight 64-bit
words seen also as sixteen 32-bit words:

    bytes 0-39   five words
    bytes 40-59  five links, zero when the entry is empty; entries fill from the left
    bytes 60-63  overflow flag: some word that belongs here lives in a later line

A word's home line is the top bits of its hash, so that doubling the table splits every line into two
neighbours and moves memory sequentially. Rows with an equal word form a chain (newest
first, so row ids fall along it): a *link* is `row + 1` if the row is the oldest of its word, and
`-(row + 1)` if there is an older one, whose link is then `chain[row]`. The table holds the newest
row's link. So unique keys never look at the chain, and the end of a chain is known without a look.

Every kernel first hashes the whole batch, then asks for lines `AHEAD` keys before they are needed.
`homes` is scratch of at least `len(words) + AHEAD` entries, `leftovers` of at least `len(words)`.

Figures and rejected layouts: docs/kernels.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import (
    count_trailing_zeros,
    equal_words8,
    prefetch,
    store64,
    zero_words16,
)
from eddies.core.kernels.jit import brief, i32, i64, inlined, kernel, ro, rw, u8, u64

__all__ = [
    "AHEAD",
    "ENTRIES",
    "WORDS_PER_LINE",
    "enter_links",
    "expand",
    "insert",
    "links_of",
    "probe",
    "rehash",
    "rows_of",
    "rows_of_brief",
    "skip_newer",
]

AHEAD = 32  # prefetch distance in keys; measured flat between 16 and 64
ENTRIES = 5
WORDS_PER_LINE = 8

_FIRST_ROW = np.uint64(10)  # 32-bit position of the row entries in a line
_FLAG = np.uint64(15)
_ENTRY_MASK = np.uint64(31)
_NO_ENTRY = np.uint64(32)  # sixth "entry" = the overflow flag, read where no word is equal

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]
Halves = npt.NDArray[np.uint32]


@inlined
def hash_word(word: np.uint64) -> np.uint64:
    """Spread a word over 64 bits; the top bits choose the line."""
    h = np.uint64(word)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0x9E3779B97F4A7C15)
    return h


@inlined
def home_shift(n_lines: int) -> np.uint64:
    """How far to shift a hash so that its top bits number `n_lines` lines (at least two)."""
    return np.uint64(64) - count_trailing_zeros(np.uint64(n_lines))


@inlined
def enter_row(
    word: np.uint64, row: np.int32, line: np.uint64, halves: Halves, base: int, chain: Rows
) -> int:
    """Enter `row` under `word`, whose home is `line`; 1 if it met an equal word, else 0.

    `halves` is the table as 32-bit words and `base` its address: to ask for either here, for every row,
    would take five times as long as to enter it.
    """
    last_line = np.uint64(halves.shape[0] // 16 - 1)
    while True:
        address = base + np.int64(line) * 64
        empty = (zero_words16(address) >> _FIRST_ROW) & _ENTRY_MASK
        equal = equal_words8(address, word) & _ENTRY_MASK & ~empty
        if equal != np.uint64(0):
            slot = line * np.uint64(16) + _FIRST_ROW + count_trailing_zeros(equal)
            chain[row] = np.int32(halves[slot])
            halves[slot] = np.uint32(-row - 1)
            return 1
        if empty != np.uint64(0):
            entry = count_trailing_zeros(empty)
            store64(address + np.int64(entry) * 8, word)
            halves[line * np.uint64(16) + _FIRST_ROW + entry] = np.uint32(row + 1)
            return 0
        halves[line * np.uint64(16) + _FLAG] = np.uint32(1)
        line = (line + np.uint64(1)) & last_line


@kernel(types.int64(ro(u64), ro(i32), rw(u64), rw(i32), rw(types.uint32)))
def insert(
    words: Words, rows: Rows, table: Words, chain: Rows, homes: npt.NDArray[np.uint32]
) -> int:
    """Enter `rows[j]` under `words[j]`; returns how many met an equal word (and were chained).

    Rows must be larger than every row entered before, else chains do not fall. `chain` needs a slot
    for every row id. The table must have room: at most half of its entries used afterwards.
    """
    n = words.shape[0]
    n_lines = table.shape[0] // WORDS_PER_LINE
    shift = home_shift(n_lines)
    base = table.ctypes.data
    halves = table.view(np.uint32)
    for j in range(n):
        homes[j] = np.uint32(hash_word(words[j]) >> shift)
    for j in range(n, n + AHEAD):
        homes[j] = np.uint32(0)
    for j in range(min(AHEAD, n)):
        prefetch(base + np.int64(homes[j]) * 64)
    n_duplicates = 0
    for j in range(n):
        prefetch(base + np.int64(homes[j + AHEAD]) * 64)
        n_duplicates += enter_row(words[j], rows[j], np.uint64(homes[j]), halves, base, chain)
    return n_duplicates


@inlined
def place(
    word: np.uint64, link: np.uint32, table: Words, n_used: npt.NDArray[np.uint8], shift: np.uint64
) -> None:
    """Enter a word that is not in the table yet. `n_used` counts the entries of every line."""
    halves = table.view(np.uint32)
    last_line = np.uint64(n_used.shape[0] - 1)
    line = hash_word(word) >> shift
    while n_used[line] == ENTRIES:
        halves[line * np.uint64(16) + _FLAG] = np.uint32(1)
        line = (line + np.uint64(1)) & last_line
    entry = np.uint64(n_used[line])
    table[line * np.uint64(WORDS_PER_LINE) + entry] = word
    halves[line * np.uint64(16) + _FIRST_ROW + entry] = link
    n_used[line] += 1


@kernel(types.void(ro(u64), rw(u64), rw(u8)))
def rehash(table: Words, larger: Words, n_used: npt.NDArray[np.uint8]) -> None:
    """Copy every entry of `table` into the zeroed, larger table; chains stay as they are.

    `n_used` is zeroed scratch, one byte for each new line. A line's entries are counted there and not
    in the line itself: neighbours are written one after another, and to read a whole line just after
    a part of it was written stalls the processor (four times as slow).
    """
    shift = home_shift(n_used.shape[0])
    halves = table.view(np.uint32)
    for line in range(table.shape[0] // WORDS_PER_LINE):
        for entry in range(ENTRIES):
            link = halves[line * 16 + 10 + entry]
            if link == 0:
                break
            place(table[line * WORDS_PER_LINE + entry], link, larger, n_used, shift)


@kernel(types.void(ro(u64), ro(i32), rw(u64), rw(u8)))
def enter_links(words: Words, links: Rows, table: Words, n_used: npt.NDArray[np.uint8]) -> None:
    """Enter different words with their links into a zeroed table; `n_used` as for `rehash`."""
    shift = home_shift(n_used.shape[0])
    for j in range(words.shape[0]):
        place(words[j], np.uint32(links[j]), table, n_used, shift)


@kernel(types.int64(ro(u64), rw(u64), rw(i32)))
def links_of(table: Words, words: Words, links: Rows) -> int:
    """Every word of a table and its link, into arrays with room for all. Returns how many."""
    halves = table.view(np.uint32)
    n = 0
    for line in range(table.shape[0] // WORDS_PER_LINE):
        for entry in range(ENTRIES):
            link = halves[line * 16 + 10 + entry]
            if link == 0:
                break
            words[n] = table[line * WORDS_PER_LINE + entry]
            links[n] = np.int32(link)
            n += 1
    return n


@inlined
def link_from(word: np.uint64, line: np.uint64, halves: Halves, base: int) -> np.int32:
    """The link of `word`, looked for from `line` on as far as lines overflow; 0 if it is not there.
    `halves` and `base` as for `enter_row`.
    """
    last_line = np.uint64(halves.shape[0] // 16 - 1)
    while True:
        equal = equal_words8(base + np.int64(line) * 64, word) & _ENTRY_MASK
        entry = count_trailing_zeros(equal | _NO_ENTRY)
        value = np.int32(halves[line * np.uint64(16) + _FIRST_ROW + entry])
        if equal != np.uint64(0) or value == 0:
            return value
        line = (line + np.uint64(1)) & last_line


@kernel(types.int64(ro(u64), ro(u64), rw(types.uint32), rw(i32), rw(i32), rw(i32)))
def probe(
    words: Words,
    table: Words,
    homes: npt.NDArray[np.uint32],
    leftovers: Rows,
    positions: Rows,
    links: Rows,
) -> int:
    """The newest row of every word found: position in `words`, and link. Returns how many.

    `positions` and `links` need `len(words) + 1` entries. Matches in overflow lines come last, so
    positions are not sorted.
    """
    n = words.shape[0]
    if n == 0:
        return 0
    n_lines = table.shape[0] // WORDS_PER_LINE
    shift = home_shift(n_lines)
    last_line = np.uint64(n_lines - 1)
    base = table.ctypes.data
    halves = table.view(np.uint32)
    for j in range(n):
        homes[j] = np.uint32(hash_word(words[j]) >> shift)
    for j in range(n, n + AHEAD):
        homes[j] = np.uint32(0)
    for j in range(min(AHEAD, n)):
        prefetch(base + np.int64(homes[j]) * 64)
    found = 0
    n_leftovers = 0
    for j in range(n):
        prefetch(base + np.int64(homes[j + AHEAD]) * 64)
        line = np.uint64(homes[j])
        equal = equal_words8(base + np.int64(line) * 64, words[j]) & _ENTRY_MASK
        entry = count_trailing_zeros(equal | _NO_ENTRY)
        value = np.int32(halves[line * np.uint64(16) + _FIRST_ROW + entry])
        hit = equal != np.uint64(0)
        # Branch-free: write always, advance only when it counts. A word equal to the zero of an
        # empty entry reads link 0, which means "not here"; entries fill from the left, so a real
        # entry for word zero always lies before any empty one.
        positions[found] = j
        links[found] = value
        found += hit & (value != 0)
        leftovers[n_leftovers] = j
        n_leftovers += (not hit) & (value != 0)
    for a in range(n_leftovers):
        j = leftovers[a]
        line = (np.uint64(homes[j]) + np.uint64(1)) & last_line
        link = link_from(words[j], line, halves, base)
        positions[found] = j
        links[found] = link
        found += link != 0
    return found


@kernel(types.int64(rw(i32), rw(i32), i64, i64, ro(i32)))
def skip_newer(positions: Rows, links: Rows, found: int, limit: int, chain: Rows) -> int:
    """Move every match down its chain to the newest row below `limit`; drops those without one."""
    kept = 0
    for a in range(found):
        link = np.int64(links[a])
        while link != 0 and abs(link) > limit:
            link = np.int64(chain[-link - 1]) if link < 0 else np.int64(0)
        positions[kept] = positions[a]
        links[kept] = np.int32(link)
        kept += link != 0
    return kept


@kernel(types.UniTuple(i64, 2)(rw(i32), rw(i32), i64, i64, ro(i32), rw(i32)))
def expand(
    positions: Rows, links: Rows, start: int, stop: int, chain: Rows, marked: Rows
) -> tuple[int, int]:
    """Append the older rows of the matches in `start:stop`, one chain step for all a round.

    Stops before a round that might not fit. Returns (start, stop): `stop` matches are there, and
    those in `start:stop` may still have older rows (none when the two are equal). `marked` is
    scratch as large as `positions`.
    """
    capacity = positions.shape[0]
    base = chain.ctypes.data
    while stop > start:
        n_marked = 0
        for a in range(start, stop):
            marked[n_marked] = a
            n_marked += links[a] < 0
        if n_marked == 0:
            return stop, stop
        if stop + n_marked > capacity:
            return start, stop
        for i in range(n_marked):
            ahead = np.int64(links[marked[min(i + AHEAD, n_marked - 1)]])
            prefetch(base + (-ahead - 1) * 4)
            a = marked[i]
            positions[stop + i] = positions[a]
            links[stop + i] = chain[-np.int64(links[a]) - 1]
        start = stop
        stop += n_marked
    return start, stop


@kernel(types.void(rw(i32), i64))
def rows_of(links: Rows, n: int) -> None:
    """Turn the first `n` links into row ids, in place."""
    for a in range(n):
        links[a] = abs(links[a]) - 1


rows_of_brief = brief(rows_of)
