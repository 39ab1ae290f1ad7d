"""Probes of a SteM that enumerate ranges: paused ones, and probe rows without a bound."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.expr import Call
from eddies.core.kernels.ranges import expand_ranges
from eddies.core.modules import stem
from eddies.core.options import Options
from eddies.core.query import Filter
from tests.support.bag import assert_same_bag
from tests.support.duckdb_sql import query_sql
from tests.support.small import answer, batches, col, make_query

INT = pa.int64()


@pytest.mark.parametrize("seed", [2, 3])
def test_a_paused_band_probe_sees_its_rows_while_the_index_takes_in_newer_ones(seed: int) -> None:
    """Both roles of t share one sorted index; the probe of one catches it up under the other's."""
    rng = random.Random(seed)
    tables = {
        "b": pa.table({"x": pa.array([rng.randrange(40) for _ in range(60)], INT)}),
        "t": pa.table({"x": pa.array([rng.randrange(50) for _ in range(120)], INT)}),
    }
    query = make_query(
        tables,
        roles={"b": "b", "t1": "t", "t2": "t"},
        filters=(
            Filter(Call("lt", (col("b.x"), col("t1.x")))),
            Filter(Call("lt", (col("b.x"), col("t2.x")))),
        ),
    )
    eddy = Eddy(query, Options(batch_rows=8, seed=seed))
    found = []
    pieces = [("t", p) for p in batches(tables["t"], 7)] + [
        ("b", p) for p in batches(tables["b"], 5)
    ]
    rng.shuffle(pieces)
    n_paused = 0
    for name, piece in pieces:
        eddy.push(name, piece)
        for _ in range(2):
            if (rows := eddy.poll()) is not None:
                found.append(rows)
        n_paused += eddy.n_in_flight > 0
    for name in tables:
        eddy.end(name)
    while (rows := eddy.poll()) is not None:
        found.append(rows)
    assert n_paused, "some probe must be under way when rows are pushed"
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(query_sql(query)).to_arrow_table()
    assert_same_bag(pa.Table.from_batches(found), expected)


def test_a_probe_row_with_a_null_bound_meets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pairs are not even enumerated: the filter would drop them all, after much work."""
    n_pairs = 0

    def counted(*arguments: Any) -> int:
        nonlocal n_pairs
        found = expand_ranges(*arguments)
        n_pairs += found
        return found

    monkeypatch.setattr(stem, "expand_ranges", counted)
    numbers = pa.table({"x": pa.array([-3, -1, 0, 2, 5], INT)})
    probes = pa.table({"y": pa.array([None] * 50 + [0], INT), "z": pa.array([9] * 51, INT)})
    tables = {"a": numbers, "b": probes}
    query = make_query(
        tables,
        filters=(
            Filter(Call("ge", (col("a.x"), col("b.y")))),
            Filter(Call("le", (col("a.x"), col("b.z")))),
        ),
        output=["a.x"],
    )
    assert_same_bag(answer(query, tables), pa.table({"a_x": [0, 2, 5]}))
    assert n_pairs == 3
