"""Running an eddy the hard way: rows cut at random, pushes, polls and ends in any legal order."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.query import Query
from tests.support.random_queries import Case

__all__ = ["BATCH_ROWS", "MOST_RESULTS", "Oracle", "drive", "random_options"]

BATCH_ROWS = (1, 2, 7, 1009)
MOST_RESULTS = 1500


class Oracle:
    """DuckDB on one thread, answering about Arrow tables."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")

    def answer(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            return self._connection.sql(sql).to_arrow_table()
        finally:
            for name in tables:
                self._connection.unregister(name)

    def bounded(self, case: Case) -> tuple[Case, pa.Table]:
        """The case cut down until its answer is small, and the answer."""
        while True:
            answer = self.answer(f"{case.sql} LIMIT {MOST_RESULTS + 1}", case.tables)
            if answer.num_rows <= MOST_RESULTS:
                return case, answer
            case = case.halved()


def random_options(rng: random.Random, **given: Any) -> Options:
    """Random routing, random sizes."""
    settings: dict[str, Any] = {
        "policy": "random",
        "batch_rows": rng.choice(BATCH_ROWS),
        "reoptimize_every": rng.choice((1, 5, 65_536)),
        "seed": rng.randrange(1 << 30),
    }
    return Options(**settings | given)


def _cut(table: pa.Table, rng: random.Random) -> list[pa.RecordBatch]:
    """`table` in batches of random sizes, empty ones among them."""
    whole = table.combine_chunks()
    batches = []
    start = 0
    most = rng.choice((1, 3, 20, 1000))
    while start < whole.num_rows:
        n = rng.randint(0, most)
        piece = whole.slice(start, n).to_batches()
        batches += piece or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        start += n
    return batches


def _use_silence(eddy: Eddy, n_times: int) -> list[pa.RecordBatch]:
    """Everything that comes of what was pushed, and then of what waits for silence."""
    found = []
    for _ in range(n_times):
        while (rows := eddy.poll()) is not None:
            found.append(rows)
        if not eddy.use_silence():
            break
    return found


def drive(
    query: Query,
    tables: Mapping[str, pa.Table],
    rng: random.Random,
    options: Options,
    *,
    race: bool = False,
    silence: float = 0.0,
    made: list[Eddy] | None = None,
    **settings: Any,
) -> pa.Table:
    """The answer of an eddy that got its rows in a random interleaving.

    With `race` everything is pushed before anything ends and before anyone polls, so that every
    batch is stored and waits while the others come: only stamps can tell who was first. Now and then,
    with a chance of `silence`, all sources stall, and the eddy uses it. The eddy is added to `made`.
    """
    eddy = Eddy(query, options, **settings)
    if made is not None:
        made.append(eddy)
    waiting = {name: _cut(table, rng) for name, table in tables.items()}
    poll_share = 0.0 if race else rng.choice((0.0, 0.1, 0.4))
    one_by_one = not race and rng.random() < 0.25
    found: list[pa.RecordBatch] = []
    while waiting:
        if rng.random() < poll_share:
            rows = eddy.poll()
            found += [] if rows is None else [rows]
            continue
        if silence and rng.random() < silence:
            found += _use_silence(eddy, rng.randint(1, 20))
        full = [name for name, pieces in waiting.items() if pieces] if race else []
        name = next(iter(waiting)) if one_by_one else rng.choice(full or list(waiting))
        if waiting[name]:
            eddy.push(name, waiting[name].pop(0))
        else:
            eddy.end(name)
            del waiting[name]
    while (rows := eddy.poll()) is not None:
        found.append(rows)
    assert eddy.is_done
    assert eddy.n_in_flight == 0
    if not eddy.output.schema.names:
        return pa.Table.from_batches(found) if found else pa.table({})
    return pa.Table.from_batches(found, schema=eddy.output.schema)
