"""The engines, each as contestants over the same Arrow tables.

A peer is never held back: DuckDB runs on Arrow and on tables of its own, Polars with both of its
engines, all settings at their defaults but the number of threads, and the faster way counts. What
a peer does before it is asked (copying into its own tables, turning text into its own layout) is
not timed. For eddies everything is timed from the Arrow tables on, SteMs and all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Literal

import duckdb
import polars as pl

from eddies.bench.cases import Case, JoinText
from eddies.bench.data import Tables
from eddies.bench.timing import Answer, Contestant
from eddies.core.options import Options
from eddies.hosts import local
from eddies.sql import plan

__all__ = [
    "DUCKDB_THREADS",
    "DUCKDB_WAYS",
    "POLARS_WAYS",
    "duckdb_contestants",
    "duckdb_databases",
    "eddy_contestant",
    "polars_contestants",
]

PolarsEngine = Literal["in-memory", "streaming"]

DUCKDB_THREADS = (1, 2)
DUCKDB_WAYS = ("arrow", "own")  # views on Arrow tables; copies in DuckDB's own layout
POLARS_WAYS: dict[str, PolarsEngine] = {"memory": "in-memory", "streaming": "streaming"}

Databases = dict[str, duckdb.DuckDBPyConnection]


def eddy_contestant(
    name: str, case: Case, tables: Tables, text: JoinText, options: Options
) -> Contestant:
    """Ours: the text is planned here, once; making the eddy and building SteMs is part of a run."""
    planned = plan(text.sql, {name: table.schema for name, table in tables.items()}, aggregate=True)
    assert planned.above is None, f"the eddy alone must answer: {planned.reasons}"
    query = planned.blocks[0].query

    def run() -> Answer:
        result = local.run(query, tables, options, interleave=case.interleave).table()
        return _answer([column[0].as_py() for column in result.columns])

    return Contestant(name, run)


@contextmanager
def duckdb_databases(tables: Tables) -> Iterator[Databases]:
    """An in-memory database for each of `DUCKDB_WAYS`, with all tables under their names."""
    with duckdb.connect() as on_arrow, duckdb.connect() as on_own:
        for name, table in tables.items():
            on_arrow.register(name, table)
            on_own.register("given", table)
            on_own.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            on_own.unregister("given")
        yield {"arrow": on_arrow, "own": on_own}


def duckdb_contestants(databases: Databases, text: JoinText, suffix: str = "") -> list[Contestant]:
    """`text` in every database, with every number of threads: `duckdb1_arrow` and so on."""
    return [
        _duckdb_contestant(f"duckdb{n_threads}_{way}{suffix}", databases[way], text.sql, n_threads)
        for n_threads in DUCKDB_THREADS
        for way in DUCKDB_WAYS
    ]


def _duckdb_contestant(
    name: str, database: duckdb.DuckDBPyConnection, sql: str, n_threads: int
) -> Contestant:
    def prepare() -> None:
        database.execute(f"SET threads = {n_threads}")

    def run() -> Answer:
        row = database.execute(sql).fetchone()
        assert row is not None, "an aggregate without groups has one row"
        return _answer(row)

    return Contestant(name, run, prepare)


def polars_contestants(tables: Tables, text: JoinText, suffix: str = "") -> list[Contestant]:
    """`text` as a chain of lazy joins, on each of Polars' engines, with its default threads."""
    frame_by_table = {name: pl.DataFrame(table) for name, table in tables.items()}

    def scan(alias: str, table: str) -> pl.LazyFrame:
        frame = frame_by_table[table]
        return frame.lazy().rename({column: f"{alias}.{column}" for column in frame.columns})

    joined = scan(text.alias, text.table)
    for join in text.joins:
        joined = joined.join(
            scan(join.alias, join.table),
            left_on=[left for left, _ in join.on],
            right_on=[f"{join.alias}.{right}" for _, right in join.on],
        )
    total = reduce(add, (pl.col(column) for column in text.values))
    asked = joined.select(pl.len().alias("n"), total.sum().alias("s"))
    return [
        _polars_contestant(f"polars_{way}{suffix}", asked, engine)
        for way, engine in POLARS_WAYS.items()
    ]


def _polars_contestant(name: str, asked: pl.LazyFrame, engine: PolarsEngine) -> Contestant:
    def run() -> Answer:
        return _answer(asked.collect(engine=engine).row(0))

    return Contestant(name, run)


def _answer(row: Sequence[int | None]) -> Answer:
    """Count and sum as plain integers; the sum of nothing is NULL in SQL and 0 in Polars."""
    return tuple(int(value or 0) for value in row)
