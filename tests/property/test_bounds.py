"""Rows outside of what ended relations say about keys have no partners: they can be left out."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from eddies.core.eddy import Eddy
from eddies.core.evaluate import keep
from eddies.core.expr import Column
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.sources import read
from eddies.spark.reading import Reading
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, random_options
from tests.support.random_queries import SHAPES, make_case
from tests.support.small import batches, drained, make_query


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_outside_have_no_partners(shape: str) -> None:
    oracle = Oracle()
    n_left_out = 0
    for seed in range(20):
        case, expected = oracle.bounded(make_case(seed, shape, functions=False))
        rng = random.Random(f"bounds {seed}")
        stem = rng.choice(("hash", "hash", "list", "sort"))
        eddy = Eddy(case.query, random_options(rng, policy="auto", state="stems", stem=stem))
        names = [relation.name for relation in make_graph(case.query).relations]
        rng.shuffle(names)
        found = []
        for name in names:
            table = case.tables[name].combine_chunks()
            wanted = np.ones(table.num_rows, dtype=np.bool_)
            for predicate in eddy.bounds(name):

                def column(wanted: Column, table: pa.Table = table) -> pa.Array:
                    return table.column(wanted.name).combine_chunks()

                kept = keep(predicate, column, table.num_rows, {})
                wanted &= True if kept is None else kept
            n_left_out += int(np.count_nonzero(~wanted))
            for batch in batches(table.filter(pa.array(wanted)), rng.choice((1, 7, 100))):
                eddy.push(name, batch)
            eddy.end(name)
            found.append(drained(eddy))
        found.append(drained(eddy))
        assert_same_bag(pa.concat_tables(found), expected, case)
    if shape not in ("cross", "band"):
        assert n_left_out > 10


def test_row_groups_outside_are_not_read(tmp_path: Path) -> None:
    """Sales lie by day; the days are named by the week, in another row of the same calendar."""
    days = pa.table({"day": range(100), "week": [d // 7 for d in range(100)], "name": ["d"] * 100})
    sales = pa.table({"day": np.repeat(np.arange(100), 50), "n": np.arange(5000)})
    parquet.write_table(sales, tmp_path / "sales.parquet", row_group_size=500)
    source = read.parquet(str(tmp_path / "sales.parquet"))
    roles = {"s": "sales", "d": "days", "e": "days"}
    tables = {"sales": sales, "days": days}
    query = make_query(tables, ["s.day = d.day", "d.week = e.week"], roles, ["s.n", "e.day"])
    eddy = Eddy(query, Options())
    for batch in batches(days.slice(20, 3)):
        eddy.push("days", batch)
    eddy.end("days")
    bounds = eddy.bounds("sales")
    splits = tuple(source.splits())
    for row_share in (1, 2, 3):
        reading = Reading("sales", ("day", "n"), (), splits, row_share, ())
        parts = [list(reading.batches((part,), bounds=bounds)) for part in range(row_share)]
        days_read = [day for part in parts for b in part for day in b["day"].to_pylist()]
        assert sorted(days_read) == sorted(np.repeat(np.arange(20, 30), 50).tolist())


def test_keys_that_python_has_no_dates_for() -> None:
    days = pa.array([-800_000_000, 5, 9], pa.int32()).cast(pa.date32())
    table = pa.table({"d": days})
    eddy = Eddy(make_query({"a": table, "b": table}, ["a.d = b.d"]), Options())
    eddy.push("a", batches(table)[0])
    eddy.end("a")
    assert len(eddy.bounds("b")) == 1, "the upper one"
