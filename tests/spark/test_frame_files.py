"""DataFrames that are nothing but Parquet files are read by tasks; all others by Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

import eddies
from tests.support.bag import assert_same_bag
from tests.support.clusters import SPARK_VARIABLE
from tests.support.driving import Oracle

N = 3000
ROWS = pa.table(
    {
        "k": pa.array([i % 97 if i % 11 else None for i in range(N)], pa.int64()),
        "p": ["a", "b", "c"] * (N // 3),
        "x": list(range(N)),
    }
)
KEYS = pa.table({"k": pa.array(range(97), pa.int64()), "name": [f"n{i}" for i in range(97)]})
TEXT = "SELECT r.x, r.p, s.name FROM r, s WHERE r.k = s.k AND r.x > 10"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rows of a table"  # a name that is another one in a URI
    made.mkdir()
    for number in range(3):
        parquet.write_table(ROWS.slice(number * 1000, 1000), made / f"{number}.parquet")
    return made


def explained(spark: SparkSession, frame: DataFrame) -> str:
    found = eddies.sql(TEXT, {"r": frame, "s": KEYS}, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(TEXT, {"r": ROWS, "s": KEYS}))
    return eddies.explain(TEXT, {"r": frame, "s": KEYS}, spark=spark)


@pytest.mark.skipif(SPARK_VARIABLE in os.environ, reason="plans of its own Spark")
def test_files_are_read_by_tasks(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.parquet(str(folder))
    assert "DataFrame of parquet" in explained(spark, frame)
    several = spark.read.parquet(*(str(path) for path in sorted(folder.iterdir())))
    assert "DataFrame of parquet" in explained(spark, several)
    alone = eddies.sql("SELECT count(*) AS n FROM r", {"r": frame}, spark=spark).toArrow()
    assert alone.to_pylist() == [{"n": N}]


CHANGED: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
    "computed": lambda spark, folder: spark.read.parquet(str(folder)).where("x >= 0"),
    "renamed": lambda spark, folder: (
        spark.read.parquet(str(folder)).select("k", "p", "x").alias("z")
    ),
    "an option": lambda spark, folder: spark.read.option("mergeSchema", "true").parquet(
        str(folder)
    ),
    "cached": lambda spark, folder: spark.read.parquet(str(folder)).cache(),
    "no files": lambda spark, folder: spark.createDataFrame(ROWS),
}


@pytest.mark.parametrize("how", list(CHANGED))
def test_anything_else_is_left_to_spark(spark: SparkSession, folder: Path, how: str) -> None:
    frame = CHANGED[how](spark, folder)
    assert "DataFrame of" not in explained(spark, frame)
    frame.unpersist()


def test_partition_columns_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "parts")
    spark.createDataFrame(ROWS).write.partitionBy("p").parquet(path)
    assert "DataFrame of" not in explained(spark, spark.read.parquet(path).select("k", "p", "x"))
    frame = spark.read.parquet(path)
    text = "SELECT r.x, r.p FROM r, s WHERE r.k = s.k"
    assert "DataFrame of" not in eddies.explain(text, {"r": frame, "s": KEYS}, spark=spark)


def test_files_that_are_gone_are_named(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.parquet(str(folder))
    shutil.rmtree(folder)
    with pytest.raises(Exception, match=r"\d\.parquet"):
        eddies.sql(TEXT, {"r": frame, "s": KEYS}, spark=spark).toArrow()
