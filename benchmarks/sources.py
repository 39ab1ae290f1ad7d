"""How fast splits of Parquet files are read, by two processes as two tasks would.

    python benchmarks/sources.py FOLDER [--tpch FOLDER_WITH_LINEITEM]

Files are made in FOLDER if they are not there. Each figure is the best of three, files in the page
cache, in million rows a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import eddies
from eddies.core.expr import Call, Column, Expr, Literal
from eddies.sources import Split
from eddies.sources.footers import forget_footers

N_ROWS = 20_000_000
N_FILES = 1000
_REPEAT = 3


def make_numbers(folder: Path, compression: str) -> Path:
    """Three columns of int64: two that repeat among a million values, one that does not repeat."""
    path = folder / f"numbers-{compression}"
    if not path.exists():
        path.mkdir(parents=True)
        rng = np.random.default_rng(1)
        for number in range(2):
            n_rows = N_ROWS // 2
            columns = {
                "a": rng.integers(0, 1_000_000, n_rows),
                "b": rng.integers(0, 1_000_000, n_rows),
                "c": rng.integers(0, 2**40, n_rows),
            }
            parquet.write_table(
                pa.table(columns), path / f"{number}.parquet", compression=compression
            )
    return path


def make_many(folder: Path) -> Path:
    path = folder / "many"
    if not path.exists():
        path.mkdir(parents=True)
        rows = pa.table({f"c{i}": np.arange(100) for i in range(10)})
        for number in range(N_FILES):
            parquet.write_table(rows, path / f"{number}.parquet")
    return path


def read(task: tuple[Sequence[Split], Sequence[str], tuple[Expr, ...], dict[str, bool]]) -> int:
    splits, columns, where, settings = task
    return sum(
        batch.num_rows for split in splits for batch in split.read(columns, where, **settings)
    )


def measure(
    pool: Pool,
    label: str,
    path: Path,
    columns: Sequence[str],
    where: tuple[Expr, ...] = (),
    **settings: bool,
) -> None:
    source = eddies.read.parquet(path)
    assert source.n_rows is not None
    splits = source.splits(where)
    tasks = [(splits[part::2], columns, where, settings) for part in range(2)]
    best = float("inf")
    for _ in range(_REPEAT):
        started = time.perf_counter()
        pool.map(read, tasks, chunksize=1)
        best = min(best, time.perf_counter() - started)
    print(f"{label:58} {source.n_rows / 1e6 / best:7.1f}")


def measure_footers(path: Path) -> None:
    for label in ("first time", "again"):
        if label == "first time":
            forget_footers()
        started = time.perf_counter()
        source = eddies.read.parquet(path)
        n_splits = len(source.splits())
        print(
            f"{n_splits} files, source and splits, {label:29} {time.perf_counter() - started:7.3f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tpch", type=Path)
    arguments = parser.parse_args()
    paths = {name: make_numbers(arguments.folder, name) for name in ("snappy", "none", "zstd")}
    many = make_many(arguments.folder)
    below = Call("lt", (Column("t", "a"), Literal(50_000, pa.int64())))
    with get_context("fork").Pool(2) as pool:
        for name, path in paths.items():
            measure(pool, f"3 x int64, {name}", path, ["a", "b", "c"])
        measure(pool, "3 x int64, snappy, 5 % of rows pass", paths["snappy"], ["b", "c"], (below,))
        if arguments.tpch:
            measure_tpch(pool, arguments.tpch / "lineitem.parquet")
    measure_footers(many)


def measure_tpch(pool: Pool, path: Path) -> None:
    measure(pool, "lineitem: 3 keys", path, ["l_orderkey", "l_partkey", "l_suppkey"])
    money = ["l_extendedprice", "l_discount"]
    measure(pool, "lineitem: 2 x decimal(15,2)", path, money)
    words = ["l_returnflag", "l_linestatus", "l_shipmode"]
    measure(pool, "lineitem: 3 short texts, as strings", path, words)
    measure(pool, "lineitem: 3 short texts, as dictionaries", path, words, dictionaries=True)
    measure(pool, "lineitem: comment", path, ["l_comment"])
    modes = [Literal(mode, pa.string()) for mode in ("MAIL", "SHIP")]
    shipped = Call("in_list", (Column("t", "l_shipmode"), *modes))
    measure(pool, "lineitem: shipmode in 2 of 7, then money", path, money, (shipped,))


if __name__ == "__main__":
    main()
