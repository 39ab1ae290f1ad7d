"""Sessions with other settings than the evaluator's: what depends on them gives Spark's answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
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
