"""Plans mean what the text means: DuckDB runs the text, and DuckDB runs the plan of the text."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from eddies.core.evaluate import type_of
from eddies.core.expr import Column, Expr
from eddies.core.query import Query
from eddies.sql import SqlPlan, plan
from tests.support.cells import block_outputs
from tests.support.duckdb_sql import query_sql, quoted

TPCH = Path(__file__).parent / "tpch"
TPCH_NAMES = sorted(path.stem for path in TPCH.glob("q*.sql"))


def to_duckdb(text: str) -> str:
    """Spark SQL as DuckDB reads it; casts stay strict."""
    return sqlglot.transpile(text, read="spark", write="duckdb")[0].replace("TRY_CAST(", "CAST(")


def rounded(value: object) -> object:
    """Numbers to ten digits: sums of doubles depend on the order of their terms."""
    return f"{float(value):.10g}" if isinstance(value, float | Decimal | int) else value


def bag(rows: list[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """Rows with their multiplicity."""
    return Counter(tuple(rounded(value) for value in row) for row in rows)


def run_plan(db: duckdb.DuckDBPyConnection, planned: SqlPlan) -> tuple[list[str], list[tuple]]:
    """The plan's answer: blocks as temporary tables, then the text above."""
    cursor = db.cursor()
    for name, table in planned.constants.items():
        cursor.register(name, table)
    for block in planned.blocks:
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE {quoted(block.name)} AS " + unique(block.query)
        )
    if planned.above is None:
        answer = cursor.execute(query_sql(planned.blocks[0].query))
    else:
        answer = cursor.execute(to_duckdb(planned.above))
    return [column[0] for column in answer.description or ()], answer.fetchall()


def unique(query: Query) -> str:
    """A block's SELECT with column names a table can have: the answer's names may repeat."""
    names = [output.name for output in query.output]
    if query.aggregation is not None or len({name.lower() for name in names}) == len(names):
        return query_sql(query)
    listed = ", ".join(quoted(f"c{position}") for position in range(len(names)))
    return f"SELECT * FROM ({query_sql(query)}) AS block_output({listed})"


def check_types(query: Query) -> None:
    """Every expression of the block is one the evaluator accepts, with the type the plan says."""
    fields = {(s.name, f.name): f.type for s in query.sources for f in s.schema}
    functions = {function.name: function for function in query.functions}

    def typed(expr: Expr) -> pa.DataType:
        return type_of(expr, lambda c: column_type(c), functions)

    def column_type(column: Column) -> pa.DataType:
        return fields[column.source, column.name]

    for predicate in (*query.selections, *query.filters):
        assert typed(predicate.expr) == pa.bool_()
    for equality in query.equalities:
        assert typed(equality.left) == typed(equality.right) == equality.type
    for output in query.output:
        assert typed(output.expr) == output.type, output
    if query.aggregation is not None:
        for group in query.aggregation.groups:
            assert typed(group.expr) == group.type


def check(db: duckdb.DuckDBPyConnection, text: str, planned: SqlPlan) -> None:
    for block in planned.blocks:
        check_types(block.query)
    expected = db.cursor().execute(to_duckdb(text)).fetchall()
    _, found = run_plan(db, planned)
    missing, extra = bag(expected) - bag(found), bag(found) - bag(expected)
    assert not missing + extra, f"missing {list(missing)[:3]}, extra {list(extra)[:3]}"


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run(
        [program, "parquet", "-s", "0.01", "--output-dir", folder], check=True, timeout=120
    )
    with duckdb.connect() as db:
        for path in folder.glob("*.parquet"):
            db.execute(f"CREATE TABLE {path.stem} AS SELECT * FROM '{path}'")
        yield db


def schemas_of(db: duckdb.DuckDBPyConnection) -> dict[str, pa.Schema]:
    names = [row[0] for row in db.execute("SHOW TABLES").fetchall()]
    names = [name for name in names if not name.startswith("__")]
    return {name: db.sql(f"SELECT * FROM {name} LIMIT 0").to_arrow_table().schema for name in names}


@pytest.mark.parametrize("name", TPCH_NAMES)
def test_tpch_plan_gives_the_answer_of_the_text(tpch: duckdb.DuckDBPyConnection, name: str) -> None:
    text = (TPCH / f"{name}.sql").read_text()
    check(tpch, text, plan(text, schemas_of(tpch)))


def test_all_tpch_queries_are_there() -> None:
    assert [f"q{number:02}" for number in range(1, 23)] == TPCH_NAMES


@pytest.fixture(scope="module")
def small() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        db.execute(
            """
            CREATE TABLE t AS SELECT CAST(i % 7 AS INTEGER) AS k, CAST(i AS BIGINT) AS x,
              CASE WHEN i % 5 = 0 THEN NULL ELSE 's' || (i % 4) END AS s,
              DATE '2020-01-01' + CAST(i AS INTEGER) AS d, CAST(i / 4 AS DECIMAL(12,2)) AS p
            FROM range(40) r(i)
            """
        )
        db.execute("INSERT INTO t VALUES (NULL, NULL, 's1', NULL, NULL)")
        db.execute(
            """
            CREATE TABLE u AS SELECT CAST(i % 6 AS BIGINT) AS k, i / 3 AS y, 's' || (i % 3) AS s
            FROM range(25) r(i)
            """
        )
        db.execute("INSERT INTO u VALUES (NULL, 1.5, NULL), (99, NULL, 's9')")
        db.execute(
            "CREATE TABLE v AS SELECT CAST(i AS INTEGER) AS k, CAST(i * 2 AS INTEGER) AS z "
            "FROM range(5) r(i)"
        )
        yield db


TEXTS = [
    "WITH q AS (SELECT t.k, max(x) AS m FROM t, v WHERE t.k = v.k GROUP BY t.k)"
    " SELECT q.m, u.y FROM q, u, v WHERE q.k = u.k AND u.k = v.k",
    "SELECT x FROM t, v WHERE t.k = v.k AND x > (WITH q AS (SELECT t.k, max(z) AS m FROM t, v"
    " WHERE t.k = v.k GROUP BY t.k) SELECT max(q.m) FROM q, u, v WHERE q.k = u.k AND u.k = v.k)",
    "SELECT a.x, b.y + 1 FROM t a JOIN u b ON a.k = b.k WHERE a.d >= '2020-01-10' AND a.x +"
    " b.y > 3",
    "SELECT * FROM t JOIN u USING (k)",
    "SELECT k, s, x, y FROM t NATURAL JOIN u",
    "SELECT k FROM t JOIN v USING (k) JOIN u USING (k)",
    "SELECT a.*, b.z FROM t a, v b WHERE a.k = b.k AND a.p * (1 - a.p) < 0.5",
    "SELECT a.x, b.x FROM t a, t b WHERE a.k = b.k AND a.x < b.x",
    "SELECT * FROM v a CROSS JOIN v b",
    "SELECT a.x FROM t a, u b, v c WHERE a.k + b.k = c.k",
    "SELECT a.x FROM t a, u b WHERE a.k <=> b.k",
    "SELECT a.x FROM t a, u b WHERE a.k + 1 = b.k AND a.x = a.k",
    "SELECT q.kk, v.z FROM (SELECT k + 1 AS kk, s FROM t WHERE x > 3) q JOIN v ON q.kk = v.k",
    "SELECT x FROM (t JOIN u ON t.k = u.k) JOIN v ON v.k = t.k WHERE NOT (t.k <> 2 OR v.z = 1)",
    "SELECT x FROM t, u, v WHERE (t.k = u.k AND t.k = v.k AND z = 2) OR (t.k = u.k AND t.k"
    " = v.k AND z = 4)",
    "SELECT t.x, c.j FROM t, (VALUES (1, 'a'), (2, 'b'), (3, NULL)) c(i, j) WHERE t.k = c.i",
    "SELECT t.x FROM t, (SELECT 1 AS k) c WHERE t.k = c.k",
    "SELECT * FROM t WHERE 1 = 0",
    "SELECT * FROM t, v WHERE NULL",
    "SELECT t.x FROM t, v WHERE TRUE AND t.k = v.k",
    "SELECT 1 AS a, 'x' AS b, 1 AS a",
    "SELECT t.x, v.z FROM t LEFT JOIN v ON t.k = v.k AND v.z > 2 WHERE t.x < 20",
    "SELECT t.x, v.z FROM t LEFT JOIN v ON t.k = v.k WHERE v.z IS NULL",
    "SELECT t.x, v.z FROM t LEFT JOIN v ON t.k = v.k AND t.x > 10",
    "SELECT t.x, q.w FROM t LEFT JOIN (SELECT v.k, coalesce(v.z, 0) + 1 AS w FROM v JOIN u"
    " ON v.k = u.k) q"
    " ON t.k = q.k",
    "SELECT t.x, q.w FROM t LEFT JOIN (SELECT v.k, u.y AS w FROM v JOIN u ON v.k = u.k"
    " WHERE u.y > 1) q"
    " ON t.k = q.k WHERE q.w IS NULL OR q.w < 5",
    "SELECT t.x, u.y, v.z FROM t LEFT JOIN u ON t.k = u.k JOIN v ON v.k = t.k WHERE t.x > 5",
    "SELECT t.x, u.y, v.z FROM t LEFT JOIN u ON t.k = u.k JOIN v ON v.k = u.k",
    "SELECT t.x, v.z FROM t RIGHT JOIN v ON t.k = v.k AND t.x > 30 WHERE v.z > 0",
    "SELECT t.x, v.z FROM t FULL JOIN v ON t.k = v.k AND t.x > 3 WHERE t.x IS NULL OR v.z > 2",
    "SELECT k, x, z FROM t FULL JOIN v USING (k)",
    "SELECT t.x FROM t JOIN u ON t.k = u.k LEFT SEMI JOIN v ON v.k = t.k",
    "SELECT t.x FROM t JOIN u ON t.k = u.k LEFT ANTI JOIN v ON v.k = t.k AND v.z > 2",
    "SELECT s, count(*) AS n, sum(x) AS sx FROM t JOIN v ON t.k = v.k GROUP BY s HAVING"
    " count(*) > 1",
    "SELECT t.k + 1 AS g, (t.k + 1) * 2 AS h, sum(u.y * 2) AS sy FROM t, u WHERE t.k = u.k"
    " GROUP BY t.k + 1",
    "SELECT t.k + u.k AS g, count(*) AS n FROM t, u WHERE t.k = u.k GROUP BY t.k, u.k",
    "SELECT t.s, v.z FROM t, v WHERE t.k = v.k GROUP BY 1, 2",
    "SELECT DISTINCT t.k * 2 AS g FROM t, v WHERE t.k = v.k ORDER BY g",
    "SELECT t.x FROM t, v WHERE t.k = v.k ORDER BY t.x DESC, v.z LIMIT 4",
    "SELECT count(*) FROM t, v",
    "SELECT x, row_number() OVER (PARTITION BY t.k ORDER BY x) AS n FROM t, v WHERE t.k = v.k",
    "SELECT x FROM t UNION ALL SELECT v.z FROM t, v WHERE t.k = v.k",
    "WITH q AS (SELECT t.k, x FROM t, v WHERE t.k = v.k) SELECT a.x, b.x FROM q a, q b"
    " WHERE a.k = b.k",
    "WITH q AS (SELECT k, max(x) AS m FROM t GROUP BY k) SELECT q.m, u.y FROM q, u, v"
    " WHERE q.k = u.k AND u.k = v.k",
    "SELECT x FROM t, v WHERE t.k = v.k AND t.x IN (SELECT max(t.x) FROM t, u WHERE t.k ="
    " u.k GROUP BY t.s)",
    "SELECT x FROM t, v WHERE t.k = v.k AND EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.y > v.z)",
    "SELECT x, (SELECT max(y) FROM u WHERE u.k = t.k) AS m FROM t, v WHERE t.k = v.k",
    "SELECT x FROM t, v WHERE t.k = v.k AND hash(x) IS NOT NULL",
    "SELECT x FROM t, u WHERE t.s = u.s AND t.s LIKE 's%' AND t.s NOT LIKE '%2' AND u.s IN"
    " ('s1', 's2')",
    "SELECT upper(t.s) || '-' || substring(u.s, 1, 1) AS w, year(d) AS yr FROM t, u WHERE"
    " t.k = u.k",
    "SELECT CASE WHEN t.x > 3 THEN t.p ELSE 0 END AS c, coalesce(t.k, -1) AS k FROM t, v"
    " WHERE t.x = v.z",
    "SELECT a.x FROM t a WHERE a.d BETWEEN date '2020-01-05' AND date '2020-01-05' +"
    " interval '2' month",
    "SELECT x / 2 AS h, x % 3 AS m, x DIV 2 AS q, -x AS n FROM t",
    "SELECT a.x FROM t a, (SELECT a.k FROM v a, u b WHERE a.k = b.k) b WHERE a.k = b.k",
    "SELECT t.x + 1 AS y, y * 2 AS w FROM t, v WHERE t.k = v.k",
]


@pytest.mark.parametrize("text", TEXTS)
def test_plan_gives_the_answer_of_the_text(small: duckdb.DuckDBPyConnection, text: str) -> None:
    check(small, text, plan(text, schemas_of(small)))


AGGREGATES = [
    "SELECT count(*), count(t.s), sum(x), min(p), max(d), sum(p), sum(u.y) FROM t, u WHERE"
    " t.k = u.k",
    "SELECT t.k + 1 AS g, t.s, sum(v.z) AS sz FROM t, v WHERE t.k = v.k GROUP BY t.s, t.k + 1",
    "SELECT s, count(*) AS n FROM t GROUP BY s",
]


@pytest.mark.parametrize("text", AGGREGATES)
def test_block_aggregation_gives_the_answer_of_the_text(
    small: duckdb.DuckDBPyConnection, text: str
) -> None:
    planned = plan(text, schemas_of(small), aggregate=True)
    assert planned.above is None
    assert planned.blocks[0].query.aggregation is not None
    check(small, text, planned)


def arrow_tables(db: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    return {name: db.sql(f"SELECT * FROM {name}").to_arrow_table() for name in schemas_of(db)}


def check_cells(
    db: duckdb.DuckDBPyConnection,
    text: str,
    tables: dict[str, pa.Table],
    cells: tuple[int, ...] = (1, 2, 3),
) -> SqlPlan:
    """The plan for Spark, its blocks run in several cells, gives the text's answer."""

    def answered(text: str, given: Mapping[str, pa.Table]) -> pa.Table:
        cursor = db.cursor()
        for name, table in given.items():
            cursor.register(name, table)
        return cursor.sql(to_duckdb(text)).to_arrow_table()

    def schema_of(text: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        return answered(f"SELECT * FROM ({text}) AS analysed LIMIT 0", {}).schema

    schemas = {name: table.schema for name, table in tables.items()}
    planned = plan(text, schemas, host="spark", schema_of=schema_of)
    expected = bag(db.cursor().execute(to_duckdb(text)).fetchall())
    for block in planned.blocks:
        check_types(block.query)
    for n_cells in cells:
        outputs = block_outputs(planned, tables, n_cells, answered)
        above = planned.above or f"SELECT * FROM {planned.blocks[-1].name}"
        cursor = db.cursor()
        for name, table in outputs.items():
            cursor.register(name, table)
        found = bag(cursor.execute(to_duckdb(above)).fetchall())
        missing, extra = expected - found, found - expected
        assert not missing + extra, f"{n_cells} cells: missing {missing}, extra {extra}"
    return planned


@pytest.mark.parametrize("name", TPCH_NAMES)
def test_tpch_in_cells(tpch: duckdb.DuckDBPyConnection, name: str) -> None:
    check_cells(tpch, (TPCH / f"{name}.sql").read_text(), arrow_tables(tpch), (2,))


# Ties make the row numbers of one text depend on the order of rows; one has no FROM.
IN_CELLS = [text for text in TEXTS if "OVER (PARTITION" not in text and "FROM" in text]


@pytest.mark.parametrize("text", IN_CELLS)
def test_plan_in_cells(small: duckdb.DuckDBPyConnection, text: str) -> None:
    check_cells(small, text, arrow_tables(small), (3,))


DERIVED = [
    "SELECT t.x, q.m FROM t, (SELECT k, max(y) AS m FROM u GROUP BY k) q WHERE t.k = q.k",
    "SELECT t.x FROM t, v WHERE t.k = v.k AND t.s IN (SELECT s FROM u WHERE y > 2)",
    "SELECT t.x FROM t, v WHERE t.k = v.k AND t.k IN (SELECT k FROM u)",
    "SELECT t.x FROM t, v WHERE t.k = v.k AND t.x + 1 IN (SELECT k FROM u) AND t.s NOT IN"
    " (SELECT s FROM u WHERE s IS NOT NULL AND y > 7)",
    "SELECT sum(x) AS n FROM t, v WHERE t.k = v.k AND t.k IN (SELECT u.k FROM u, v WHERE u.k = v.k"
    " GROUP BY u.k HAVING count(*) > 3)",
    "SELECT t.x FROM t, v WHERE t.k = v.k AND t.k IN (SELECT k FROM u WHERE y > 1000)",
    "SELECT t.x FROM t, v WHERE t.k = v.k AND (t.k IN (SELECT k FROM u WHERE y > 5) OR t.x < 9)",
    "WITH q AS (SELECT k, count(*) AS n FROM u GROUP BY k), r AS (SELECT n, max(k) AS m FROM q"
    " GROUP BY n) SELECT a.n, b.n AS c, t.x, r.m FROM q a, q b, t, r WHERE a.k = b.k AND b.k = t.k"
    " AND r.n = b.n",
    "WITH q AS (SELECT u.k, sum(z) AS n FROM u, v WHERE u.k = v.k GROUP BY u.k)"
    " SELECT t.s, sum(q.n) AS a, count(*) AS b FROM t, q, v WHERE t.k = q.k AND v.k = q.k"
    " AND q.n > (SELECT avg(n) FROM q) - 100 GROUP BY t.s",
    "SELECT t.x, q.b FROM t JOIN (SELECT k, y FROM u UNION SELECT k, z FROM v) AS q(a, b) ON t.k ="
    " q.a LEFT JOIN v ON v.k = q.a AND v.z > 2",
    "SELECT t.x FROM t, v WHERE t.k = v.k AND t.p IN (SELECT y FROM u)",
    "SELECT a.n, b.m FROM (SELECT k, count(*) AS n FROM t GROUP BY k) a, (SELECT k, max(y) AS m"
    " FROM u GROUP BY k) b WHERE a.k = b.k",
    "SELECT t.x FROM t, (SELECT DISTINCT k FROM u ORDER BY k LIMIT 3) q, v WHERE t.k = q.k AND"
    " v.k = t.k AND t.k IN (SELECT v.k FROM v WHERE v.z IN (SELECT x FROM t, u WHERE t.k = u.k))",
]


@pytest.mark.parametrize("text", DERIVED)
def test_derived_sources_in_cells(small: duckdb.DuckDBPyConnection, text: str) -> None:
    check_cells(small, text, arrow_tables(small))


def test_joins_of_values_below_an_outer_join(small: duckdb.DuckDBPyConnection) -> None:
    """The text above is one that parsers read: `(VALUES (1) JOIN ...)` is not."""
    check_cells(
        small,
        "SELECT c.j, u.y FROM (VALUES (1, 'a'), (2, NULL)) c(i, j) JOIN (t CROSS JOIN v LEFT JOIN u"
        " ON u.k = t.x) ON t.k = c.i LEFT SEMI JOIN v AS w ON w.k = c.i",
        arrow_tables(small),
    )
    check_cells(
        small,
        "SELECT x, c.j FROM t LEFT JOIN ((VALUES (1, 'a'), (2, NULL)) AS c(i, j) JOIN u ON u.k = c.i)"
        " ON t.k = c.i AND t.x > u.y",
        arrow_tables(small),
    )


def test_an_alias_is_free_again_after_a_semi_join(small: duckdb.DuckDBPyConnection) -> None:
    text = (
        "SELECT t.x, v.k FROM (t LEFT SEMI JOIN u AS v ON t.k = v.k) JOIN v ON v.k = t.k"
        " LEFT ANTI JOIN u AS w ON w.k = v.z"
    )
    check_cells(small, text, arrow_tables(small))


def test_a_column_may_be_of_an_outer_relation_of_the_same_alias(
    small: duckdb.DuckDBPyConnection,
) -> None:
    text = (
        "SELECT r.x FROM t AS r JOIN v ON r.k = v.k"
        " WHERE EXISTS (SELECT 1 FROM u AS r WHERE r.k = v.k AND r.y < r.x)"
    )
    check_cells(small, text, arrow_tables(small))


JOINED = ("t", "u", "v", "t AS a", "u AS b", "(SELECT k, z + 1 AS z FROM v) AS c")
COLUMNS = {"t": "x", "u": "y", "v": "z", "a": "x", "b": "y", "c": "z"}
CONDITIONS = (
    *("{0} > 3", "{0} IS NULL", "{0} IS NOT NULL", "NOT ({0} > 3)", "{0} <=> {1}", "{0} < {1}"),
    *("{0} BETWEEN 2 AND {1}", "{0} NOT BETWEEN 2 AND {1}", "{0} IN (1, 2, 6)", "{0} + {1} <> 4"),
    *("{0} NOT IN (1, 2)", "coalesce({0}, 5) > 3", "({0} > 3 OR {1} > 3)", "({0} > 3 OR {0} < 1)"),
    *("(CASE WHEN {0} > 3 THEN 1 ELSE 2 END) = 2", "({0} IS NULL OR {1} = 4)", "abs(-{0}) >= 2"),
    "({0} > 2 AND {1} > 2 OR {0} < 2 AND {1} < 2)",
)


@pytest.mark.parametrize("seed", range(250))
def test_generated_outer_joins(small: duckdb.DuckDBPyConnection, seed: int) -> None:
    choose = random.Random(seed)
    tables = choose.sample(JOINED, choose.randint(2, 4))
    names = [table.split()[-1] for table in tables]

    def condition() -> str:
        first, second = (f"{name}.{COLUMNS[name]}" for name in choose.choices(names, k=2))
        return choose.choice(CONDITIONS).format(first, second)

    def joined(first: int, last: int) -> str:
        """Tables `first` to `last`, in any tree of joins."""
        if first == last:
            return tables[first]
        cut = choose.randrange(first, last)
        kind = choose.choice(("LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"))
        near, far = choose.randint(first, cut), choose.randint(cut + 1, last)
        right = joined(cut + 1, last)
        right = right if cut + 1 == last else f"({right})"
        return f"{joined(first, cut)} {kind} {right} ON {names[near]}.k = {names[far]}.k"

    items = ", ".join(f"{name}.{COLUMNS[name]} AS c{n}" for n, name in enumerate(names))
    where = " AND ".join(condition() for _ in range(choose.randint(1, 3)))
    text = f"SELECT {items} FROM {joined(0, len(tables) - 1)} WHERE {where}"
    check(small, text, plan(text, schemas_of(small)))


PIECES = {
    "aggregates": [
        *(
            "count(*)",
            "count(s)",
            "sum(x)",
            "sum(p)",
            "avg(x)",
            "avg(CAST(p AS DOUBLE))",
            "avg(y)",
            "min(d)",
        ),
        *("max(s)", "min(p)", "sum(y)", "max(x) - min(x)", "sum(x) / count(*)", "1 + count(k)"),
        *("sum(CASE WHEN x > 10 THEN p ELSE 0 END)", "count(CASE WHEN s = 's1' THEN 1 END)"),
        *("sum(p * (1 - p))", "min(upper(s))", "max(-y)", "sum(CAST(k AS SMALLINT))"),
    ],
    "groups": ["s", "k", "k + 1", "upper(s)", "d", "p", "x % 3", "y", "k > 2", "k, s", "s, x % 2"],
    "having": ["", "", "HAVING count(*) > 1", "HAVING max(x) > 20 OR min(s) IS NULL"],
    "where": ["", "", "AND x > 5", "AND x > 1000", "AND s IS NULL", "AND y < x"],
}


@pytest.mark.parametrize("seed", range(40))
def test_generated_aggregates_in_cells(small: duckdb.DuckDBPyConnection, seed: int) -> None:
    choose = random.Random(seed)
    items = choose.sample(PIECES["aggregates"], choose.randint(1, 5))
    group = choose.choice(["", *PIECES["groups"]])
    items = [*(group.split(", ") if group else []), *items]
    listed = ", ".join(f"{item} AS c{position}" for position, item in enumerate(items))
    joined = "(SELECT t.k, t.x, t.s, t.d, t.p, u.y FROM t JOIN u ON t.k = u.k) q"
    where = choose.choice(PIECES["where"])
    text = f"SELECT {listed} FROM {joined} WHERE TRUE {where}"
    text += f" GROUP BY {group}" if group else ""
    text += f" {choose.choice(PIECES['having'])}"
    planned = check_cells(small, text, arrow_tables(small), (1, 3))
    assert planned.blocks[0].query.aggregation is not None


def test_values_of_an_in_leave_their_block_once_each(small: duckdb.DuckDBPyConnection) -> None:
    text = (
        "SELECT t.x FROM t JOIN v ON t.k = v.k WHERE t.k IN (SELECT u.k FROM u JOIN v ON u.k = v.k)"
    )
    planned = check_cells(small, text, arrow_tables(small))
    inner = planned.blocks[0].query
    assert inner.sources[0].name == "u"
    assert inner.aggregation is not None
