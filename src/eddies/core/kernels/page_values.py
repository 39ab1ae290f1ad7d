"""Single values of Parquet pages, found without decoding those before them.

A page holds its values in one of three ways that matter here. Codes into a dictionary are runs, of one
code repeated or of codes packed bit by bit, so a code is found by stepping over whole runs. Which rows
are NULL is written in the same way, with one bit a row, and counting ones tells where the value of a
row lies. Text lies end to end, each with its length before it, so lengths must be followed; the bytes
themselves are not touched.

Numbers of a fixed width need no kernel: the n-th value lies where it lies.

Pages are rows of a table of `PAGE_FIELDS` numbers:

    0, 1  address and size of the bytes that are read
    2, 3  the rows wanted, as a range of the vectors that all pages share
    4     the first row of the page (`find_values`) or 0
    5     rows of the page

Wanted rows, or values, ascend. What lies in a page comes from a file and is not believed: every look is
checked against the end of its bytes, and a kernel returns the number of the first page that is damaged,
or `SOUND`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.intrinsics import load8, load64
from eddies.core.kernels.jit import i32, i64, inlined, kernel, ro, rw, u8

__all__ = ["PAGE_FIELDS", "SOUND", "find_codes", "find_texts", "find_values"]

PAGE_FIELDS = 6
SOUND = -1

_MOST_ROWS = (1 << 31) - 1
_MOST_WIDTH = 32  # bits of a code

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


@inlined
def bits_at(address: int, end: int, bit: int) -> np.int64:
    """At least 32 bits from the `bit`-th after `address`; zeros beyond `end`."""
    at = address + (bit >> 3)
    shift = np.uint64(bit & 7)
    if at + 8 <= end:
        return np.int64(load64(at) >> shift)
    word = np.uint64(0)
    for byte in range(max(end - at, 0)):
        word |= np.uint64(load8(at + byte)) << np.uint64(8 * byte)
    return np.int64(word >> shift)


@inlined
def run_header(at: int, end: int) -> tuple[np.int64, int]:
    """The number that a run begins with and where it ends; a negative number if there is none. Below 2
    the run is empty, which none is.
    """
    number = np.int64(0)
    shift = 0
    while at < end and shift < 35:
        byte = np.int64(load8(at))
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
    return np.int64(-1), at


@kernel(i64(ro(i64), ro(i32), i64, rw(i32)))
def find_codes(pages: Numbers, wanted: Rows, n_words: int, codes: Rows) -> int:
    """The codes of the values `wanted`, numbered from the beginning of their page.

    A code that is not below `n_words`, the size of the dictionary, makes a page a damaged one.
    """
    for page in range(pages.shape[0] // PAGE_FIELDS):
        fields = page * PAGE_FIELDS
        at = pages[fields]
        end = at + pages[fields + 1]
        j = pages[fields + 2]
        stop = pages[fields + 3]
        if j == stop:
            continue
        first = pages[fields + 4]
        if at >= end:
            return page
        width = np.int64(load8(at))
        at += 1
        if width > _MOST_WIDTH:
            return page
        mask = (np.int64(1) << width) - 1
        begin = np.int64(0)  # of the run
        worst = np.int64(0)
        while j < stop:
            header, at = run_header(at, end)
            if header < 2:
                return page
            if header & 1:
                last = begin + (header >> 1) * 8
                n_bytes = (header >> 1) * width
                run_end = min(at + n_bytes, end)
                bits = (run_end - at) * 8
                if at + n_bytes + 8 <= end:  # all words that are loaded lie within the page
                    n_left = min(stop - j, last + first - wanted[j])
                    if (
                        n_left > 0 and wanted[j + n_left - 1] == wanted[j] + n_left - 1
                    ):  # all of them
                        bit = (wanted[j] - first - begin) * width
                        for i in range(j, j + n_left):
                            code = np.int64(load64(at + (bit >> 3)) >> np.uint64(bit & 7)) & mask
                            worst = max(worst, code)
                            codes[i] = np.int32(code)
                            bit += width
                        j += n_left
                    while j < stop and wanted[j] - first < last:
                        bit = (wanted[j] - first - begin) * width
                        code = np.int64(load64(at + (bit >> 3)) >> np.uint64(bit & 7)) & mask
                        worst = max(worst, code)
                        codes[j] = np.int32(code)
                        j += 1
                while j < stop and wanted[j] - first < last:
                    bit = (wanted[j] - first - begin) * width
                    if bit + width > bits:
                        return page
                    code = bits_at(at, end, bit) & mask
                    worst = max(worst, code)
                    codes[j] = np.int32(code)
                    j += 1
                at = run_end
            else:
                last = begin + (header >> 1)
                n_bytes = (width + 7) >> 3
                if at + n_bytes > end:
                    return page
                code = bits_at(at, end, 0) & ((np.int64(1) << 8 * n_bytes) - 1)
                at += n_bytes
                is_used = False
                while j < stop and wanted[j] - first < last:
                    codes[j] = np.int32(code)
                    j += 1
                    is_used = True
                if is_used:
                    worst = max(worst, code)
            begin = last
        if worst >= n_words:
            return page
    return SOUND


@kernel(i64(ro(i64), ro(i32), rw(u8), rw(i32), rw(i64)))
def find_values(
    pages: Numbers,
    wanted: Rows,
    valid: npt.NDArray[np.uint8],
    places: Rows,
    n_places: Numbers,
) -> int:
    """Which of the rows `wanted` are not NULL, and the numbers of their values in their pages.

    `valid` has one byte a row. `places` holds the values of rows that are not NULL, end to end;
    `n_places` (one entry more than pages) how many of them there are before each page.
    """
    found = np.int64(0)
    for page in range(pages.shape[0] // PAGE_FIELDS):
        fields = page * PAGE_FIELDS
        n_places[page] = found
        at = pages[fields]
        end = at + pages[fields + 1]
        j = pages[fields + 2]
        stop = pages[fields + 3]
        first = pages[fields + 4]
        n_rows = pages[fields + 5]
        begin = np.int64(0)  # of the run
        n_before = np.int64(0)  # values before the run
        while j < stop:
            header, at = run_header(at, end)
            if header < 2:
                return page
            if header & 1:
                n_bytes = header >> 1
                if n_bytes > end - at:  # some writers leave out bytes behind the last row
                    if begin + 8 * n_bytes >= n_rows + 8:
                        return page
                    n_bytes = end - at
                    if n_bytes <= 0:
                        return page
                last = begin + n_bytes * 8
                if last > _MOST_ROWS:
                    return page
                counted = np.int64(0)  # bytes of the run whose ones are in `n_before`
                while counted < n_bytes:
                    if j == stop:
                        break
                    byte = np.int64(load8(at + counted))
                    base = begin + counted * 8
                    while j < stop and wanted[j] - first < base + 8:
                        place = wanted[j] - first - base
                        is_valid = (byte >> place) & 1
                        valid[j] = np.uint8(is_valid)
                        before = byte & ((np.int64(1) << place) - 1)
                        n_ones = np.int64(0)
                        while before != 0:
                            before &= before - 1
                            n_ones += 1
                        places[found] = np.int32(n_before + n_ones)
                        found += is_valid
                        j += 1
                    while byte != 0:
                        byte &= byte - 1
                        n_before += 1
                    counted += 1
                at += n_bytes
            else:
                last = begin + (header >> 1)
                if at >= end or last > _MOST_ROWS:
                    return page
                level = np.int64(load8(at))
                at += 1
                if level > 1:
                    return page
                while j < stop and wanted[j] - first < last:
                    valid[j] = np.uint8(level)
                    places[found] = np.int32(n_before + wanted[j] - first - begin)
                    found += level
                    j += 1
                n_before += level * (last - begin)
            begin = last
    n_places[pages.shape[0] // PAGE_FIELDS] = found
    return SOUND


@kernel(i64(ro(i64), ro(i32), rw(i64), rw(i32)))
def find_texts(pages: Numbers, wanted: Rows, addresses: Numbers, lengths: Rows) -> int:
    """Where the texts `wanted` lie, and how long they are."""
    for page in range(pages.shape[0] // PAGE_FIELDS):
        fields = page * PAGE_FIELDS
        at = pages[fields]
        end = at + pages[fields + 1]
        first = pages[fields + 4]
        number = np.int64(0)
        for j in range(pages[fields + 2], pages[fields + 3]):
            place = wanted[j] - first
            while True:
                if at + 4 > end:
                    return page
                length = bits_at(at, end, 0) & np.int64(0xFFFFFFFF)
                at += 4
                if length > end - at:
                    return page
                if number == place:
                    break
                at += length
                number += 1
            addresses[j] = at
            lengths[j] = np.int32(length)
            at += length
            number += 1
    return SOUND
