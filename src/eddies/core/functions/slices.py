"""Cutting text by character positions that differ from row to row.

Arrow slices strings with one start and one stop for the whole column. Here each row has its own:
the byte where every character begins is found once for the column (a UTF-8 byte that is not
10xxxxxx), and the wanted bytes are gathered in one NumPy indexing step. Columns of plain ASCII
skip the first part.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as kinds

from eddies.core.functions.signature import truth

__all__ = ["characters_before", "slice_characters"]

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def _layout(text: pa.Array) -> tuple[Int64s, Bytes]:
    """Offsets int64[n + 1] and the bytes they point into."""
    _, offsets, content = text.buffers()
    if offsets is None or len(text) == 0:
        return np.zeros(len(text) + 1, np.int64), np.zeros(0, np.uint8)
    dtype = np.int64 if kinds.is_large_string(text.type) else np.int32
    every = np.frombuffer(offsets, dtype)
    mine = every[text.offset : text.offset + len(text) + 1].astype(np.int64)
    bytes_ = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return mine, bytes_


def _begins(content: Bytes) -> npt.NDArray[np.bool_]:
    """bool[n_bytes]: where a character begins."""
    begins: npt.NDArray[np.bool_] = (content & 0xC0) != 0x80
    return begins


def slice_characters(text: pa.Array, start: Int64s, stop: Int64s) -> pa.Array:
    """Characters `start` up to `stop` of each row, counted from 0 and clipped to the row.

    `start` and `stop` are int64[n]; what they hold for a NULL row does not matter.
    """
    offsets, content = _layout(text)
    first, last = offsets[:-1], offsets[1:]
    used = content[offsets[0] : offsets[-1]]
    if not (used & 0x80).any():
        begin = first + np.clip(start, 0, last - first)
        end = first + np.clip(stop, 0, last - first)
    else:
        begins = np.flatnonzero(_begins(used)) + offsets[0]
        row_first, row_last = np.searchsorted(begins, first), np.searchsorted(begins, last)
        n_characters = row_last - row_first
        begins = np.append(begins, offsets[-1])
        begin = begins[row_first + np.clip(start, 0, n_characters)]
        end = begins[row_first + np.clip(stop, 0, n_characters)]
    valid = truth(text.is_valid(), len(text))
    return _gather(content, begin, np.where(valid, np.maximum(end, begin), begin), valid)


def _gather(content: Bytes, begin: Int64s, end: Int64s, valid: npt.NDArray[np.bool_]) -> pa.Array:
    lengths = end - begin
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise OverflowError("a batch of text grew beyond 2 GiB")
    source = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], lengths)
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content[source])]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def characters_before(text: pa.Array, n_bytes: Int64s) -> Int64s:
    """int64[n]: how many characters begin in the first `n_bytes` bytes of each row."""
    offsets, content = _layout(text)
    counts = np.zeros(len(content) + 1, np.int64)
    np.cumsum(_begins(content), out=counts[1:])
    first = offsets[:-1]
    return counts[np.minimum(first + np.maximum(n_bytes, 0), len(content))] - counts[first]
