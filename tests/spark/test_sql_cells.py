"""Plans for Spark mean what the text means: blocks run in cells, the text above them in Spark.

Spark runs the text itself for comparison; names, types and rows of the answers must be the same.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eddies.sql import SqlPlan, plan
from tests.support.bag import assert_same_bag
from tests.support.cells import block_outputs

TPCH = Path(__file__).parents[1] / "oracle" / "tpch"
TPCH_NAMES = sorted(path.stem for path in TPCH.glob("q*.sql"))
SUM_DIGITS = 11  # sums of doubles depend on the order of their terms


def registered(spark: SparkSession, tables: Mapping[str, pa.Table]) -> None:
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)


def check(spark: SparkSession, tables: Mapping[str, pa.Table], text: str, n_cells: int) -> SqlPlan:
    """Compare the text with its plan in `n_cells` cells; the plan, to look at."""

    def answered(text: str, given: Mapping[str, pa.Table]) -> pa.Table:
        registered(spark, given)
        return spark.sql(text).toArrow()

    def schema_of(text: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        return spark.sql(f"SELECT * FROM ({text}) LIMIT 0").toArrow().schema

    schemas = {name: table.schema for name, table in tables.items()}
    planned = plan(text, schemas, host="spark", schema_of=schema_of)
    expected = spark.sql(text).toArrow()
    outputs = block_outputs(planned, tables, n_cells, answered)
    above = planned.above or f"SELECT * FROM {planned.blocks[-1].name}"
    found = answered(above, outputs)
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types
    assert_same_bag(found, expected, planned.above, SUM_DIGITS)
    return planned


@pytest.fixture(scope="module")
def tpch(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, pa.Table]]:
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run(
        [program, "parquet", "-s", "0.01", "--output-dir", folder], check=True, timeout=120
    )
    tables = {}
    for path in folder.glob("*.parquet"):
        frame = spark.read.parquet(str(path))
        frame.createOrReplaceTempView(path.stem)
        tables[path.stem] = frame.toArrow()
    yield tables
    for name in tables:
        spark.catalog.dropTempView(name)


QUICK = ("q08", "q14", "q18")  # CASE in aggregates, a global aggregate, IN with a subquery


@pytest.mark.parametrize(
    ("n_cells", "name"),
    [
        pytest.param(1 + i % 3, name, marks=() if name in QUICK else pytest.mark.slow)
        for i, name in enumerate(TPCH_NAMES)
    ],
)
def test_tpch(spark: SparkSession, tpch: dict[str, pa.Table], name: str, n_cells: int) -> None:
    check(spark, tpch, (TPCH / f"{name}.sql").read_text(), n_cells)


def every_type(n: int) -> pa.Table:
    """Rows of many types with NULLs, of both signs, with ties for the mean of decimals."""
    numbers = [None if i % 7 == 3 else (i * 37) % 101 - 50 for i in range(n)]

    def column(make: type, type_: pa.DataType) -> pa.Array:
        return pa.array([None if i is None else make(i) for i in numbers], type_)

    return pa.table(
        {
            "k": pa.array([i % 5 for i in range(n)], pa.int32()),
            "g": pa.array([None if i % 4 == 3 else i % 3 for i in range(n)], pa.int16()),
            "i8": column(int, pa.int8()),
            "i32": column(int, pa.int32()),
            "i64": column(lambda i: i * 10**15, pa.int64()),
            "f32": column(lambda i: i / 4, pa.float32()),
            "f64": column(lambda i: float("nan") if i > 48 else i / 8, pa.float64()),
            "d5": column(lambda i: Decimal(i) / 100, pa.decimal128(5, 2)),
            "d15": column(lambda i: Decimal(i * 10**12 + 7).scaleb(-2), pa.decimal128(15, 2)),
            "d20": column(lambda i: Decimal(i * 10**17 + 1).scaleb(-9), pa.decimal128(20, 9)),
            "d38": column(lambda i: Decimal(i * 10**34 + 1).scaleb(-18), pa.decimal128(38, 18)),
            "s": column(lambda i: f"text {i % 11}", pa.string()),
            "d": column(lambda i: i * 100, pa.int32()).cast(pa.date32()),
            "t": column(lambda i: i * 10**9, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "b": column(lambda i: i % 2 == 0, pa.bool_()),
        }
    )


AGGREGATES = [
    (
        "SELECT g, count(*), count(s), sum(i8), sum(i32), sum(i64), sum(f32), sum(f64), sum(d5),"
        " sum(d15), sum(d38) FROM a JOIN b ON a.k = b.bk WHERE {condition} GROUP BY g"
    ),
    (
        "SELECT g + 1 AS h, avg(i8), avg(i32), avg(i64), avg(f32), avg(f64), avg(d5), avg(d15),"
        " avg(d20), avg(-d15), avg(d5 * z) AS products FROM a JOIN b ON a.k = b.bk"
        " WHERE {condition} GROUP BY 1"
    ),
    (
        "SELECT b, min(i8), max(i64), min(f32), max(f64), min(d38), max(s), min(s), min(d), max(t),"
        " max(a.b) FROM a JOIN b ON a.k = b.bk WHERE {condition} GROUP BY b"
    ),
    (
        "SELECT count(*) + 1 AS n, count(i8) AS m, sum(d15) / count(*) AS q, avg(d15) - 1 AS r,"
        " min(s) || 'x' AS x, sum(CASE WHEN g = 1 THEN d5 ELSE 0 END) AS c"
        " FROM a JOIN b ON a.k = b.bk WHERE {condition}"
    ),
    (
        "SELECT upper(s) AS u, rank() OVER (ORDER BY sum(i32), upper(s)) AS r, sum(count(*)) OVER ()"
        " AS w FROM a JOIN b ON a.k = b.bk WHERE {condition} GROUP BY upper(s)"
        " HAVING max(d15) > (SELECT avg(d15) FROM a JOIN b ON a.k = b.bk) OR u IS NULL"
        " ORDER BY u"
    ),
    (
        "SELECT g, count(DISTINCT s), sum(DISTINCT d5), max(f64), count(DISTINCT i8, b), avg(DISTINCT"
        " d15) FROM a JOIN b ON a.k = b.bk WHERE {condition} GROUP BY g"
    ),
    "SELECT DISTINCT s, z + 1 AS y FROM a JOIN b ON a.k = b.bk WHERE {condition} ORDER BY s",
    (
        "SELECT q.n, x.m FROM (SELECT g, avg(d15) AS n FROM a JOIN b ON a.k = b.bk GROUP BY g) q"
        " CROSS JOIN (SELECT max(d20) AS m FROM a JOIN b ON a.k = b.bk WHERE {condition}) x"
        " UNION ALL SELECT avg(d5), sum(d38) FROM a JOIN b ON a.k = b.bk WHERE {condition}"
    ),
]


@pytest.fixture(scope="module")
def all_types(spark: SparkSession) -> dict[str, pa.Table]:
    b = pa.table({"bk": pa.array([0, 1, 2, 2, 3]), "z": pa.array([1, -2, 3, None, 5], pa.int32())})
    made = {"a": every_type(200), "b": b}
    registered(spark, made)
    return made


@pytest.mark.parametrize("condition", ["TRUE", "a.k > 100"], ids=["rows", "empty"])
@pytest.mark.parametrize("text", AGGREGATES)
def test_aggregates(
    spark: SparkSession, all_types: dict[str, pa.Table], text: str, condition: str
) -> None:
    planned = check(spark, all_types, text.format(condition=condition), 3)
    assert planned.blocks
    assert all(block.query.aggregation is not None for block in planned.blocks)


JOINED = "FROM a JOIN b ON a.k = b.bk"


@pytest.mark.parametrize(
    "order", ["a.g, b.z", "b.z DESC, a.g LIMIT 3", "upper(a.s), a.g + 1 DESC", "2, g, 3"]
)
def test_distinct_rows_are_sorted_by_qualified_columns(
    spark: SparkSession, all_types: dict[str, pa.Table], order: str
) -> None:
    text = f"SELECT DISTINCT a.g, b.z, a.s {JOINED} WHERE a.s < 'text 3' ORDER BY {order}"
    check(spark, all_types, text, 2)


@pytest.mark.parametrize("constant", [2, 7])
def test_a_constant_column_is_no_position_to_sort_by(
    spark: SparkSession, all_types: dict[str, pa.Table], constant: int
) -> None:
    inner = f"(SELECT {constant} AS c, a.k, a.i8 {JOINED}) q"
    check(
        spark, all_types, f"SELECT q.k, q.i8 FROM {inner} ORDER BY q.c, q.k DESC, q.i8 LIMIT 1", 2
    )


@pytest.mark.parametrize(
    "items",
    [
        "q.d5 * q.c AS a, q.d5 + q.c AS b, q.d5 / q.c AS e",
        "q.d5 * CAST(2 AS INT) AS a, q.d5 * -2 AS b, q.d5 % (2) AS e",
        "2 AS two, q.d5 * two AS a",
    ],
)
def test_only_literals_beside_decimals_count_their_own_digits(
    spark: SparkSession, all_types: dict[str, pa.Table], items: str
) -> None:
    check(spark, all_types, f"SELECT {items} FROM (SELECT a.d5, 2 AS c {JOINED}) q", 2)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT to_json(struct(a.i8, q.k, q.h)) AS x {JOINED}"
        " JOIN (SELECT k, g + 1 AS h FROM a) q ON q.h = a.g",
        f"SELECT a.k {JOINED} JOIN a AS c ON (a.k, a.s) = (c.k, c.s)",
        f"SELECT a.k {JOINED} JOIN a AS c ON (a.k, a.s) IN ((c.k, c.s))",
    ],
)
def test_fields_named_by_columns_keep_their_names(
    spark: SparkSession, all_types: dict[str, pa.Table], text: str
) -> None:
    check(spark, all_types, text, 2)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM (SELECT a.k, a.g, b.z {0}) PIVOT (sum(z) FOR g IN (1 AS one, 2))",
        "SELECT q.k, one FROM (SELECT a.k, a.g, b.z {0}) q PIVOT (sum(z) FOR g IN (1 AS one, 2))",
        "SELECT p.n, p.v, b.z FROM (SELECT a.k, a.i32, b.z AS y {0}) UNPIVOT (v FOR n IN (i32, y)) p"
        " JOIN b ON b.bk = p.k",
    ],
)
def test_columns_of_a_pivot_are_not_those_of_its_item(
    spark: SparkSession, all_types: dict[str, pa.Table], text: str
) -> None:
    check(spark, all_types, text.format(JOINED), 2)


@pytest.mark.parametrize(
    "where",
    [
        "a.i32 >= (SELECT max(c.i32) FROM a AS c WHERE c.s = a.s AND c.k = y.bk)",
        "EXISTS (SELECT 1 FROM a AS c WHERE c.s = a.s AND c.i32 > a.i32)",
        "a.g IN (SELECT c.g FROM a AS c WHERE c.s = a.s AND c.k < a.k)",
    ],
)
def test_a_subquery_over_the_table_it_is_correlated_with(
    spark: SparkSession, all_types: dict[str, pa.Table], where: str
) -> None:
    """The name of the table inside is the name of a relation outside."""
    text = f"SELECT a.i32, y.z FROM a JOIN b AS y ON a.k = y.bk WHERE {where}"
    check(spark, all_types, text, 2)


def test_means_of_random_decimals(spark: SparkSession) -> None:
    """Of both signs, with ties, in groups of all sizes; some groups have no value."""
    rng = random.Random(5)
    rows = [
        (group, None if group % 50 == 0 or rng.random() < 0.1 else rng.randrange(-300, 300))
        for group in range(600)
        for _ in range(rng.choice((1, 2, 3, 8, 16, 64)))
    ]
    numbers = [None if number is None else Decimal(number) / 100 for _, number in rows]
    tables = {
        "a": pa.table({"g": [g for g, _ in rows], "x": pa.array(numbers, pa.decimal128(9, 2))}),
        "b": pa.table({"k": list(range(600))}),
    }
    registered(spark, tables)
    joined = "FROM a JOIN b ON a.g = b.k"
    means = "avg(x) AS m, avg(CAST(x AS DECIMAL(25, 2))) AS wide, avg(x * 3.7) AS products"
    for text in (f"SELECT g, {means} {joined} GROUP BY g", f"SELECT {means} {joined} WHERE g = 50"):
        planned = check(spark, tables, text, 2)
        assert "partial aggregates are merged above" in planned.reasons


def test_mean_of_decimals_is_rounded_once(spark: SparkSession) -> None:
    """A mean just below a tie, which a division rounded to fewer digits lifts over it."""
    values = [Decimal("0.000000001"), *[Decimal(0)] * 20_000]
    tables = {
        "a": pa.table({"k": [1] * len(values), "x": pa.array(values, pa.decimal128(20, 9))}),
        "b": pa.table({"k": [1]}),
    }
    registered(spark, tables)
    for sign in ("", "-"):
        check(spark, tables, f"SELECT avg({sign}x) AS m FROM a JOIN b ON a.k = b.k", 2)
    twice = "SELECT avg(x) AS once, CAST(sum(x) / count(x) AS DECIMAL(24, 13)) AS twice FROM a"
    row = spark.sql(twice).collect()[0]
    assert row.once < row.twice, "the data must tell the two apart"
