"""Snappy, decompressed.

A block is a sequence of literals, bytes that stand there, and copies of what was written before. Most
are short, so both are moved eight bytes at a time without asking how many there are, as long as both
sides have room for more; what is too much is overwritten by what follows.

The bytes come from a file: no literal is read beyond the end, no copy reaches before the beginning,
nothing is written beyond the size announced.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.intrinsics import load8, load64, store64
from eddies.core.kernels.jit import i64, kernel, rw, u8

__all__ = ["unpack_snappy"]

_ROOM = 80  # bytes: the longest copy, and what is moved beyond it


@kernel(i64(i64, i64, rw(u8)))
def unpack_snappy(address: int, n_bytes: int, out: npt.NDArray[np.uint8]) -> int:
    """Fill `out` with the decompressed `n_bytes` at `address`; 0, or 1 if these are not as many."""
    at = np.int64(address)
    end = at + n_bytes
    to = np.int64(out.ctypes.data)
    begin = to
    stop = to + out.shape[0]
    # The size comes first; the page's header has said it, too.
    size = np.int64(0)
    shift = 0
    while True:
        if at >= end or shift > 35:
            return 1
        byte = np.int64(load8(at))
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size != out.shape[0]:
        return 1
    last_at = end - _ROOM
    last_to = stop - _ROOM
    while at < end:
        tag = np.int64(load8(at))
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            at += 1
            if length <= 16 and at <= last_at and to <= last_to:
                store64(to, load64(at))
                store64(to + 8, load64(at + 8))
                at += length
                to += length
                continue
            if length > 60:
                n_more = np.int64(length - 60)
                if at + n_more > end:
                    return 1
                length = np.int64(0)
                for byte_number in range(n_more):
                    length |= np.int64(load8(at + byte_number)) << (8 * byte_number)
                length += 1
                at += n_more
            if length > end - at or length > stop - to:
                return 1
            done = np.int64(0)
            while done + 8 <= length:
                store64(to + done, load64(at + done))
                done += 8
            while done < length:
                out[to - begin + done] = load8(at + done)
                done += 1
            at += length
            to += length
            continue
        if at <= last_at:
            word = np.int64(load64(at))
        else:
            word = np.int64(0)
            for byte_number in range(5):
                if at + byte_number < end:
                    word |= np.int64(load8(at + byte_number)) << (8 * byte_number)
        if kind == 1:
            length = ((tag >> 2) & 7) + 4
            offset = ((tag >> 5) << 8) | ((word >> 8) & 0xFF)
            at += 2
        elif kind == 2:
            length = (tag >> 2) + 1
            offset = (word >> 8) & 0xFFFF
            at += 3
        else:
            length = (tag >> 2) + 1
            offset = (word >> 8) & 0xFFFFFFFF
            at += 5
        if at > end or offset == 0 or offset > to - begin:
            return 1
        if offset >= 8 and to <= last_to:
            store64(to, load64(to - offset))
            store64(to + 8, load64(to + 8 - offset))
            done = np.int64(16)
            while done < length:
                store64(to + done, load64(to + done - offset))
                done += 8
            to += length
            continue
        if length > stop - to:
            return 1
        done = np.int64(0)
        while done < length:
            out[to - begin + done] = load8(to - offset + done)
            done += 1
        to += length
    return 0 if to == stop else 1
