"""A cell that has all rows of every group gives the answer: sorted, cut off, as Spark SQL gives it."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import eddies
from eddies.spark import whole_groups
from eddies.spark.query import plan_query
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle

GROUPED = (
    "SELECT f.g, sum(f.d) AS x, count(*) AS n FROM f GROUP BY f.g ORDER BY f.g",
    "SELECT f.g, sum(f.i) AS x FROM f GROUP BY f.g ORDER BY x DESC, f.g DESC",
    "SELECT f.g AS a, max(f.r) AS x FROM f GROUP BY f.g ORDER BY x, a",
    "SELECT f.g AS a, min(f.r) AS x FROM f GROUP BY f.g ORDER BY x DESC NULLS FIRST, a NULLS LAST",
    "SELECT f.g AS a, max(f.s) AS x FROM f GROUP BY f.g ORDER BY x NULLS LAST, a DESC LIMIT 5",
    "SELECT f.g AS a, avg(f.d) AS x FROM f GROUP BY f.g ORDER BY x, a LIMIT 4 OFFSET 3",
    "SELECT f.s, f.b, f.t, count(f.i) AS n FROM f GROUP BY f.s, f.b, f.t ORDER BY n, s, b, t",
    "SELECT f.r, count(*) AS n FROM f GROUP BY f.r ORDER BY f.r DESC",
    "SELECT d.name, year(f.t) AS y, sum(f.d * 2) AS x FROM f JOIN d ON f.k = d.k "
    "GROUP BY d.name, year(f.t) ORDER BY sum(f.d * 2) DESC, d.name, y",
    "SELECT d.name, sum(f.d) / sum(f.i) AS x, avg(f.r) AS m FROM f JOIN d ON f.k = d.k "
    "WHERE f.i > 0 AND f.r < 90 GROUP BY d.name HAVING sum(f.i) > 3 AND d.name <> 'd2' ORDER BY d.name",
    "SELECT d.name FROM f JOIN d ON f.k = d.k GROUP BY d.name ORDER BY max(f.i) DESC, d.name",
    "SELECT f.g + 1 AS h, f.g + 1 AS h, count(*) AS n FROM f GROUP BY f.g + 1 ORDER BY n, f.g + 1",
    "SELECT count(*) AS n, sum(f.i) AS x, min(f.s) AS y, avg(f.d) AS z, max(f.t) AS t, 'a' AS c FROM f",
    "SELECT count(*) AS n, sum(f.i) AS x FROM f JOIN d ON f.k = d.k WHERE f.g > 1000000",
    "SELECT count(*) AS n FROM f JOIN d ON f.k = d.k HAVING count(*) > 1000000",
    "SELECT coalesce(sum(f.i), -1) AS x FROM f JOIN d ON f.k = d.k AND f.k < 0 LIMIT 3",
)
MORE_THAN_GROUPS = (
    "SELECT DISTINCT count(*) AS n FROM f GROUP BY f.g",
    "SELECT f.g, count(DISTINCT f.s) AS n FROM f GROUP BY f.g",
    "SELECT f.g, rank() OVER (ORDER BY f.g) AS n FROM f GROUP BY f.g",
    "SELECT f.g, sum(f.i) AS x FROM f GROUP BY f.g HAVING sum(f.i) > (SELECT avg(k) FROM d)",
    "SELECT n, count(*) AS m FROM (SELECT f.g, count(*) AS n FROM f GROUP BY f.g) GROUP BY n",
)


def tables_of(n: int) -> dict[str, pa.Table]:
    rng = random.Random(3)

    def drawn(top: int) -> list[int | None]:
        return [None if rng.random() < 0.15 else rng.randrange(top) for _ in range(n)]

    day = datetime.date(2019, 11, 3)
    special = {0: float("nan"), 1: 0.0, 2: -0.0}
    return {
        "f": pa.table(
            {
                "g": pa.array(drawn(n // 8 + 1), pa.int64()),
                "k": pa.array(drawn(12), pa.int32()),
                "i": pa.array(drawn(10), pa.int64()),
                "r": pa.array(
                    [None if i is None else special.get(i, i / 4) for i in drawn(30)], pa.float64()
                ),
                "d": pa.array(
                    [None if i is None else Decimal(i * 37 - 150) / 100 for i in drawn(40)],
                    pa.decimal128(12, 2),
                ),
                "s": pa.array([None if i is None else "aBcé"[i] for i in drawn(4)], pa.string()),
                "b": pa.array([None if i is None else i > 0 for i in drawn(3)], pa.bool_()),
                "t": pa.array(
                    [None if i is None else day + datetime.timedelta(90 * i) for i in drawn(6)],
                    pa.date32(),
                ),
            }
        ),
        "d": pa.table({"k": range(10), "name": [f"d{i % 3}" for i in range(10)]}),
    }


def written(
    n: int, folder: Path, spark: SparkSession
) -> tuple[dict[str, pa.Table], dict[str, str]]:
    given = tables_of(n)
    paths = {name: str(folder / f"{name}{n}.parquet") for name in given}
    for name, table in given.items():
        pq.write_table(table, paths[name], row_group_size=max(1, n // 4))
        spark.read.parquet(paths[name]).createOrReplaceTempView(name)
    return given, paths


def in_order(rows: pa.Table) -> list[list[str]]:
    """Rows to be compared as they come: NaN equals itself, and zero has no sign."""
    return [
        [str(value + 0.0 if isinstance(value, float) else value) for value in row.values()]
        for row in rows.rename_columns([str(n) for n in range(rows.num_columns)]).to_pylist()
    ]


def is_answered(text: str, paths: dict[str, str], spark: SparkSession, **options: object) -> bool:
    planned = plan_query(text, paths, spark=spark, options=eddies.Options(**options))  # type: ignore[arg-type]
    return any(block.answer is not None for block in planned.blocks)


@pytest.mark.parametrize("text", GROUPED)
def test_the_only_cell_answers(spark: SparkSession, tmp_path: Path, text: str) -> None:
    for n in (0, 300):
        given, paths = written(n, tmp_path, spark)
        expected = spark.sql(text).toArrow()
        assert is_answered(text, paths, spark, cells=1)
        for options in (eddies.Options(cells=1), eddies.Options(cells=1, threads=2, batch_rows=7)):
            found = eddies.sql(text, paths, spark=spark, options=options).toArrow()
            assert found.schema.names == expected.schema.names
            assert found.schema.types == expected.schema.types
            assert_same_bag(found, expected, text, 11)
            if "ORDER BY" in text:
                assert in_order(found) == in_order(expected), text
        if not any(
            part in text for part in ("LIMIT", "avg(f.d)", "/")
        ):  # of which DuckDB has its own
            assert_same_bag(expected, Oracle().answer(text, given), text, 11)


def test_nothing_is_left_for_spark_to_do(spark: SparkSession, tmp_path: Path) -> None:
    _, paths = written(300, tmp_path, spark)
    for text in GROUPED:
        shown = eddies.explain(text, paths, spark=spark, options=eddies.Options(cells=1))
        assert "it gives the answer: the text above is not run" in shown
        frame = eddies.sql(text, paths, spark=spark, options=eddies.Options(cells=1))
        shown = frame._jdf.queryExecution().executedPlan().toString()
        above = [line for line in shown.splitlines() if "Project" not in line]
        assert len(above) == 2, shown  # the number of the cell, and the task
        assert sorted(map(str, frame.limit(2).collect())) == sorted(map(str, frame.take(2)))


@pytest.mark.parametrize("text", MORE_THAN_GROUPS)
def test_more_than_groups_is_left_to_spark(spark: SparkSession, tmp_path: Path, text: str) -> None:
    _, paths = written(300, tmp_path, spark)
    options = eddies.Options(cells=1)
    assert not is_answered(text, paths, spark, cells=1)
    found = eddies.sql(text, paths, spark=spark, options=options).toArrow()
    assert_same_bag(found, spark.sql(text).toArrow(), text, 11)


@pytest.mark.parametrize(
    ("rest", "part"),
    [
        ("1 / (count(*) - 2) AS x FROM t GROUP BY t.k", "the item 'x'"),
        ("t.k FROM t GROUP BY t.k HAVING 1 / (count(*) - 2) > 0", "HAVING"),
        ("t.k FROM t GROUP BY t.k ORDER BY 1 / (count(*) - 2)", "ORDER BY"),
    ],
)
def test_an_error_says_which_part_it_was(
    spark: SparkSession, tmp_path: Path, rest: str, part: str
) -> None:
    pq.write_table(pa.table({"k": [1, 1, 2]}), path := str(tmp_path / "t.parquet"))
    frame = eddies.sql(f"SELECT {rest}", {"t": path}, spark=spark)
    with pytest.raises(PythonException, match=f"division by zero(.|\\n)*while {part} was computed"):
        frame.collect()


def test_answers_are_joined_like_other_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    """Although all of them begin with the same number of a cell."""
    _, paths = written(300, tmp_path, spark)
    options = eddies.Options(cells=1)
    texts = [
        "SELECT f.g AS g, count(*) AS n FROM f WHERE f.g IS NOT NULL GROUP BY f.g",
        "SELECT f.g AS h, sum(f.i) AS x FROM f GROUP BY f.g",
    ]
    frames = [eddies.sql(text, paths, spark=spark, options=options) for text in [*texts, texts[0]]]
    named, again = frames[0].alias("a"), frames[2].alias("b")
    found = (
        named.join(frames[1], named.g == frames[1].h)
        .join(again, "g")
        .unionAll(frames[0].selectExpr("g", "n", "g", "n", "n"))
    )
    expected = spark.sql(
        f"WITH a AS ({texts[0]}), c AS ({texts[1]}) SELECT a.g, a.n, c.h, c.x, a.n FROM a JOIN c "
        "ON a.g = c.h UNION ALL SELECT g, n, g, n, n FROM a"
    )
    assert_same_bag(found.toArrow(), expected.toArrow(), "joined", 11)
    assert frames[0].join(frames[2]).count() == frames[0].count() ** 2


NESTED = (
    "SELECT d.name, sum(f.d) AS x FROM f JOIN d ON f.k = d.k "
    "WHERE f.i > (SELECT avg(h.i) FROM f h WHERE h.k = f.k) GROUP BY d.name ORDER BY d.name",
    "SELECT count(*) AS n FROM f JOIN d ON f.k = d.k "
    "WHERE f.g IN (SELECT h.g FROM f h GROUP BY h.g HAVING sum(h.i) > 12)",
    "SELECT d.name, t.m, count(*) AS n FROM d JOIN (SELECT f.k, max(f.i) AS m FROM f GROUP BY f.k) t "
    "ON d.k = t.k GROUP BY d.name, t.m ORDER BY d.name, t.m",
    "SELECT count(t.s) AS n, min(t.m) AS m FROM d JOIN "
    "(SELECT f.k AS key, f.s, min(f.t) AS m FROM f GROUP BY f.k, f.s) AS t(key, s, m) ON d.k = t.key",
)


@pytest.mark.parametrize("text", NESTED)
def test_a_cell_is_run_by_the_task_that_reads_it(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    for n in (0, 300):
        given, paths = written(n, tmp_path, spark)
        expected = spark.sql(text).toArrow()
        assert_same_bag(expected, Oracle().answer(text, given), text, 11)
        planned = plan_query(text, paths, spark=spark)
        assert len(planned.blocks) == 2
        assert all(block.cells.n_cells == 1 for block in planned.blocks)
        plan = planned.dataframe()._jdf.queryExecution().executedPlan().toString()
        assert (plan.count("MapInArrow"), plan.count("Exchange")) == (1, 0), plan
        # What was asked for in several cells is computed by Spark and handed to them.
        for options in (eddies.Options(), eddies.Options(cells=1), eddies.Options(cells=3)):
            found = eddies.sql(text, paths, spark=spark, options=options).toArrow()
            assert found.schema.types == expected.schema.types
            assert_same_bag(found, expected, f"{options}: {text}", 11)
        traced = eddies.explain(text, paths, spark=spark, analyze=True)
        assert "the answer of __eddy_0, which the same task makes" in traced
        if n:  # else there is no result, and the task does not come to these rows
            assert traced.count("what every cell did") == 2


def test_groups_in_parts_are_merged_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, paths = written(300, tmp_path, spark)
    grouped, whole = GROUPED[0], GROUPED[12]
    assert not is_answered(grouped, paths, spark, cells=2)
    assert not is_answered(whole, paths, spark, cells=3)
    # With a bound on memory groups have to leave the task, unless there is only one.
    assert not is_answered(grouped, paths, spark, cells=1, memory="64MB")
    assert is_answered(whole, paths, spark, cells=1, memory="64MB")
    # So they have where there may be many more than the tables have rows.
    pairs = "SELECT f.g, d.k, count(*) AS n FROM f, d WHERE f.i < d.k GROUP BY f.g, d.k ORDER BY n"
    assert is_answered(pairs, paths, spark, cells=1)
    monkeypatch.setattr(whole_groups, "_MANY_GROUPS", 100)
    assert not is_answered(pairs, paths, spark, cells=1)
    # A key that equals one of another table does not multiply.
    equal = "SELECT d.k, d.name, f.k AS j, count(*) AS n FROM f JOIN d ON f.k = d.k GROUP BY ALL"
    assert is_answered(equal.replace("ALL", "d.k, d.name, f.k"), paths, spark, cells=1)
