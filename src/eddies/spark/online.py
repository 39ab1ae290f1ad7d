"""`eddies.online`: exact results while the sources still arrive.

    q = eddies.online("SELECT ... FROM a, b, c WHERE ...", {"a": eddies.read.csv(...), ...})
    for batch in q: ...              # Arrow batches, as soon as an epoch has found them
    q.progress()                     # rows of every source, routes, memory
    q.result()                       # waits for the complete answer

Under it runs one Spark streaming query. Every source streams: files, tables and services are read
progressively, streaming DataFrames as Spark delivers them. Results are given out when Spark has
committed their epoch (`eddies.spark.online_run`). When all sources have ended and their last epoch is
committed, the answer is complete.

Several queries over the same sources are started together, and read and store each source once
(`eddies.spark.shared_online`):

    qs = eddies.online({"late": "SELECT ...", "large": "SELECT ..."}, tables)
    qs["late"].result()

Driver and executors must share the folder of the checkpoint; in local mode any will do, and without one
a temporary folder is used.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import overload

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from eddies.core.options import Options
from eddies.core.progress import Progress
from eddies.core.query import UserFunction
from eddies.errors import PlanError, SourceError, UnsupportedError
from eddies.sources import read
from eddies.sources.source import is_source
from eddies.sources.streams.making import stream_of
from eddies.spark.inputs import Input, frame_input, normal_schema
from eddies.spark.online_run import OnlineRun
from eddies.spark.query import plan_inputs, session_of
from eddies.spark.shared_online import plan_shared
from eddies.spark.stream_block import state_folder
from eddies.sql import named_tables

__all__ = ["OnlineQuery", "online"]

_GLANCE_S = 0.01


@overload
def online(
    query: str,
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
) -> OnlineQuery: ...


@overload
def online(
    query: Mapping[str, str],
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
) -> dict[str, OnlineQuery]: ...


def online(
    query: str | Mapping[str, str],
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
) -> OnlineQuery | dict[str, OnlineQuery]:
    """Start `query` over sources that arrive over time.

    `tables` maps names to streaming or batch DataFrames, sources of `eddies.read`, pyarrow tables, or
    paths. With `Options(checkpoint=DIR)`, a query that was stopped or has failed goes on where it was.
    Several queries, by name, share what they read and store.
    """
    spark = spark or session_of(tables)
    options = options or Options()
    folder = None
    if options.checkpoint is None:
        folder = tempfile.mkdtemp(prefix="eddies-online-")
        options = replace(options, checkpoint=folder)
    try:
        if isinstance(query, str):
            return _start(query, tables, spark, options, tuple(functions), folder)
        return _start_all(dict(query), tables, spark, options, tuple(functions), folder)
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _start(
    query: str,
    tables: Mapping[str, object],
    spark: SparkSession,
    options: Options,
    functions: tuple[UserFunction, ...],
    temporary: str | None,
) -> OnlineQuery:
    inputs = _inputs(named_tables(query), tables, options)
    planned = plan_inputs(query, inputs, list(tables), spark, options, functions)
    frame = planned.dataframe()
    states = [state_folder(options, block.name) for block in planned.blocks]
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    is_finite = _are_finite(inputs.values())
    run = OnlineRun(frame, str(options.checkpoint), states, is_finite, temporary)
    return OnlineQuery(run, schema, is_finite)


def _start_all(
    queries: dict[str, str],
    tables: Mapping[str, object],
    spark: SparkSession,
    options: Options,
    functions: tuple[UserFunction, ...],
    temporary: str | None,
) -> dict[str, OnlineQuery]:
    if not queries:
        raise PlanError("no query was given")
    if len(queries) == 1:
        [(name, query)] = queries.items()
        return {name: _start(query, tables, spark, options, functions, temporary)}
    used = {table for query in queries.values() for table in named_tables(query)}
    inputs = _inputs(used, tables, options)
    planned = plan_shared(queries, inputs, list(tables), spark, options, functions)
    run = OnlineRun(
        planned.block.dataframe(spark, options),
        str(options.checkpoint),
        [state_folder(options, planned.block.name)],
        _are_finite(inputs.values()),
        temporary,
        tuple(queries),
    )
    started = {}
    for number, (name, schema) in enumerate(planned.schemas.items()):
        read = planned.tables[name]
        is_finite = _are_finite(inputs[table] for table in read)
        started[name] = OnlineQuery(run, schema, is_finite, number, read)
    return started


def _inputs(
    used: Iterable[str], tables: Mapping[str, object], options: Options
) -> dict[str, Input]:
    used = set(used)
    inputs = {n: _input(n, table, options) for n, table in tables.items() if n.lower() in used}
    if not any(given.is_streaming for given in inputs.values()):
        raise UnsupportedError("every table is a batch DataFrame: use eddies.sql")
    return inputs


def _are_finite(inputs: Iterable[Input]) -> bool:
    """Whether all sources tell when they have ended: streaming DataFrames do not."""
    return all(given.frame is None or not given.is_streaming for given in inputs)


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


class OnlineQuery:
    """A running online query. Iterate over it for results, as often as you like: each iteration gives
    all results from the first, and waits for more until the answer is complete or the query stopped.

    Queries that share a run have one `progress`, that of all. Each is complete when the sources that it
    reads have ended. The run goes on until each of them is complete or was stopped: one that was
    stopped before others is computed on, and what it finds can be iterated.
    """

    def __init__(
        self,
        run: OnlineRun,
        schema: pa.Schema,
        is_finite: bool,
        number: int = 0,
        tables: frozenset[str] | None = None,
    ) -> None:
        self.schema = schema
        self._run = run
        self._is_finite = is_finite
        self._number = number
        self._tables = tables  # that it reads; None: all
        self._is_complete = False
        self._is_stopped = False

    # Results

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        epoch = 0
        while True:
            if self._run.is_committed(epoch):
                for rows in self._run.results(self._number, epoch):
                    yield rows.cast(self.schema)
                if self._is_finite and self._run.ends_with(epoch, self._tables):
                    self._complete(epoch)
                    return
                epoch += 1
            elif self._is_complete or self._is_stopped:
                return
            elif self._run.is_running():
                time.sleep(_GLANCE_S)
            else:
                self.stop()

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

    @property
    def is_complete(self) -> bool:
        """Whether all sources have ended and the whole answer can be had."""
        return self._is_complete

    def progress(self) -> Progress:
        """Rows of every source, routes taken and memory, as of the last epoch, over all cells."""
        return self._run.progress()

    # The end

    def _complete(self, epoch: int) -> None:
        if self._is_complete:
            return
        self._is_complete = True
        if self._run.is_over(epoch):
            self._run.end()  # nobody has to wait for others who share the run
        else:
            self._run.leave(self._number)

    def stop(self) -> None:
        """Stop reading. What has been found so far can still be iterated, until `close`."""
        self._is_stopped = True
        self._run.leave(self._number)

    def close(self) -> None:
        """Stop, and remove the temporary folder, if there is one, with all results. A folder that is
        shared goes when all queries are closed.
        """
        self.stop()
        self._run.close(self._number)

    def __enter__(self) -> OnlineQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
