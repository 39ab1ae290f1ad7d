"""Rows that Spark moves in slots, instead of blobs: the same bags, of all types, in any cells."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import eddies
from eddies.sources.inline import delivered_table, frame_of
from eddies.spark.block import BlockPlan
from eddies.spark.query import plan_query
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.random_queries import make_case

N = 400
ROWS = pa.table(
    {
        "k": pa.array([i % 37 if i % 7 else None for i in range(N)], pa.int64()),
        "w": pa.array([i % 11 for i in range(N)], pa.int16()),
        "t": [f"a text of some length {i % 23}" if i % 5 else None for i in range(N)],
        "day": pa.array([date(2020, 1, 1 + i % 28) for i in range(N)]),
        "at": pa.array([datetime(2020, 1, 1, i % 24) for i in range(N)], pa.timestamp("us")),
        "utc": pa.array(
            [datetime(2020, 1, 1, i % 24) for i in range(N)], pa.timestamp("us", "UTC")
        ),
        "price": pa.array([Decimal(i % 19) / 4 for i in range(N)], pa.decimal128(12, 2)),
        "long": pa.array([Decimal(i % 19) for i in range(N)], pa.decimal128(30, 0)),
        "x": [i / 8 if i % 3 else None for i in range(N)],
        "f": pa.array([i / 4 for i in range(N)], pa.float32()),
        "yes": [i % 2 == 0 for i in range(N)],
        "raw": [bytes([i % 256]) for i in range(N)],
        "id": list(range(N)),
    }
)
OTHERS = pa.table(
    {
        "k": pa.array([*range(0, 37, 2), None], pa.int32()),
        "w": pa.array([i % 11 for i in range(20)], pa.int64()),
        "t": [f"a text of some length {i}" for i in range(19)] + [None],
        "name": [f"n{i}" for i in range(20)],
        "price": pa.array([Decimal(i) / 4 for i in range(20)], pa.decimal128(12, 2)),
        "other price": pa.array([Decimal(i) / 4 for i in range(20)], pa.decimal128(14, 3)),
        "x": [i / 8 for i in range(20)],
        "day": pa.array([date(2020, 1, 1 + i) for i in range(20)]),
    }
)
TABLES = {"r": ROWS, "o": OTHERS}
CONDITIONS = {
    "numbers of two widths": "r.k = o.k",
    "small numbers": "r.w = o.w",
    "texts": "r.t = o.t",
    "two classes": "r.k = o.k AND r.t = o.t",
    "decimals": "r.price = o.price",
    "days": "r.day = o.day",
    "decimals of two scales": "r.price = o.`other price`",
    "floats": "r.x = o.x",
}
HASHED_BY_US = {"floats"}
COLUMNS = "r.id, r.day, r.at, r.utc, r.price, r.long, r.x, r.f, r.yes, r.raw, r.t, o.name, o.x AS y"


def fed(text: str, given: dict[str, object], spark: SparkSession, cells: int | None) -> set[str]:
    """How the cells are fed."""
    planned = plan_query(text, given, spark=spark, options=eddies.Options(cells=cells))
    return {"slots" if b.slots is not None else "others" for b in planned.blocks}


@pytest.mark.parametrize("cells", [2, 6])
@pytest.mark.parametrize("name", list(CONDITIONS))
def test_every_type(spark: SparkSession, name: str, cells: int) -> None:
    text = f"SELECT {COLUMNS} FROM r, o WHERE {CONDITIONS[name]}"
    given = {n: frame_of(delivered_table(t), spark).repartition(3) for n, t in TABLES.items()}
    options = eddies.Options(cells=cells)
    found = eddies.sql(text, given, spark=spark, options=options).toArrow()
    assert_same_bag(found, Oracle().answer(text, TABLES), (name, cells))
    by_us = name in HASHED_BY_US
    assert fed(text, given, spark, cells) == {"others" if by_us else "slots"}


@pytest.mark.parametrize("seed", range(985_000, 985_008))
def test_slots_and_blobs_bring_the_same(
    spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, expected = Oracle().bounded(make_case(seed, functions=False))
    given = {n: frame_of(delivered_table(t), spark) for n, t in case.tables.items()}
    options = eddies.Options(cells=random.Random(seed).choice((None, 1, 2, 3)), seed=seed)
    for how in ("slots", "blobs"):
        if how == "blobs":
            monkeypatch.setattr(BlockPlan, "slots", None)
        found = eddies.sql(case.sql, given, spark=spark, options=options).toArrow()
        assert_same_bag(found, expected, (seed, how, case))


def test_beside_files_that_cells_hash(spark: SparkSession) -> None:
    """Both must agree on the cell of a key, so rows are packed by our own hash."""
    text = "SELECT r.id, o.name, p.name AS other FROM r, o, p WHERE r.k = o.k AND r.k = p.k"
    tables = {**TABLES, "p": OTHERS}
    given: dict[str, object] = {"r": frame_of(ROWS, spark), "o": OTHERS}
    given["p"] = frame_of(delivered_table(OTHERS), spark)
    for cells in (2, 4):
        found = eddies.sql(text, given, spark=spark, options=eddies.Options(cells=cells)).toArrow()
        assert_same_bag(found, Oracle().answer(text, tables))


def test_nested_columns_are_packed(spark: SparkSession) -> None:
    lists = pa.table({"k": list(range(20)), "values": [[i, i + 1] for i in range(20)]})
    text = "SELECT r.id, l.values[1] AS v FROM r, l WHERE r.k = l.k"
    given = {"r": frame_of(ROWS, spark), "l": spark.createDataFrame(lists)}
    assert fed(text, given, spark, 2) == {"others"}
    found = eddies.sql(text, given, spark=spark, options=eddies.Options(cells=2)).toArrow()
    assert found.num_rows == sum(k is not None and k < 20 for k in ROWS["k"].to_pylist())


@pytest.mark.parametrize("how", ["slots", "blobs"])
@pytest.mark.parametrize("o_is", ["frame", "table"])
def test_names_with_dots_and_backticks(
    spark: SparkSession, how: str, o_is: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "blobs":
        monkeypatch.setattr(BlockPlan, "slots", None)
    rows = ROWS.select(["k", "t", "id"]).rename_columns(["a.key", "a `text`", "a.id"])
    others = OTHERS.select(["k", "name"]).rename_columns(["its.key", "its.name"])
    text = (
        "SELECT r.`a.id`, r.`a ``text```, o.`its.name` AS name FROM r, o "
        "WHERE r.`a.key` = o.`its.key` AND o.`its.name` <> 'n3'"
    )
    plain = "SELECT r.id, r.t, o.name FROM r, o WHERE r.k = o.k AND o.name <> 'n3'"
    given: dict[str, object] = {"r": frame_of(rows, spark)}
    given["o"] = frame_of(others, spark) if o_is == "frame" else others
    found = eddies.sql(text, given, spark=spark).toArrow()
    assert found.column_names == ["a.id", "a `text`", "name"]
    expected = Oracle().answer(plain, TABLES).rename_columns(found.column_names)
    assert_same_bag(found, expected)
