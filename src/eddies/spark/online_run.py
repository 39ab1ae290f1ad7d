"""The Spark streaming query under online queries: runs epochs, keeps their results, says where it is.

Results of an epoch lie in a folder of the checkpoint, under the number of the epoch, and count when
Spark has committed it: so they are given out once, also after a crash. Several online queries over the
same sources may share one run (`eddies.spark.shared_online`); each has a folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from eddies import errors
from eddies.core.output import query_of
from eddies.core.progress import Progress, SourceProgress, together
from eddies.errors import EddiesError, SourceError, UnsupportedError
from eddies.sources.streams.base import Offset
from eddies.streaming.attach import dismiss
from eddies.streaming.folder import listed, open_folder
from eddies.streaming.progress_file import read_progress

__all__ = ["OnlineRun"]

_RAISED = re.compile(
    r"^eddies\.errors\.(\w+): (.*?)(?=\n\s*SQLSTATE|\n\s*at |\n\n|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class _Keep:
    """Writes the results of an epoch to the folders that the driver reads. Spark gets no rows.

    With `members`, the names of several queries, every row holds a batch of results of one of them.
    """

    folder: str
    members: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        epoch = context.getLocalProperty("streaming.sql.batchId")
        kept: dict[int, list[pa.RecordBatch]] = {}
        for rows in _unpacked(batches) if self.members else batches:
            if rows.num_rows:
                number = self.members.index(query_of(rows)) if self.members else 0
                kept.setdefault(number, []).append(rows)
        for number, found in kept.items():
            folder = f"{results_folder(self.folder, number)}/{epoch}"
            self._write(folder, context.partitionId(), found)
        yield from ()

    def _write(self, folder: str, partition: int, rows: list[pa.RecordBatch]) -> None:
        files, path = open_folder(folder)
        files.create_dir(path, recursive=True)
        name = f"{path}/{partition}.arrow"
        temporary = f"{name}.{uuid.uuid4().hex}"
        with (
            files.open_output_stream(temporary) as sink,
            pa.ipc.new_file(sink, rows[0].schema) as writer,
        ):
            for batch in rows:
                writer.write_batch(batch)
        files.move(temporary, name)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column(0):
            yield from pa.ipc.open_stream(payload.as_buffer())


def results_folder(checkpoint: str, number: int) -> str:
    """Where the results of a query lie; `number` counts the queries that share a run."""
    return f"{checkpoint}/eddies/results" + (f"-{number}" if number else "")


class OnlineRun:
    """A started Spark streaming query. `members` are the names of the queries that share it, if
    several do; `states` are the folders of its blocks. It ends when all have left, and not before: what
    those find that have left is written as well.
    """

    def __init__(
        self,
        frame: DataFrame,
        checkpoint: str,
        states: Sequence[str],
        is_finite: bool,
        temporary: str | None,
        members: tuple[str, ...] = (),
    ) -> None:
        self.checkpoint = checkpoint.rstrip("/")
        self._is_finite = is_finite
        self._states = states
        self._temporary = temporary
        self._inside = set(range(max(1, len(members))))
        self._open = set(self._inside)
        self._lock = threading.Lock()
        kept = frame.mapInArrow(_Keep(self.checkpoint, members), "nothing long")
        writer = kept.writeStream.format("noop").option("checkpointLocation", self.checkpoint)
        try:
            self._query: StreamingQuery = writer.start()
        except AnalysisException as error:
            raise UnsupportedError(
                "an online query puts out rows as it finds them; what needs all of them first (groups, "
                f"ORDER BY, LIMIT, outer joins) can be computed from q.result(). Spark says: {error}"
            ) from error

    # Results

    def is_committed(self, epoch: int) -> bool:
        """Whether the results of an epoch are all there, for good."""
        files, path = open_folder(f"{self.checkpoint}/commits/{epoch}")
        return bool(files.get_file_info(path).type == fs.FileType.File)

    def results(self, number: int, epoch: int) -> Iterator[pa.RecordBatch]:
        """What a query found in an epoch."""
        files, path = open_folder(f"{results_folder(self.checkpoint, number)}/{epoch}")
        for info in sorted(listed(files, path), key=lambda info: str(info.base_name)):
            if info.base_name.endswith(".arrow"):
                with files.open_input_file(info.path) as source:
                    reader = pa.ipc.open_file(source)
                    for i in range(reader.num_record_batches):
                        yield reader.get_batch(i)

    def ends_with(self, epoch: int, tables: frozenset[str] | None) -> bool:
        """Whether all sources, or those that are read from `tables`, have ended with an epoch."""
        offsets = self._offsets(epoch)
        read = offsets if tables is None else tables & set(offsets)
        return all(offsets[name]["end"] for name in read)

    def is_over(self, epoch: int) -> bool:
        """Whether an epoch is the last: every source tells when it has ended, and all have."""
        return self._is_finite and self.ends_with(epoch, None)

    # Where it stands

    def progress(self) -> Progress:
        """Rows of every source, routes taken and memory, as of the last epoch, over all cells."""
        cells = [found for folder in self._states for found in read_progress(folder)]
        known = together(cells)
        offsets = self._offsets(self._last_offset())
        sources = tuple(
            replace(
                source, n_arrived=offsets[source.name]["rows"], is_ended=offsets[source.name]["end"]
            )
            if source.name in offsets
            else source
            for source in known.sources
        )
        told = {source.name for source in sources}
        sources += tuple(
            SourceProgress(name, offset["rows"], 0, offset["end"], 0)
            for name, offset in offsets.items()
            if name not in told
        )
        return replace(known, sources=sources)

    def _last_offset(self) -> int:
        files, path = open_folder(f"{self.checkpoint}/offsets")
        found = listed(files, path)
        return max((int(i.base_name) for i in found if i.base_name.isdigit()), default=-1)

    def _offsets(self, epoch: int) -> dict[str, Offset]:
        """Where our own streams stood at the end of an epoch: Spark's log has a line a source."""
        if epoch < 0:
            return {}
        files, path = open_folder(f"{self.checkpoint}/offsets/{epoch}")
        with files.open_input_stream(path) as stream:
            lines = stream.read().decode().splitlines()
        found: dict[str, Offset] = {}
        for line in lines:
            with contextlib.suppress(ValueError):
                offset = json.loads(line)
                if isinstance(offset, dict) and "streams" in offset:
                    found |= offset["streams"]
        return found

    def is_running(self) -> bool:
        """Whether there may be more epochs. Raises what has stopped the query, if something has."""
        if self._query.isActive:
            return True
        error = self._query.exception()
        if error is None:
            return False
        self.end()
        raise _own_error(str(error)) from error

    # The end

    def leave(self, number: int) -> None:
        """A query that shares the run needs no more epochs. When none does, there are no more."""
        if self._is_last(self._inside, number):
            self.end()

    def end(self) -> None:
        """Run no more epochs."""
        if self._query.isActive:
            self._query.stop()
        dismiss(str(self._query.id))

    def close(self, number: int) -> None:
        """A query that shares the run is closed; the last one removes the temporary folder."""
        if self._is_last(self._open, number):
            self.remove()

    def _is_last(self, members: set[int], number: int) -> bool:
        """Take a query out of `members`; whether nobody is left."""
        with self._lock:
            members.discard(number)
            return not members

    def remove(self) -> None:
        """Remove the temporary folder, if there is one, with all results."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __del__(self) -> None:
        if self.__dict__.get("_temporary") is not None:
            self.remove()


def _own_error(text: str) -> EddiesError:
    """The error that a task or a source raised, out of the text that Spark makes of it."""
    found = _RAISED.findall(text)
    if not found:
        return SourceError(text)
    kind, message = found[-1]  # the last of a chain of causes is what was raised
    raised: type[EddiesError] = getattr(errors, kind, SourceError)
    return raised(message.strip())
