"""Groups that HAVING refuses need not leave a cell that sees all their rows; answers are Spark's."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import eddies
from eddies.spark.query import plan_query
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle

CONDITIONS = (
    "sum(f.d) > 40",
    "sum(f.i) IS NULL",
    "count(*) > 3 AND max(f.i) < 8",
    "count(f.i) = 0 OR min(f.s) = 'a'",
    "avg(f.d) < 5.25 AND f.g IS NOT NULL",
    "NOT (sum(f.i) > 20)",
    "sum(f.d) > 0 AND sum(f.i) > (SELECT avg(k) FROM d)",
    "coalesce(sum(f.i), 0) + f.g > 12",
)
FORMS = (
    "SELECT f.g, sum(f.d) AS x, count(f.i) AS n FROM f GROUP BY f.g HAVING {0}",
    "SELECT f.g, d.name, sum(f.d) AS x FROM f JOIN d ON f.k = d.k GROUP BY f.g, d.name HAVING {0}",
    "SELECT d.k FROM d WHERE d.k IN (SELECT f.g FROM f GROUP BY f.g HAVING {0})",
    "SELECT f.g, count(DISTINCT f.s) AS n FROM f GROUP BY f.g HAVING max(f.i) > 6",
    "SELECT f.g, max(f.i) AS n, rank() OVER (ORDER BY f.g NULLS FIRST) AS r FROM f "
    "GROUP BY f.g HAVING {0}",
)


def tables_of(n: int) -> dict[str, pa.Table]:
    rng = random.Random(7)

    def drawn(top: int) -> list[int | None]:
        return [None if rng.random() < 0.15 else rng.randrange(top) for _ in range(n)]

    decimals = [None if i is None else Decimal(i * 37 - 150) / 100 for i in drawn(40)]
    texts = [None if i is None else "abc"[i] for i in drawn(3)]
    return {
        "f": pa.table(
            {
                "g": pa.array(drawn(n // 4 + 1), pa.int64()),
                "k": pa.array(drawn(12), pa.int64()),
                "i": pa.array(drawn(10), pa.int64()),
                "d": pa.array(decimals, pa.decimal128(12, 2)),
                "s": pa.array(texts, pa.string()),
            }
        ),
        "d": pa.table({"k": range(10), "name": [f"d{i % 3}" for i in range(10)]}),
    }


@pytest.mark.parametrize("condition", CONDITIONS)
def test_groups_that_having_refuses(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    for n in (0, 400):
        given = tables_of(n)
        paths = {name: str(tmp_path / f"{name}{n}.parquet") for name in given}
        for name, table in given.items():
            pq.write_table(table, paths[name], row_group_size=max(1, n // 4))
            spark.read.parquet(paths[name]).createOrReplaceTempView(name)
        for form in FORMS:
            text = form.format(condition)
            expected = spark.sql(text).toArrow()
            assert_same_bag(expected, Oracle().answer(text, given), text, 11)
            for options in (eddies.Options(), eddies.Options(cells=3))[: 1 + n]:
                found = eddies.sql(text, paths, spark=spark, options=options).toArrow()
                assert found.schema.types == expected.schema.types
                assert_same_bag(found, expected, f"{options}: {text}", 11)


def test_only_a_cell_that_is_alone_leaves_groups_out(spark: SparkSession, tmp_path: Path) -> None:
    given = tables_of(400)
    path = str(tmp_path / "f.parquet")
    pq.write_table(given["f"], path, row_group_size=100)
    text = "SELECT f.g, sum(f.d) AS x FROM f GROUP BY f.g HAVING sum(f.d) > 40"
    for cells, leaves_out in ((1, True), (2, False)):
        options = eddies.Options(cells=cells)
        (block,) = plan_query(text, {"f": path}, spark=spark, options=options).blocks
        assert block.query.aggregation is not None
        assert (block.query.aggregation.having is not None) == leaves_out
        groups = block.dataframe(spark, options).toArrow()
        assert (groups.num_rows < 30) == leaves_out
    frame = spark.read.parquet(path).where("true").repartition(3)
    (block,) = plan_query(text, {"f": frame}, spark=spark).blocks or (None,)
    assert block is None or block.query.aggregation.having is None


@pytest.mark.parametrize(
    "condition",
    [
        "count(*) > (SELECT 2) AND 100 / (count(*) - 2) > 10",
        "max(f.g) > (SELECT 1000) AND CAST(max(f.s) AS INT) > 0",
    ],
)
def test_a_condition_that_another_one_guards_does_not_fail(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    path = str(tmp_path / "f.parquet")
    pq.write_table(tables_of(400)["f"], path)
    spark.read.parquet(path).createOrReplaceTempView("f")
    text = f"SELECT f.g, count(*) AS n FROM f GROUP BY f.g HAVING {condition}"
    found = eddies.sql(text, {"f": path}, spark=spark, options=eddies.Options(cells=1)).toArrow()
    assert_same_bag(found, spark.sql(text).toArrow(), text)
