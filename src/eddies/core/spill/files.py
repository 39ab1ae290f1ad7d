"""Files of spilled rows: Arrow record batches behind a checksum, in a directory of one eddy's own.

A `SpillDirectory` is made when the first batch is written, under a name no other eddy has, so that
many may share a disk. It is removed when the eddy is done, has failed or was closed, and at the
latest when the process ends. A `SpillFile` is a row of Arrow IPC messages; the *segments* that
say where each is, how long and with which checksum, are kept in memory, for nobody but this
eddy ever reads the file. Rows are written in as few bytes as they need (`narrow`).

What cannot be written, and what does not read back as it was written, raises `SpillError`: an answer
is never made of damaged rows. Since a thread of its own puts rows in order and writes them
(`writer`), the error may come with a later call, but at the latest when the file is settled, and
before that nobody knows where its rows are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.kernels.checksum import checksum
from eddies.core.spill.narrow import Form, NarrowRows, joined
from eddies.core.spill.writer import SpillWriter
from eddies.errors import SpillError

__all__ = ["Ordered", "Segment", "SpillDirectory", "SpillFile"]


_MOST_BUFFERS = 512  # of one call of the system
_MOST_READ_BYTES = 1 << 18  # at once: what is just read is still in the processor's cache


@dataclass(frozen=True, slots=True)
class Segment:
    """A record batch in a file."""

    offset: int
    n_bytes: int
    check: int
    n_rows: int
    form: Form

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + self.n_bytes


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows to be written: `slices` of `rows` (the first row and the length of each), after they were
    put in this `order`, if any.
    """

    rows: NarrowRows
    slices: Sequence[tuple[int, int]]
    order: npt.NDArray[np.int32] | None = None


class SpillDirectory:
    """A directory of this eddy's own below `parent` (by default the system's temporary directory).

    `most_bytes` are how many may wait in memory to be written.
    """

    def __init__(self, parent: str | None = None, most_bytes: int = 1 << 20) -> None:
        self.writer = SpillWriter(most_bytes)
        self._parent = parent or tempfile.gettempdir()
        self.path: str | None = None
        self._cleaner: weakref.finalize[..., SpillDirectory] | None = None
        self._files: list[SpillFile] = []
        self.n_written = 0  # bytes, ever
        self.n_read = 0
        self._counting = threading.Lock()

    def file(self, name: str, schema: pa.Schema) -> SpillFile:
        """A new file for batches with `schema`."""
        if self.path is None:
            self._make()
        file = SpillFile(self, os.path.join(str(self.path), f"{len(self._files)}-{name}"), schema)
        self._files.append(file)
        return file

    def _make(self) -> None:
        path = os.path.join(self._parent, f"eddies-spill-{os.getpid()}-{uuid.uuid4().hex}")
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise SpillError(
                f"cannot make a spill directory in {self._parent!r}: {error.strerror}; give one that "
                "can be written with Options(spill_dir=...), or allow more memory"
            ) from error
        self.path = path
        self._cleaner = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    def count(self, n_written: int = 0, n_read: int = 0) -> None:
        """So many bytes were written and read. Several threads may call this."""
        with self._counting:
            self.n_written += n_written
            self.n_read += n_read

    def settle(self) -> None:
        """Wait until everything is written."""
        for file in self._files:
            file.settle()

    def remove(self) -> None:
        """Delete everything. May be called again; files must not be used afterwards."""
        for file in self._files:
            file.close()
        self._files.clear()
        self.writer.close()
        if self._cleaner is not None:
            self._cleaner()
            self._cleaner = None
            self.path = None


class SpillFile:
    """Record batches of one schema, appended and read back in any order."""

    def __init__(self, directory: SpillDirectory, path: str, schema: pa.Schema) -> None:
        self._directory = weakref.ref(directory)
        self._writer = directory.writer
        self._under_way: deque[Future[None]] = deque()
        self._lock = threading.Lock()
        self.path = path
        self.schema = schema
        self._forms: dict[Form, Form] = {}  # those in use; many segments share one
        self._end = 0
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise SpillError(f"cannot make spill file {path!r}: {error.strerror}") from error

    @property
    def n_bytes(self) -> int:
        """Bytes written so far."""
        return self._end

    def write(
        self,
        make: Callable[[], Ordered],
        keep: Callable[[list[Segment]], None],
        n_bytes: int,
    ) -> None:
        """Append rows, all of it in the thread that writes: `make` says which, `keep` gets a segment
        for each slice. Until then `n_bytes` are held on to. `settle` before you look for what was kept.
        """
        self._await(is_all=False)

        def write() -> None:
            segments: list[Segment] = []
            for messages, some in self._encoded(make()):
                self._put(messages, some[0].offset)
                self._count(some)
                segments += some
            keep(segments)

        done = self._writer.submit(write, n_bytes)
        with self._lock:
            self._under_way.append(done)

    def _encoded(self, ordered: Ordered) -> Iterator[tuple[list[pa.Buffer], list[Segment]]]:
        """Messages that are written at once, and where they will be in the file."""
        rows = ordered.rows if ordered.order is None else ordered.rows.take(ordered.order)
        form = self._forms.setdefault(rows.form, rows.form)
        messages: list[pa.Buffer] = []
        n_bytes = 0
        first_slice = 0
        for i, (first, n_rows) in enumerate(ordered.slices):
            message = rows.slice(first, n_rows).written.serialize()
            messages.append(message)
            n_bytes += message.size
            is_much = n_bytes >= self._writer.most_bytes // 2 or len(messages) == _MOST_BUFFERS
            if is_much or i == len(ordered.slices) - 1:
                yield messages, self._placed(messages, ordered.slices[first_slice : i + 1], form)
                messages, n_bytes, first_slice = [], 0, i + 1

    def _placed(
        self, messages: Sequence[pa.Buffer], slices: Sequence[tuple[int, int]], form: Form
    ) -> list[Segment]:
        """Give messages the next places in the file."""
        segments = []
        for message, (_, n_rows) in zip(messages, slices, strict=True):
            check = int(checksum(np.frombuffer(message, dtype=np.uint64)))
            segments.append(Segment(self._end, message.size, check, n_rows, form))
            self._end += message.size
        return segments

    def _count(self, segments: list[Segment]) -> None:
        directory = self._directory()
        if directory is not None:
            directory.count(n_written=segments[-1].end - segments[0].offset)

    def _put(self, messages: list[pa.Buffer], offset: int) -> None:
        views = deque(memoryview(message) for message in messages)
        try:
            while views:
                n = os.pwritev(self._descriptor, list(views), offset)
                offset += n
                while views and n >= len(views[0]):
                    n -= len(views.popleft())
                if n:
                    views[0] = views[0][n:]
        except OSError as error:
            n_bytes = sum(message.size for message in messages)
            raise SpillError(
                f"cannot write {n_bytes:,} bytes to spill file {self.path!r}: "
                f"{error.strerror}; free space there, name another directory with "
                "Options(spill_dir=...), or allow more memory"
            ) from error

    def settle(self) -> None:
        """Wait until everything is written."""
        self._await(is_all=True)

    def _await(self, is_all: bool) -> None:
        """Raise what went wrong so far; and wait for the rest if `is_all`."""
        while True:
            with self._lock:
                while self._under_way and self._under_way[0].done():
                    self._under_way[0].result()
                    self._under_way.popleft()
                if not (is_all and self._under_way):
                    return
                first = self._under_way[0]
            wait([first])

    def read(self, segments: Sequence[Segment], batch_rows: int) -> Iterator[NarrowRows]:
        """The rows of `segments`, those written alike put together to batches of about `batch_rows`;
        `SpillError` if the file does not hold them any more.
        """
        gathered: list[NarrowRows] = []
        n_rows = 0
        for segment, written in self._read_in_order(segments):
            is_alike = n_rows and gathered[0].form is segment.form
            if n_rows and not (is_alike and n_rows + segment.n_rows <= batch_rows):
                yield joined(gathered, self.schema)
                gathered, n_rows = [], 0
            gathered.append(NarrowRows(segment.form, written, segment.n_rows))
            n_rows += segment.n_rows
        if gathered:
            yield joined(gathered, self.schema)

    def _read_in_order(
        self, segments: Sequence[Segment]
    ) -> Iterator[tuple[Segment, pa.RecordBatch]]:
        """What is written of each segment; neighbours in the file are read at once."""
        for first, last in _neighbours(segments):
            start = segments[first].offset
            content = self._read_bytes(start, segments[last].end - start)
            for segment in segments[first : last + 1]:
                part = content.slice(segment.offset - start, segment.n_bytes)
                self._check(part, segment)
                yield segment, pa.ipc.read_record_batch(part, segment.form.schema)

    def _read_bytes(self, offset: int, n_bytes: int) -> pa.Buffer:
        try:
            content = _read_at(self._descriptor, n_bytes, offset)
        except OSError as error:
            raise SpillError(
                f"cannot read spill file {self.path!r}: {error.strerror}; run the query again"
            ) from error
        if content.size != n_bytes:
            raise SpillError(
                f"spill file {self.path!r} is truncated: {content.size:,} of {n_bytes:,} "
                f"bytes at {offset:,}; nothing may write there. Run the query again"
            )
        directory = self._directory()
        if directory is not None:
            directory.count(n_read=n_bytes)
        return content

    def _check(self, content: pa.Buffer, segment: Segment) -> None:
        if int(checksum(np.frombuffer(content, dtype=np.uint64))) != segment.check:
            raise SpillError(
                f"spill file {self.path!r} is damaged: {segment.n_bytes:,} bytes at "
                f"{segment.offset:,} are not those written. Check the disk and run the query again"
            )

    def close(self) -> None:
        """Close and delete the file. May be called again."""
        with self._lock:
            under_way = list(self._under_way)
            self._under_way.clear()
        for done in under_way:
            done.cancel()
        wait(under_way)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _neighbours(segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """The first and the last of those that lie one after the other, as far as they are read at once."""
    first = 0
    for i, segment in enumerate(segments):
        is_next = i == 0 or segments[i - 1].end == segment.offset
        if i and not (is_next and segment.end - segments[first].offset <= _MOST_READ_BYTES):
            yield first, i - 1
            first = i
    if segments:
        yield first, len(segments) - 1


def _read_at(descriptor: int, n_bytes: int, offset: int) -> pa.Buffer:
    """At most `n_bytes` from `offset`, fewer where the file ends."""
    buffer = pa.allocate_buffer(n_bytes, resizable=True)
    view = memoryview(buffer)
    done = 0
    while done < n_bytes:
        n = os.preadv(descriptor, [view[done:]], offset + done)
        if n == 0:
            break
        done += n
    del view
    return buffer if done == n_bytes else buffer.slice(0, done)
