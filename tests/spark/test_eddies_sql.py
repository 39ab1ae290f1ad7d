"""`eddies.sql` against DuckDB and Spark SQL: any inputs, any number of cells, any policy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession

import eddies
from eddies.core.policies import POLICIES
from eddies.core.query import UserFunction
from eddies.errors import EddiesError, OptionError, SourceError, UnknownNameError, UnsupportedError
from eddies.sources.inline import delivered_table, frame_of
from eddies.spark import query as query_module
from eddies.spark.above import run_above
from eddies.spark.inputs import normal_schema
from eddies.spark.query import plan_query
from eddies.sql import SqlPlan, plan
from tests.support.bag import assert_same_bag
from tests.support.clusters import SPARK_VARIABLE
from tests.support.driving import Oracle
from tests.support.random_queries import make_case

N_GENERATED = 150
CHUNK = 30
CELLS = (None, 1, 2, 3, 8)


def facts(n: int = 20_000) -> dict[str, pa.Table]:
    """A star whose dimensions are small and whose facts have NULL keys and duplicates."""
    rng = random.Random(5)

    def keys(top: int) -> list[int | None]:
        return [None if rng.random() < 0.02 else rng.randrange(top) for _ in range(n)]

    return {
        "fact": pa.table(
            {
                "id": range(n),
                "a": pa.array(keys(300), pa.int64()),
                "b": pa.array(keys(50), pa.int32()),
                "day": pa.array([rng.randrange(19000, 19100) for _ in range(n)], pa.date32()),
            }
        ),
        "dim_a": pa.table({"k": range(250), "name": [f"a{i % 40}" for i in range(250)]}),
        "dim_b": pa.table(
            {
                "k": pa.array([i % 45 for i in range(60)], pa.int32()),
                "price": [i / 4 for i in range(60)],
            }
        ),
    }


STAR = """
    SELECT f.id, a.name, b.price, f.day FROM fact f, dim_a a, dim_b b
    WHERE f.a = a.k AND f.b = b.k AND b.price < 12 AND f.id % 3 = 0
"""

Given = Callable[[pa.Table, str, SparkSession, Path], object]


def as_frame(table: pa.Table, name: str, spark: SparkSession, folder: Path) -> object:
    return frame_of(delivered_table(table), spark).repartition(3)


def as_parquet(table: pa.Table, name: str, spark: SparkSession, folder: Path) -> object:
    path = folder / f"{name}.parquet"
    pq.write_table(table, path, row_group_size=max(1, table.num_rows // 3))
    return str(path)


def as_arrow(table: pa.Table, name: str, spark: SparkSession, folder: Path) -> object:
    return table


def as_csv(table: pa.Table, name: str, spark: SparkSession, folder: Path) -> object:
    path = folder / f"{name}.csv"
    csv.write_csv(table, path)
    return eddies.read.csv(str(path), schema=table.schema)


def as_json(table: pa.Table, name: str, spark: SparkSession, folder: Path) -> object:
    path = folder / f"{name}.json"
    rows = (json.dumps(row, default=str) for row in table.to_pylist())
    path.write_text("\n".join(rows))
    return eddies.read.json(str(path), schema=table.schema)


KINDS: tuple[Given, ...] = (as_frame, as_parquet, as_arrow)
TEXT_KINDS: tuple[Given, ...] = (as_csv, as_json)


@pytest.mark.parametrize("chunk", range(N_GENERATED // CHUNK))
def test_generated_queries(spark: SparkSession, tmp_path: Path, chunk: int) -> None:
    oracle = Oracle()
    policies = sorted(set(POLICIES) - {"static"})
    for seed in range(500_000 + chunk * CHUNK, 500_000 + (chunk + 1) * CHUNK):
        case, expected = oracle.bounded(make_case(seed, functions=False))
        rng = random.Random(f"spark {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        given = {n: rng.choice(KINDS)(t, n, spark, folder) for n, t in case.tables.items()}
        options = eddies.Options(
            policy=rng.choice(policies),
            cells=rng.choice(CELLS),
            batch_rows=rng.choice((1, 7, 1009, 262_144)),
            seed=seed,
        )
        found = eddies.sql(case.sql, given, spark=spark, options=options).toArrow()
        assert found.column_names == expected.column_names, case
        assert_same_bag(found, expected, (seed, options, case))
        for name, table in case.tables.items():
            frame_of(delivered_table(table), spark).createOrReplaceTempView(name)
        assert_same_bag(found, spark.sql(case.sql).toArrow(), (seed, options, case))


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_star_from_text_files(spark: SparkSession, tmp_path: Path, kind: Given) -> None:
    tables = facts()
    given = {name: kind(table, name, spark, tmp_path) for name, table in tables.items()}
    found = eddies.sql(STAR, given, spark=spark, options=eddies.Options(cells=2)).toArrow()
    assert_same_bag(found, Oracle().answer(STAR, tables))


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("kind", KINDS)
def test_star_in_any_form_and_cells(
    spark: SparkSession, tmp_path: Path, kind: Given, cells: int | None
) -> None:
    tables = facts()
    expected = Oracle().answer(STAR, tables)
    given = {name: kind(table, name, spark, tmp_path) for name, table in tables.items()}
    frame = eddies.sql(STAR, given, spark=spark, options=eddies.Options(cells=cells))
    assert_same_bag(frame.toArrow(), expected)


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"static"}))
def test_every_policy(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    tables = facts(3_000)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    options = eddies.Options(policy=policy, batch_rows=7, cells=2)
    found = eddies.sql(STAR, given, spark=spark, options=options).toArrow()
    assert_same_bag(found, Oracle().answer(STAR, tables))


def test_the_answer_is_a_dataframe_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(5_000)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    frame = eddies.sql(STAR, given, spark=spark)
    assert isinstance(frame, DataFrame)
    expected = Oracle().answer(STAR, tables)
    assert frame.columns == expected.column_names
    assert frame.count() == expected.num_rows
    frame.write.mode("overwrite").parquet(str(tmp_path / "written"))
    written = spark.read.parquet(str(tmp_path / "written"))
    assert_same_bag(written.toArrow(), expected)
    names = spark.createDataFrame(tables["dim_a"]).select("name").distinct()
    joined = frame.join(names, "name").cache()
    assert joined.count() == expected.num_rows
    assert_same_bag(frame.toArrow(), expected, "the second run")


def test_nothing_runs_before_an_action(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(100)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    trace = tmp_path / "trace"
    options = eddies.Options(trace_dir=str(trace))
    frame = eddies.sql(STAR, given, spark=spark, options=options)
    assert not trace.exists()
    frame.collect()
    assert list(trace.iterdir())


def test_a_text_is_planned_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {n: as_parquet(t, n, spark, tmp_path) for n, t in facts(100).items()}
    wider = facts(100)
    wider["fact"] = wider["fact"].append_column("name", pa.array(["f"] * 100))
    (tmp_path / "wider").mkdir()
    others = {n: as_parquet(t, n, spark, tmp_path / "wider") for n, t in wider.items()}
    planned = []

    def counted(*args: Any, **named: Any) -> SqlPlan:
        planned.append(args[0])
        return plan(*args, **named)

    monkeypatch.setattr(query_module, "plan", counted)
    text = "SELECT count(*) AS n, sum(fact.id) AS s FROM fact, dim_a WHERE a = k -- once"
    first = eddies.sql(text, tables, spark=spark)
    again = eddies.sql(text, tables, spark=spark)
    assert planned == [text]
    assert first.toArrow().equals(again.toArrow())
    eddies.sql(text, others, spark=spark)
    assert planned == [text, text], "other columns, another plan"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        eddies.sql(text, tables, spark=spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert planned == [text, text, text], "another zone, another plan"


@pytest.mark.parametrize(
    "above",
    [
        "SELECT sum(id) AS `{s}`, count(*) AS n, '{}' AS t FROM e",
        "SELECT x.id, x.id AS id, x.`a b` + 1 AS `c``d` FROM e AS x",
        "SELECT * FROM e",
        "SELECT count(*) AS n FROM e AS x WHERE x.id > 1",
        "SELECT x.id, count(*) AS n FROM e AS x GROUP BY x.id ORDER BY x.id",
        "SELECT DISTINCT x.`a b` FROM e AS x",
        "SELECT sum(x.id) AS s, (SELECT max(id) FROM e) AS m FROM e AS x",
        "SELECT count(*) AS n FROM e AS x, e AS y",
        "SELECT count(x.p) AS n FROM e AS x (p, q)",
    ],
)
def test_what_runs_above_is_the_same_without_a_view(spark: SparkSession, above: str) -> None:
    frame = spark.createDataFrame(pa.table({"id": [1, 2, 3], "a b": [5, 5, None]}))
    frame.createOrReplaceTempView("e")
    try:
        expected = spark.sql(above).toArrow()
    finally:
        spark.catalog.dropTempView("e")
    found = run_above(spark, above, {"E": frame}).toArrow()
    assert found.schema == expected.schema
    assert_same_bag(found, expected, above)


@pytest.mark.parametrize("rest", ["", " GROUP BY dim_b.price"])
def test_a_small_join_is_one_stage(spark: SparkSession, tmp_path: Path, rest: str) -> None:
    given = facts(1_000)
    tables = {n: as_parquet(t, n, spark, tmp_path) for n, t in given.items()}
    text = f"SELECT count(*) AS n, sum(id) AS s FROM fact, dim_b WHERE b = k{rest}"
    found = eddies.sql(text, tables, spark=spark)
    in_two = eddies.sql(text, tables, spark=spark, options=eddies.Options(cells=2))
    for frame, has_exchange in ((found, False), (in_two, True)):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            frame.explain()
        assert ("Exchange" in shown.getvalue()) == has_exchange
    expected = Oracle().answer(text, given)
    assert_same_bag(found.toArrow(), expected, text)
    assert_same_bag(in_two.toArrow(), expected, text)


def test_self_join_of_the_largest_table(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(3_000)
    text = """
        SELECT x.id, y.id FROM fact x, fact y, dim_a a
        WHERE x.a = y.a AND x.a = a.k AND x.id < y.id
    """
    expected = Oracle().answer(text, tables)
    for kind in KINDS:
        given = {name: kind(table, name, spark, tmp_path) for name, table in tables.items()}
        found = eddies.sql(text, given, spark=spark, options=eddies.Options(cells=3))
        assert_same_bag(found.toArrow(), expected)


def test_outer_joins_subqueries_and_unions_run_above(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(4_000)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    text = """
        WITH s AS (SELECT f.id, a.name, f.b FROM fact f JOIN dim_a a ON f.a = a.k)
        SELECT s.name, count(*) AS n, max(b.price) AS p
        FROM s LEFT JOIN dim_b b ON s.b = b.k AND b.price > 3
        WHERE s.id IN (SELECT x.id FROM fact x JOIN dim_b y ON x.b = y.k WHERE y.price < 9)
        GROUP BY s.name HAVING count(*) > 1
        UNION ALL
        SELECT 'all', count(*), sum(b.price) FROM fact f, dim_b b WHERE f.b = b.k
    """
    found = eddies.sql(text, given, spark=spark).toArrow()
    assert_same_bag(found, Oracle().answer(text, tables))
    assert len(plan_query(text, given, spark=spark).blocks) >= 3


def test_empty_inputs(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(500)
    tables["dim_a"] = tables["dim_a"].slice(0, 0)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    assert eddies.sql(STAR, given, spark=spark).count() == 0
    text = "SELECT count(*) AS n, sum(f.id) AS s FROM fact f, dim_a a WHERE f.a = a.k"
    assert [tuple(r) for r in eddies.sql(text, given, spark=spark).collect()] == [(0, None)]


def test_user_functions_in_eddies_and_above(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(500)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    odd = UserFunction("is_odd", lambda x: x is not None and x % 2 == 1, pa.bool_())
    text = "SELECT f.id, is_odd(f.id) AS o FROM fact f, dim_a a WHERE f.a = a.k AND is_odd(a.k)"
    found = eddies.sql(text, given, spark=spark, functions=[odd]).toArrow()
    plain = text.replace("is_odd(f.id)", "f.id % 2 = 1").replace("is_odd(a.k)", "a.k % 2 = 1")
    assert_same_bag(found, Oracle().answer(plain, tables))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_with_odd_names(spark: SparkSession, tmp_path: Path, kind: Given) -> None:
    """PySpark's own `mapInArrow` takes a dot for a part of a struct, and a backtick for a quote."""
    tables = {
        "t": pa.table({"x.y": [1, 2, 3], "a`b": [3, 2, 1], "select": [7, 8, 9]}),
        "u": pa.table({"A b": [1, 2], "k.": [1, 2]}),
    }
    text = """
        SELECT t.`x.y`, t.`a``b` + 1 AS more, u.`A b` FROM t, u
        WHERE t.`x.y` = u.`k.` AND t.`select` > 7 AND t.`a``b` < 3
    """
    given = {name: kind(table, name, spark, tmp_path) for name, table in tables.items()}
    found = eddies.sql(text, given, spark=spark).toArrow()
    assert found.to_pylist() == [{"x.y": 2, "more": 3, "A b": 2}]


def test_what_is_wrong_is_said_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(10)
    with pytest.raises(UnknownNameError, match="nowhere"):
        eddies.sql("SELECT * FROM fact f, nowhere n WHERE f.a = n.k", tables, spark=spark)
    with pytest.raises(SourceError, match=r"dim_a.*dict"):
        eddies.sql(STAR, {**tables, "dim_a": {}}, spark=spark)
    with pytest.raises(EddiesError, match="missing"):
        eddies.sql(STAR, {**tables, "dim_a": str(tmp_path / "missing.parquet")}, spark=spark)
    with pytest.raises(OptionError, match="cells"):
        eddies.Options(cells=0)
    product = "SELECT f.id FROM fact f, dim_a a, dim_b b WHERE f.a = a.k"
    with pytest.raises(UnsupportedError, match="connect all sources"):
        eddies.sql(product, tables, spark=spark, options=eddies.Options(state="joins"))
    with pytest.raises(OptionError, match="threads=2"):
        eddies.sql(STAR, tables, spark=spark, options=eddies.Options(state="stairs", threads=2))
    with pytest.raises(OptionError, match="order"):
        eddies.sql(STAR, tables, spark=spark, options=eddies.Options(order=("stem:nobody",)))


def test_an_error_in_an_eddy_names_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables = facts(1_000)
    given = {name: as_parquet(table, name, spark, tmp_path) for name, table in tables.items()}
    text = "SELECT f.id FROM fact f, dim_a a WHERE f.a = a.k AND 1 / (f.id - 700) > 5"
    with pytest.raises(Exception, match=r"(?s)[Dd]ivi.*rows [0-9,]+ to [0-9,]+ of 'fact'.*in cell"):
        eddies.sql(text, given, spark=spark).collect()


def killing(kill: Callable[[], None], mark: Path) -> UserFunction:
    """A predicate that is always true, and calls `kill` once, in the middle of the rows."""

    def survives(value: int) -> bool:
        if 9_000 <= value < 9_100:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                return True
            kill()
        return True

    return UserFunction("survives", survives, pa.bool_())


def check_exact_after(
    kill: Callable[[], None], spark: SparkSession, folder: Path, cells: int | None
) -> None:
    tables = facts(20_000)
    given = {name: as_parquet(table, name, spark, folder) for name, table in tables.items()}
    mark = folder / "killed"
    text = "SELECT f.id, a.name FROM fact f, dim_a a WHERE f.a = a.k AND survives(f.id)"
    options = eddies.Options(cells=cells, batch_rows=512)
    functions = [killing(kill, mark)]
    found = eddies.sql(text, given, spark=spark, functions=functions, options=options).toArrow()
    assert mark.exists(), "nothing was killed"
    plain = text.replace(" AND survives(f.id)", "")
    assert_same_bag(found, Oracle().answer(plain, tables))


@pytest.mark.parametrize("cells", [1, 2])
def test_a_killed_python_worker_changes_nothing(
    spark: SparkSession, tmp_path: Path, cells: int
) -> None:
    if os.environ.get(SPARK_VARIABLE) == "connect":
        pytest.skip("its local mode does not try a failed task again")
    check_exact_after(lambda: os.kill(os.getpid(), 9), spark, tmp_path, cells)


def test_a_killed_executor_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    if not os.environ.get(SPARK_VARIABLE, "").startswith("spark://"):
        pytest.skip("the executor of an embedded Spark is this process")

    def kill() -> None:
        import psutil

        for parent in psutil.Process().parents():
            if parent.name().startswith("java"):
                os.kill(parent.pid, 9)
                return

    check_exact_after(kill, spark, tmp_path, 2)


@pytest.mark.parametrize("asked", ["none", "one", "with NULL"])
def test_cells_that_get_no_row_of_what_they_ask(spark: SparkSession, asked: str) -> None:
    keys = {"none": [], "one": [3], "with NULL": [3, None]}[asked]
    tables = {
        "a": pa.table({"k": pa.array([*range(20), None], pa.int64()), "x": list(range(21))}),
        "c": pa.table({"k": pa.array([*range(20), None], pa.int64())}),
        "b": pa.table({"k": pa.array(keys, pa.int64())}),
    }
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    inputs = dict(tables) | {"b": spark.createDataFrame(tables["b"])}
    for condition in (
        "NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
        "EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
        "a.k NOT IN (SELECT k FROM b)",
        "a.k IN (SELECT k FROM b)",
    ):
        text = f"SELECT a.x FROM a, c WHERE a.k = c.k AND {condition}"
        for cells in (None, 3):
            found = eddies.sql(text, inputs, spark=spark, options=eddies.Options(cells=cells))
            assert_same_bag(found.toArrow(), spark.sql(text).toArrow(), (text, cells))


@pytest.mark.parametrize(
    "type_",
    [pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.decimal128(30, 2), pa.decimal128(9, 4)],
    ids=str,
)
def test_types_that_are_known_without_spark_are_those_of_spark(
    spark: SparkSession, type_: pa.DataType
) -> None:
    from eddies.spark.query import _schema_of
    from eddies.sql.known_types import known_columns
    from eddies.sql.parse import parse

    schemas = {
        "t": pa.schema([("k", pa.string()), ("x", type_)]),
        "u": pa.schema([("K", pa.int64())]),
    }
    text = """
    SELECT a.k AS k, u.k AS `other`, min(a.X) AS low, max(a.x) AS high, sum(a.x) AS total,
           count(a.x) AS n, count(*) AS rows, avg(a.x) AS mean, 0.2 * avg(a.x) AS part,
           sum(a.x * (1 - a.x)) AS products, sum(a.x) / 7.0 AS share, max(a.x + a.x) - min(u.K) AS span,
           12345678901 * count(*) AS many, min(u.K) * 3 + 1 AS whole, min(u.K) / 3 AS third
    FROM T a JOIN u ON u.k = 1 GROUP BY a.k, u.k
    """
    known = known_columns(parse(text), schemas, {})
    assert known is not None
    asked = normal_schema(_schema_of(spark, text, schemas))
    assert [(f.name, f.type) for f in known] == [(f.name, f.type) for f in asked]
    assert known_columns(parse(text), schemas, {"t": None}) is None, "a WITH table hides the other"
    for item in ("nothing.x", "a.k + 1", "a.x * 'two'", "upper(a.k)", "a.x + NULL"):
        plain = parse(f"SELECT {item} AS v FROM t a")
        assert known_columns(plain, schemas, {}) is None
