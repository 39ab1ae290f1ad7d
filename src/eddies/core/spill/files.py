"""Files of spilled rows: Arrow record batches behind a checksum, in a directory of one eddy's own.

A `SpillDirectory` is made when the first batch is written, under a name no other eddy has, so that
many may share a disk. It is removed when the eddy is done, has failed or was closed, and at the
latest when the process ends. A `SpillFile` is a row of Arrow IPC messages; the *segments* that
say where each is, how long and with which checksum, are kept in memory, for nobody but this
eddy ever reads the file.

What cannot be written, and what does not read back as it was written, raises `SpillError`: an answer
is never made of damaged rows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
import weakref
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddies.core.kernels.checksum import checksum
from eddies.errors import SpillError

__all__ = ["Segment", "SpillDirectory", "SpillFile"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A record batch in a file."""

    offset: int
    n_bytes: int
    check: int
    n_rows: int


class SpillDirectory:
    """A directory of this eddy's own below `parent` (by default the system's temporary directory)."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent or tempfile.gettempdir()
        self.path: str | None = None
        self._cleaner: weakref.finalize[..., SpillDirectory] | None = None
        self._files: list[SpillFile] = []
        self.n_written = 0  # bytes, ever
        self.n_read = 0

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

    def remove(self) -> None:
        """Delete everything. May be called again; files must not be used afterwards."""
        for file in self._files:
            file.close()
        self._files.clear()
        if self._cleaner is not None:
            self._cleaner()
            self._cleaner = None
            self.path = None


class SpillFile:
    """Record batches of one schema, appended and read back in any order."""

    def __init__(self, directory: SpillDirectory, path: str, schema: pa.Schema) -> None:
        self._directory = weakref.ref(directory)
        self.path = path
        self.schema = schema
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

    def write(self, batch: pa.RecordBatch) -> Segment:
        """Append `batch`."""
        message = batch.serialize()
        words = np.frombuffer(message, dtype=np.uint64)
        segment = Segment(self._end, message.size, int(checksum(words)), batch.num_rows)
        view = memoryview(message)
        done = 0
        try:
            while done < segment.n_bytes:
                done += os.pwrite(self._descriptor, view[done:], segment.offset + done)
        except OSError as error:
            raise SpillError(
                f"cannot write {segment.n_bytes:,} bytes to spill file {self.path!r}: "
                f"{error.strerror}; free space there, name another directory with "
                "Options(spill_dir=...), or allow more memory"
            ) from error
        self._end += segment.n_bytes
        directory = self._directory()
        if directory is not None:
            directory.n_written += segment.n_bytes
        return segment

    def read(self, segment: Segment) -> pa.RecordBatch:
        """A batch as it was written; `SpillError` if the file does not hold that any more."""
        try:
            content = _read_at(self._descriptor, segment.n_bytes, segment.offset)
        except OSError as error:
            raise SpillError(
                f"cannot read spill file {self.path!r}: {error.strerror}; run the query again"
            ) from error
        if content.size != segment.n_bytes:
            raise SpillError(
                f"spill file {self.path!r} is truncated: {content.size:,} of {segment.n_bytes:,} "
                f"bytes at {segment.offset:,}; nothing may write there. Run the query again"
            )
        if int(checksum(np.frombuffer(content, dtype=np.uint64))) != segment.check:
            raise SpillError(
                f"spill file {self.path!r} is damaged: {segment.n_bytes:,} bytes at "
                f"{segment.offset:,} are not those written. Check the disk and run the query again"
            )
        directory = self._directory()
        if directory is not None:
            directory.n_read += segment.n_bytes
        return pa.ipc.read_record_batch(content, self.schema)

    def close(self) -> None:
        """Close and delete the file. May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(OSError):
                os.unlink(self.path)


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
