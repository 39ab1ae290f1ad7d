"""`eddies bench spill`: a four-way join of inputs far larger than memory, beside DuckDB.

A fact table and three dimension tables, each of them larger than the memory allowed, as Parquet files
(5 GB at scale 1). Every engine runs in a process of its own, under the same limit, on the same files,
and reads all columns. Measured are the time and the peak of resident memory above that of the loaded
process. All must give the same answer. Ours runs alone and on Spark, there in one cell, so that its
memory is the same, and what counts is the worker with the eddy. If DuckDB cannot answer within the
limit, it gets twice as much, and then twice as much again.

    python -m eddies.bench.spill ENGINE FOLDER MEMORY THREADS      one run, as JSON
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
from pyarrow import parquet

from eddies.bench.memory import _peak_bytes
from eddies.bench.storage import default_data_folder, files_in, made_once
from eddies.core.options import Options, parse_bytes
from eddies.core.state_modes.spilling import SpillingStems

__all__ = ["CONSTANT_BYTES", "main", "make_tables"]

N_DIMENSION_ROWS, N_FACT_ROWS = 23_000_000, 60_000_000
ROW_GROUP_ROWS = 1 << 17
CONSTANT_BYTES = 160 << 20  # batches of four Parquet readers, allocator, kernels' scratch
SLACK = 1.25
LEAST_OF_DUCKDB = 0.5
OURS = ("eddies", "spark")  # by itself, and on Spark
MORE_FOR_DUCKDB = (1, 2, 4)  # times the memory, until it can answer at all
TEXT = """
SELECT count(*) AS n, sum(f.id) AS id, sum(f.v) AS v, sum(f.u) AS u,
       sum(da.x) AS ax, sum(da.y) AS ay, sum(da.z) AS az,
       sum(db.x) AS bx, sum(db.y) AS by_, sum(db.z) AS bz,
       sum(dc.x) AS cx, sum(dc.y) AS cy, sum(dc.z) AS cz
FROM f, da, db, dc
WHERE f.a = da.k AND f.b = db.k AND f.c = dc.k
"""
Columns = dict[str, npt.NDArray[np.int64]]


def make_tables(folder: Path, scale: float) -> None:
    """Write the four tables; all numbers are random and cannot be compressed away."""
    rng = np.random.default_rng(7)
    n_dimension, n_fact = int(N_DIMENSION_ROWS * scale), int(N_FACT_ROWS * scale)
    for name in ("da", "db", "dc"):
        keys = rng.permutation(n_dimension).astype(np.int64)
        _write(folder / f"{name}.parquet", n_dimension, partial(_dimension, keys, rng))
    spans = {"a": n_dimension, "b": int(1.25 * n_dimension), "c": 2 * n_dimension}
    _write(folder / "f.parquet", n_fact, lambda i, n: _fact(i, n, spans, rng))


def _dimension(
    keys: npt.NDArray[np.int64], rng: np.random.Generator, first: int, n: int
) -> Columns:
    values = {name: rng.integers(0, 1 << 31, n) for name in "xyz"}
    return {"k": keys[first : first + n]} | values


def _fact(first: int, n: int, spans: dict[str, int], rng: np.random.Generator) -> Columns:
    keys = {name: rng.integers(0, span, n) for name, span in spans.items()}
    values = {name: rng.integers(0, 1 << 31, n) for name in "vu"}
    return {"id": np.arange(first, first + n)} | keys | values


def _write(path: Path, n_rows: int, make: Callable[[int, int], Columns]) -> None:
    writer = None
    for first in range(0, n_rows, ROW_GROUP_ROWS):
        table = pa.table(make(first, min(ROW_GROUP_ROWS, n_rows - first)))
        if writer is None:
            settings = {"compression": "none", "use_dictionary": False}
            writer = parquet.ParquetWriter(path, table.schema, **settings)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def main(
    *, scale: float, memory: str, threads: int, data_folder: Path | None, json_path: Path | None
) -> int:
    """Run all engines and show figures and claims. The exit code is about answers: 0 if all of ours are
    there, and all are equal.
    """
    folder = (data_folder or default_data_folder()) / f"spill-{scale:g}"
    files = made_once(folder, lambda into: make_tables(into, scale))
    n_input = sum(path.stat().st_size for path in files.values())
    _print(f"input {n_input / 2**30:.2f} GB, memory {memory}, {threads} threads")
    budget = parse_bytes(memory)
    found = {}
    for engine in OURS:
        found[engine] = _in_child(engine, folder, memory, threads)
        _print(f"{engine:8} {json.dumps(found[engine])}")
    for more in MORE_FOR_DUCKDB:
        found["duckdb"] = _in_child("duckdb", folder, f"{more * budget >> 20}MiB", threads)
        found["duckdb"]["memory"] = more * budget
        _print(f"duckdb   {json.dumps(found['duckdb'])}")
        if found["duckdb"]["error"] is None:
            break
    duckdb = found["duckdb"]
    most = SLACK * budget + CONSTANT_BYTES
    claims = []
    for engine in OURS:
        us = found[engine]
        if us["error"] is not None:
            continue
        claims.append((f"{engine}: peak memory / promise", us["peak_bytes"] / most, 1.0, False))
        if duckdb["error"] is None:
            speed = duckdb["seconds"] / us["seconds"]
            what = f"{engine}: throughput / DuckDB with {duckdb['memory'] >> 20} MB"
            claims.append((what, speed, LEAST_OF_DUCKDB, True))
    for what, value, bound, at_least in claims:
        is_held = value >= bound if at_least else value <= bound
        sign = ">=" if at_least else "<="
        _print(f"{what}: {value:.3f} ({sign} {bound}) {'held' if is_held else 'NOT HELD'}")
    if json_path is not None:
        json_path.write_text(json.dumps({"input_bytes": n_input, "found": found}, indent=1))
    answers = [report["answer"] for report in found.values() if report["error"] is None]
    are_all_there = all(found[engine]["error"] is None for engine in OURS)
    are_equal = all(answer == answers[0] for answer in answers)
    _print(
        f"answers {'agree' if are_equal else 'DIFFER'}{'' if are_all_there else ', SOME FAILED'}"
    )
    return 0 if are_all_there and are_equal else 1


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# What a child reports is JSON, whose values have many types.
def _in_child(engine: str, folder: Path, memory: str, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "eddies.bench.spill", engine, str(folder), memory]
    done = subprocess.run([*command, str(threads)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-300:], "seconds": None, "peak_bytes": None, "answer": None}
    report: dict[str, Any] = json.loads(done.stdout)
    return report


class _RowGroups:
    """A Parquet file, one row group after the other; how many rows there are is known. A thread reads
    the next while one is joined.
    """

    def __init__(self, path: Path, reader: ThreadPoolExecutor) -> None:
        self._file = parquet.ParquetFile(path, pre_buffer=False)
        self.schema: pa.Schema = self._file.schema_arrow
        self.n_rows: int | None = self._file.metadata.num_rows
        self._next = 0
        self._reader = reader
        self._ahead: Future[pa.RecordBatch] | None = None

    def due_ns(self) -> int | None:
        return 0 if self._next < self._file.num_row_groups else None

    def take(self) -> pa.RecordBatch:
        batch = self._read(self._next) if self._ahead is None else self._ahead.result()
        self._next += 1
        self._ahead = None
        if self._next < self._file.num_row_groups:
            self._ahead = self._reader.submit(self._read, self._next)
        return batch

    def _read(self, row_group: int) -> pa.RecordBatch:
        table = self._file.read_row_group(row_group, use_threads=False)
        return table.combine_chunks().to_batches()[0]


def _run_eddies(folder: Path, memory: str, threads: int) -> tuple[dict[str, int], dict[str, int]]:
    from eddies.hosts import local
    from eddies.sql import plan

    with (
        tempfile.TemporaryDirectory(prefix="eddies-bench-spill-") as spill_dir,
        ThreadPoolExecutor(1, "parquet") as reader,
    ):
        tables = {name: _RowGroups(path, reader) for name, path in files_in(folder).items()}
        schemas = {name: reader.schema for name, reader in tables.items()}
        query = plan(TEXT, schemas, (), aggregate=True).blocks[0].query
        options = Options(memory=memory, threads=threads, spill_dir=spill_dir)
        run = local.run(query, tables, options)
        answer = run.table().to_pylist()[0]
        assert isinstance(run.eddy.mode, SpillingStems)
        directory = run.eddy.mode.directory
        written = {"written_bytes": directory.n_written, "read_bytes": directory.n_read}
    return answer, written


def _run_spark(folder: Path, memory: str, threads: int) -> tuple[dict[str, int], dict[str, int]]:
    import eddies

    spark = eddies.session(**{"spark.master": f"local[{threads}]"})
    paths = {name: str(path) for name, path in files_in(folder).items()}
    with tempfile.TemporaryDirectory(prefix="eddies-bench-spill-") as spill_dir:
        options = Options(memory=memory, spill_dir=spill_dir, cells=1)
        with _WorkerPeak() as peak:
            answer = eddies.sql(TEXT, paths, spark=spark, options=options).toArrow().to_pylist()[0]
    return answer, {"worker_bytes": peak.n_bytes}


class _WorkerPeak:
    """The largest resident memory of any Python process below this one, looked at all the time."""

    def __enter__(self) -> Self:
        self.n_bytes = 0
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                    if "python" in process.name():
                        self.n_bytes = max(self.n_bytes, process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watcher.join()


def _run_duckdb(folder: Path, memory: str, threads: int) -> tuple[dict[str, int], dict[str, int]]:
    import duckdb

    with tempfile.TemporaryDirectory(prefix="eddies-bench-spill-") as spill_dir:
        connection = duckdb.connect(config={"threads": threads, "memory_limit": memory})
        connection.execute(f"SET temp_directory = '{spill_dir}'")
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET preserve_insertion_order = false")  # it needs less memory then
        for name, path in files_in(folder).items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        relation = connection.execute(TEXT)
        row = relation.fetchall()[0]
        names = [column[0] for column in relation.description]
    return {name: int(value) for name, value in zip(names, row, strict=True)}, {}


def _child(engine: str, folder: Path, memory: str, threads: int) -> None:
    run = {"eddies": _run_eddies, "spark": _run_spark, "duckdb": _run_duckdb}[engine]
    with tempfile.TemporaryDirectory() as small:
        make_tables(Path(small), 0.0005)
        _, before = run(Path(small), "64MB", threads)
    loaded: int = before.get("worker_bytes") or psutil.Process().memory_info().rss
    started = time.perf_counter()
    answer, more = run(folder, memory, threads)
    seconds = time.perf_counter() - started
    report: dict[str, Any] = {
        "error": None,
        "seconds": seconds,
        "loaded_bytes": loaded,
        "peak_bytes": (more.get("worker_bytes") or _peak_bytes()) - loaded,
        "answer": {name: int(value) for name, value in answer.items()},
    }
    sys.stdout.write(json.dumps(report | more))


if __name__ == "__main__":
    _child(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
