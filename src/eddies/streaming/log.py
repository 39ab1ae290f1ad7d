"""The epoch log of a cell: every row that came to it, in immutable files by epoch.

This is where exactly-once of streaming queries begins. The state of SteMs does not depend on how
batches were routed, so rows are all that must be kept: the state before epoch N is what segments of
epochs below N hold, and nothing else. A task writes the segment of its epoch before it joins anything
(a write-ahead log). If the epoch is run again, by a retried task or a restarted driver, the same rows
come again and the segment is replaced by its equal. Segments of epochs at or after N are never read
when epoch N runs. So a task that was given up, but lives on and writes late, changes nothing.

A segment is an Arrow file of blobs (`relation`, `payload`, `check`): a payload is an Arrow stream of
rows of one relation, an empty payload says that the relation has ended. A segment is written under
another name and then renamed, so it is there as a whole or not at all; its checksums and the number
of its predecessor tell damaged and lost ones. Its *content*, made of the checksums in any order, tells
whether a segment that was written again holds the same blobs.

Epoch -1 is the *base*: the rows of static inputs, read once when the query begins.

Small segments are put together (`compact`) so that a start opens few files. Only epochs before the
running one are touched: they are committed, and will not run again. With windows, rows that can never
join again are left out then (`Sieve`), and what was known after them is written instead: the *moment*.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import fs

from eddies.core.kernels.checksum import checksum
from eddies.errors import StateError
from eddies.streaming.folder import listed, open_folder

__all__ = [
    "BASE",
    "Blob",
    "EpochLog",
    "OpenSegment",
    "Segment",
    "Sieve",
    "end_mark",
    "rows_of",
    "serialised",
]

BASE = -1
_NAME = re.compile(r"([0-9]{10})-([0-9]{10})\.arrow")
_TEMPORARY = re.compile(r"\.(?:[0-9]{10}-([0-9]{10})\.arrow|progress)\.[0-9a-f]{32}")
_SCHEMA = pa.schema([("relation", pa.int32()), ("payload", pa.binary()), ("check", pa.uint64())])
_SMALL_BYTES = 16 << 20  # segments below this are put together ...
_MOST_SMALL = 16  # ... when there are so many
_BLOB_ROWS = 1 << 16

Blob = tuple[int, pa.Buffer]  # number of the relation, payload
_Checked = tuple[int, pa.Buffer, int]  # ... and the checksum of the payload


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One file: the epochs `first` to `last`."""

    first: int
    last: int
    n_bytes: int

    @property
    def name(self) -> str:
        """Of the file. Numbers are one higher than epochs, for the base is epoch -1."""
        return f"{self.first + 1:010d}-{self.last + 1:010d}.arrow"


def serialised(batch: pa.RecordBatch) -> pa.Buffer:
    """Rows as a payload."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def rows_of(payload: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The rows of a payload, without copying; none if it is an end mark."""
    if payload.size:
        yield from pa.ipc.open_stream(payload)


def end_mark(relation: int) -> Blob:
    """The blob that says that a relation has delivered its last row."""
    return relation, pa.py_buffer(b"")


class OpenSegment:
    """A segment that is being read. Iterate it once or more for its blobs."""

    def __init__(self, path: str, file: pa.RecordBatchFileReader) -> None:
        self._path, self._file = path, file
        self.previous = int(file.schema.metadata[b"previous"])
        self.content: bytes = file.schema.metadata[b"content"]
        self.moment: bytes | None = file.schema.metadata.get(b"moment")

    def arrivals(self) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """Numbers of relations with rows, or with None where the relation has ended."""
        for relation, payload in self:
            if relation < 0:
                continue  # a tick
            if not payload.size:
                yield relation, None
            for batch in rows_of(payload):
                yield relation, batch

    def __iter__(self) -> Iterator[Blob]:
        try:
            for number in range(self._file.num_record_batches):
                relations, payloads, checks = self._file.get_batch(number).columns
                for i in range(len(relations)):
                    payload = payloads[i].as_buffer()
                    if _check(payload) != checks[i].as_py():
                        raise StateError(_damaged(self._path, "a checksum differs"))
                    yield relations[i].as_py(), payload
        except (pa.ArrowInvalid, OSError) as error:
            raise StateError(_damaged(self._path, str(error))) from error


class Sieve(Protocol):
    """Says what may be left out when segments are put together."""

    def live_bytes(self, segment: Segment) -> int | None:
        """About how many bytes of a segment must stay; None: it must stay as it is."""
        ...

    def moment(self, run: list[Segment]) -> bytes:
        """What is written instead of the rows of `run` that are left out."""
        ...

    def sifted(
        self, segment: Segment, opened: OpenSegment
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """What must stay of a segment, like `OpenSegment.arrivals`."""
        ...

    def put_together(self, run: list[Segment], whole: Segment) -> None:
        """`whole` is there in place of `run`."""
        ...


class EpochLog:
    """The segments in one folder, on any file system that pyarrow can write."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._files, self._path = open_folder(folder)

    # Writing

    def write(self, epoch: int, blobs: Sequence[Blob]) -> None:
        """Make `blobs` the segment of `epoch`, whatever was there. They come from several tasks, in any
        order; relations end behind their rows.
        """
        earlier = self.segments(epoch)
        # The base may be written after the first epoch's segment: it counts as being there.
        previous = earlier[-1].last if earlier else min(BASE, epoch - 1)
        checked = sorted(_checked(blobs), key=lambda blob: blob[1].size == 0)
        self._write(Segment(epoch, epoch, 0), previous, checked, _content(checked))

    def write_base(self, blobs: Iterable[Blob]) -> None:
        """Make `blobs` the base."""
        self._write(Segment(BASE, BASE, 0), BASE - 1, _checked(blobs))

    def _write(
        self,
        segment: Segment,
        previous: int,
        blobs: Iterable[_Checked],
        content: str = "",
        moment: bytes | None = None,
    ) -> None:
        temporary = f"{self._path}/.{segment.name}.{uuid.uuid4().hex}"
        metadata = {"previous": str(previous), "content": content}
        schema = _SCHEMA.with_metadata(metadata | ({"moment": moment} if moment else {}))
        try:
            self._files.create_dir(self._path, recursive=True)
            with (
                self._files.open_output_stream(temporary) as sink,
                pa.ipc.new_file(sink, schema) as writer,
            ):
                for relation, payload, check in blobs:
                    columns = [
                        pa.array([relation], pa.int32()),
                        _binary(payload),
                        pa.array([check], pa.uint64()),
                    ]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            self._files.move(temporary, f"{self._path}/{segment.name}")
        except OSError as error:
            self._delete(temporary)
            raise StateError(
                f"cannot write {segment.name} of the epoch log {self.folder!r}: {error}; free space or "
                "mend the directory, then start the query again from its checkpoint: nothing is lost"
            ) from error

    # Reading

    def segments(self, before: int) -> list[Segment]:
        """The segments of all epochs below `before`, in order, each epoch once."""
        found = sorted(self._listed(), key=lambda segment: (segment.first, -segment.last))
        chosen: list[Segment] = []
        for segment in found:
            if segment.first >= before:
                break
            if chosen and segment.last <= chosen[-1].last:
                continue  # a part of the one before: compaction was interrupted
            if segment.last >= before:
                raise StateError(
                    f"the epoch log {self.folder!r} has put epochs {segment.first} to {segment.last} "
                    f"together, but epoch {before} is to run again: the checkpoint is older than the "
                    "log; restore both together, or start with an empty checkpoint"
                )
            chosen.append(segment)
        return chosen

    def has(self, epoch: int) -> bool:
        """Whether there is a segment that begins with `epoch`."""
        return any(segment.first == epoch for segment in self._listed())

    def _listed(self) -> list[Segment]:
        found = []
        for info in listed(self._files, self._path):
            named = _NAME.fullmatch(info.base_name)
            if named:
                found.append(Segment(int(named[1]) - 1, int(named[2]) - 1, info.size))
        return found

    def read(self, segment: Segment, previous: int | None = None) -> OpenSegment:
        """The blobs of a segment. `previous`: the last epoch that must have been logged before it."""
        path = f"{self._path}/{segment.name}"
        try:
            opened = OpenSegment(path, pa.ipc.open_file(self._mapped(path)))
        except (pa.ArrowInvalid, OSError) as error:
            raise StateError(_damaged(path, str(error))) from error
        if previous is not None and opened.previous != previous:
            raise StateError(
                f"epoch {segment.first} in {self.folder!r} follows epoch {opened.previous}, but epoch "
                f"{previous} was found: a segment is lost; start again with an empty checkpoint"
            )
        return opened

    def content(self, epoch: int) -> bytes | None:
        """What tells the blobs of the segment that ends with `epoch` from others; None: there is no
        such segment, or not any more.
        """
        for segment in self._listed():
            if segment.last == epoch:
                return self.read(segment).content
        return None

    def _mapped(self, path: str) -> pa.NativeFile:
        if isinstance(self._files, fs.LocalFileSystem):
            return pa.memory_map(path)
        return self._files.open_input_file(path)

    # Putting together

    def compact(self, before: int, sieve: Sieve | None = None) -> bool:
        """Put neighbouring segments of epochs below `before` together, if they are small and many, or
        if much of them can be left out.
        """
        run, previous = self._run(before, sieve)
        if not run:
            return False
        whole = Segment(run[0].first, run[-1].last, 0)
        moment = None if sieve is None else sieve.moment(run)
        self._write(whole, previous, _checked(self._together(run, sieve)), moment=moment)
        if sieve is not None:
            sieve.put_together(run, whole)
        for segment in run:
            if segment.name != whole.name:
                self._delete(f"{self._path}/{segment.name}")
        return True

    def _run(self, before: int, sieve: Sieve | None) -> tuple[list[Segment], int]:
        """Segments that should be put together, and the epoch before them."""
        run: list[Segment] = []
        n_dead = 0  # bytes of the run that can be left out
        previous = BASE
        for segment in self.segments(before):
            live = segment.n_bytes if sieve is None else sieve.live_bytes(segment)
            if segment.first != BASE and live is not None and live < _SMALL_BYTES:
                run.append(segment)
                n_dead += segment.n_bytes - live
            elif len(run) >= _MOST_SMALL or n_dead >= _SMALL_BYTES:
                break
            else:
                run, n_dead, previous = [], 0, segment.last
        if len(run) >= _MOST_SMALL or n_dead >= _SMALL_BYTES:
            return run, previous
        return [], previous

    def sweep(self, before: int) -> None:
        """Remove what writers have left that were killed, or given up, in epochs below `before`."""
        for info in listed(self._files, self._path):
            named = _TEMPORARY.fullmatch(info.base_name)
            if named and int(named[1] or 0) - 1 < before:
                self._delete(info.path)
        used = {segment.name for segment in self.segments(before)}
        for segment in self._listed():  # those that were put together, but not removed
            if segment.last < before and segment.name not in used:
                self._delete(f"{self._path}/{segment.name}")

    def _delete(self, path: str) -> None:
        """Remove a file, unless somebody else has."""
        with contextlib.suppress(OSError):
            self._files.delete_file(path)

    def _together(self, run: list[Segment], sieve: Sieve | None) -> Iterator[Blob]:
        """All rows of a run, by relation, then the end marks."""
        waiting: dict[int, list[pa.RecordBatch]] = {}
        ended: list[int] = []
        for segment in run:
            opened = self.read(segment)
            arrivals = opened.arrivals() if sieve is None else sieve.sifted(segment, opened)
            for relation, batch in arrivals:
                if batch is None:
                    ended.append(relation)
                    continue
                batches = waiting.setdefault(relation, [])
                batches.append(batch)
                if sum(batch.num_rows for batch in batches) >= _BLOB_ROWS:
                    yield relation, serialised(pa.concat_batches(batches))
                    waiting[relation] = []
        for relation, batches in waiting.items():
            if batches:
                yield relation, serialised(pa.concat_batches(batches))
        for relation in ended:
            yield end_mark(relation)


def _checked(blobs: Iterable[Blob]) -> Iterator[_Checked]:
    for relation, payload in blobs:
        yield relation, payload, _check(payload)


def _content(blobs: Iterable[_Checked]) -> str:
    """The same for the same blobs in any order."""
    known = sorted((relation, payload.size, check) for relation, payload, check in blobs)
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _binary(payload: pa.Buffer) -> pa.Array:
    offsets = pa.py_buffer(np.array([0, payload.size], dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])


def _check(payload: pa.Buffer) -> int:
    n_words, rest = divmod(payload.size, 8)
    words = np.frombuffer(payload, dtype=np.uint8)
    if rest:
        words = np.concatenate([words, np.zeros(8 - rest, dtype=np.uint8)])
    elif words.ctypes.data % 8:
        words = words.copy()
    return int(checksum(words.view(np.uint64))) if n_words or rest else 0


def _damaged(path: str, reason: str) -> str:
    return (
        f"segment {path!r} of the epoch log is damaged ({reason}); restore it, or start again with an "
        "empty checkpoint"
    )
