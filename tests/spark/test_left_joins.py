"""LEFT JOIN inside the eddies on Spark: the answers of Spark SQL and of DuckDB, in any cells."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import eddies
from eddies.spark import query as query_module
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle

TEXTS = (
    "SELECT f.id, d.name, p.v FROM f JOIN d ON f.a = d.k LEFT JOIN p ON p.k = f.b AND p.v > 3",
    "SELECT d.name, count(*) AS n, count(p.v) AS m, sum(p.v) AS s FROM f JOIN d ON f.a = d.k "
    "LEFT JOIN p ON p.k = f.b LEFT JOIN q ON q.k = f.a AND q.j = f.b GROUP BY d.name",
    "SELECT count(*) AS n, sum(CASE WHEN p.k IS NULL THEN 1 ELSE 0 END) AS none, sum(q.v) AS s "
    "FROM f, d LEFT JOIN p ON p.k = f.b LEFT JOIN q ON q.k = f.a AND q.v < f.id WHERE f.a = d.k",
    "SELECT p.k, count(*) AS n FROM f JOIN d ON f.a = d.k LEFT JOIN p ON p.k = f.b "
    "WHERE f.id < 900 GROUP BY p.k "
    "ORDER BY n DESC, p.k NULLS LAST LIMIT 5",
    "SELECT x.n, count(*) AS c FROM (SELECT f.a, count(p.v) AS n FROM f LEFT JOIN p "
    "ON p.k = f.b AND p.v > 3 GROUP BY f.a) AS x GROUP BY x.n ORDER BY c DESC, x.n",
    "SELECT d.name, (SELECT sum(p.v) FROM f LEFT JOIN p ON p.k = f.b WHERE f.id > 9999) AS none "
    "FROM d WHERE d.k < (SELECT count(p.v) FROM f LEFT JOIN p ON p.k = f.b WHERE f.a > 3)",
)


def tables_of(n: int) -> dict[str, pa.Table]:
    rng = random.Random(3)

    def keys(top: int, count: int) -> pa.Array:
        drawn = [None if rng.random() < 0.05 else rng.randrange(top) for _ in range(count)]
        return pa.array(drawn, pa.int64())

    return {
        "f": pa.table({"id": range(n), "a": keys(40, n), "b": keys(60, n)}),
        "d": pa.table({"k": range(30), "name": [f"d{i % 7}" for i in range(30)]}),
        "p": pa.table({"k": keys(50, 80), "v": range(80)}),
        "q": pa.table({"k": keys(40, 300), "j": keys(60, 300), "v": range(300)}),
    }


@pytest.mark.parametrize("text", TEXTS)
def test_left_joins_are_those_of_spark(spark: SparkSession, tmp_path: Path, text: str) -> None:
    given = tables_of(3_000)
    # Columns that a file says are never NULL are so where rows are padded.
    schema = pa.schema(
        [pa.field(f.name, f.type, nullable=f.name != "v") for f in given["q"].schema]
    )
    given["q"] = given["q"].drop_null().cast(schema.set(0, given["q"].schema.field(0)))
    paths = {}
    for name, table in given.items():
        paths[name] = str(tmp_path / f"{name}.parquet")
        pq.write_table(table, paths[name], row_group_size=max(1, table.num_rows // 3))
        spark.read.parquet(paths[name]).createOrReplaceTempView(name)
    expected = spark.sql(text).toArrow()
    assert_same_bag(expected, Oracle().answer(text, given), text)
    for cells in (None, 1, 2, 3, 8):
        found = eddies.sql(text, paths, spark=spark, options=eddies.Options(cells=cells))
        planned = str(found._jdf.queryExecution().executedPlan())
        assert "LeftOuter" not in planned
        assert_same_bag(found.toArrow(), expected, f"{cells} cells: {text}")


def test_large_tables_and_dataframes_are_left_joined_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tables_of(200)
    tables: dict[str, object] = {}
    for name, table in given.items():
        path = str(tmp_path / f"{name}.parquet")
        pq.write_table(table, path)
        tables[name] = path
    text = TEXTS[0]
    expected = Oracle().answer(text, given)
    frame = spark.createDataFrame(given["p"])
    by_frame = eddies.sql(text, tables | {"p": frame}, spark=spark)
    monkeypatch.setattr(query_module, "_MOST_PADDING", 79)
    by_size = eddies.sql(text, tables, spark=spark)
    for found in (by_frame, by_size):
        assert "LeftOuter" in str(found._jdf.queryExecution().executedPlan())
        assert_same_bag(found.toArrow(), expected, text)
