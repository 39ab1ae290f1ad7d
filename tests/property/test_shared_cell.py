"""A task with several threads gives the same rows as anybody else: they share reading and probing."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.query import Query
from eddies.errors import EvaluationError
from eddies.sources import read
from eddies.sources.wanted import wanted_of
from eddies.spark.cells import RelationSize, plan_cells, separate_roles
from eddies.spark.reading import Reading
from eddies.spark.task import EddyTask
from eddies.sql import plan
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.random_queries import make_case

N_CASES = 40
CHUNKS = 3


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_threads_of_a_task_share_its_work(chunk: int, tmp_path: Path) -> None:
    oracle = Oracle()
    n_ahead = 0
    for seed in range(970_000 + chunk * N_CASES, 970_000 + (chunk + 1) * N_CASES):
        case, expected = oracle.bounded(make_case(seed, functions=False))
        rng = random.Random(f"threads {seed}")
        options = Options(
            threads=rng.choice((2, 3)), seed=seed, batch_rows=rng.choice((1, 2, 7, 1009, 262_144))
        )
        task = task_of(case.query, case.tables, options, rng, tmp_path / str(seed))
        n_ahead += any(len(r.splits) > 1 and r.uses_bounds for r in task.readings.values())
        found = list(task(iter([pa.record_batch({"id": [0]})])))
        schema = result_schema(task.query)
        assert_same_bag(pa.Table.from_batches(found, schema), expected, (seed, case.sql))
    assert n_ahead > N_CASES / 2


def test_reading_ends_with_an_error(tmp_path: Path) -> None:
    rows = pa.table({"k": list(range(200)), "v": [2**63 - 1] * 200})
    tables = {"r": rows.slice(100), "s": rows}
    text = "SELECT s.v AS v FROM r, s WHERE r.v + 1 = s.k"
    query = plan(text, {"r": rows.schema, "s": rows.schema}).blocks[0].query
    rng = random.Random(1)
    rng.choice = lambda sizes: sizes[0]  # type: ignore[method-assign,assignment]
    task = task_of(query, tables, Options(threads=2), rng, tmp_path / "tables")
    with pytest.raises(EvaluationError, match="beyond") as caught:
        list(task(iter([pa.record_batch({"id": [0]})])))
    assert caught.value.__traceback__ is not None  # which holds on to all that was under way
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("reader")]
    # How many rows had been read ahead by then differs from run to run.
    assert re.search(r"^rows 0 to \d+ of 'r'$", "\n".join(caught.value.__notes__), re.MULTILINE)


def task_of(
    query: Query, tables: dict[str, pa.Table], options: Options, rng: random.Random, folder: Path
) -> EddyTask:
    """One cell that reads every table from a file of small row groups."""
    folder.mkdir()
    used = {source.table for source in query.sources}
    by_table = {name: RelationSize(tables[name].num_rows, 24, "direct") for name in used}
    separate = separate_roles(query, by_table)
    own = {s.table: old.table for s, old in zip(separate.sources, query.sources, strict=True)}
    sizes = {name: by_table[table] for name, table in own.items()}
    graph = make_graph(separate)
    plan = plan_cells(graph, sizes, 1)
    sources = {}
    for table in used:
        path = folder / f"{table}.parquet"
        parquet.write_table(tables[table], path, row_group_size=rng.choice((1, 3, 10, 1000)))
        sources[table] = read.parquet(str(path))
    readings = {}
    for relation in graph.relations:
        columns, where = wanted_of(graph, relation)
        splits = tuple(sources[own[relation.name]].splits(where))
        readings[relation.name] = Reading(relation.name, columns, where, splits, 1, ())
    return EddyTask(
        "block",
        separate,
        options,
        plan,
        tuple(plan.order(sizes)),
        readings,
        {name: size.rows for name, size in sizes.items()},
        "cells",
        tuple(result_schema(separate).names),
        {relation.name: relation.read for relation in graph.relations},
    )
