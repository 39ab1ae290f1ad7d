"""Files of lines, in parts that begin and end with a line: what CSV and JSON have in common.

A split is a range of bytes, and means the lines that begin in it: whoever reads it skips to the first
line's beginning and reads the last line to its end, as Hadoop does. So nobody needs to look at a file
to cut it. Compressed files, and files in which a value may contain a line break, are one split.

A split is read into memory as a whole; its size is chosen for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.opening import cannot_read, check_unchanged, reading
from eddies.sources.paths import DataFile, Files, Place

__all__ = ["LineRange", "begin_of", "begins_of", "lines_of", "ranges_of_lines", "with_position"]

SPLIT_BYTES = 16 << 20
_SAMPLE_BYTES = 1 << 20
_MOST_SAMPLE_BYTES = 64 << 20
_WINDOW_BYTES = 64 << 10
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
_THREADS = 8
_ROW_NUMBER = re.compile(r"Row #\d+: | in row \d+")  # as Arrow's readers write it


@dataclass(frozen=True, slots=True)
class LineRange:
    """The lines of `file` that begin at `start` or later and before `stop` (None: all)."""

    place: Place
    file: DataFile
    start: int
    stop: int | None

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return (self.file.n_bytes if self.stop is None else self.stop) - self.start


def ranges_of_lines(files: Files, *, whole_files: bool) -> list[LineRange]:
    """All lines of `files`, in parts of about `SPLIT_BYTES`."""
    found = []
    for file in files.found:
        if file.n_bytes == 0:
            continue
        if whole_files or file.path.lower().endswith(_COMPRESSED):
            found.append(LineRange(files.place, file, 0, None))
            continue
        n_parts = max(1, round(file.n_bytes / SPLIT_BYTES))
        borders = [file.n_bytes * i // n_parts for i in range(n_parts + 1)]
        for start, stop in pairwise(borders):
            found.append(LineRange(files.place, file, start, stop))
    return found


def lines_of(part: LineRange) -> pa.Buffer:
    """The lines of a part; empty if no line begins in it."""
    check_unchanged(part.place, part.file)
    with reading(part.file):
        if part.stop is None:
            with part.place.system.open_input_stream(
                part.file.path, compression="detect"
            ) as stream:
                return stream.read_buffer()
        with part.place.system.open_input_file(part.file.path) as opened:
            start = _line_start(opened, part.start)
            stop = _line_start(opened, part.stop)
            return opened.read_at(stop - start, start) if stop > start else b""


def _line_start(opened: pa.NativeFile, position: int) -> int:
    """Where the first line begins at `position` or later."""
    size = opened.size()
    if position <= 0 or position >= size:
        return max(0, min(position, int(size)))
    look = position - 1  # a line that begins at `position` has its predecessor's end there
    while look < size:
        window = opened.read_at(_WINDOW_BYTES, look)
        found = window.find(b"\n")
        if found >= 0:
            return int(look + found + 1)
        look += len(window)
    return int(size)


def begin_of(place: Place, file: DataFile, least_lines: int) -> bytes:
    """Whole lines from the begin of a file: a sample, with at least `least_lines` if it has them."""
    n_bytes = _SAMPLE_BYTES
    with (
        reading(file),
        place.system.open_input_stream(file.path, compression="detect") as stream,
    ):
        content = stream.read(n_bytes)
        while content.count(b"\n") < least_lines and n_bytes <= _MOST_SAMPLE_BYTES:
            more = stream.read(n_bytes)
            if not more:
                return bytes(content)
            content += more
            n_bytes *= 2
        if not stream.read(1):
            return bytes(content)
    return bytes(content[: content.rfind(b"\n") + 1])


def begins_of(files: Files, least_lines: int) -> list[bytes]:
    """`begin_of` each file, several at a time."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda file: begin_of(files.place, file, least_lines), files.found))


def with_position(part: LineRange, row: int | None, error: Exception, hint: str) -> SourceError:
    """An error in the row-th line (from 1) of a part, told with its line in the file."""
    reason = _ROW_NUMBER.sub("", str(error).partition("\n")[0]).rstrip(".")
    if row is None:
        return SourceError(f"{cannot_read(part.file.path, error)}. {hint}")
    before = 0
    if part.start:
        with part.place.system.open_input_file(part.file.path) as opened:
            start = _line_start(opened, part.start)
            before = sum(window.count(b"\n") for window in _windows(opened, start))
    return SourceError(f"{part.file.path}, line {before + row}: {reason}. {hint}")


def _windows(opened: pa.NativeFile, stop: int) -> Iterator[bytes]:
    for begin in range(0, stop, SPLIT_BYTES):
        yield opened.read_at(min(SPLIT_BYTES, stop - begin), begin)
