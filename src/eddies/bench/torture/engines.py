"""One engine in this process: files to tables or views, then text to answer.

Every engine has two threads. Whoever can be told how much memory there is, is told, and may write to
disk what does not fit; the rest of the limit is for what its accounting leaves out. All read the
Parquet files when the query runs, except DuckDB's own tables, which are filled before, and our
cache, which the first of the timed runs fills. Everything else is as it is by default.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from eddies.bench.storage import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ENGINES", "OURS", "open_engine"]

N_THREADS = 2
# Of the 8 GB that a process tree may have.
ENGINE_MEMORY_GB = 6
# Our rows are in the Python workers, not in the JVM.
OUR_JVM_MEMORY_GB = 2
# In each of two workers, or three.
OUR_CACHE = "1.5GB"

Ask = Callable[[str], pa.Table]


def open_engine(engine: str, files: Files) -> Ask:
    """Make the tables known to `engine`; the function that comes back answers texts about them."""
    return ENGINES[engine](files)


def _us(files: Files, cache: str | None = None) -> Ask:
    import eddies

    options = eddies.Options(cache=cache)
    spark = _session(OUR_JVM_MEMORY_GB)
    tables = {name: str(path) for name, path in files.items()}
    ask = cast("Callable[..., DataFrame]", eddies.sql)
    return lambda text: ask(text, tables, spark=spark, options=options).toArrow()


def _spark(files: Files) -> Ask:
    spark = _session(ENGINE_MEMORY_GB)
    for name, path in files.items():
        spark.read.parquet(str(path)).createOrReplaceTempView(name)
    return lambda text: spark.sql(text).toArrow()


def _session(memory_gb: int) -> SparkSession:
    import eddies

    return eddies.session(
        **{
            "spark.master": f"local[{N_THREADS}]",
            "spark.driver.memory": f"{memory_gb}g",
            "spark.sql.shuffle.partitions": 2 * N_THREADS,
        }
    )


def _duckdb_views(files: Files) -> Ask:
    return _duckdb(files, "VIEW")


def _duckdb_tables(files: Files) -> Ask:
    return _duckdb(files, "TABLE")


def _duckdb(files: Files, kind: str) -> Ask:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {N_THREADS}")
    connection.execute(f"SET memory_limit = '{ENGINE_MEMORY_GB}GB'")
    connection.execute(f"SET temp_directory = '{tempfile.gettempdir()}'")
    for name, path in files.items():
        connection.execute(f"CREATE OR REPLACE {kind} {name} AS SELECT * FROM '{path}'")
    return lambda text: connection.sql(text).to_arrow_table()


def _polars(files: Files) -> Ask:
    os.environ["POLARS_MAX_THREADS"] = str(N_THREADS)
    import polars as pl

    context = pl.SQLContext({name: pl.scan_parquet(path) for name, path in files.items()})
    return lambda text: context.execute(text).collect(engine="streaming").to_arrow()


def _datafusion(files: Files) -> Ask:
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

    memory_bytes = ENGINE_MEMORY_GB * 10**9
    runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_bytes)
    context = SessionContext(SessionConfig().with_target_partitions(N_THREADS), runtime)
    for name, path in files.items():
        context.register_parquet(name, str(path))
    return lambda text: context.sql(text).to_arrow_table()


ENGINES: dict[str, Callable[[Files], Ask]] = {
    "us": _us,
    "us_cached": partial(_us, cache=OUR_CACHE),
    "spark": _spark,
    "duckdb_views": _duckdb_views,
    "duckdb_tables": _duckdb_tables,
    "polars": _polars,
    "datafusion": _datafusion,
}
OURS = {"us": "us", "us_cached": "us, cached"}
"""Which of them are eddies: keeping nothing from query to query, and with `Options(cache=...)`."""
