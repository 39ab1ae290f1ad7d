"""`eddies.read`: tables that lie in files, to be joined without loading them first.

    lineitem = eddies.read.parquet("data/lineitem")             # folder, file, pattern, list, URI
    eddies.sql("SELECT ... FROM lineitem, ...", {"lineitem": lineitem, ...})

Each function lists the files and reads what describes them, no rows; mistakes in the path or in the
files are reported there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.arrow_files import ArrowSource
from eddies.sources.csv_files import CsvFormat, CsvSource
from eddies.sources.inline import InlineSource
from eddies.sources.json_files import JsonSource
from eddies.sources.parquet import ParquetSource
from eddies.sources.paths import NoFileSystem, Paths, find_files, shown
from eddies.sources.reachable import AccessSource
from eddies.sources.source import Source, is_source
from eddies.sources.through_spark import SparkFiles

if TYPE_CHECKING:
    from eddies.sources.streams.simulated import SimulatedSource

__all__ = ["arrow", "csv", "http", "json", "lookup", "parquet", "path", "postgres", "simulated"]


def lookup(
    schema: pa.Schema,
    on: Sequence[str],
    lookup: Callable[[pa.RecordBatch], object],
    **settings: Any,
) -> AccessSource:
    """A source without a scan: its rows are looked up by the columns `on`, and nothing else.

    For `settings` see `Reachable.index`.
    """
    return AccessSource("look-ups", schema, ()).index(on, lookup, **settings)


def parquet(path: Paths, *, schema: pa.Schema | None = None) -> Source:
    """Parquet files as one table: a file, a folder (partitioned or not), a pattern, a list, a URI.

    Files must agree on columns and types. With `schema`, columns that a file lacks are NULL, others are
    ignored, and narrower types are widened. See `eddies.sources.parquet`.
    """
    files = find_files(path)
    if isinstance(files, NoFileSystem):
        return SparkFiles("parquet", files, {}, schema)
    return ParquetSource(files, schema)


def csv(
    path: Paths,
    *,
    schema: pa.Schema | None = None,
    header: bool = True,
    delimiter: str = ",",
    quote: str = '"',
    null: str = "",
    multiline: bool = False,
) -> Source:
    """CSV files as one table. Types are inferred from a sample unless `schema` gives them.

    `null` is a text without quotes that means NULL, as nothing at all does. With `multiline`, values in
    quotes may contain line breaks; a file is then read by one task. For the rules, see
    `eddies.sources.csv_files`.
    """
    format_ = CsvFormat(header, delimiter, quote, null, multiline)
    files = find_files(path)
    if isinstance(files, NoFileSystem):
        options = format_.spark_options() | ({"inferSchema": "true"} if schema is None else {})
        return SparkFiles("csv", files, options, schema)
    return CsvSource(files, format_, schema)


def json(path: Paths, *, schema: pa.Schema | None = None) -> Source:
    """Files of JSON objects, one a line, as one table. See `eddies.sources.json_files`."""
    files = find_files(path)
    if isinstance(files, NoFileSystem):
        return SparkFiles("json", files, {}, schema)
    return JsonSource(files, schema)


def arrow(path: Paths | pa.Table | pa.RecordBatch) -> Source:
    """Arrow IPC files (file or stream format) as one table; or an Arrow table as a source."""
    if isinstance(path, pa.RecordBatch):
        path = pa.Table.from_batches([path])
    if isinstance(path, pa.Table):
        return InlineSource(path)
    files = find_files(path)
    if isinstance(files, NoFileSystem):
        raise SourceError(f"{shown(files.given)}: {files.reason}, and Spark reads no Arrow files")
    return ArrowSource(files)


def postgres(
    dsn: str,
    table: str,
    *,
    page_rows: int = 50_000,
    keys_per_lookup: int = 200,
    concurrency: int = 4,
    timeout_s: float = 30.0,
    retries: int = 8,
    backoff_s: float = 0.1,
) -> Source:
    """A table of PostgreSQL: a scan by pages of `page_rows`, and an index for every indexed column.

    `dsn` is a connection URI. Needs the extra `eddies[postgres]`. See `eddies.sources.postgres`.
    """
    from eddies.sources.postgres import PostgresSource

    return PostgresSource(
        dsn,
        table,
        page_rows=page_rows,
        keys_per_lookup=keys_per_lookup,
        concurrency=concurrency,
        timeout_s=timeout_s,
        retries=retries,
        backoff_s=backoff_s,
    )


def http(
    url: str | None = None,
    *,
    schema: pa.Schema | None = None,
    rows: str | None = None,
    next: str | None = None,
    page: str | None = None,
    first_page: int = 1,
    lookup: str | None = None,
    on: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    concurrency: int = 8,
    timeout_s: float = 30.0,
    retries: int = 5,
    backoff_s: float = 0.1,
) -> AccessSource:
    """JSON over HTTP: pages from `url`, look-ups by the URL template `lookup`, or both.

    `rows` names the field with a page's rows; `next` the field with the address of the next page, or
    a token for the parameter `page`; `page` alone counts pages from `first_page` until one is empty.
    Without `schema`, the columns are those of the first page. See `eddies.sources.http`.
    """
    from eddies.sources.http import http_source

    return http_source(
        url,
        schema=schema,
        rows=rows,
        next=next,
        page=page,
        first_page=first_page,
        lookup=lookup,
        on=on,
        headers=headers or {},
        concurrency=concurrency,
        timeout_s=timeout_s,
        retries=retries,
        backoff_s=backoff_s,
    )


def simulated(
    source: Source | pa.Table | Paths,
    *,
    rows_per_s: float | None = None,
    delay_s: float = 0.0,
    burst_rows: int | None = None,
    pause_s: float | None = None,
    pause_shape: float = 1.5,
    stall_after: int | None = None,
    stall_s: float | None = None,
    fail_after: int | None = None,
    fail_times: int | None = None,
    seed: int = 0,
) -> SimulatedSource:
    """A table or source whose rows come on a schedule when a query reads it as a stream.

    Rows come at `rows_per_s` after `delay_s`; with `burst_rows`, a pause follows each burst, drawn from
    a Pareto distribution with mean `pause_s` and shape `pause_shape`. After `stall_after` rows nothing
    comes for `stall_s` (None: for ever). After `fail_after` rows the source fails, `fail_times` times
    (None: for ever). See `eddies.sources.streams.simulated`.
    """
    from eddies.sources.streams.schedule import Schedule
    from eddies.sources.streams.simulated import SimulatedSource

    table: Any = source  # a table, a source, or a path
    if isinstance(table, pa.Table | pa.RecordBatch):
        table = arrow(table)
    elif not is_source(table):
        table = path(table)
    schedule = Schedule(
        rows_per_s=rows_per_s,
        delay_s=delay_s,
        burst_rows=burst_rows,
        pause_s=pause_s,
        pause_shape=pause_shape,
        stall_after=stall_after,
        stall_s=stall_s,
        fail_after=fail_after,
        fail_times=fail_times,
        seed=seed,
    )
    return SimulatedSource(table, schedule)


def path(text: Paths) -> Source:
    """Whatever lies at a path; the format is that of its suffix, or of the files in a folder."""
    files = find_files(text)
    names = list(files.given) if isinstance(files, NoFileSystem) else [f.path for f in files.found]
    for suffixes, read in _READ_BY_SUFFIX:
        if all(name.lower().removesuffix(".gz").endswith(suffixes) for name in names):
            return read(text)
    known = ", ".join(suffix for suffixes, _ in _READ_BY_SUFFIX for suffix in suffixes)
    raise SourceError(
        f"{shown(files.given)}: cannot tell the format by the names of its files, which should end in "
        f"one of {known}; say it by eddies.read.parquet, csv, json or arrow"
    )


_READ_BY_SUFFIX: list[tuple[tuple[str, ...], Callable[[Paths], Source]]] = [
    ((".parquet", ".pq"), parquet),
    ((".csv",), csv),
    ((".json", ".jsonl", ".ndjson"), json),
    ((".arrow", ".feather", ".arrows", ".ipc"), arrow),
]
