"""A query with windows, for minutes: its keepers' memory, and its answer beside DuckDB's.

Three sources have a time in every row, by which they are in order. Rows join within a window of a few
seconds; whatever is older can be forgotten. The resident memory of the query's keepers is summed once a
second. DuckDB recomputes the answer from all rows, with the windows written out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

import eddies
from eddies.bench.streaming.epochs import Epoch, epochs_of
from eddies.bench.streaming.generated import GeneratedSource
from eddies.core.options import Options
from eddies.streaming.place import places_of

__all__ = ["WindowRun", "difference_to_duckdb", "run_windows"]

SOURCES = ("a", "b", "c")
ROWS_PER_S = 5_000  # of each source, also by the times in its rows
WINDOW_S = 10
N_KEYS = 25_000  # so that a row finds about two partners in a window
BLOCK_S = 60  # keys change with the minute, so that a join without windows stays small, too
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("moment", pa.timestamp("us"))])
QUERY = "SELECT a.id AS a, b.id AS b, c.id AS c FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
IN_WINDOW = " AND ".join(
    f"{name}.moment > greatest(a.moment, b.moment, c.moment) - INTERVAL {WINDOW_S} SECOND"
    for name in SOURCES
)


def timed_rows(name: str, first: int, stop: int) -> pa.RecordBatch:
    """Rows `first` to `stop` of a source."""
    numbers = np.arange(first, stop, dtype=np.int64)
    mixed = (numbers * len(SOURCES) + SOURCES.index(name)).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    keys = (mixed >> np.uint64(33)).astype(np.int64) % N_KEYS
    keys += numbers // (ROWS_PER_S * BLOCK_S) * N_KEYS
    micros = numbers * (1_000_000 // ROWS_PER_S)
    return pa.record_batch(
        [pa.array(numbers), pa.array(keys), pa.array(micros).cast(pa.timestamp("us"))], SCHEMA
    )


@dataclass(frozen=True, slots=True)
class WindowRun:
    """`memory` has seconds since the begin, and bytes of all keepers."""

    epochs: tuple[Epoch, ...]
    memory: tuple[tuple[float, int], ...]
    n_rows: int
    n_stored: int
    wrong: str | None

    def memory_bytes(self, from_s: float, to_s: float) -> float:
        """The mean in an interval."""
        return float(np.mean([n_bytes for at_s, n_bytes in self.memory if from_s <= at_s < to_s]))


def run_windows(
    spark: SparkSession, seconds: float, on_look: Callable[[str], None] = lambda text: None
) -> WindowRun:
    """Run the query over rows of `seconds`."""
    n_rows = int(seconds * ROWS_PER_S)
    sources = {
        name: eddies.read.simulated(
            GeneratedSource(name, n_rows, timed_rows), rows_per_s=ROWS_PER_S
        )
        for name in SOURCES
    }
    options = Options(window=dict.fromkeys(SOURCES, ("moment", f"{WINDOW_S} seconds")))
    batches: list[pa.RecordBatch] = []
    with eddies.online(QUERY, dict(sources), spark=spark, options=options) as query:
        (running,) = spark.streams.active
        with _Memory(str(running.id)) as memory:
            for batch in query:
                batches.append(batch)
                used = memory.samples[-1][1] / 2**20 if memory.samples else 0
                on_look(f"{sum(b.num_rows for b in batches):,} results, keepers {used:.0f} MiB")
        found = pa.Table.from_batches(batches, query.schema)
        progress = query.progress()
        n_stored = sum(source.n_stored for source in progress.sources)
        epochs = epochs_of(running)
    return WindowRun(
        epochs, tuple(memory.samples), found.num_rows, n_stored, difference_to_duckdb(found, n_rows)
    )


class _Memory:
    """Looks at the keepers of a query once a second, in a thread."""

    def __init__(self, query_id: str) -> None:
        self._query_id = query_id
        self._began_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.samples: list[tuple[float, int]] = []

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(1.0):
            n_bytes = keeper_bytes(self._query_id)
            if n_bytes:
                self.samples.append((time.monotonic() - self._began_s, n_bytes))


def keeper_bytes(query_id: str) -> int:
    """Resident memory of the keepers of a query on this host."""
    paths = {place.path for place in places_of(query_id)}
    n_bytes = 0
    for process in psutil.process_iter(["cmdline", "memory_info"]):
        if paths.intersection(process.info["cmdline"] or ()):
            n_bytes += process.info["memory_info"].rss
    return n_bytes


def difference_to_duckdb(found: pa.Table, n_rows: int) -> str | None:
    """How the answer differs from DuckDB's."""
    with duckdb.connect() as connection:
        for name in SOURCES:
            connection.register(name, pa.Table.from_batches([timed_rows(name, 0, n_rows)]))
        connection.register("found", found)
        connection.execute(f"CREATE TABLE expected AS {QUERY} AND {IN_WINDOW}")
        n_found, n_expected, n_missing, n_extra = (
            connection.execute(f"SELECT count(*) FROM {what}").fetchall()[0][0]
            for what in (
                "found",
                "expected",
                "(FROM expected EXCEPT ALL FROM found)",
                "(FROM found EXCEPT ALL FROM expected)",
            )
        )
    if n_missing or n_extra:
        return (
            f"{n_found} rows instead of {n_expected}: {n_missing} are missing, {n_extra} should not "
            "be there"
        )
    return None
