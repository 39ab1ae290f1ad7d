"""Files of lines as a stream: CSV and JSON.

An offset is a file and a byte at which a line begins. How far the next rows reach is found by counting
line breaks; whoever reads parses only the lines between two offsets. A line is at most one row, so no
step is longer than asked for; a header or an empty line makes one shorter.

Files that cannot be cut at line breaks (compressed, or with values over several lines) are read by
`eddies.sources.streams.held`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources.csv_files import CsvSplit
from eddies.sources.json_files import JsonSplit
from eddies.sources.opening import check_unchanged, reading
from eddies.sources.streams.base import Offset, Part, offset_at, same_source
from eddies.sources.streams.splits import fingerprint_of
from eddies.sources.text_files import LineRange

__all__ = ["LineSplit", "LineStream"]

LineSplit = CsvSplit | JsonSplit
_WINDOW_BYTES = 1 << 20
_NEWLINE = 10


@dataclass(frozen=True, slots=True)
class LinePart:
    """The lines of a split that has been cut to what is wanted."""

    is_patient: ClassVar[bool] = False
    split: LineSplit
    n_rows: int
    where: tuple[Expr, ...]

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Part.read`."""
        yield from self.split.read(columns, self.where)


class LineStream:
    """The lines of files, one file after the other. `splits` are those of the source."""

    is_mirrored: ClassVar[bool] = False
    is_patient: ClassVar[bool] = False
    n_rows: ClassVar[int | None] = None
    key: tuple[str, ...] = ()

    def __init__(
        self,
        label: str,
        schema: pa.Schema,
        splits: Sequence[LineSplit],
        where: tuple[Expr, ...] = (),
    ) -> None:
        self.label = label
        self.schema = schema
        self._where = where
        first_of_file = {split.part.file.path: split for split in reversed(splits)}
        self._files = [first_of_file[path] for path in dict.fromkeys(map(_path, splits))]
        self._of = fingerprint_of(splits)

    def narrowed(self, columns: Sequence[str]) -> LineStream:
        """Itself: whoever reads a part says which columns."""
        return self

    def start(self) -> Offset:
        return offset_at(0, file=0, byte=0, of=self._of)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        """Reads what it counts, so it may wait."""
        same_source(offset, self._of, self.label)
        if offset["end"]:
            return offset
        number, byte, left = offset["file"], offset["byte"], most_rows
        while left and number < len(self._files):
            part = self._files[number].part
            n_lines, byte = _lines_on(part, byte, left)
            left -= n_lines
            if byte >= part.file.n_bytes:
                number, byte = number + 1, 0
        rows = offset["rows"] + most_rows - left
        is_end = number == len(self._files)
        return offset_at(rows, is_end=is_end, file=number, byte=byte, of=self._of)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        same_source(end, self._of, self.label)
        ranges = []
        for number in range(start["file"], min(end["file"] + 1, len(self._files))):
            split = self._files[number]
            first = start["byte"] if number == start["file"] else 0
            stop = end["byte"] if number == end["file"] else split.part.file.n_bytes
            if first < stop:
                part = replace(split.part, start=first, stop=stop)
                ranges.append(replace(split, part=part))
        n_bytes = sum(split.part.n_bytes for split in ranges)
        n_rows = end["rows"] - start["rows"]
        return [
            LinePart(split, n_rows * split.part.n_bytes // n_bytes, self._where) for split in ranges
        ]


def _path(split: LineSplit) -> str:
    return split.part.file.path


def _lines_on(part: LineRange, byte: int, most_lines: int) -> tuple[int, int]:
    """How many lines follow `byte`, at most `most_lines`, and where the one after them begins."""
    check_unchanged(part.place, part.file)
    size, n_lines, position = part.file.n_bytes, 0, byte
    with reading(part.file), part.place.system.open_input_file(part.file.path) as opened:
        while position < size and n_lines < most_lines:
            window = opened.read_at(_WINDOW_BYTES, position)
            breaks = np.flatnonzero(np.frombuffer(window, np.uint8) == _NEWLINE)
            wanted = most_lines - n_lines
            if breaks.shape[0] >= wanted:
                return most_lines, position + int(breaks[wanted - 1]) + 1
            n_lines += breaks.shape[0]
            position += len(window)
        ends_with_break = opened.read_at(1, size - 1) == b"\n" if size else True
    return n_lines + (0 if ends_with_break else 1), size
