"""Columns as the kernels need them: plain arrays, made from Arrow without copying where possible.

A column can do three things: give its rows back as Arrow (`take`), give the 64-bit words of its rows
for use as a join key (`words`), and grow (`append`). Four kinds cover every Arrow type:

* `FixedColumn`: numbers, dates, timestamps, booleans; up to eight bytes a row.
* `PairColumn`: 16-byte decimals.
* `TextColumn`: strings and binary, as (address, length) of bytes that lie in the Arrow buffers the
  rows came in. The buffers are kept, never copied, until rows are taken out.
* `OpaqueColumn`: nested and exotic types, carried by Arrow itself; never a join key.

A column made by `column_of` shares memory with its Arrow array. Growing columns copy as late as they
can (see `vector`).

Known limitations: at most 2**31 - 1 rows; a text column keeps whole buffers alive, so a few rows of a
large batch hold all its bytes.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.kernels.gather import (
    copy_bytes,
    gather,
    gather_brief,
    gather_pairs,
    offsets_of,
)
from eddies.core.kernels.jit import BRIEF_ROWS
from eddies.core.kernels.words import mix_words, text_words
from eddies.core.state.vector import Values, Vector
from eddies.errors import EvaluationError

__all__ = [
    "Column",
    "FixedColumn",
    "KeyColumn",
    "OpaqueColumn",
    "PairColumn",
    "TextColumn",
    "Words",
    "column_of",
    "empty_column",
    "is_key_type",
    "key_width",
    "normal_type",
]

_INT64 = pa.int64()

Ids = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
MAX_EXACT_DECIMAL = 18  # digits that fit into a signed 64-bit integer
_MOST_TEXT_BYTES = 2**31 - 1
_OPAQUE_RUNS = 8


class KeyColumn(Protocol):
    """What can be a part of a join key."""

    @property
    def type(self) -> pa.DataType: ...

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        """Key words of the rows `ids`, or of the rows `start:stop` when ids is None.

        Words of NULL rows are unspecified; see `valid`.
        """
        ...

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        """One byte a row, zero for NULL; None when no row of the column is NULL."""
        ...

    @property
    def exact(self) -> bool:
        """Whether equal words mean equal values."""
        ...


class Column(KeyColumn, Protocol):
    """One column of a block or a row store."""

    def __len__(self) -> int: ...

    def take(self, ids: Ids | None) -> pa.Array:
        """The rows `ids` (all rows when None) as an Arrow array."""
        ...

    def append(self, other: Self, room: int) -> None:
        """Add the rows of `other`; `room` is how many rows to make space for when growing."""
        ...

    def release(self) -> None:
        """Give memory back; the column must not be used afterwards."""
        ...

    @property
    def n_bytes(self) -> int:
        """Memory this column holds."""
        ...


def _gathered(values: Values, ids: Ids) -> Values:
    n = ids.shape[0]
    out = np.empty(n, dtype=values.dtype)
    (gather_brief if n <= BRIEF_ROWS else gather)(values, ids, out)
    return out


class _Validity:
    """NULLs of a column: nothing while there are none, then one byte a row."""

    __slots__ = ("mask",)

    def __init__(self, mask: Bytes | None) -> None:
        self.mask = None if mask is None else Vector(mask)

    def take(self, ids: Ids | None, start: int, stop: int) -> Bytes | None:
        if self.mask is None:
            return None
        values = self.mask.values
        return values[start:stop] if ids is None else _gathered(values, ids)

    def append(self, other: _Validity, used: int, more: int, room: int) -> None:
        if self.mask is None:
            if other.mask is None:
                return
            self.mask = Vector(np.ones(used, dtype=np.uint8))
        self.mask.append(other.mask or Vector(np.ones(more, dtype=np.uint8)), room)

    def release(self) -> None:
        if self.mask is not None:
            self.mask.release()

    @property
    def n_bytes(self) -> int:
        return 0 if self.mask is None else self.mask.n_bytes

    def bitmap(self, ids: Ids | None, n: int) -> tuple[pa.Buffer | None, int]:
        """Arrow's validity buffer for a taken array, and its number of NULLs."""
        mask = self.take(ids, 0, n)
        if mask is None:
            return None, 0
        n_nulls = int(n - np.count_nonzero(mask))
        if n_nulls == 0:
            return None, 0
        return pa.py_buffer(np.packbits(mask, bitorder="little")), n_nulls


class FixedColumn:
    """Values of at most eight bytes, kept as unsigned integers of their width."""

    __slots__ = ("_nulls", "_vector", "type")

    def __init__(self, type_: pa.DataType, vector: Vector, mask: Bytes | None) -> None:
        self.type = type_
        self._vector = vector
        self._nulls = _Validity(mask)

    def __len__(self) -> int:
        return len(self._vector)

    def take(self, ids: Ids | None) -> pa.Array:
        values = self._vector.values
        values = values if ids is None else _gathered(values, ids)
        n = len(values)
        bitmap, n_nulls = self._nulls.bitmap(ids, n)
        if pa.types.is_boolean(self.type):
            values = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(self.type, n, [bitmap, pa.py_buffer(values)], n_nulls)

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        values = self._vector.values
        values = values[start:stop] if ids is None else _gathered(values, ids)
        if self.type == _INT64:  # most keys are
            return values
        if pa.types.is_floating(self.type):
            return _float_words(values, self.type)
        if values.dtype == np.uint64:
            return values
        signed = pa.types.is_signed_integer(self.type) or pa.types.is_date(self.type)
        if signed or pa.types.is_time(self.type):
            return values.view(f"i{values.itemsize}").astype(np.int64).view(np.uint64)
        return values.astype(np.uint64)

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        if self._nulls.mask is None:
            return None
        return self._nulls.take(ids, start, len(self) if stop is None else stop)

    def append(self, other: FixedColumn, room: int) -> None:
        self._nulls.append(other._nulls, len(self), len(other), room)
        self._vector.append(other._vector, room)

    def release(self) -> None:
        self._vector.release()
        self._nulls.release()

    @property
    def exact(self) -> bool:
        return True

    @property
    def words_are_values(self) -> bool:
        """Whether `words(None)` is the column's own memory, so that asking costs nothing."""
        return self._vector.values.dtype == np.uint64 and not pa.types.is_floating(self.type)

    @property
    def n_bytes(self) -> int:
        return self._vector.n_bytes + self._nulls.n_bytes


class PairColumn:
    """16-byte decimals as two words a row, low word first."""

    __slots__ = ("_nulls", "_vector", "type")

    def __init__(self, type_: pa.DataType, vector: Vector, mask: Bytes | None) -> None:
        self.type = type_
        self._vector = vector
        self._nulls = _Validity(mask)

    def __len__(self) -> int:
        return len(self._vector) // 2

    def _pairs(self, ids: Ids | None, start: int, stop: int) -> Words:
        values = self._vector.values
        if ids is None:
            return values[2 * start : 2 * stop]
        out = np.empty(2 * ids.shape[0], dtype=np.uint64)
        gather_pairs(values, ids, out)
        return out

    def take(self, ids: Ids | None) -> pa.Array:
        n = len(self) if ids is None else ids.shape[0]
        bitmap, n_nulls = self._nulls.bitmap(ids, n)
        buffer = pa.py_buffer(self._pairs(ids, 0, n))
        return pa.Array.from_buffers(self.type, n, [bitmap, buffer], n_nulls)

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        pairs = self._pairs(ids, start, len(self) if stop is None else stop)
        low = pairs[0::2].copy()
        if not self.exact:
            mix_words(low, np.ascontiguousarray(pairs[1::2]))
        return low

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        return self._nulls.take(ids, start, len(self) if stop is None else stop)

    def halves(self, ids: Ids | None) -> tuple[Words, Words]:
        """Low and high words, to compare values whose `words` are only hashes."""
        pairs = self._pairs(ids, 0, len(self))
        return np.ascontiguousarray(pairs[0::2]), np.ascontiguousarray(pairs[1::2])

    def append(self, other: PairColumn, room: int) -> None:
        self._nulls.append(other._nulls, len(self), len(other), room)
        self._vector.append(other._vector, 2 * room)

    def release(self) -> None:
        self._vector.release()
        self._nulls.release()

    @property
    def exact(self) -> bool:
        return int(self.type.precision) <= MAX_EXACT_DECIMAL

    @property
    def n_bytes(self) -> int:
        return self._vector.n_bytes + self._nulls.n_bytes


class TextColumn:
    """Byte strings as addresses and lengths into Arrow buffers that this column keeps alive."""

    __slots__ = ("_addresses", "_buffers", "_lengths", "_nulls", "type")

    def __init__(
        self,
        type_: pa.DataType,
        addresses: npt.NDArray[np.int64],
        lengths: Ids,
        mask: Bytes | None,
        buffers: list[pa.Buffer],
    ) -> None:
        self.type = type_
        self._addresses = Vector(addresses)
        self._lengths = Vector(lengths)
        self._nulls = _Validity(mask)
        self._buffers = buffers

    def __len__(self) -> int:
        return len(self._lengths)

    def places(
        self, ids: Ids | None, start: int = 0, stop: int | None = None
    ) -> tuple[npt.NDArray[np.int64], Ids]:
        """Addresses and lengths of the rows; the bytes live as long as this column."""
        addresses, lengths = self._addresses.values, self._lengths.values
        if ids is None:
            return addresses[start:stop], lengths[start:stop]
        return _gathered(addresses.view(np.uint64), ids).view(np.int64), _gathered(lengths, ids)

    def take(self, ids: Ids | None) -> pa.Array:
        addresses, lengths = self.places(ids)
        n = lengths.shape[0]
        offsets = np.empty(n + 1, dtype=np.int32)
        total = offsets_of(lengths, offsets)
        if total > _MOST_TEXT_BYTES:
            raise EvaluationError(
                f"{n} rows hold {total} bytes of text, more than one Arrow array can; "
                "lower Options(batch_rows=...)"
            )
        content = np.empty(total, dtype=np.uint8)
        copy_bytes(addresses, lengths, content)
        bitmap, n_nulls = self._nulls.bitmap(ids, n)
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(content)]
        return pa.Array.from_buffers(self.type, n, buffers, n_nulls)

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        addresses, lengths = self.places(ids, start, stop)
        words = np.empty(lengths.shape[0], dtype=np.uint64)
        text_words(addresses, lengths, words)
        return words

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        return self._nulls.take(ids, start, len(self) if stop is None else stop)

    def append(self, other: TextColumn, room: int) -> None:
        self._nulls.append(other._nulls, len(self), len(other), room)
        self._addresses.append(other._addresses, room)
        self._lengths.append(other._lengths, room)
        last = self._buffers[-1].address if self._buffers else None
        self._buffers = self._buffers + [b for b in other._buffers if b.address != last]

    def release(self) -> None:
        for vector in (self._addresses, self._lengths):
            vector.release()
        self._nulls.release()
        self._buffers = []

    @property
    def exact(self) -> bool:
        return False

    @property
    def n_bytes(self) -> int:
        text = int(sum(buffer.size for buffer in self._buffers))
        return self._addresses.n_bytes + self._lengths.n_bytes + self._nulls.n_bytes + text


class OpaqueColumn:
    """Any Arrow type, kept as a few Arrow arrays that are merged as they multiply."""

    __slots__ = ("_arrays", "type")

    def __init__(self, type_: pa.DataType, arrays: list[pa.Array]) -> None:
        self.type = type_
        self._arrays = arrays

    def __len__(self) -> int:
        return int(sum(len(array) for array in self._arrays))

    def take(self, ids: Ids | None) -> pa.Array:
        whole = pa.chunked_array(self._arrays, type=self.type)
        taken = whole if ids is None else whole.take(pa.array(ids))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        raise TypeError(f"{self.type} cannot be a join key")

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        array = self.take(ids)
        stop = len(array) if stop is None or ids is not None else stop
        array = array.slice(start, stop - start) if ids is None else array
        if array.null_count == 0:
            return None
        return np.asarray(pc.is_valid(array)).astype(np.uint8)

    def append(self, other: OpaqueColumn, room: int) -> None:
        self._arrays = self._arrays + [array for array in other._arrays if len(array)]
        if len(self._arrays) > _OPAQUE_RUNS:
            # Merge the younger half: each row is copied O(log n) times and takes stay cheap.
            half = len(self._arrays) // 2
            self._arrays = [*self._arrays[:half], pa.concat_arrays(self._arrays[half:])]

    def release(self) -> None:
        self._arrays = []

    @property
    def exact(self) -> bool:
        return False

    @property
    def n_bytes(self) -> int:
        return int(sum(array.nbytes for array in self._arrays))


def _float_words(values: Values, type_: pa.DataType) -> Words:
    """Bit patterns under SQL equality: -0.0 is 0.0, and every NaN is the same NaN."""
    floats = values.view(f"f{values.itemsize}").astype(np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def normal_type(type_: pa.DataType) -> pa.DataType:
    """The type a column is kept in: views and large offsets are plain, dictionaries are decoded."""
    if pa.types.is_dictionary(type_):
        return normal_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_run_end_encoded(type_):
        return normal_type(type_.value_type)
    return type_


def is_key_type(type_: pa.DataType) -> bool:
    """Whether a column of this (normal) type has words, so that it can be a join key."""
    return not isinstance(empty_column(type_), OpaqueColumn)


def key_width(type_: pa.DataType) -> int:
    """Bits an exact key of this type needs, for packing composite keys; 64 or more: not packed.

    Signed integers are not packed: the two sides of an equality may have different widths of them, and
    would be packed differently.
    """
    if pa.types.is_boolean(type_):
        return 8
    is_narrow = pa.types.is_unsigned_integer(type_) or pa.types.is_date32(type_)
    if is_narrow or pa.types.is_time32(type_):
        return int(type_.bit_width)
    return 64


def _mask_of(array: pa.Array) -> Bytes | None:
    if array.null_count == 0:
        return None
    return np.unpackbits(
        np.frombuffer(array.buffers()[0], dtype=np.uint8),
        count=array.offset + len(array),
        bitorder="little",
    )[array.offset :]


def column_of(array: pa.Array) -> Column:
    """The column of an Arrow array of a normal type, sharing its memory."""
    type_, n, offset = array.type, len(array), array.offset
    if type_ == _INT64:  # most columns are
        vector = Vector.of_buffer(array.buffers()[1], np.uint64, offset, n)
        return FixedColumn(type_, vector, _mask_of(array))
    if pa.types.is_boolean(type_):
        values = np.empty(0, dtype=np.uint8)
        if n:  # an array without rows need not have buffers
            bits = np.frombuffer(array.buffers()[1], dtype=np.uint8)
            values = np.unpackbits(bits, count=offset + n, bitorder="little")[offset:]
        return FixedColumn(type_, Vector(values), _mask_of(array))
    if pa.types.is_decimal128(type_):
        pairs = Vector.of_buffer(array.buffers()[1], np.uint64, 2 * offset, 2 * n)
        return PairColumn(type_, pairs, _mask_of(array))
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _text_column(array)
    if pa.types.is_primitive(type_) and type_.bit_width in (8, 16, 32, 64):
        dtype = np.dtype(f"u{type_.bit_width // 8}")
        vector = Vector.of_buffer(array.buffers()[1], dtype, offset, n)
        return FixedColumn(type_, vector, _mask_of(array))
    return OpaqueColumn(type_, [array])


def _text_column(array: pa.Array) -> TextColumn:
    n, offset = len(array), array.offset
    _, offset_buffer, content = array.buffers()
    mask = _mask_of(array)
    if n == 0 or content is None:
        zeros = np.zeros(n, dtype=np.int64)
        return TextColumn(array.type, zeros, np.zeros(n, dtype=np.int32), mask, [])
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[offset : offset + n + 1]
    lengths = np.diff(offsets)
    if mask is not None:
        lengths = lengths * mask
    addresses = offsets[:-1].astype(np.int64) + content.address
    return TextColumn(array.type, addresses, lengths.astype(np.int32, copy=False), mask, [content])


def empty_column(type_: pa.DataType) -> Column:
    """A column without rows, to append to."""
    return column_of(pa.array([], type=type_))
