"""Rows without partners stay in Spark: the same bags, and fewer rows that come to the eddies."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import eddies
from eddies.sources.inline import delivered_table, frame_of
from eddies.spark import semi_joins
from eddies.spark.frame_plan import plan_facts
from eddies.spark.inputs import most_keys
from eddies.spark.query import plan_query
from eddies.spark.trace import read_traces
from tests.support.bag import assert_same_bag
from tests.support.clusters import SPARK_VARIABLE
from tests.support.driving import Oracle
from tests.support.random_queries import make_case

N_GENERATED = 40
CHUNKS = 2

in_classic_spark = pytest.mark.skipif(
    "remote" in os.environ.get(SPARK_VARIABLE, ""), reason="Spark Connect keeps plans to itself"
)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can thin out another source does."""
    for cost in ("_ASK_NS", "_BROADCAST_NS", "_SCAN_NS", "_BUILD_NS", "_PROBE_NS"):
        monkeypatch.setattr(semi_joins, cost, 0.0)


def frames(spark: SparkSession, tables: dict[str, pa.Table]) -> dict[str, DataFrame]:
    return {name: frame_of(delivered_table(table), spark) for name, table in tables.items()}


def thinned(text: str, given: dict[str, DataFrame], spark: SparkSession) -> set[str]:
    """Relations of which Spark drops rows."""
    planned = plan_query(text, given, spark=spark)
    return {name for block in planned.blocks for name in block.semi_joins}


@in_classic_spark
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_queries(spark: SparkSession, chunk: int) -> None:
    oracle = Oracle()
    n_thinned = 0
    first = 970_000 + chunk * N_GENERATED // CHUNKS
    for seed in range(first, first + N_GENERATED // CHUNKS):
        case, expected = oracle.bounded(make_case(seed, functions=False))
        given = frames(spark, case.tables)
        options = eddies.Options(cells=random.Random(seed).choice((None, 1, 2, 3)), seed=seed)
        n_thinned += bool(thinned(case.sql, given, spark))
        found = eddies.sql(case.sql, given, spark=spark, options=options).toArrow()
        assert_same_bag(found, expected, (seed, case))
    assert n_thinned > N_GENERATED / CHUNKS / 4


TABLES = {
    "a": pa.table(
        {
            "k": pa.array([None, None, *(i % 40 for i in range(300))], pa.int64()),
            "s": [None, "x", *(f"key number {i % 30}" for i in range(300))],
            "x": list(range(302)),
        }
    ),
    "b": pa.table(
        {
            "k": pa.array([None, 1, 1, 2, 3, 50, 7, 7], pa.int32()),
            "s": ["x", "key number 1", None, "key number 2", "x", None, "key number 7", "y"],
            "y": [1, 2, 3, 4, 5, 6, 7, 8],
        }
    ),
    "c": pa.table({"k": pa.array([1, 2, 2, None, 9], pa.int64()), "z": [1, 2, 3, 4, 5]}),
}
TEXTS = {
    "numbers of two widths": "SELECT a.x, b.y FROM a, b WHERE a.k = b.k AND b.y > 2",
    "two columns": "SELECT a.x, b.y FROM a, b WHERE a.k = b.k AND a.s = b.s AND b.y > 1",
    "texts": "SELECT a.x, b.y FROM a, b WHERE a.s = b.s AND b.y <> 4",
    "a chain": "SELECT a.x, b.y FROM a, b, c WHERE a.s = b.s AND b.k = c.k AND c.z < 4",
    "a class of three": "SELECT a.x, c.z FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND c.z > 1",
    "nothing passes": "SELECT a.x, b.y FROM a, b WHERE a.k = b.k AND b.y > 100",
    "in": "SELECT a.x FROM a, c WHERE a.k = c.k AND a.k IN (SELECT k FROM b WHERE y > 1)",
    "exists": "SELECT a.x FROM a, c WHERE a.k = c.k AND EXISTS "
    "(SELECT 1 FROM b WHERE b.k = a.k AND b.s <> a.s AND b.y > 1)",
    "not exists": "SELECT a.x FROM a, c WHERE a.k = c.k AND c.z > 1 AND NOT EXISTS "
    "(SELECT 1 FROM b WHERE b.k = a.k AND b.y > 2)",
    "not exists by a key that is not joined": "SELECT a.x FROM a, c WHERE a.x = c.z AND a.x > 0 "
    "AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "not in": "SELECT a.x FROM a, c WHERE a.k = c.k AND c.z > 1 AND a.k NOT IN "
    "(SELECT k FROM b WHERE y > 2)",
    "not in with NULL": "SELECT a.x FROM a, c WHERE a.k = c.k AND c.z > 1 AND a.k NOT IN "
    "(SELECT k FROM b)",
    "groups": "SELECT a.s, count(*) AS n FROM a, c WHERE a.k = c.k AND c.z > 1 GROUP BY a.s",
    "values of groups": "SELECT a.x FROM a, c WHERE a.k = c.k AND a.k IN "
    "(SELECT k FROM b GROUP BY k HAVING sum(y) > 4)",
    "itself": "SELECT p.x, q.x AS w FROM a p, a q, c WHERE p.k = q.k AND q.k = c.k AND c.z = 2",
    "above": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.y > 2",
}


EMPTY = [(text, name) for text in ("a chain", "not exists", "groups") for name in "abc"]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("name", "empty"), [*((name, None) for name in TEXTS), *EMPTY])
def test_the_same_bag_as_spark(spark: SparkSession, name: str, empty: str | None) -> None:
    text = TEXTS[name]
    tables = {n: t.slice(0, 0) if n == empty else t for n, t in TABLES.items()}
    given = frames(spark, tables)
    for table, frame in given.items():
        frame.createOrReplaceTempView(table)
    found = eddies.sql(text, given, spark=spark, options=eddies.Options(cells=2)).toArrow()
    assert_same_bag(found, spark.sql(text).toArrow(), text)


@in_classic_spark
@pytest.mark.usefixtures("eager")
def test_who_is_thinned_out(spark: SparkSession) -> None:
    given = frames(spark, TABLES)
    thin = {name: thinned(text, given, spark) for name, text in TEXTS.items()}
    assert thin["a chain"] == {"a", "b"}
    assert thin["exists"] == {"a", "c"}
    assert "b" not in thin["not in"]
    assert "a" in thin["values of groups"]
    assert thin["itself"] >= {"a as p", "a as q"}


N_FACTS = 1_000_000
N_FOUND = N_FACTS // 100
FACTS = "SELECT f.x, d.name FROM f, d WHERE f.k = d.k AND d.name = 'n7'"


@pytest.fixture
def star(tmp_path: Path) -> dict[str, pa.Table]:
    numbers = np.arange(N_FACTS)
    tables = {
        "f": pa.table({"k": numbers % 1000, "x": numbers}),
        "d": pa.table({"k": list(range(1000)), "name": [f"n{i % 100}" for i in range(1000)]}),
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return tables


@in_classic_spark
def test_few_rows_leave_spark(
    spark: SparkSession, tmp_path: Path, star: dict[str, pa.Table]
) -> None:
    given = {n: spark.read.parquet(str(tmp_path / f"{n}.parquet")).where("true") for n in star}
    text = eddies.explain(FACTS, given, spark=spark)
    assert "f: DataFrame, 1,000,000 rows" in text
    assert "only rows with keys of d" in text
    options = eddies.Options(trace_dir=str(tmp_path / "traces"))
    found = eddies.sql(FACTS, given, spark=spark, options=options).toArrow()
    assert found.num_rows == N_FOUND
    assert_same_bag(found, Oracle().answer(FACTS, star))
    seen = [source for trace in read_traces(tmp_path / "traces") for source in trace["sources"]]
    assert sum(source["arrived"] for source in seen if source["name"] == "f") == N_FOUND


@in_classic_spark
def test_only_what_gives_the_same_rows_again(
    spark: SparkSession, tmp_path: Path, star: dict[str, pa.Table]
) -> None:
    f, d = (spark.read.parquet(str(tmp_path / f"{n}.parquet")).where("true") for n in "fd")
    same = udf(lambda x: x, "long")
    d.createOrReplaceTempView("all_of_d")
    refused = {
        "the first rows": d.limit(1000),
        "at random": d.where("rand() < 2"),
        "one of several": d.dropDuplicates(["k"]),
        "a function in Python": d.where(same("k") >= 0),
        "a query in a condition": d.where("k IN (SELECT k FROM all_of_d LIMIT 1000)"),
        "a sample": d.sample(1.0),
        "groups": d.groupBy("k").agg({"name": "first"}).toDF("k", "name"),
    }
    for name, frame in refused.items():
        assert not plan_facts(frame).is_repeatable, name
        assert thinned(FACTS, {"f": f, "d": frame}, spark) == set(), name
        assert eddies.sql(FACTS, {"f": f, "d": frame}, spark=spark).count() == N_FOUND
    taken = {
        "a selection": d.where("k < 5000").select("name", "k"),
        "a union": d.where("k < 500").union(d.where("k >= 500")),
        "a view": spark.table("all_of_d"),
        "in memory": d.cache(),
    }
    for name, frame in taken.items():
        assert thinned(FACTS, {"f": f, "d": frame}, spark) == {"f"}, name
        assert eddies.sql(FACTS, {"f": f, "d": frame}, spark=spark).count() == N_FOUND
    d.unpersist()
    # A condition that is in the DataFrame counts as much as one in the text.
    text = "SELECT f.x, d.name FROM f, d WHERE f.k = d.k"
    assert thinned(text, {"f": f, "d": d}, spark) == set()
    assert thinned(text, {"f": f, "d": d.where("name = 'n7'")}, spark) == {"f"}


@in_classic_spark
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("name", "key"), [("texts", "xxhash64"), ("two columns", "xxhash64")])
def test_keys_take_few_bytes_whatever_they_are_made_of(
    spark: SparkSession, name: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts may be long, and nobody knows before how long."""
    eddies.sql(TEXTS[name], frames(spark, TABLES), spark=spark).explain("formatted")
    plan = capsys.readouterr().out
    modes = [line for line in plan.splitlines() if "HashedRelationBroadcastMode" in line]
    assert modes
    assert all("bigint" in line and "string" not in line for line in modes)
    assert key in plan


@in_classic_spark
def test_no_more_keys_than_the_driver_can_hold(
    spark: SparkSession,
    tmp_path: Path,
    star: dict[str, pa.Table],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {n: spark.read.parquet(str(tmp_path / f"{n}.parquet")).where("true") for n in star}
    assert most_keys(given["d"]) > 1000
    assert thinned(FACTS, given, spark) == {"f"}
    monkeypatch.setattr("eddies.spark.block.most_keys", lambda frame: 999)
    assert thinned(FACTS, given, spark) == set()
