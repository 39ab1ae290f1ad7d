"""`eddies.online`: exact results while the sources still arrive.

    q = eddies.online("SELECT ... FROM a, b, c WHERE ...", {"a": eddies.read.csv(...), ...})
    for batch in q: ...              # Arrow batches, as soon as an epoch has found them
    q.progress()                     # rows of every source, routes, memory
    q.result()                       # waits for the complete answer

Under it runs one Spark streaming query. Every source streams: files, tables and services are read
progressively, streaming DataFrames as Spark delivers them. Each epoch's results are written to a folder
of the checkpoint, under the number of the epoch, and are given out when Spark has committed it: so they
are given out once, also after a crash. When all sources have ended and their last epoch is committed,
the answer is complete.

Driver and executors must share the folder of the checkpoint; in local mode any will do, and without one
a temporary folder is used.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from eddies import errors
from eddies.core.options import Options
from eddies.core.progress import Progress, SourceProgress, together
from eddies.core.query import UserFunction
from eddies.errors import EddiesError, SourceError, UnsupportedError
from eddies.sources import read
from eddies.sources.source import is_source
from eddies.sources.streams.base import Offset
from eddies.sources.streams.making import stream_of
from eddies.spark.inputs import Input, frame_input, normal_schema
from eddies.spark.query import plan_inputs, session_of
from eddies.spark.stream_block import state_folder
from eddies.sql import named_tables
from eddies.streaming.attach import dismiss
from eddies.streaming.folder import listed, open_folder
from eddies.streaming.progress_file import read_progress

__all__ = ["OnlineQuery", "online"]

_GLANCE_S = 0.01
_RAISED = re.compile(
    r"^eddies\.errors\.(\w+): (.*?)(?=\n\s*SQLSTATE|\n\s*at |\n\n|\Z)", re.MULTILINE | re.DOTALL
)


def online(
    query: str,
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
) -> OnlineQuery:
    """Start `query` over sources that arrive over time.

    `tables` maps names to streaming or batch DataFrames, sources of `eddies.read`, pyarrow tables, or
    paths. With `Options(checkpoint=DIR)`, a query that was stopped or has failed goes on where it was.
    """
    spark = spark or session_of(tables)
    options = options or Options()
    folder = None
    if options.checkpoint is None:
        folder = tempfile.mkdtemp(prefix="eddies-online-")
        options = replace(options, checkpoint=folder)
    try:
        used = named_tables(query)
        inputs = {n: _input(n, table, options) for n, table in tables.items() if n.lower() in used}
        if not any(given.is_streaming for given in inputs.values()):
            raise UnsupportedError("every table is a batch DataFrame: use eddies.sql")
        planned = plan_inputs(query, inputs, list(tables), spark, options, tuple(functions))
        return OnlineQuery(
            planned.dataframe(),
            str(options.checkpoint),
            [state_folder(options, block.name) for block in planned.blocks],
            all(given.frame is None or not given.is_streaming for given in inputs.values()),
            folder,
        )
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _input(name: str, table: object, options: Options) -> Input:
    """A table as a stream, if it can be one."""
    if isinstance(table, DataFrame):
        return frame_input(name, table)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, str):
        table = read.path(table)
    if not isinstance(table, pa.Table) and not is_source(table):
        raise SourceError(
            f"table {name!r} is a {type(table).__name__}; expected a pyspark DataFrame, a source of "
            "eddies.read, a pyarrow Table, or a path"
        )
    stream = stream_of(table)
    schema = normal_schema(stream.schema)
    return Input(name, schema, None, None, stream.n_rows, stream, options.rows_per_epoch)


@dataclass(frozen=True, slots=True)
class _Keep:
    """Writes the results of an epoch to the folder that the driver reads. Spark gets no rows."""

    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        epoch = context.getLocalProperty("streaming.sql.batchId")
        rows = [batch for batch in batches if batch.num_rows]
        if rows:
            files, path = open_folder(f"{self.folder}/{epoch}")
            files.create_dir(path, recursive=True)
            name = f"{path}/{context.partitionId()}.arrow"
            temporary = f"{name}.{uuid.uuid4().hex}"
            with (
                files.open_output_stream(temporary) as sink,
                pa.ipc.new_file(sink, rows[0].schema) as writer,
            ):
                for batch in rows:
                    writer.write_batch(batch)
            files.move(temporary, name)
        yield from ()


class OnlineQuery:
    """A running online query. Iterate over it for results, as often as you like: each iteration gives
    all results from the first, and waits for more until the answer is complete or the query stopped.
    """

    def __init__(
        self,
        frame: DataFrame,
        checkpoint: str,
        states: list[str],
        is_finite: bool,
        temporary: str | None,
    ) -> None:
        self.schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
        self._checkpoint = checkpoint.rstrip("/")
        self._results = f"{self._checkpoint}/eddies/results"
        self._states = states
        self._is_finite = is_finite
        self._temporary = temporary
        self._is_complete = False
        self._is_stopped = False
        kept = frame.mapInArrow(_Keep(self._results), "nothing long")
        writer = kept.writeStream.format("noop").option("checkpointLocation", self._checkpoint)
        try:
            self._query: StreamingQuery = writer.start()
        except AnalysisException as error:
            raise UnsupportedError(
                "an online query puts out rows as it finds them; what needs all of them first (groups, "
                f"ORDER BY, LIMIT, outer joins) can be computed from q.result(). Spark says: {error}"
            ) from error

    # Results

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        epoch = 0
        while True:
            if self._is_committed(epoch):
                yield from self._results_of(epoch)
                if self._ends_with(epoch):
                    self._complete()
                    return
                epoch += 1
            elif self._is_complete or self._is_stopped:
                return
            else:
                self._check()
                time.sleep(_GLANCE_S)

    def result(self) -> pa.Table:
        """The complete answer, when all sources have ended.

        Raises if the query was stopped before, has failed, or reads streams that never end.
        """
        if not self._is_finite:
            raise UnsupportedError(
                "a streaming DataFrame has no end, so there is no complete result: iterate over the "
                "query instead"
            )
        batches = list(self)
        if not self._is_complete:
            raise SourceError("the query was stopped before its sources ended: no complete result")
        return pa.Table.from_batches(batches, schema=self.schema)

    def _results_of(self, epoch: int) -> Iterator[pa.RecordBatch]:
        files, path = open_folder(f"{self._results}/{epoch}")
        found = listed(files, path)
        for info in sorted(found, key=lambda info: str(info.base_name)):
            if info.base_name.endswith(".arrow"):
                with files.open_input_file(info.path) as source:
                    reader = pa.ipc.open_file(source)
                    for number in range(reader.num_record_batches):
                        yield reader.get_batch(number).cast(self.schema)

    # Where it stands

    @property
    def is_complete(self) -> bool:
        """Whether all sources have ended and the whole answer can be had."""
        return self._is_complete

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

    def _is_committed(self, epoch: int) -> bool:
        files, path = open_folder(f"{self._checkpoint}/commits/{epoch}")
        return bool(files.get_file_info(path).type == fs.FileType.File)

    def _ends_with(self, epoch: int) -> bool:
        offsets = self._offsets(epoch)
        return self._is_finite and all(offset["end"] for offset in offsets.values())

    def _last_offset(self) -> int:
        files, path = open_folder(f"{self._checkpoint}/offsets")
        found = listed(files, path)
        return max((int(i.base_name) for i in found if i.base_name.isdigit()), default=-1)

    def _offsets(self, epoch: int) -> dict[str, Offset]:
        """Where our own streams stood at the end of an epoch: Spark's log has a line a source."""
        if epoch < 0:
            return {}
        files, path = open_folder(f"{self._checkpoint}/offsets/{epoch}")
        with files.open_input_stream(path) as stream:
            lines = stream.read().decode().splitlines()
        found: dict[str, Offset] = {}
        for line in lines:
            with contextlib.suppress(ValueError):
                offset = json.loads(line)
                if isinstance(offset, dict) and "streams" in offset:
                    found |= offset["streams"]
        return found

    def _check(self) -> None:
        """Raise what has stopped the query, if something has."""
        if self._query.isActive:
            return
        error = self._query.exception()
        if error is None:
            self._is_stopped = True
            return
        self._leave()
        raise _own_error(str(error)) from error

    # The end

    def _complete(self) -> None:
        if not self._is_complete:
            self._is_complete = True
            self._leave()

    def stop(self) -> None:
        """Stop reading. What has been found so far can still be iterated, until `close`."""
        self._is_stopped = True
        self._leave()

    def _leave(self) -> None:
        if self._query.isActive:
            self._query.stop()
        dismiss(str(self._query.id))

    def close(self) -> None:
        """Stop, and remove the temporary folder, if there is one, with all results."""
        self.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> OnlineQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_temporary") is not None:
            shutil.rmtree(str(self._temporary), ignore_errors=True)


def _own_error(text: str) -> EddiesError:
    """The error that a task or a source raised, out of the text that Spark makes of it."""
    found = _RAISED.findall(text)
    if not found:
        return SourceError(text)
    kind, message = found[-1]  # the last of a chain of causes is what was raised
    raised: type[EddiesError] = getattr(errors, kind, SourceError)
    return raised(message.strip())
