"""The headers of the pages of a Parquet column chunk.

A column chunk is a sequence of pages, and before each lies a header in Thrift's compact protocol:
fields of one struct, of which one is a struct again (of a data page, a data page of version 2 or a
dictionary page), which may hold statistics, a third struct. Only whole numbers and truth values
matter; everything else is stepped over. The bytes come from a file, so none is believed: every look
is checked against the end of the chunk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.jit import i64, kernel, ro, rw, u8

__all__ = ["HEADER_FIELDS", "NO_HEADER", "page_headers"]

HEADER_FIELDS = 16
"""Numbers kept of a header; -1 stands for a field that is not there.

0 to 3: kind of page, bytes when decompressed, bytes, checksum. 4 to 11: fields 1 to 8 of the inner
struct. 12: where the page begins in the chunk.
"""
NO_HEADER = -1

_INNER = 4
_BEGIN = 12
_MOST_BITS = 63
# Kinds of fields in the compact protocol.
_TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BYTES, _STRUCT = 1, 2, 3, 6, 7, 8, 12


@kernel(i64(ro(u8), rw(i64)))
def page_headers(chunk: npt.NDArray[np.uint8], headers: npt.NDArray[np.int64]) -> int:
    """Read headers until the chunk ends or `headers` (`HEADER_FIELDS` numbers each) is full.

    Returns how many there are, or `NO_HEADER` where the bytes are none.
    """
    n_bytes = chunk.shape[0]
    most = headers.shape[0] // HEADER_FIELDS
    last_field = np.zeros(3, dtype=np.int64)
    at = np.int64(0)
    n = 0
    while at < n_bytes and n < most:
        first = n * HEADER_FIELDS
        for field in range(HEADER_FIELDS):
            headers[first + field] = -1
        depth = 0
        last_field[0] = 0
        while depth >= 0:
            if at >= n_bytes:
                return NO_HEADER
            byte = np.int64(chunk[at])
            at += 1
            kind = byte & 15
            if byte == 0:  # the end of a struct
                depth -= 1
                continue
            # Whole numbers follow a field whose number does not follow from the last one's, and all
            # kinds but truth values, bytes and structs: `wanted` of them, the last is the value.
            value = np.int64(1 if kind == _TRUE else 0)
            is_far = byte >> 4 == 0
            has_number = (kind > _BYTE and kind <= _I64) or kind == _BYTES
            for turn in range(2):
                if (turn == 0 and not is_far) or (turn == 1 and not has_number):
                    continue
                number = np.int64(0)
                shift = 0
                while True:
                    if at >= n_bytes or shift > _MOST_BITS:
                        return NO_HEADER
                    part = np.int64(chunk[at])
                    at += 1
                    number |= (part & 127) << shift
                    shift += 7
                    if part < 128:
                        break
                if turn == 0:
                    last_field[depth] = (number >> 1) ^ -(number & 1)
                else:
                    value = number
            if not is_far:
                last_field[depth] += byte >> 4
            if kind == _STRUCT:
                depth += 1
                if depth > 2:
                    return NO_HEADER
                last_field[depth] = 0
                continue
            if kind == _BYTES:
                if value < 0 or value > n_bytes - at:
                    return NO_HEADER
                at += value
                continue
            if kind == _DOUBLE:
                at += 8
                continue
            if kind == _BYTE:
                at += 1
                continue
            if kind < _TRUE or kind > _I64:
                return NO_HEADER
            if kind > _BYTE:
                value = (value >> 1) ^ -(value & 1)
            field = last_field[depth]
            if depth == 0 and field >= 1 and field <= 4:
                headers[first + field - 1] = value
            elif depth == 1 and field >= 1 and field <= 8:
                headers[first + _INNER + field - 1] = value
        n_page_bytes = headers[first + 2]
        if n_page_bytes < 0 or n_page_bytes > n_bytes - at:
            return NO_HEADER
        headers[first + _BEGIN] = at
        at += n_page_bytes
        n += 1
    return n
