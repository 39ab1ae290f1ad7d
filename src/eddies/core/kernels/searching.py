"""Pieces of text looked for in texts, one after the other: `LIKE 'a%b%c'`.

The first place that is found for a piece is the best one for those after it. A piece is looked for as
Horspool does (1980): where the byte under its last byte does not occur in it, the search goes on a
whole length further, so long pieces are found in fewer steps than the text has bytes. In UTF-8 a
piece is found at no place where its characters are not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import load8
from eddies.core.kernels.jit import i32, i64, inlined, kernel, ro, rw, u8

__all__ = ["AT_BEGIN", "AT_END", "find_pieces"]

AT_BEGIN = 1  # the first piece is at the beginning of the text
AT_END = 2  # the last one is at its end

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]


@inlined
def is_at(address: np.int64 | int, needle: np.int64 | int, length: np.int64 | int) -> bool:
    """Whether the bytes at two addresses are the same."""
    same = True
    i = 0
    while same and i < length:
        same = load8(address + i) == load8(needle + i)
        i += 1
    return same


@kernel(types.void(ro(i32), ro(u8), ro(u8), ro(i64), i64, rw(u8)))
def find_pieces(
    offsets: Offsets, content: Bytes, needles: Bytes, borders: Numbers, where: int, found: Bytes
) -> None:
    """Whether each text has all pieces, in their order and apart.

    Text i are the bytes `offsets[i]` to `offsets[i + 1]` of `content`; piece k, which is not empty,
    those from `borders[k]` to `borders[k + 1]` of `needles`. `where` is AT_BEGIN, AT_END, both or 0.
    """
    n_pieces = borders.shape[0] - 1
    first = 1 if where & 1 else 0
    last = n_pieces - 1 if where & 2 else n_pieces
    shifts = np.empty(256 * n_pieces, np.int64)
    for k in range(n_pieces):
        length = borders[k + 1] - borders[k]
        shifts[256 * k : 256 * k + 256] = length
        for i in range(length - 1):
            shifts[256 * k + np.int64(needles[borders[k] + i])] = length - 1 - i
    base = content.ctypes.data
    needle = needles.ctypes.data
    for row in range(offsets.shape[0] - 1):
        place = base + np.int64(offsets[row])
        stop = base + np.int64(offsets[row + 1])
        matches = True
        if first == 1:
            length = borders[1]
            matches = place + length <= stop and is_at(place, needle, length)
            place += length
        if matches and last < n_pieces:
            begin = borders[last]
            length = borders[n_pieces] - begin
            matches = place + length <= stop
            if matches:
                stop -= length
                matches = is_at(stop, needle + begin, length)
        k = first
        while matches and k < last:
            begin = needle + borders[k]
            reach = borders[k + 1] - borders[k] - 1
            last_byte = load8(begin + reach)
            under = place + reach  # where the last byte of the piece would be
            matches = False
            while under < stop:
                byte = load8(under)
                if byte == last_byte and is_at(under - reach, begin, reach):
                    matches = True
                    break
                under += shifts[256 * k + np.int64(byte)]
            place = under + 1
            k += 1
        found[row] = 1 if matches else 0
