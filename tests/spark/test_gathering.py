"""Blocks whose output is gathered: read twice, they run once; few rows are sorted at once."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import eddies
from eddies.spark.gathering import most_values
from eddies.spark.query import plan_query
from eddies.spark.trace import read_traces
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle

READ_TWICE = (
    "WITH r AS (SELECT g, sum(x) AS t FROM f WHERE k < 9 GROUP BY g) "
    "SELECT d.k, d.name, r.t FROM d JOIN r ON d.k = r.g WHERE r.t = (SELECT max(t) FROM r) "
    "ORDER BY d.k",
    "WITH r AS (SELECT g, count(*) AS n FROM f GROUP BY g) "
    "SELECT a.g, b.n FROM r a JOIN r b ON a.n = b.n WHERE a.g < 3",
    "WITH r AS (SELECT g, count(x) AS n, min(x) AS low FROM f GROUP BY g) "
    "SELECT g, n FROM r WHERE n > (SELECT avg(n) FROM r) UNION ALL SELECT g, low FROM r WHERE g > 2",
)
SORTED = (
    "SELECT f.s, sum(f.x) AS t, count(*) AS n FROM f GROUP BY f.s ORDER BY f.s DESC",
    "SELECT f.s, f.g % 2 AS p, avg(x) AS m FROM f GROUP BY f.s, f.g % 2 ORDER BY m DESC, f.s, p",
    "SELECT f.id, d.name FROM f JOIN d ON f.k = d.k ORDER BY d.name, f.id DESC",
    "SELECT f.id, d.name, rank() OVER (PARTITION BY d.name ORDER BY f.id) AS r FROM f "
    "JOIN d ON f.k = d.k WHERE f.x > 3 ORDER BY f.id",
)


def tables_of(n: int) -> dict[str, pa.Table]:
    rng = random.Random(11)

    def drawn(top: int) -> list[int | None]:
        return [None if rng.random() < 0.1 else rng.randrange(top) for _ in range(n)]

    return {
        "f": pa.table(
            {
                "id": pa.array(range(n), pa.int64()),
                "g": pa.array(drawn(12), pa.int64()),
                "k": pa.array(drawn(14), pa.int64()),
                "x": pa.array(drawn(50), pa.int64()),
                "s": pa.array([None if i is None else f"s{i}" for i in drawn(5)], pa.string()),
            }
        ),
        "d": pa.table({"k": range(10), "name": [f"d{i % 4}" for i in range(10)]}),
    }


def written(folder: Path, n: int, spark: SparkSession) -> dict[str, str]:
    paths = {}
    for name, table in tables_of(n).items():
        paths[name] = str(folder / f"{name}{n}.parquet")
        pq.write_table(table, paths[name], row_group_size=max(1, n // 4))
        spark.read.parquet(paths[name]).createOrReplaceTempView(name)
    return paths


@pytest.mark.parametrize("text", READ_TWICE)
def test_a_block_that_is_read_twice_runs_once(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    for n in (0, 600):
        paths = written(tmp_path, n, spark)
        expected = spark.sql(text).toArrow()
        assert_same_bag(expected, Oracle().answer(text, tables_of(n)), text)
        for cells in (1, 3):
            options = eddies.Options(cells=cells, trace_dir=str(tmp_path / f"trace {n} {cells}"))
            found = eddies.sql(text, paths, spark=spark, options=options)
            assert_same_bag(found.toArrow(), expected, f"{cells} cells: {text}")
    first = [t for t in read_traces(tmp_path / "trace 600 1") if t["block"] == "__eddy_0"]
    assert len(first) == 1 or "JOIN" in text


@pytest.mark.parametrize("text", SORTED)
def test_few_rows_are_sorted_in_one_partition(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    for n in (0, 600):
        paths = written(tmp_path, n, spark)
        expected = spark.sql(text).toArrow()
        for cells in (1, 3):
            options = eddies.Options(cells=cells)
            planned = plan_query(text, paths, spark=spark, options=options)
            found = planned.dataframe()
            assert found.toArrow().to_pylist() == expected.to_pylist(), f"{cells} cells: {text}"
            (block,) = planned.blocks
            is_local = (spark.conf.get("spark.master") or "").startswith("local[")
            assert n == 0 or block.is_gathered == (is_local and cells == 3)
            if block.is_gathered:
                assert "rangepartitioning" not in str(found._jdf.queryExecution().executedPlan())


def test_many_rows_and_groups_are_not_gathered(spark: SparkSession, tmp_path: Path) -> None:
    paths = written(tmp_path, 30_000, spark)
    for text in (
        "SELECT f.id, count(*) AS n FROM f GROUP BY f.id ORDER BY f.id",
        "SELECT f.id, d.name FROM f JOIN d ON f.k = d.k ORDER BY f.id",
        "SELECT f.s, count(*) AS n FROM f GROUP BY f.s ORDER BY n LIMIT 1",
    ):
        planned = plan_query(text, paths, spark=spark, options=eddies.Options(cells=2))
        assert not any(block.is_gathered for block in planned.blocks), text


def test_dictionaries_bound_the_number_of_values(tmp_path: Path) -> None:
    n = 10_000
    table = pa.table(
        {
            "few": [f"v{i % 7}" for i in range(n)],
            "some": [i % 1000 for i in range(n)],
            "null": pa.array([None] * n, pa.int64()),
            "all": pa.array(range(n), pa.int64()),
        }
    )
    path = str(tmp_path / "t.parquet")
    pq.write_table(table, path, row_group_size=4_000, use_dictionary=["few", "some", "null"])
    splits = eddies.read.parquet(path).splits()
    assert 8 <= most_values(splits, "few") < 100
    assert 1_001 <= most_values(splits, "some") < 20_000
    assert most_values(splits, "null") >= 1
    assert most_values(splits, "all") == float("inf")
    assert most_values((), "few") == float("inf")
