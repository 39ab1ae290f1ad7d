"""Rows of a column as Arrow arrays, taken out of its pages.

The arrays are those that Arrow's reader gives, of the rows wanted only. With `coded` they are
dictionary arrays, of whatever type: whoever tests values can then test every word once.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as kinds

from eddies.core.kernels.gather import copy_bytes, offsets_of
from eddies.core.kernels.page_values import SOUND, find_codes, find_texts
from eddies.sources.pages.chunk import Bytes, ColumnChunk, Located, Numbers, Page, Rows, damaged
from eddies.sources.pages.layout import Layout

__all__ = ["PageColumn"]

Values = npt.NDArray[np.generic]
Number = TypeVar("Number", bound=np.generic)
_MOST_TEXT_BYTES = 2**31 - 1


class PageColumn:
    """A column of a row group that can be read row by row. For one thread."""

    def __init__(self, name: str, chunk: ColumnChunk, layout: Layout) -> None:
        self._name = name
        self._layout = layout
        self.chunk = chunk

    def rows(self, rows: Rows) -> pa.Array | None:
        """The rows, which ascend; None if they have more text than an Arrow array can hold."""
        self.chunk.scratch.begin()
        located = self.chunk.locate(rows)
        if self._layout.dtype is None:
            return self._texts(located)
        return self._array(self._numbers(located), located.valid)

    def coded(self, rows: Rows) -> pa.DictionaryArray:
        """The rows as a dictionary array with 32-bit codes; for chunks that are coded."""
        self.chunk.scratch.begin()
        located = self.chunk.locate(rows)
        codes = self._codes(located)
        indices = _fixed(pa.int32(), _spread(codes, located.valid), located.valid)
        return pa.DictionaryArray.from_arrays(indices, self._dictionary())

    def _dictionary(self) -> pa.Array:
        page = self.chunk.dictionary()
        if self._layout.dtype is None:
            addresses, lengths = self._text_words(page)
            return _text_array(self._layout.type, addresses, lengths, None)
        return self._array(self._number_words(page, self._layout.dtype).copy(), None)

    def _codes(self, located: Located) -> Rows:
        codes = np.empty(located.places.shape[0], dtype=np.int32)
        table = _table([page for page in located.pages if page.is_dictionary])
        if find_codes(table, located.places, self.chunk.n_words, codes) != SOUND:
            raise damaged(f"codes of column {self._name!r}")
        return codes

    def _numbers(self, located: Located) -> Values:
        dtype = self._layout.dtype
        assert dtype is not None, "text has no width"
        coded = [page for page in located.pages if page.is_dictionary]
        codes = words = None
        if coded:
            codes = self._codes(located)
            words = self._number_words(self.chunk.dictionary(), dtype)
            if len(coded) == len(located.pages):
                return words.take(codes, mode="clip")  # the kernel has compared them
        values = np.empty(located.places.shape[0], dtype=dtype)
        for page in located.pages:
            wanted = slice(page.begin, page.stop)
            if page.is_dictionary:
                assert codes is not None
                assert words is not None
                values[wanted] = words.take(codes[wanted], mode="clip")
            elif page.begin < page.stop:
                n_values = page.content.shape[0] // dtype.itemsize
                places = located.places[wanted] - page.first
                if places[-1] >= n_values:
                    raise damaged(f"values of column {self._name!r}")
                plain = np.frombuffer(page.content, dtype=dtype, count=n_values)
                values[wanted] = plain.take(places, mode="clip")
        return values

    def _number_words(self, page: Page, dtype: np.dtype[np.generic]) -> Values:
        if page.stop * dtype.itemsize > page.content.shape[0]:
            raise damaged(f"dictionary of column {self._name!r}")
        return np.frombuffer(page.content, dtype=dtype, count=page.stop)

    def _text_words(self, page: Page) -> tuple[Numbers, Rows]:
        if page.stop * 4 > page.content.shape[0]:
            raise damaged(f"dictionary of column {self._name!r}")
        addresses = np.empty(page.stop, dtype=np.int64)
        lengths = np.empty(page.stop, dtype=np.int32)
        every = np.arange(page.stop, dtype=np.int32)
        if find_texts(_table([page]), every, addresses, lengths) != SOUND:
            raise damaged(f"dictionary of column {self._name!r}")
        return addresses, lengths

    def _texts(self, located: Located) -> pa.Array | None:
        n = located.places.shape[0]
        addresses = np.empty(n, dtype=np.int64)
        lengths = np.empty(n, dtype=np.int32)
        plain = [page for page in located.pages if not page.is_dictionary]
        if find_texts(_table(plain), located.places, addresses, lengths) != SOUND:
            raise damaged(f"values of column {self._name!r}")
        dictionary = None  # held until its bytes are copied
        if len(plain) < len(located.pages):
            codes = self._codes(located)
            dictionary = self.chunk.dictionary()
            word_addresses, word_lengths = self._text_words(dictionary)
            for page in located.pages:
                if page.is_dictionary:
                    wanted = slice(page.begin, page.stop)
                    addresses[wanted] = word_addresses.take(codes[wanted], mode="clip")
                    lengths[wanted] = word_lengths.take(codes[wanted], mode="clip")
        if int(lengths.sum(dtype=np.int64)) > _MOST_TEXT_BYTES:
            return None
        addresses = _spread(addresses, located.valid)
        lengths = _spread(lengths, located.valid)
        return _text_array(self._layout.type, addresses, lengths, located.valid)

    def _array(self, values: Values, valid: Bytes | None) -> pa.Array:
        """Values as they lie in pages, as Arrow has them."""
        type_ = self._layout.type
        if kinds.is_decimal128(type_):
            values = _pairs(values)
        elif type_.bit_width < 8 * values.dtype.itemsize:
            values = values.astype(np.dtype(f"i{type_.bit_width // 8}"))
        return _fixed(type_, _spread(values, valid), valid)


def _table(pages: list[Page]) -> Numbers:
    return np.array([page.fields() for page in pages], dtype=np.int64).ravel()


def _pairs(values: Values) -> Values:
    """Whole numbers as 128 bits, low word first; big-endian bytes are those of fixed-size decimals."""
    pairs = np.empty((values.shape[0], 2), dtype=np.int64)
    if values.dtype.kind == "V":
        width = values.dtype.itemsize
        digits = np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
        little = pairs.view(np.uint8)
        little[:] = np.where(digits[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
        little[:, :width] = digits[:, ::-1]
    else:
        pairs[:, 0] = values
        pairs[:, 1] = pairs[:, 0] >> 63
    return pairs


def _spread(values: npt.NDArray[Number], valid: Bytes | None) -> npt.NDArray[Number]:
    """Values of the rows that are not NULL, among zeros for those that are."""
    if valid is None:
        return values
    spread = np.zeros((valid.shape[0], *values.shape[1:]), dtype=values.dtype)
    spread[valid.view(np.bool_)] = values
    return spread


def _bitmap(valid: Bytes | None) -> tuple[pa.Buffer | None, int]:
    if valid is None:
        return None, 0
    n_nulls = valid.shape[0] - int(np.count_nonzero(valid))
    return pa.py_buffer(np.packbits(valid, bitorder="little")), n_nulls


def _fixed(type_: pa.DataType, values: Values, valid: Bytes | None) -> pa.Array:
    bitmap, n_nulls = _bitmap(valid)
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type_, values.shape[0], buffers, n_nulls)


def _text_array(
    type_: pa.DataType, addresses: Numbers, lengths: Rows, valid: Bytes | None
) -> pa.Array:
    offsets = np.empty(lengths.shape[0] + 1, dtype=np.int32)
    content = np.empty(offsets_of(lengths, offsets), dtype=np.uint8)
    copy_bytes(addresses, lengths, content)
    bitmap, n_nulls = _bitmap(valid)
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(type_, lengths.shape[0], buffers, n_nulls)
