"""All 22 TPC-H queries through `eddies.sql`, from Parquet: as Spark SQL and DuckDB answer them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

import eddies
from eddies.bench.answers import difference, plain_rows
from eddies.bench.spark.engines import to_duckdb
from eddies.bench.tpc import tpch_files, tpch_text
from eddies.spark.query import plan_query
from tests.support.bag import assert_same_bag

SCALE = 0.1
NAMES = [f"q{number:02}" for number in range(1, 23)]
SUM_DIGITS = 10  # sums of doubles depend on the order of their terms
# Single tables, outer joins and correlated subqueries alone have nothing for an eddy.
WITHOUT_EDDY = {"q01", "q04", "q06", "q13", "q22"}


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = tpch_files(tmp_path_factory.mktemp("tpch"), SCALE)
    found = {name: str(path) for name, path in made.items()}
    for name, path in found.items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    return found


@pytest.fixture(scope="module")
def oracle(files: dict[str, str]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, path in files.items():
            where = f"{path}/*.parquet" if Path(path).is_dir() else path
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{where}'")
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_tpch(
    spark: SparkSession, files: dict[str, str], oracle: duckdb.DuckDBPyConnection, name: str
) -> None:
    text = tpch_text(name)
    found = eddies.sql(text, files, spark=spark).toArrow()
    by_spark = spark.sql(text).toArrow()
    assert found.schema.names == by_spark.schema.names
    assert found.schema.types == by_spark.schema.types
    assert_same_bag(found, by_spark, name, SUM_DIGITS)
    by_duckdb = oracle.sql(to_duckdb(text)).to_arrow_table()
    # DuckDB divides decimals as doubles: quotients are compared to the digits that Spark keeps.
    assert difference(plain_rows(found), plain_rows(by_duckdb)) is None


def test_joins_are_inside_eddies(spark: SparkSession, files: dict[str, str]) -> None:
    for name in set(NAMES) - WITHOUT_EDDY:
        assert plan_query(tpch_text(name), files, spark=spark).blocks, name
