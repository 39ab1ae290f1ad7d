"""Equalities one side of which reads several sources, `a.x = b.y + c.z`: found by bounds."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.sql import plan
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, drive, random_options

TYPES = {
    "int": (pa.int64(), lambda n: n),
    "narrow": (pa.int32(), lambda n: n),
    "decimal": (pa.decimal128(9, 2), lambda n: Decimal(n) / 4),
    "float": (pa.float64(), lambda n: [0.0, -0.0, float("nan"), float("inf"), 1.5][n % 5]),
}
EQUALITIES = (
    "a.x = b.y + c.z",
    "b.y + c.z = a.x",
    "a.x + 1 = b.y - c.z",
    "a.x - b.y = c.z",
    "a.x = b.y * c.z AND b.y < c.z",
    "a.x = b.y + c.z AND a.k = b.k",
)


def random_table(rng: random.Random, value: str, kind: str) -> pa.Table:
    type_, make = TYPES[kind]
    n_rows = rng.choice((0, 3, 12, 16, 20, 20))
    values = [None if rng.random() < 0.1 else make(rng.randint(-6, 6)) for _ in range(n_rows)]
    keys = [None if rng.random() < 0.1 else rng.randint(0, 3) for _ in range(n_rows)]
    return pa.table({value: pa.array(values, type_), "k": pa.array(keys, pa.int64())})


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("equality", EQUALITIES)
def test_three_sources(equality: str, kind: str) -> None:
    oracle = Oracle()
    n_results = 0
    for seed in range(6):
        rng = random.Random(f"{equality} {kind} {seed}")
        tables = {t: random_table(rng, v, kind) for t, v in (("a", "x"), ("b", "y"), ("c", "z"))}
        text = f"SELECT a.x, b.y, c.z, a.k FROM a, b, c WHERE {equality}"
        [block] = plan(text, {name: table.schema for name, table in tables.items()}).blocks
        options = random_options(rng, policy=rng.choice(("random", "auto", "rank")), batch_rows=7)
        found = drive(block.query, tables, rng, options)
        expected = oracle.answer(text, tables)
        assert_same_bag(found, expected, (equality, seed))
        n_results += expected.num_rows
    assert n_results > 0


def test_dates() -> None:
    day = datetime.date(2026, 1, 1)
    days = pa.array([day + datetime.timedelta(n) for n in range(20)] + [None])
    tables = {
        "a": pa.table({"d": days}),
        "b": pa.table({"d": days.slice(0, 5)}),
        "c": pa.table({"n": pa.array([0, 3, None, 7], pa.int32())}),
    }
    text = "SELECT a.d, b.d AS other, c.n FROM a, b, c WHERE a.d = date_add(b.d, c.n)"
    [block] = plan(text, {name: table.schema for name, table in tables.items()}).blocks
    rng = random.Random(1)
    found = drive(block.query, tables, rng, random_options(rng))
    expected = Oracle().answer(text.replace("date_add(b.d, c.n)", "b.d + c.n"), tables)
    assert_same_bag(found, expected, "dates")


def test_few_rows_are_looked_at() -> None:
    """b and c meet first, though a came first; a's rows are found, not tried."""
    n_rows, n_small = 20_000, 50
    tables = {
        "a": pa.table({"x": pa.array(range(n_rows), pa.int64())}),
        "b": pa.table({"y": pa.array(range(n_small), pa.int64())}),
        "c": pa.table({"z": pa.array(range(0, 100 * n_small, 100), pa.int64())}),
    }
    text = "SELECT a.x FROM a, b, c WHERE a.x = b.y + c.z"
    [block] = plan(text, {name: table.schema for name, table in tables.items()}).blocks
    eddy = Eddy(block.query, Options())
    for name in ("a", "c", "b"):
        for batch in tables[name].to_batches():
            eddy.push(name, batch)
        eddy.end(name)
    n_found = 0
    while (rows := eddy.poll()) is not None:
        n_found += rows.num_rows
    assert n_found == n_small * n_small
    assert eddy.progress().n_probes < 3 * n_small * n_small
