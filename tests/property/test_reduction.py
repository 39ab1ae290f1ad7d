"""Dead ends removed before the last relation drives: same bag, and no useless multiplication."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core import reduction
from eddies.core.eddy import Eddy
from eddies.core.expr import Column
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Source
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, random_options
from tests.support.random_queries import SHAPES, make_case


@pytest.mark.parametrize("shape", SHAPES)
def test_same_bag(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_MULTIPLIES", 0.0)
    monkeypatch.setattr(reduction, "_WORTH_REMOVING", 0.0)
    oracle = Oracle()
    for seed in range(60_000, 60_020):
        case, expected = oracle.bounded(make_case(seed, shape))
        rng = random.Random(f"reduction {seed}")
        eddy = Eddy(case.query, random_options(rng, state="stems"))
        names = [relation.name for relation in eddy.graph.relations]
        rng.shuffle(names)
        found = []
        for name in names:
            for batch in case.tables[name].to_batches(max_chunksize=20):
                eddy.push(name, batch)
                while (rows := eddy.poll()) is not None:
                    found.append(rows)
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            found.append(rows)
        assert eddy.is_done
        schema = eddy.output.schema
        table = pa.Table.from_batches(found, schema if schema.names else None) if found else None
        if table is None:
            table = pa.Table.from_batches([], schema)
        assert_same_bag(table, expected, f"{case} in the order {names}")


def chain(n: int) -> Query:
    number = pa.int64()
    schema = pa.schema([("a", number), ("b", number)])
    return Query(
        sources=tuple(Source(f"t{i}", f"t{i}", schema) for i in range(n)),
        equalities=tuple(
            Equality(Column(f"t{i}", "b"), Column(f"t{i + 1}", "a"), number) for i in range(n - 1)
        ),
        output=(Output("first", Column("t0", "a"), number),),
    )


@pytest.mark.parametrize("state", ["auto", "stems"])
@pytest.mark.parametrize("last", [0, 3])
@pytest.mark.parametrize("n_rows", [2000, 20_000])  # as many as are sampled at most, and more
def test_a_far_dead_end_costs_no_multiplication(n_rows: int, last: int, state: str) -> None:
    rng = np.random.default_rng(1)
    n_keys = n_rows // 20
    tables = {
        f"t{i}": pa.table(
            {"a": rng.integers(0, n_keys, n_rows), "b": rng.integers(0, n_keys, n_rows)}
        )
        for i in range(6)
    }
    far = "t5" if last == 0 else "t0"
    column = "a" if last == 0 else "b"
    moved = pa.array(tables[far][column].to_numpy() + n_keys)
    position = tables[far].schema.get_field_index(column)
    tables[far] = tables[far].set_column(position, column, moved)
    eddy = Eddy(chain(6), Options(state=state))  # type: ignore[arg-type]
    for name in sorted(tables, key=lambda name: name == f"t{last}"):
        for batch in tables[name].to_batches():
            eddy.push(name, batch)
        while eddy.poll() is not None:
            pass
        eddy.end(name)
    assert eddy.poll() is None
    assert eddy.is_done
    assert eddy.progress().n_probes < 10 * n_rows


@pytest.mark.parametrize("state", ["auto", "stems"])
def test_dead_ends_that_few_rows_meet_are_removed_where_many_rows_come(state: str) -> None:
    """Four matches in t1 for each row of t0, of which a fifth leads on to t2: no multiplication to
    speak of, but t0 has a hundred times more rows than there are dead ends to find.
    """
    rng = np.random.default_rng(1)
    n_rows, n_driver = 2000, 200_000
    tables = {
        "t1": pa.table({"a": np.arange(n_rows) // 4, "b": np.arange(n_rows)}),
        "t2": pa.table({"a": np.arange(0, n_rows, 5), "b": np.arange(0, n_rows, 5)}),
        "t0": pa.table({"a": np.arange(n_driver), "b": rng.integers(0, n_rows // 4, n_driver)}),
    }
    eddy = Eddy(chain(3), Options(state=state), expected_rows={"t0": n_driver})  # type: ignore[arg-type]
    n_results = 0
    for name in ("t2", "t1", "t0"):
        eddy.push(name, tables[name].to_batches()[0])
        eddy.end(name)
    while (rows := eddy.poll()) is not None:
        n_results += rows.num_rows
    led_on = np.bincount(tables["t1"]["a"].to_numpy()[::5], minlength=n_rows // 4)
    assert n_results == led_on[tables["t0"]["b"].to_numpy()].sum()
    assert eddy.progress().n_probes < 1.1 * (n_driver + n_results + n_rows)
