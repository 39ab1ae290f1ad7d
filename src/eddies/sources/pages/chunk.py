"""A column chunk: the pages of one column of one row group, and where wanted rows lie in them.

Headers are read first, all of them. They tell whether the chunk can be read here at all, and which
pages hold rows that are wanted: no others are decompressed. The bytes of pages are referred to by
address, so that one call of a kernel goes through all pages of a chunk.

A file may be damaged. What the headers say is compared with the footer and with the sizes of what is
there before it is used, and `damaged` makes the error that readers of a file expect.

Known limitations: checksums of pages are not compared, as Arrow does not by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from eddies.core.kernels.page_headers import HEADER_FIELDS, page_headers
from eddies.core.kernels.page_values import PAGE_FIELDS, SOUND, find_values
from eddies.core.kernels.snappy import unpack_snappy

__all__ = ["ColumnChunk", "Located", "Page", "PageScratch", "Rows", "damaged"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_SNAPPY = "snappy"  # the only one that is decompressed here: Arrow takes twice as long
# By Arrow's names. LZ4 is left to Arrow's reader: nothing tells how much was really decompressed.
_CODECS = {"SNAPPY": _SNAPPY, "ZSTD": "zstd", "GZIP": "gzip", "BROTLI": "brotli"}
# Kinds of pages, encodings of values and levels, as Parquet numbers them.
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_LEAST_ROOM = 1 << 16  # bytes that scratch grows by
_FIRST_HEADERS = 16  # how many are expected; more are read when there are more
_LEVEL_BYTES = 4  # before the levels of a data page of version 1: their size


@dataclass(frozen=True, slots=True)
class Page:
    """Bytes of a page: the values of the rows `begin` to `stop` of those wanted.

    They lie in the file or in the scratch of the chunk, so they are gone when that is used again.
    """

    content: Bytes
    begin: int
    stop: int
    first: int
    is_dictionary: bool

    def fields(self) -> tuple[int, ...]:
        """The page as kernels take it (`PAGE_FIELDS`)."""
        content = self.content
        return (content.ctypes.data, content.shape[0], self.begin, self.stop, self.first, 0)


@dataclass(frozen=True, slots=True)
class Located:
    """Where rows lie. `valid` has one byte a row, or is None: no row is NULL.

    `places` number the values of rows that are not NULL within their pages (less the page's `first`);
    the ranges of `pages` are ranges of it.
    """

    places: Rows
    valid: Bytes | None
    pages: list[Page]


def damaged(what: str) -> pa.ArrowInvalid:
    """The error of a file in which `what` is wrong; to be raised within `reading`."""
    return pa.ArrowInvalid(f"{what}: the file is damaged, write it again")


class PageScratch:
    """Memory for decompressed pages, used again for every column: fresh memory costs more than to
    decompress into it. For one thread.
    """

    def __init__(self) -> None:
        self._rooms: list[Bytes] = []
        self._n_used = 0
        self._number = 0

    def begin(self) -> None:
        """Pages that were decompressed before are not needed any more."""
        if self._number > 0:  # one room for all, next time
            n_bytes = sum(room.shape[0] for room in self._rooms)
            self._rooms = [np.empty(n_bytes, dtype=np.uint8)]
        self._n_used = self._number = 0

    def room(self, n_bytes: int) -> Bytes:
        """So many bytes, which are not part of another room."""
        if self._rooms and self._n_used + n_bytes <= self._rooms[-1].shape[0]:
            begin = self._n_used
        else:
            self._number = len(self._rooms)
            self._rooms.append(np.empty(max(n_bytes, _LEAST_ROOM), dtype=np.uint8))
            begin = 0
        self._n_used = begin + n_bytes
        return self._rooms[-1][begin : self._n_used]


class ColumnChunk:
    """The chunk that `described` is about, in the bytes of a file. Make one with `open`."""

    def __init__(
        self,
        name: str,
        content: Bytes,
        codec: str | None,
        headers: Numbers,
        is_optional: bool,
        scratch: PageScratch,
    ) -> None:
        self._name = name
        self._content = content
        self._codec = codec
        self._is_optional = is_optional
        self.scratch = scratch
        has_dictionary = bool(headers.shape[0]) and headers[0, 0] == _DICTIONARY_PAGE
        self._dictionary = headers[0] if has_dictionary else None
        self._headers = headers[1:] if has_dictionary else headers
        self._first_rows = np.concatenate([[0], np.cumsum(self._headers[:, 4])])
        kinds = np.where(
            self._headers[:, 0] == _DATA_PAGE, self._headers[:, 5], self._headers[:, 7]
        )
        self._uses_dictionary = kinds != _PLAIN

    @classmethod
    def open(
        cls,
        file: Bytes,
        described: parquet.ColumnChunkMetaData,
        n_rows: int,
        is_optional: bool,
        scratch: PageScratch,
    ) -> ColumnChunk | None:
        """The chunk of a flat column; None if it holds something that is left to Arrow's reader."""
        codec = described.compression
        if codec != "UNCOMPRESSED" and codec not in _CODECS:
            return None
        begin = described.data_page_offset
        dictionary = described.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < begin:
            begin = dictionary
        size = described.total_compressed_size
        if begin < 0 or size <= 0 or begin + size > file.shape[0]:
            return None
        content = file[begin : begin + size]
        headers = _headers(content)
        if headers is None or not _is_readable(headers, n_rows, is_optional):
            return None
        most = described.total_uncompressed_size
        if (headers[:, 1] < 0).any() or (headers[:, 1] > most).any():
            return None
        name = described.path_in_schema
        return cls(name, content, _CODECS.get(codec), headers, is_optional, scratch)

    @property
    def n_words(self) -> int:
        """How many values the dictionary has."""
        return 0 if self._dictionary is None else int(self._dictionary[4])

    @property
    def is_coded(self) -> bool:
        """Whether all values are in the dictionary."""
        return self._dictionary is not None and bool(self._uses_dictionary.all())

    def n_touched_bytes(self, rows: Rows) -> int:
        """How many bytes must be decompressed for these rows."""
        ranges = np.searchsorted(rows, self._first_rows)
        wanted = ranges[1:] > ranges[:-1]
        n_bytes = int(self._headers[wanted, 1].sum())
        if self._dictionary is not None and bool((wanted & self._uses_dictionary).any()):
            n_bytes += int(self._dictionary[1])
        return n_bytes

    def dictionary(self) -> Page:
        """The page of the dictionary, as one of `n_words` wanted values."""
        assert self._dictionary is not None, "pages with codes have a dictionary"
        n_bytes = int(self._dictionary[1])
        content = self._decompressed(int(self._dictionary[12]), int(self._dictionary[2]), n_bytes)
        return Page(content, 0, self.n_words, 0, False)

    def locate(self, rows: Rows) -> Located:
        """Where the rows, which ascend, lie. Decompresses the pages that hold them."""
        ranges = np.searchsorted(rows, self._first_rows)
        levels: list[tuple[int, ...]] = []
        pages: list[Page] = []
        for number in np.flatnonzero(ranges[1:] > ranges[:-1]).tolist():
            header = self._headers[number]
            place = int(ranges[number]), int(ranges[number + 1]), int(self._first_rows[number])
            version = self._version_1 if header[0] == _DATA_PAGE else self._version_2
            level, page = version(header, place, bool(self._uses_dictionary[number]))
            levels.append(level)
            pages.append(page)
        if not self._is_optional:
            return Located(rows, None, pages)
        return self._without_nulls(rows, levels, pages)

    def _without_nulls(
        self, rows: Rows, levels: list[tuple[int, ...]], pages: list[Page]
    ) -> Located:
        valid = np.empty(rows.shape[0], dtype=np.uint8)
        places = np.empty(rows.shape[0] + 1, dtype=np.int32)
        n_places = np.empty(len(pages) + 1, dtype=np.int64)
        table = np.array(levels, dtype=np.int64).ravel()
        if find_values(table, rows, valid, places, n_places) != SOUND:
            raise damaged(f"levels of column {self._name!r}")
        ends = n_places.tolist()
        kept = [
            Page(p.content, begin, end, 0, p.is_dictionary)
            for p, begin, end in zip(pages, ends[:-1], ends[1:], strict=True)
        ]
        places = places[: ends[-1]]
        return Located(places, None if ends[-1] == rows.shape[0] else valid, kept)

    def _version_1(
        self, header: Numbers, place: tuple[int, int, int], is_dictionary: bool
    ) -> tuple[tuple[int, ...], Page]:
        """Levels and values are compressed together."""
        content = self._decompressed(int(header[12]), int(header[2]), int(header[1]))
        begin, stop, first = place
        n_level_bytes = skipped = 0
        if self._is_optional:
            skipped = _LEVEL_BYTES
            n_level_bytes = int.from_bytes(content[:_LEVEL_BYTES].tobytes(), "little")
            if skipped + n_level_bytes > content.shape[0]:
                raise damaged(f"levels of column {self._name!r}")
        start = skipped + n_level_bytes
        level = (content.ctypes.data + skipped, n_level_bytes, begin, stop, first, int(header[4]))
        return level, Page(content[start:], begin, stop, first, is_dictionary)

    def _version_2(
        self, header: Numbers, place: tuple[int, int, int], is_dictionary: bool
    ) -> tuple[tuple[int, ...], Page]:
        """Levels come first and are not compressed."""
        begin, stop, first = place
        at, n_bytes, n_all = int(header[12]), int(header[2]), int(header[1])
        n_level_bytes = int(header[8])
        if n_level_bytes > min(n_bytes, n_all):
            raise damaged(f"levels of column {self._name!r}")
        level_address = self._content.ctypes.data + at
        level = (level_address, n_level_bytes, begin, stop, first, int(header[4]))
        at, n_bytes, n_all = at + n_level_bytes, n_bytes - n_level_bytes, n_all - n_level_bytes
        if header[10] == 0 or not n_bytes:
            content = self._content[at : at + n_bytes]
        else:
            content = self._decompressed(at, n_bytes, n_all)
        return level, Page(content, begin, stop, first, is_dictionary)

    def _decompressed(self, at: int, n_bytes: int, n_all: int) -> Bytes:
        piece = self._content[at : at + n_bytes]
        if self._codec is None:
            return piece
        if self._codec != _SNAPPY:
            # As a stream, because that ends where the bytes end; `Codec.decompress` does not say.
            with pa.CompressedInputStream(pa.BufferReader(piece), self._codec) as stream:
                unpacked = stream.read_buffer(n_all + 1)
            if unpacked.size != n_all:
                raise damaged(f"a compressed page of column {self._name!r}")
            return np.frombuffer(unpacked, dtype=np.uint8)
        room = self.scratch.room(n_all)
        if unpack_snappy(piece.ctypes.data, n_bytes, room):
            raise damaged(f"a compressed page of column {self._name!r}")
        return room


def _headers(content: Bytes) -> Numbers | None:
    """The headers of all pages, one row each; None if there are none that can be read."""
    most = _FIRST_HEADERS
    while True:
        headers = np.empty(most * HEADER_FIELDS, dtype=np.int64)
        n = page_headers(content, headers)
        if n < most:
            return headers.reshape(most, HEADER_FIELDS)[:n] if n > 0 else None
        most *= 4


def _is_readable(headers: Numbers, n_rows: int, is_optional: bool) -> bool:
    """Whether pages are of kinds known here and hold, together, the rows of the row group."""
    if headers[0, 0] == _DICTIONARY_PAGE:
        if headers[0, 5] not in (_PLAIN, _PLAIN_DICTIONARY) or headers[0, 4] < 0:
            return False
        headers, has_dictionary = headers[1:], True
    else:
        has_dictionary = False
    n_values = headers[:, 4]
    if ((n_values < 0) | (n_values > n_rows)).any() or n_values.sum() != n_rows:
        return False
    encodings = {_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY} if has_dictionary else {_PLAIN}
    for header in headers.tolist():
        if header[0] == _DATA_PAGE:
            if header[5] not in encodings or (is_optional and header[6] != _RLE):
                return False
        elif header[0] == _DATA_PAGE_V2:
            if (
                header[7] not in encodings
                or header[8] < 0
                or header[9] != 0
                or header[6] != header[4]
            ):
                return False
        else:
            return False
    return True


assert PAGE_FIELDS == 6, "Page.fields gives as many"
