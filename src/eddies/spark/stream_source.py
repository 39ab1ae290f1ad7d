"""All streams of a query as one Spark stream of Arrow blobs, packed for the cells.

Spark plans an epoch in one Python process (`_Planner`): it asks how far every stream can be read, and
writes the offsets of all of them into the checkpoint before anything is read. Tasks then read the parts
between two offsets and pack them (`eddies.spark.exchange`). One data source serves all streams of a
query, so an epoch costs one round of planning and at most `n_partitions` tasks, however many streams
there are.

A row is `(cell, relation, payload)`. The payload is an Arrow IPC stream, except in two kinds of rows
that every cell gets one of, and whose payload is empty:

* `(cell, relation, b"")`: the relation has ended. The epoch in which its stream reaches its end carries
  it, and no other.
* `(cell, -1, b"")`: a tick. With `tick_s`, an epoch runs when no stream had anything new for so long
  and not all have ended, so that cells can work on what they have.

Because offsets say everything, an epoch that is run again carries the same rows, ends and ticks. When
all streams have ended, nothing is new any more and Spark runs no further epoch.

A stream that stalls has nothing new; the others go on. A stream that fails for good stops the query,
which can be resumed from its checkpoint. With `trigger(availableNow=True)` the query runs to the end of
all streams and stops by itself.

What is sent where: the streams travel once, to the process that plans, and the packing to tasks. So a
table in memory is not copied to every task; parts carry the rows of their epoch only. The class that
is registered with Spark carries both, under a name of its own, and is kept until the session ends.
This module imports nothing of the engine: Spark starts two processes for every query that only look at
the class.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from eddies.errors import EddiesError, PlanError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eddies.sources.streams.base import Offset, Part, Stream
    from eddies.spark.exchange import Pack

__all__ = ["DEFAULT_ROWS_PER_EPOCH", "Feed", "TICK", "data_source", "rows_frame", "stream_frame"]

DEFAULT_ROWS_PER_EPOCH = 400_000
TICK = -1  # the relation number of ticks
_ROWS_WORTH_A_TASK = 32_768
_EVERYTHING = 1 << 62
_POLL_S = 0.01  # as often as Spark asks a source that has nothing new
_PACKED = "cell int, relation int, payload binary"
_PACKED_SCHEMA = pa.schema(
    [("cell", pa.int32()), ("relation", pa.int32()), ("payload", pa.binary())]
)


@dataclass(frozen=True, slots=True)
class Feed:
    """A relation that streams: `columns` of `stream`, packed for `n_cells` cells by `pack`.

    `mirrors` are the numbers under which rows of its second mirror and the following are packed; none:
    all under `relation`.
    """

    relation: int
    name: str
    stream: Stream
    columns: tuple[str, ...]
    pack: Pack
    n_cells: int
    mirrors: tuple[int, ...] = ()

    @property
    def is_mirrored(self) -> bool:
        """Whether rows may come twice, so that the eddy must drop what it has seen."""
        return self.stream.is_mirrored

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies a row; empty: all its columns do."""
        return self.stream.key


def rows_frame(
    spark: SparkSession, name: str, stream: Stream, rows_per_epoch: int | None = None
) -> DataFrame:
    """A streaming DataFrame of the rows of one stream, for what Spark computes from it alone."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from eddies.spark.exchange import Pack

    pack = Pack(0, (), None, (0,))
    feed = Feed(0, name, stream, tuple(stream.schema.names), pack, 1)
    most = rows_per_epoch or DEFAULT_ROWS_PER_EPOCH
    packed = stream_frame(spark, [feed], rows_per_epoch=most)
    rows = packed.mapInArrow(_unpacked, from_arrow_schema(stream.schema))
    if not stream.is_mirrored:
        return rows
    if not stream.key:  # rows that are there twice cannot be told from those delivered again
        raise PlanError(
            f"{name!r} has mirrors and is read by Spark alone here; declare the key of its rows with "
            "keyed(...), so that what the next mirror delivers again can be dropped"
        )
    return rows.dropDuplicates(list(stream.key))


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column("payload"):
            if payload.as_buffer().size:
                yield from pa.ipc.open_stream(payload.as_buffer())


def stream_frame(
    spark: SparkSession,
    feeds: Sequence[Feed],
    *,
    rows_per_epoch: int = DEFAULT_ROWS_PER_EPOCH,
    tick_s: float | None = None,
    n_partitions: int = 2,
) -> DataFrame:
    """A streaming DataFrame of packed rows: `cell int, relation int, payload binary`.

    An epoch reads at most `rows_per_epoch` rows, shared evenly by the streams that have not ended.
    """
    source = data_source(
        feeds,
        rows_per_epoch=rows_per_epoch,
        tick_s=tick_s,
        n_partitions=n_partitions,
        is_near=not type(spark).__module__.startswith("pyspark.sql.connect"),
    )
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()


def data_source(
    feeds: Sequence[Feed],
    *,
    rows_per_epoch: int = DEFAULT_ROWS_PER_EPOCH,
    tick_s: float | None = None,
    n_partitions: int = 2,
    is_near: bool = False,
) -> type[DataSource]:
    """What `stream_frame` registers with Spark: a class that carries the feeds.

    `is_near`: the process that plans runs on this machine, as it does unless Spark is a server.
    """
    from eddies.sources.streams.sending import sent

    _check(feeds, rows_per_epoch, tick_s, n_partitions)
    plan = _Plan(
        {feed.name: feed.stream.narrowed(feed.columns) for feed in feeds},
        max(feed.n_cells for feed in feeds),
        rows_per_epoch,
        tick_s,
        n_partitions,
    )
    packing = {
        feed.name: _Packing(
            feed.name, feed.columns, feed.pack, (feed.relation, *feed.mirrors), feed.n_cells
        )
        for feed in feeds
    }
    return type(
        f"eddies_streams_{uuid.uuid4().hex}",
        (_PackedStreams,),
        {"plan": sent(plan, is_near=is_near), "packing": sent(packing)},
    )


def _check(
    feeds: Sequence[Feed], rows_per_epoch: int, tick_s: float | None, n_partitions: int
) -> None:
    names = [feed.name for feed in feeds]
    if not names or len(set(names)) < len(names):
        raise PlanError(f"a stream needs feeds, each with a name of its own; given: {names}")
    if rows_per_epoch < 1 or n_partitions < 1:
        raise PlanError(
            f"rows_per_epoch and n_partitions must be at least 1, not {rows_per_epoch} and "
            f"{n_partitions}"
        )
    if tick_s is not None and not tick_s > 0:
        raise PlanError(f"tick_s must be above 0, not {tick_s}")
    for feed in feeds:
        lacking = [name for name in feed.columns if name not in feed.stream.schema.names]
        if lacking:
            raise PlanError(f"source {feed.name!r} has no column {', '.join(map(repr, lacking))}")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the process that plans must know."""

    streams: dict[str, Stream]
    n_cells: int
    rows_per_epoch: int
    tick_s: float | None
    n_partitions: int


@dataclass(frozen=True, slots=True)
class _Packing:
    """What a task must know of one feed."""

    name: str
    columns: tuple[str, ...]
    pack: Pack
    relations: tuple[int, ...]  # the first of them, or the only one, tells the end
    n_cells: int

    def rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of a part, packed. Read as a whole first, so that it can be read again."""
        from eddies.sources.streams.patient import STREAM_PATIENCE

        pack = self.pack
        if len(self.relations) > 1:
            pack = replace(pack, relation=self.relations[getattr(part, "mirror", 0)])
        if part.is_patient:
            yield from pack(part.read(self.columns))
            return
        batches = STREAM_PATIENCE.call(
            self.name, lambda: list(part.read(self.columns)), lambda error: True
        )
        yield from pack(iter(batches))


class _PackedStreams(DataSource):
    """The data source. Subclasses, one a query, carry what there is to read."""

    plan: ClassVar[bytes]
    packing: ClassVar[bytes]
    _has_reader = False

    def schema(self) -> str:
        """See `eddies.spark.exchange.PACKED`."""
        return _PACKED

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """The reader, which takes over what this carries."""
        self._has_reader = True
        return _Planner(self.plan, self.packing)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark sends the source along with the reader to every task, which has no use for it.
        if self._has_reader:
            return _EmptySource, ({},)
        return type(self), (self.options,)


class _EmptySource(DataSource):
    """What tasks get in the source's place."""


@dataclass
class _Work(InputPartition):
    """What one task reads: parts by name of their feed, and relations of which it tells the end."""

    parts: list[tuple[str, Part]]
    ends: list[str]
    tick_cells: int = 0


class _TaskReader(DataSourceStreamReader):
    """The reader as tasks get it."""

    def __init__(self, packing: bytes) -> None:
        self._packing = packing

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packed rows of one partition."""
        assert isinstance(partition, _Work)
        packing: dict[str, _Packing] = pickle.loads(self._packing)
        for name, part in partition.parts:
            try:
                yield from packing[name].rows(part)
            except EddiesError as error:
                raise _stopped(name, error) from error
        for name in partition.ends:
            yield _marks(packing[name].n_cells, packing[name].relations[0])
        if partition.tick_cells:
            yield _marks(partition.tick_cells, TICK)


class _Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader as the process has it that plans epochs. Tasks get a `_TaskReader` of it."""

    def __init__(self, plan: bytes, packing: bytes) -> None:
        self._pickled_plan = plan
        self._packing = packing
        self._plan: _Plan | None = None
        self._runs_to_end = False
        self._news_s = time.monotonic()

    def __reduce__(self) -> tuple[Any, ...]:
        return _TaskReader, (self._packing,)

    def _planned(self) -> _Plan:
        if self._plan is None:
            plan: _Plan = pickle.loads(self._pickled_plan)
            self._plan = plan
            self._pickled_plan = b""
            return plan
        return self._plan

    def initialOffset(self) -> Offset:
        """Before the first row of every stream."""
        streams = self._planned().streams
        return {"streams": {name: stream.start() for name, stream in streams.items()}, "tick": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """What an epoch reads at most."""
        return ReadMaxRows(self._planned().rows_per_epoch)

    def prepareForTriggerAvailableNow(self) -> None:
        """From here on, `latestOffset` waits until something is new or all is at its end."""
        self._runs_to_end = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far all streams can be read now; `start` if there is nothing new."""
        most_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else _EVERYTHING
        while True:
            found = self._look(start, most_rows)
            if found != start or not self._runs_to_end or self._all_ended(start):
                return found
            time.sleep(_POLL_S)

    def _look(self, start: Offset, most_rows: int) -> Offset:
        plan = self._planned()
        offsets: dict[str, Offset] = dict(start["streams"])
        self._check_names(offsets)
        reading = {
            name: stream
            for name, stream in plan.streams.items()
            if not stream.is_end(offsets[name])
        }
        if not reading:
            return start
        share = max(1, most_rows // len(reading))
        for name, stream in reading.items():
            try:
                offsets[name] = stream.latest(offsets[name], share)
            except EddiesError as error:
                raise _stopped(name, error) from error
        tick = start["tick"]
        now_s = time.monotonic()
        if offsets != start["streams"]:
            self._news_s = now_s
        elif plan.tick_s is not None and now_s - self._news_s >= plan.tick_s:
            self._news_s = now_s
            tick += 1
        return {"streams": offsets, "tick": tick}

    def _all_ended(self, offset: Offset) -> bool:
        streams = self._planned().streams
        return all(stream.is_end(offset["streams"][name]) for name, stream in streams.items())

    def _check_names(self, offsets: dict[str, Offset]) -> None:
        names = self._planned().streams.keys()
        if offsets.keys() != names:
            raise SourceError(
                f"the query's checkpoint was written for the sources {', '.join(sorted(offsets))}, "
                f"but it now reads {', '.join(sorted(names))}: start it with a new checkpoint"
            )

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The parts between two offsets, dealt out to few tasks of about the same size."""
        plan = self._planned()
        self._check_names(end["streams"])
        parts: list[tuple[str, Part]] = []
        ends: list[str] = []
        for name, stream in plan.streams.items():
            first, last = start["streams"][name], end["streams"][name]
            if first == last:
                continue
            try:
                parts += [(name, part) for part in stream.parts(first, last)]
            except EddiesError as error:
                raise _stopped(name, error) from error
            if stream.is_end(last) and not stream.is_end(first):
                ends.append(name)
        tick_cells = plan.n_cells if end["tick"] != start["tick"] else 0
        return _dealt_out(parts, ends, tick_cells, plan.n_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As tasks read."""
        return _TaskReader(self._packing).read(partition)

    def commit(self, end: Offset) -> None:
        """Nothing to do: streams forget by themselves what lies behind them."""

    def stop(self) -> None:
        """Let go of the streams, and of their connections."""
        self._plan = None


def _dealt_out(
    parts: list[tuple[str, Part]], ends: list[str], tick_cells: int, n_partitions: int
) -> list[InputPartition]:
    n_rows = sum(part.n_rows for _, part in parts)
    n_works = max(1, min(n_partitions, len(parts), 1 + n_rows // _ROWS_WORTH_A_TASK))
    works = [_Work([], []) for _ in range(n_works)]
    loads = [0] * n_works
    for name, part in sorted(parts, key=lambda named: -named[1].n_rows):
        lightest = loads.index(min(loads))
        works[lightest].parts.append((name, part))
        loads[lightest] += part.n_rows
    works[0].ends = ends
    works[0].tick_cells = tick_cells
    return list(works)


def _marks(n_cells: int, relation: int) -> pa.RecordBatch:
    """One row with an empty payload for every cell."""
    columns = [
        pa.array(range(n_cells), pa.int32()),
        pa.array([relation] * n_cells, pa.int32()),
        pa.array([b""] * n_cells, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PACKED_SCHEMA)


def _stopped(name: str, error: EddiesError) -> SourceError:
    return SourceError(
        f"source {name!r}: {error}. When the source is well again, start the query with the same "
        "checkpoint: it resumes where it stopped"
    )
