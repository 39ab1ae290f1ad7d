"""`eddies bench spark --huge`: four joins of a large fact table from Parquet, its time and memory.

    python -m eddies.bench.spark.huge DATA_FOLDER ROWS

The fact table has 10 M rows, then 100 M, its four dimensions a hundredth of that each; half of the
keys of every dimension are found. Each size runs in a process of its own, and the resident memory of
that process and all that it started (JVM, Python workers) is summed ten times a second. DuckDB gives
the same answer, outside of the measurement.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from eddies.bench.answers import difference, plain_rows
from eddies.bench.claims import Claim, verdicts, wide_console
from eddies.bench.storage import ROW_GROUP_ROWS, Files, default_data_folder, made_once, write_table
from eddies.bench.torture.child import run_and_report
from eddies.bench.torture.engines import open_engine
from eddies.bench.torture.watchdog import Limits, Outcome, end_with_parent, run_within

__all__ = ["main"]

SIZES = (10_000_000, 100_000_000)
WARM_UP_ROWS = 100_000
N_JOINS = 4
ROWS_PER_DIMENSION_ROW = 100
SEED = 0
KEY_STRIDE = 1_000_003
MEMORY_GIB_AT_MOST = 8.0
GROWTH_AT_MOST = 11.0
# Wide: what is used is measured, not enforced.
LIMITS = Limits(query_s=900, memory_bytes=20 * 2**30, start_s=300)
GIB = 2**30


def main(
    data_folder: Path | None = None,
    json_path: Path | None = None,
    sizes: tuple[int, int] = SIZES,
    console: Console | None = None,
) -> int:
    """Run both sizes, show time and peak memory, and compare the answers with DuckDB's."""
    console = console or wide_console()
    folder = data_folder or default_data_folder()
    table = Table(title="Fact table joined with four dimensions", title_justify="left")
    for heading in ("rows", "median s", "peak GiB", ""):
        table.add_column(heading, justify="right")
    outcomes: dict[int, Outcome] = {}
    for n_rows in sizes:
        with console.status(f"{n_rows:,} rows: tables") as status:
            files = huge_files(folder, n_rows)
            huge_files(folder, WARM_UP_ROWS)
            status.update(f"{n_rows:,} rows: us")
            command = [sys.executable, "-m", "eddies.bench.spark.huge", str(folder), str(n_rows)]
            outcome = outcomes[n_rows] = run_within(command, LIMITS)
            status.update(f"{n_rows:,} rows: DuckDB")
            wrong = _difference(outcome, files)
        seconds = f"{statistics.median(outcome.seconds):.2f}" if outcome.seconds else ""
        peak = f"{outcome.peak_bytes / GIB:.2f}"
        table.add_row(f"{n_rows:,}", seconds, peak, wrong or "as DuckDB")
    console.print(table)
    small, large = (outcomes[n_rows] for n_rows in sizes)
    if small.status != "finished" or large.status != "finished":
        for outcome in (small, large):
            console.print(f"{outcome.status}: {outcome.message}", markup=False)
        return 1
    growth = statistics.median(large.seconds) / statistics.median(small.seconds)
    peak_gib = large.peak_bytes / GIB
    claims = [
        Claim("huge", "peak memory of all processes, GiB", peak_gib, MEMORY_GIB_AT_MOST),
        Claim("huge", "time of ten times the rows", growth, GROWTH_AT_MOST),
    ]
    console.print(verdicts(claims, is_judged=sizes == SIZES))
    if json_path is not None:
        report = {
            str(n_rows): {
                "us_s": statistics.median(outcome.seconds),
                "peak_bytes": outcome.peak_bytes,
            }
            for n_rows, outcome in outcomes.items()
        }
        json_path.write_text(json.dumps({"huge": report}, indent=2) + "\n")
    return 1 if any(_difference(outcomes[size], huge_files(folder, size)) for size in sizes) else 0


def huge_files(data_folder: Path, n_rows: int) -> Files:
    """The fact table `f` and its dimensions; written piece by piece, never whole in memory."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(SEED)
        n_dimension = max(10, n_rows // ROWS_PER_DIMENSION_ROW)
        for number in range(N_JOINS):
            keys = rng.permutation(2 * n_dimension)[:n_dimension] * np.int64(KEY_STRIDE)
            dimension = pa.table({"k": keys, "v": rng.integers(0, 1000, n_dimension)})
            write_table(dimension, folder / f"d{number}.parquet")
        names = [*(f"k{number}" for number in range(N_JOINS)), "v"]
        schema = pa.schema([(name, pa.int64()) for name in names])
        with parquet.ParquetWriter(folder / "f.parquet", schema) as writer:
            for begin in range(0, n_rows, ROW_GROUP_ROWS):
                n_piece = min(ROW_GROUP_ROWS, n_rows - begin)
                piece = [
                    rng.integers(0, 2 * n_dimension, n_piece) * np.int64(KEY_STRIDE)
                    for _ in range(N_JOINS)
                ]
                piece.append(rng.integers(0, 1000, n_piece))
                writer.write_table(pa.table(piece, schema=schema))

    return made_once(data_folder / f"huge-{n_rows}", make)


def query() -> str:
    """Count and sum over the star."""
    numbers = range(N_JOINS)
    total = " + ".join(f"d{number}.v" for number in numbers)
    sources = ", ".join(f"d{number}" for number in numbers)
    keys = " AND ".join(f"f.k{number} = d{number}.k" for number in numbers)
    return f"SELECT count(*) AS n, sum(f.v + {total}) AS s FROM f, {sources} WHERE {keys}"


def _difference(outcome: Outcome, files: Files) -> str | None:
    if outcome.rows is None:
        return outcome.status
    with duckdb.connect() as connection:
        for name, path in files.items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        expected = plain_rows(connection.sql(query()).to_arrow_table())
    return difference(outcome.rows, expected)


if __name__ == "__main__":
    end_with_parent()
    given_folder, given_rows = Path(sys.argv[1]), int(sys.argv[2])
    open_engine("us", huge_files(given_folder, WARM_UP_ROWS))(query())
    run_and_report(open_engine("us", huge_files(given_folder, given_rows)), query())
