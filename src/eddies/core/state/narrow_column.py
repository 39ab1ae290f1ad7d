"""Whole numbers kept in fewer bytes than their type has.

Columns of 64-bit numbers mostly hold small ones: keys, counts, amounts. Where memory is short, rows
that are stored, read back or on their way to disk keep them in the fewest bytes that hold them all, as
signed numbers, bit by bit, so that unsigned ones, dates and times come back as they were, too. To
whoever asks, a `NarrowColumn` has the values and the words of its full type. It has no NULLs.

A column whose numbers do not fit, or that is no column of numbers, is what `column_of` makes of it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.kernels.gather import gather
from eddies.core.kernels.narrow import copy_narrow, gather_narrow
from eddies.core.state.columns import Bytes, Column, FixedColumn, Ids, Words, column_of
from eddies.core.state.vector import Values, Vector

__all__ = [
    "NarrowColumn",
    "alike",
    "is_integer",
    "narrow_array",
    "narrow_column",
    "narrow_taken",
    "picked",
]

_SIGNED = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_RANGES = [(width, np.iinfo(f"i{width}")) for width in (1, 2, 4)]


class NarrowColumn:
    """Values of `type`, kept as signed numbers of fewer bytes."""

    __slots__ = ("_vector", "type")

    def __init__(self, type_: pa.DataType, vector: Vector) -> None:
        self.type = type_
        self._vector = vector

    def __len__(self) -> int:
        return len(self._vector)

    def _narrow(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Values:
        values = self._vector.values
        return values[start:stop] if ids is None else _gathered(values, ids)

    def _wide(self, values: Values) -> Values:
        return values.astype(f"i{self.type.byte_width}")

    def take(self, ids: Ids | None) -> pa.Array:
        return pa.array(self._wide(self._narrow(ids))).view(self.type)

    def take_narrow(self, ids: Ids | None) -> pa.Array:
        """The rows `ids` as Arrow, in as few bytes as they are kept."""
        return pa.array(self._narrow(ids))

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        wide = self._wide(self._narrow(ids, start, stop))
        if wide.itemsize == 8:
            return wide.view(np.uint64)
        values = Vector(wide.view(f"u{wide.itemsize}"))
        return FixedColumn(self.type, values, None).words(None)

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        return None

    def append(self, other: NarrowColumn, room: int) -> None:
        mine, others = self._vector.values.dtype, other._vector.values.dtype
        if others.itemsize > mine.itemsize:
            wider = Vector(self._vector.values.astype(others))
            self._vector.release()
            self._vector = wider
        elif others.itemsize < mine.itemsize:
            other = NarrowColumn(self.type, Vector(other._vector.values.astype(mine)))
        self._vector.append(other._vector, room)

    def picked(self, ids: Ids) -> NarrowColumn:
        """A column of the rows `ids`."""
        return NarrowColumn(self.type, Vector(self._narrow(ids)))

    def widened(self) -> Column:
        """The same rows in the bytes of their type."""
        return column_of(self.take(None))

    def release(self) -> None:
        self._vector.release()

    @property
    def exact(self) -> bool:
        return True

    @property
    def n_bytes(self) -> int:
        return self._vector.n_bytes


def _gathered(values: Values, ids: Ids) -> Values:
    out = np.empty(ids.shape[0], dtype=values.dtype)
    unsigned = f"u{values.itemsize}"
    gather(values.view(unsigned), ids, out.view(unsigned))
    return out


def narrow_array(array: pa.Array) -> pa.Array:
    """The same numbers as signed ones in the fewest bytes that hold them; other arrays as they are."""
    if not is_integer(array.type) or array.null_count or not len(array):
        return array
    width = array.type.byte_width
    values: npt.NDArray[np.signedinteger] = np.asarray(array.view(_SIGNED[width]))
    if width == 8:
        narrow = np.empty(len(values), dtype=np.int32)
        fitting = _fitting(narrow, int(copy_narrow(values, narrow)))
        return array if fitting is None else fitting
    low, high = int(values.min()), int(values.max())
    for fewer, limits in _RANGES:
        if fewer < width and limits.min <= low and high <= limits.max:
            return pa.array(values.astype(f"i{fewer}"))
    return array


def narrow_taken(column: Column, ids: Ids) -> pa.Array:
    """Rows `ids` of a column, as narrow as they are; those of a narrow one, as narrow as it is."""
    if isinstance(column, NarrowColumn):
        return column.take_narrow(ids)
    is_fixed = isinstance(column, FixedColumn) and column.words_are_values
    if not (is_fixed and is_integer(column.type) and column.valid(None) is None):
        return narrow_array(column.take(ids))
    narrow = np.empty(ids.shape[0], dtype=np.int32)
    bits = int(gather_narrow(column.words(None).view(np.int64), ids, narrow))
    fitting = _fitting(narrow, bits)
    return column.take(ids) if fitting is None else fitting


def _fitting(narrow: npt.NDArray[np.int32], bits: int) -> pa.Array | None:
    """Numbers that need so many bits, none of them cut off; None if some are."""
    for width, limits in _RANGES:
        if bits <= limits.max:
            return pa.array(narrow.astype(f"i{width}", copy=False))
    return None


def narrow_column(type_: pa.DataType, array: pa.Array) -> Column:
    """The column of a narrow array whose values are of `type_`."""
    if array.type == type_:
        return column_of(array)
    dtype = array.type.to_pandas_dtype()
    return NarrowColumn(
        type_, Vector.of_buffer(array.buffers()[1], dtype, array.offset, len(array))
    )


def picked(column: Column, ids: Ids) -> Column:
    """A column of its own of the rows `ids`."""
    return column.picked(ids) if isinstance(column, NarrowColumn) else column_of(column.take(ids))


def alike(column: Column, other: Column) -> tuple[Column, Column]:
    """The same two columns of one type, such that one can be appended to the other."""
    if isinstance(column, NarrowColumn) == isinstance(other, NarrowColumn):
        return column, other
    if isinstance(other, NarrowColumn):
        if len(column) == 0:
            column.release()
            return other.picked(np.empty(0, dtype=np.int32)), other
        return column, other.widened()
    assert isinstance(column, NarrowColumn)
    wide = column.widened()
    column.release()
    return wide, other


def is_integer(type_: pa.DataType) -> bool:
    """Whether values are whole numbers, or kept as such: dates and times."""
    is_moment = pa.types.is_temporal(type_) and not pa.types.is_interval(type_)
    return bool(pa.types.is_integer(type_) or is_moment)
