"""The engines over Parquet files: eddies and Spark SQL on one embedded Spark, and DuckDB.

Everybody gets the same text and files, and is timed from the text to the whole answer as an Arrow
table in this process. What is known beforehand differs as it does in practice:

* us: paths, nothing else (or, for the exchange path, DataFrames that Spark computes); with `cache`,
  what earlier runs have decoded, which no other engine has;
* Spark SQL: tables in its catalog over the same files, adaptive execution as it is by default;
* Spark SQL with its cost-based optimizer: the same, and statistics of every column that any of the
  texts names, collected before anything is timed;
* DuckDB: views over the files, two threads.

The Spark engines have a session each on the same Spark, so that no setting or name of one is seen by
another. A Spark query that takes longer than the time limit is cancelled.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import cast

import duckdb
import pyarrow as pa
import sqlglot
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

import eddies
from eddies.bench.storage import Files

__all__ = ["ENGINES", "N_CORES", "Arena", "OutOfTimeError", "arena", "to_duckdb"]

N_CORES = 2
# Two tasks for each core at every shuffle; adaptive execution joins those that are small.
SHUFFLE_PARTITIONS = 2 * N_CORES
COST_BASED_SETTINGS = {
    "spark.sql.cbo.enabled": "true",
    "spark.sql.cbo.planStats.enabled": "true",
    "spark.sql.cbo.joinReorder.enabled": "true",
}
ENGINES = {
    "us": "eddies on Spark",
    "spark": "Spark SQL",
    "spark_cbo": "Spark SQL, cost-based, with statistics",
    "duckdb2": "DuckDB, two threads",
}

Ask = Callable[[str], pa.Table]


class OutOfTimeError(Exception):
    """A query was cancelled after the time limit."""


class Arena:
    """All engines, for any number of data sets. `close` ends what was started."""

    def __init__(
        self, folder: Path, limit_s: float, *, exchange: bool = False, cache: str | None = None
    ) -> None:
        self._folder = folder
        self._limit_s = limit_s
        self._exchange = exchange
        self._options = eddies.Options(cache=cache)
        self._duckdb: dict[str, duckdb.DuckDBPyConnection] = {}
        self._databases: set[str] = set()

    @cached_property
    def _spark(self) -> SparkSession:
        """Started when the first engine on Spark is asked for; our own session."""
        return eddies.session(
            **{
                "spark.master": f"local[{N_CORES}]",
                "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
                "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            }
        )

    @cached_property
    def _plain(self) -> SparkSession:
        return self._spark.newSession()

    @cached_property
    def _cost_based(self) -> SparkSession:
        session = self._spark.newSession()
        for name, setting in COST_BASED_SETTINGS.items():
            session.conf.set(name, setting)
        return session

    def ask_by_engine(
        self, data_set: str, files: Files, texts: Sequence[str], engines: Sequence[str]
    ) -> dict[str, Ask]:
        """A function from text to answer for each of `engines`; everything is prepared before."""
        ask_by_engine: dict[str, Ask] = {}
        if "us" in engines:
            ask_by_engine["us"] = partial(self._ask_us, self._our_tables(files))
        if "spark" in engines:
            self._create_tables(self._plain, f"plain_{data_set}", files)
            ask_by_engine["spark"] = partial(self._ask_spark, self._plain, f"plain_{data_set}")
        if "spark_cbo" in engines:
            database = f"analyzed_{data_set}"
            if self._create_tables(self._cost_based, database, files):
                _analyze(self._cost_based, files, texts)
            ask_by_engine["spark_cbo"] = partial(self._ask_spark, self._cost_based, database)
        if "duckdb2" in engines:
            ask_by_engine["duckdb2"] = partial(_ask_duckdb, self._duckdb_on(data_set, files))
        return ask_by_engine

    def close(self) -> None:
        """End DuckDB's connections and Spark."""
        for connection in self._duckdb.values():
            connection.close()
        if "_spark" in self.__dict__:
            self._spark.stop()

    def _our_tables(self, files: Files) -> Mapping[str, object]:
        if self._exchange:
            # Something that Spark computes: plain files of a DataFrame would be read by our tasks.
            frames = {name: self._spark.read.parquet(str(path)) for name, path in files.items()}
            return {name: frame.where("true") for name, frame in frames.items()}
        return {name: str(path) for name, path in files.items()}

    def _ask_us(self, tables: Mapping[str, object], text: str) -> pa.Table:
        with self._limited(self._spark):
            ask = cast("Callable[..., DataFrame]", eddies.sql)
            return ask(text, tables, spark=self._spark, options=self._options).toArrow()

    def _ask_spark(self, session: SparkSession, database: str, text: str) -> pa.Table:
        session.catalog.setCurrentDatabase(database)
        with self._limited(session):
            return session.sql(text).toArrow()

    @contextmanager
    def _limited(self, session: SparkSession) -> Iterator[None]:
        """Cancel whatever runs on this Spark when the time is over."""
        is_over = threading.Event()

        def cancel() -> None:
            is_over.set()
            session.sparkContext.cancelAllJobs()

        timer = threading.Timer(self._limit_s, cancel)
        timer.start()
        try:
            yield
        except Exception as error:
            if is_over.is_set():
                raise OutOfTimeError(f"cancelled after {self._limit_s:.0f} s") from error
            raise
        finally:
            timer.cancel()

    def _create_tables(self, session: SparkSession, database: str, files: Files) -> bool:
        """Whether the database is new; it is the session's current one afterwards."""
        is_new = database not in self._databases
        if is_new:
            self._databases.add(database)
            session.sql(f"CREATE DATABASE {database}")
        session.catalog.setCurrentDatabase(database)
        if is_new:
            for name, path in files.items():
                session.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path.as_uri()}'")
        return is_new

    def _duckdb_on(self, data_set: str, files: Files) -> duckdb.DuckDBPyConnection:
        if data_set not in self._duckdb:
            connection = duckdb.connect()
            connection.execute(f"SET threads = {N_CORES}")
            for name, path in files.items():
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
            self._duckdb[data_set] = connection
        return self._duckdb[data_set]


@contextmanager
def arena(limit_s: float, *, exchange: bool = False, cache: str | None = None) -> Iterator[Arena]:
    """An `Arena` whose embedded Spark, if one was started, is stopped afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="eddies-bench-"))
    made = Arena(folder, limit_s, exchange=exchange, cache=cache)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def to_duckdb(text: str) -> str:
    """The text in DuckDB's dialect."""
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]


def _ask_duckdb(connection: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    try:
        return connection.sql(to_duckdb(text)).to_arrow_table()
    except RuntimeError as error:
        if "interrupted" in str(error):  # what DuckDB makes of an interrupt from the keyboard
            raise KeyboardInterrupt from error
        raise


def _analyze(session: SparkSession, files: Files, texts: Sequence[str]) -> None:
    named = {
        column.name
        for text in texts
        for column in sqlglot.parse_one(text, read="spark").find_all(exp.Column)
    }
    for name, path in files.items():
        columns = [column for column in parquet.read_schema(path).names if column in named]
        if columns:
            listed = ", ".join(columns)
            session.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR COLUMNS {listed}")
