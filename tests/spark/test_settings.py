"""Sessions with other settings than the evaluator's: what depends on them gives Spark's answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import eddies
from eddies.sources.inline import delivered_table, frame_of
from tests.support.bag import assert_same_bag

TABLES = {
    "a": pa.table(
        {
            "k": pa.array([1, 2, 3, 2**31 - 1, 16_777_217, None], pa.int32()),
            "s": ["1", "2.0", "three", "4", None, "-1"],
        }
    ),
    "b": pa.table(
        {
            "k": pa.array([1, 2, 3, 2**31 - 1, 16_777_217, 0], pa.int32()),
            "f": pa.array([1.0, 0.5, 0.0, 2.0, 16_777_216.0, None], pa.float32()),
        }
    ),
}


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.k, a.k + 1 AS more FROM a, b WHERE a.k = b.k",
        "SELECT a.k, coalesce(a.k, a.s) AS either FROM a, b WHERE a.k = b.k",
        "SELECT a.k, b.k AS bk FROM a, b WHERE a.s = b.k",
        "SELECT a.k, b.f FROM a, b WHERE a.k = b.f",
        "SELECT a.k FROM a, b WHERE a.k = b.k AND a.k / b.f > 1",
        "SELECT a.s, sum(a.k % b.k) AS n FROM a, b WHERE CAST(a.s AS INT) = b.k GROUP BY a.s",
        "SELECT a.k FROM a, b, VALUES ('x', 1), ('2', 2) AS c (s, k) WHERE a.k = b.k AND c.s = b.k",
    ],
)
def test_without_ansi_mode(spark: SparkSession, text: str) -> None:
    for name, table in TABLES.items():
        frame_of(delivered_table(table), spark).createOrReplaceTempView(name)
    with setting(spark, "spark.sql.ansi.enabled", "false"):
        found = eddies.sql(text, TABLES, spark=spark).toArrow()
        expected = spark.sql(text).toArrow()
    assert found.schema.types == expected.schema.types
    assert_same_bag(found, expected, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT c.x / d.y AS q, c.x * d.y AS p FROM c, d WHERE c.k = d.k",
        "SELECT c.k, sum(c.x / d.y) AS q, avg(d.y) AS m FROM c, d WHERE c.k = d.k GROUP BY c.k",
        "SELECT avg(c.x) AS m FROM c, d WHERE c.k = d.k",
        "SELECT c.k FROM c, d WHERE c.k = d.k AND c.x / d.y > 3.10344",
        "SELECT d.k, r.q FROM d, (SELECT c.k, sum(c.x) / count(*) AS q FROM c GROUP BY c.k) AS r"
        " WHERE r.k = d.k AND r.q > 0",
        "SELECT d.k FROM d WHERE d.y < (SELECT 0.7 * avg(c.x) / 3 FROM c WHERE c.k = d.k)",
        "SELECT c.k, count(*) AS n FROM c, d WHERE c.k = d.k GROUP BY c.k HAVING sum(c.x) / 7 > 3",
    ],
)
def test_decimals_that_may_not_lose_digits(spark: SparkSession, tmp_path: Path, text: str) -> None:
    rng = random.Random(5)
    paths = {}
    for name, column, digits in (("c", "x", 10), ("d", "y", 12)):
        numbers = [Decimal(rng.randrange(1, 10**digits)).scaleb(-4) for _ in range(60)]
        keys = pa.array([n % 12 for n in range(60)], pa.int32())
        table = pa.table({"k": keys, column: pa.array(numbers, pa.decimal128(20, 4))})
        paths[name] = str(tmp_path / f"{name}.parquet")
        parquet.write_table(table, paths[name])
        spark.read.parquet(paths[name]).createOrReplaceTempView(name)
    with setting(spark, "spark.sql.decimalOperations.allowPrecisionLoss", "false"):
        found = eddies.sql(text, paths, spark=spark).toArrow()
        expected = spark.sql(text).toArrow()
    assert found.schema.types == expected.schema.types
    assert_same_bag(found, expected, text)


def test_constants_in_another_time_zone(spark: SparkSession) -> None:
    text = (
        "SELECT a.k, c.at FROM a, b, VALUES (TIMESTAMP '2024-07-01 00:00:00', 2) AS c (at, k)"
        " WHERE a.k = b.k AND c.k = a.k"
    )
    for name, table in TABLES.items():
        frame_of(delivered_table(table), spark).createOrReplaceTempView(name)
    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        found = eddies.sql(text, TABLES, spark=spark).toArrow()
        expected = spark.sql(text).toArrow()
    assert_same_bag(found, expected, text)
