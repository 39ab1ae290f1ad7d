"""Rows by id: `out[i] = values[ids[i]]` for the few widths a column can have, and for bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.intrinsics import load8, load64, prefetch, store64
from eddies.core.kernels.jit import brief, i32, i64, kernel, ro, rw, u8, u64

__all__ = [
    "among_words",
    "compact",
    "copy_bytes",
    "copy_brief",
    "copy_rows",
    "gather",
    "gather_brief",
    "gather_pairs",
    "offsets_of",
]

_AHEAD = 32

Rows = npt.NDArray[np.int32]


@kernel(
    types.void(ro(u64), ro(i32), rw(u64)),
    types.void(ro(types.uint32), ro(i32), rw(types.uint32)),
    types.void(ro(types.uint16), ro(i32), rw(types.uint16)),
    types.void(ro(u8), ro(i32), rw(u8)),
    types.void(ro(i32), ro(i32), rw(i32)),
)
def gather(values: npt.NDArray[Any], ids: Rows, out: npt.NDArray[Any]) -> None:
    """`out[i] = values[ids[i]]`; widths of 1, 2, 4 and 8 bytes."""
    for i in range(ids.shape[0]):
        out[i] = values[ids[i]]


gather_brief = brief(gather)


@kernel(types.void(ro(i32), rw(i32)))
def copy_rows(rows: Rows, out: Rows) -> None:
    """`out = rows`."""
    for i in range(rows.shape[0]):
        out[i] = rows[i]


copy_brief = brief(copy_rows)


@kernel(types.void(ro(u64), ro(i32), rw(u64)))
def gather_pairs(values: npt.NDArray[np.uint64], ids: Rows, out: npt.NDArray[np.uint64]) -> None:
    """Gather entries of 16 bytes: `values` and `out` hold two words an entry."""
    for i in range(ids.shape[0]):
        source = np.int64(ids[i]) * 2
        out[2 * i] = values[source]
        out[2 * i + 1] = values[source + 1]


@kernel(types.int64(ro(types.boolean), rw(i32), rw(i32), i64))
def compact(keep: npt.NDArray[np.bool_], positions: Rows, rows: Rows, n: int) -> int:
    """Drop, in place, the first `n` pairs where `keep` is false; returns how many remain."""
    kept = 0
    for i in range(n):
        positions[kept] = positions[i]
        rows[kept] = rows[i]
        kept += keep[i]
    return kept


@kernel(types.int64(ro(i32), ro(types.boolean), rw(i32)))
def among_words(codes: Rows, is_there: npt.NDArray[np.bool_], positions: Rows) -> int:
    """Positions of the codes whose word is there; returns how many. The last entry of `is_there` is
    for codes that are none, and `positions` has room for one more than there are codes.
    """
    kept = 0
    none = np.uint32(is_there.shape[0] - 1)
    for i in range(codes.shape[0]):
        positions[kept] = i
        kept += is_there[min(np.uint32(codes[i]), none)]
    return kept


@kernel(types.int64(ro(i32), rw(i32)))
def offsets_of(lengths: Rows, offsets: Rows) -> int:
    """Running sum of `lengths` into `offsets` (one entry longer). Returns the total, which the
    caller must check against the range of int32.
    """
    total = np.int64(0)
    offsets[0] = 0
    for i in range(lengths.shape[0]):
        total += lengths[i]
        offsets[i + 1] = np.int32(total)
    return int(total)


@kernel(types.void(ro(i64), ro(i32), rw(u8)))
def copy_bytes(addresses: npt.NDArray[np.int64], lengths: Rows, out: npt.NDArray[np.uint8]) -> None:
    """Lay the byte strings at `addresses` end to end into `out`.

    Eight bytes are copied at a time while both sides have eight left, so nothing beyond a string or
    beyond `out` is touched.
    """
    n = lengths.shape[0]
    base = out.ctypes.data
    position = np.int64(0)
    for i in range(n):
        prefetch(addresses[min(i + _AHEAD, n - 1)])
        source = addresses[i]
        length = np.int64(lengths[i])
        if length >= 8:
            done = np.int64(0)
            while done + 8 < length:
                store64(base + position + done, load64(source + done))
                done += 8
            # The last eight bytes, overlapping what is there with equal bytes.
            store64(base + position + length - 8, load64(source + length - 8))
        else:
            for b in range(length):
                out[position + b] = load8(source + b)
        position += length
