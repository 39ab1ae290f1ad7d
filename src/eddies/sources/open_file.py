"""A Parquet file that stays open from one row group to the next.

Local files are mapped into memory, not copied, and mapped anew now and then: pages that were read count
as memory of the process as long as they are mapped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from eddies.sources.decoded import DecodedColumns
from eddies.sources.footers import footer_of
from eddies.sources.pages import ColumnChunk, PageColumn, PageScratch, layout_of
from eddies.sources.paths import DataFile, Place
from eddies.sources.ranges import leaf_by_name

__all__ = ["OpenFile"]

_MAPPED_BYTES = 32 << 20  # that are read of a file before it is mapped anew


class OpenFile:
    """A file that stays open as long as that is little memory. For one thread; close it at the end.
    `decoded` has columns that need not be decoded, and keeps others.
    """

    def __init__(self, decoded: DecodedColumns | None = None) -> None:
        self.decoded = decoded
        self._mapped_bytes = 0
        self._file: tuple[Place, DataFile] | None = None
        self._dictionaries: list[str] = []
        self._opened: parquet.ParquetFile | None = None
        self._content: npt.NDArray[np.uint8] | None = None  # a view of the mapped file
        self._scratch = PageScratch()

    def turn_to(self, place: Place, file: DataFile, n_bytes: int) -> None:
        """A row group of this file comes next, of so many bytes."""
        is_same = self._file is not None and place is self._file[0] and file == self._file[1]
        if not is_same or self._mapped_bytes >= _MAPPED_BYTES:
            self.close()
        self._mapped_bytes += n_bytes
        if is_same:
            return
        self._file = place, file
        self.footer = footer_of(place, file)
        self.leaves = leaf_by_name(self.footer.schema)
        self._schema = self.footer.schema.to_arrow_schema()
        self.names = frozenset(self._schema.names)

    def reader(self, dictionaries: list[str]) -> parquet.ParquetFile:
        """A reader of the file that gives these columns as dictionaries."""
        if self._opened is None or dictionaries != self._dictionaries:
            self._close_reader()
            assert self._file is not None, "turn_to comes first"
            place, path = self._file[0], self._file[1].path
            self._dictionaries = dictionaries
            self._opened = parquet.ParquetFile(
                path if place.is_local else place.system.open_input_file(path),
                memory_map=place.is_local,
                pre_buffer=not place.is_local,
                metadata=self.footer,
                read_dictionary=dictionaries,
                coerce_int96_timestamp_unit="us",
            )
        return self._opened

    def page_column(self, name: str, row_group: int) -> PageColumn | None:
        """A column whose rows can be read one by one; None if that is left to `reader`."""
        assert self._file is not None, "turn_to comes first"
        place, file = self._file
        if not place.is_local or name not in self.leaves:
            return None
        leaf = self.leaves[name]
        layout = layout_of(self.footer.schema.column(leaf), self._schema.field(name).type)
        if layout is None:
            return None
        if self._content is None:
            with pa.memory_map(file.path) as mapped:
                self._content = np.frombuffer(mapped.read_buffer(), dtype=np.uint8)
        group = self.footer.row_group(row_group)
        chunk = ColumnChunk.open(
            self._content, group.column(leaf), group.num_rows, layout.is_optional, self._scratch
        )
        return None if chunk is None else PageColumn(name, chunk, layout)

    def close(self) -> None:
        """Closes the file, if one is open."""
        self._close_reader()
        self._content = None
        self._mapped_bytes = 0

    def _close_reader(self) -> None:
        if self._opened is not None:
            self._opened.close(force=True)
            self._opened = None
