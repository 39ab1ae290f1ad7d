"""The structure of plans: which predicate is of which kind, what runs above, what is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
import pytest

from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.query import (
    MAX_SOURCES,
    Aggregate,
    Aggregation,
    Equality,
    Filter,
    Query,
    Selection,
    UserFunction,
)
from eddies.errors import (
    PlanError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)
from eddies.hosts.local import sql
from eddies.sql import describe, plan

SCHEMAS = {
    "t": pa.schema(
        [
            ("k", pa.int32()),
            ("x", pa.int64()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("p", pa.decimal128(12, 2)),
            ("b", pa.bool_()),
            ("arr", pa.list_(pa.int32())),
        ]
    ),
    "u": pa.schema([("k", pa.int64()), ("y", pa.float64()), ("s", pa.string())]),
    "v": pa.schema([("k", pa.int32()), ("z", pa.int32())]),
}


def only_block(text: str, **options: bool) -> Query:
    """The query of a text that one block answers completely."""
    planned = plan(text, SCHEMAS, **options)
    assert planned.above is None
    assert len(planned.blocks) == 1
    return planned.blocks[0].query


def selections(condition: str) -> list[Expr]:
    query = only_block(f"SELECT x FROM t WHERE {condition}")
    return [selection.expr for selection in query.selections]


def test_equality_casts_the_narrower_side() -> None:
    query = only_block("SELECT x FROM t JOIN u ON t.k = u.k")
    left = Cast(Column("t", "k"), pa.int64())
    assert query.equalities == (Equality(left, Column("u", "k"), pa.int64()),)
    assert query.filters == ()


def test_predicates_by_kind() -> None:
    query = only_block(
        "SELECT a.x FROM t a, v b, v c WHERE a.k + 1 = b.k AND a.x = a.k AND a.k + b.k = c.k "
        "AND a.k <=> c.k"
    )
    one = Call("add", (Column("a", "k"), Literal(1, pa.int32())))
    assert query.equalities == (Equality(one, Column("b", "k"), pa.int32()),)
    assert [type(predicate) for predicate in query.selections] == [Selection]
    assert [predicate.expr.function for predicate in query.filters] == ["eq", "null_safe_eq"]
    assert all(isinstance(predicate, Filter) for predicate in query.filters)


def test_self_join_has_two_sources_of_one_table() -> None:
    query = only_block("SELECT a.x FROM t a, t b WHERE a.k = b.k")
    assert [(source.name, source.table) for source in query.sources] == [("a", "t"), ("b", "t")]


def test_sources_have_only_the_columns_that_are_read() -> None:
    query = only_block("SELECT x FROM t, u WHERE t.k = u.k")
    assert [source.schema.names for source in query.sources] == [["k", "x"], ["k"]]


def test_conditions_in_parentheses_are_conditions_of_their_own() -> None:
    query = only_block(
        "SELECT t.x FROM t, v, u WHERE t.k = v.k AND ((v.z = 1 AND t.x = u.k) AND (t.x = 2 OR v.z = 3))"
    )
    assert [(e.left, e.right) for e in query.equalities] == [
        (Column("t", "k"), Column("v", "k")),
        (Column("t", "x"), Column("u", "k")),
    ]
    assert len(query.selections) == 1
    assert len(query.filters) == 1


def test_common_factor_of_a_disjunction_becomes_an_equality() -> None:
    query = only_block(
        "SELECT x FROM t, v WHERE (t.k = v.k AND t.x = 1 AND v.z = 2) OR "
        "(t.k = v.k AND t.x = 3 AND v.z = 4)"
    )
    assert len(query.equalities) == 1
    assert len(query.filters) == 1
    assert len(query.selections) == 2  # implied: x is 1 or 3, z is 2 or 4


def test_negation_goes_inward() -> None:
    query = only_block("SELECT x FROM t, v WHERE NOT (t.k <> v.k OR t.x = 3)")
    assert len(query.equalities) == 1
    assert [predicate.expr.function for predicate in query.selections] == ["ne"]


def test_in_one_column_of_another_source_is_an_equality() -> None:
    query = only_block("SELECT t.x FROM t, u WHERE t.k IN (u.k)")
    assert query.equalities == only_block("SELECT t.x FROM t, u WHERE t.k = u.k").equalities


@pytest.mark.parametrize("condition", ["1 = 0", "FALSE", "NULL", "x > 3 AND 2 < 1", "NULL = 1"])
def test_condition_that_never_holds(condition: str) -> None:
    assert only_block(f"SELECT x FROM t WHERE {condition}").never


@pytest.mark.parametrize("condition", ["1 = 1", "TRUE", "TRUE OR x = 1", "NOT FALSE"])
def test_condition_that_always_holds(condition: str) -> None:
    query = only_block(f"SELECT x FROM t WHERE {condition}")
    assert (query.never, query.selections) == (False, ())


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        ("d >= '2020-01-31'", Literal(dt.date(2020, 1, 31), pa.date32())),
        ("x = 3", Literal(3, pa.int64())),
        ("x = '3'", Literal(3, pa.int64())),
        ("p = 1", Literal(Decimal(1), pa.decimal128(12, 2))),
        ("s = 'it''s'", Literal("it's", pa.string())),
    ],
)
def test_constants_are_converted_at_planning_time(condition: str, right: Literal) -> None:
    (call,) = selections(condition)
    assert isinstance(call, Call)
    assert call.args[1] == right


@pytest.mark.parametrize(
    ("item", "type"),
    [
        ("k + x", pa.int64()),
        ("k / 2", pa.float64()),
        ("p * (1 - p)", pa.decimal128(26, 4)),
        ("p + k", pa.decimal128(13, 2)),
        ("k DIV 2", pa.int64()),
        ("k + '1'", pa.int64()),
        ("coalesce(k, p)", pa.decimal128(12, 2)),
        ("CASE WHEN b THEN k END", pa.int32()),
        ("year(d)", pa.int32()),
        ("floor(p)", pa.decimal128(11, 0)),
    ],
)
def test_types_are_sparks(item: str, type: pa.DataType) -> None:
    assert only_block(f"SELECT {item} AS w FROM t").output[0].type == type


@pytest.mark.parametrize(
    ("item", "type"),
    [
        ("-2147483648", pa.int32()),
        ("-2147483648.0", pa.decimal128(11, 1)),
        ("-2.147483648E9", pa.float64()),
        ("-9223372036854775808", pa.int64()),
        ("-9223372036854775808.0", pa.decimal128(20, 1)),
    ],
)
def test_only_whole_numbers_fit_better_with_a_minus(item: str, type: pa.DataType) -> None:
    assert only_block(f"SELECT {item} AS v FROM t").output[0].type == type


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("T.X", "X"),
        ("x + 1", "(x + 1)"),
        ("Upper(s)", "upper(s)"),
        ("cast(x AS double)", "x"),
        ("cast(x AS double) + 1", "(CAST(x AS DOUBLE) + 1)"),
        ("date '2020-01-01'", "DATE '2020-01-01'"),
        ("date_add(d, 1)", "date_add(d, 1)"),
    ],
)
def test_unnamed_items_are_named_as_spark_names_them(item: str, name: str) -> None:
    assert only_block(f"SELECT {item} FROM t").output[0].name == name


def test_names_may_repeat() -> None:
    names = [output.name for output in only_block("SELECT * FROM t, u WHERE t.k = u.k").output]
    assert names == ["k", "x", "s", "d", "p", "b", "arr", "k", "y", "s"]


def test_using_shows_its_columns_once_and_first() -> None:
    names = [output.name for output in only_block("SELECT * FROM t JOIN u USING (s)").output]
    assert names == ["s", "k", "x", "d", "p", "b", "arr", "k", "y"]


def test_constant_rows_are_a_source() -> None:
    planned = plan("SELECT x FROM t, (VALUES (1, 'a'), (2, 'b')) c(i, j) WHERE k = i", SCHEMAS)
    assert planned.blocks[0].query.sources[1].table == "__const_0"
    assert planned.constants["__const_0"].to_pydict() == {"i": [1, 2], "j": ["a", "b"]}


def test_aggregation_in_the_block() -> None:
    query = only_block("SELECT s, sum(k) AS n, count(*) FROM t GROUP BY s", aggregate=True)
    assert query.aggregation is not None
    assert [group.name for group in query.aggregation.groups] == ["s"]
    assert query.aggregation.aggregates == (
        Aggregate("n", "sum", Cast(Column("t", "k"), pa.int64()), pa.int64()),
        Aggregate("count(1)", "count_star", None, pa.int64()),
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT avg(x) FROM t",
        "SELECT sum(x) AS n, s FROM t GROUP BY s",
        "SELECT sum(x) FROM t GROUP BY s",
        "SELECT sum(x) + 1 FROM t",
        "SELECT count(DISTINCT x) FROM t",
        "SELECT s, count(*) FROM t GROUP BY s HAVING count(*) > 1",
    ],
)
def test_other_aggregations_run_above(text: str) -> None:
    planned = plan(text, SCHEMAS, aggregate=True)
    assert planned.above is not None
    assert planned.blocks[0].query.aggregation is None
    assert "aggregation runs above" in planned.reasons


JOINED = "FROM t JOIN u ON t.k = u.k"


def partial(text: str) -> tuple[Aggregation, str]:
    """The aggregation of the only block of a plan for Spark, and the text above on one line."""
    planned = plan(text, SCHEMAS, host="spark")
    assert planned.above is not None
    aggregation = planned.blocks[0].query.aggregation
    assert aggregation is not None
    assert aggregation.partial
    assert planned.blocks[0].query.output == ()
    return aggregation, " ".join(planned.above.replace("`", "").split())


def test_partial_aggregates_are_merged_above() -> None:
    aggregation, above = partial(
        f"SELECT t.s, count(*) AS n, sum(p) AS p, min(y) AS y {JOINED} GROUP BY t.s"
    )
    assert [group.name for group in aggregation.groups] == ["s"]
    assert [(a.function, a.type) for a in aggregation.aggregates] == [
        ("count_star", pa.int64()),
        ("sum", pa.decimal128(22, 2)),
        ("min", pa.float64()),
    ]
    assert above == (
        "SELECT __eddy_0.s AS s, COALESCE(SUM(__eddy_0.__count_star_1), 0) AS n,"
        " CAST(SUM(__eddy_0.__sum_2) AS DECIMAL(22, 2)) AS p, MIN(__eddy_0.__min_3) AS y"
        " FROM __eddy_0 GROUP BY __eddy_0.s"
    )


def test_equal_aggregates_are_computed_once() -> None:
    aggregation, above = partial(
        f"SELECT sum(x) / count(x) AS q, avg(x) AS a {JOINED} HAVING sum(x) > 1 ORDER BY count(x)"
    )
    functions = [aggregate.function for aggregate in aggregation.aggregates]
    assert functions == ["sum", "count", "sum"]  # the mean adds doubles, the sum integers
    assert above.count("__count_2") == 3
    assert aggregation.groups == ()


def test_keys_are_known_by_alias_position_and_meaning() -> None:
    for key in ("g", "1", "t.k + 1", "(t.k + 1)"):
        text = f"SELECT t.k + 1 AS g, (k + 1) * 2 AS h, sum(x) AS n {JOINED} GROUP BY {key}"
        aggregation, above = partial(text.replace("(k", "(t.k"))
        assert len(aggregation.groups) == 1
        assert "__eddy_0.key_1 * 2 AS h" in above.replace("(__eddy_0.key_1)", "__eddy_0.key_1")


def test_a_constant_key_does_not_take_the_place_of_constants() -> None:
    _, above = partial(f"SELECT 1 AS one, round(sum(x), 1) AS n {JOINED} GROUP BY one ORDER BY 1")
    assert "1 AS one, ROUND(SUM(__eddy_0.__sum_1), 1) AS n" in above
    assert above.endswith("GROUP BY __eddy_0.key_1 ORDER BY 1")


def test_describe_shows_derived_sources_and_partial_aggregates() -> None:
    text = "SELECT count(*) FROM t, (SELECT k, max(y) AS m FROM u GROUP BY k) q WHERE t.k = q.k"
    said = describe(plan(text, SCHEMAS, host="spark", schema_of=schema_of))
    assert "  partial aggregate __count_star_1 bigint = count(*)" in said
    assert "source __derived_0, computed by Spark:" in said


def test_aggregates_that_ignore_duplicates_read_distinct_rows() -> None:
    aggregation, above = partial(f"SELECT t.s, count(DISTINCT x), max(y) {JOINED} GROUP BY t.s")
    assert [group.name for group in aggregation.groups] == ["s", "argument"]
    assert [a.function for a in aggregation.aggregates] == ["max"]
    assert "COUNT(DISTINCT __eddy_0.argument)" in above
    aggregation, _ = partial(f"SELECT DISTINCT t.s, y + 1 AS z {JOINED}")
    assert (len(aggregation.groups), aggregation.aggregates) == (2, ())


@pytest.mark.parametrize(
    "select",
    [
        "SELECT count(DISTINCT x), count(*)",
        "SELECT sum(x) FILTER (WHERE y > 1)",
        "SELECT collect_list(x)",
        "SELECT try_sum(x)",
        "SELECT stddev(x)",
        "SELECT sum(soundex(t.s))",
        "SELECT max(arr)",
        "SELECT sum(t.s)",
        "SELECT avg(CAST(x AS DECIMAL(38, 30)))",
        "SELECT count(x, y)",
        "SELECT sum(x), (SELECT max(z) FROM v WHERE v.k = t.k)",
    ],
)
def test_what_has_no_partial_form_reads_the_joined_rows(select: str) -> None:
    group = " GROUP BY t.k" if "t.k" in select else ""
    planned = plan(f"{select} {JOINED}{group}", SCHEMAS, host="spark")
    assert planned.blocks[0].query.aggregation is None
    assert "aggregation runs above" in planned.reasons


@pytest.mark.parametrize("group", ["ROLLUP (t.s)", "t.s WITH CUBE", "GROUPING SETS ((t.s), ())"])
def test_grouping_sets_read_the_joined_rows(group: str) -> None:
    planned = plan(f"SELECT t.s, sum(x) {JOINED} GROUP BY {group}", SCHEMAS, host="spark")
    assert planned.blocks[0].query.aggregation is None


def test_conditions_above_keep_aggregation_above() -> None:
    planned = plan(f"SELECT sum(x) {JOINED} WHERE soundex(t.s) = 'A1'", SCHEMAS, host="spark")
    assert planned.blocks[0].query.aggregation is None


@pytest.mark.parametrize(
    "text", ["SELECT x + 1 AS y FROM t WHERE k > 1", "SELECT 1", "SELECT sum(x) FROM t GROUP BY k"]
)
def test_spark_keeps_what_joins_nothing(text: str) -> None:
    planned = plan(text, SCHEMAS, host="spark")
    assert planned.blocks == ()
    assert planned.above == text
    assert planned.kept == ({"t"} if "FROM" in text else set())


def test_aggregate_is_for_one_process() -> None:
    with pytest.raises(PlanError, match="host='spark'"):
        plan("SELECT sum(x) FROM t", SCHEMAS, aggregate=True, host="spark")


def test_conditions_of_one_source_can_be_pushed_down() -> None:
    text = (
        "SELECT a.x FROM t a, t b, v WHERE a.k = b.k AND b.k = v.k AND a.d >= DATE '2020-01-01'"
        " AND a.s LIKE 'x%' AND odd(b.x) AND a.x + v.z > 3"
        " AND ((b.s = 'p' AND v.z = 1) OR (b.s = 'q' AND v.z = 2))"
    )
    odd = UserFunction("odd", lambda x: x % 2 == 1, pa.bool_())
    (block,) = plan(text, SCHEMAS, [odd]).blocks
    assert block.pushdown == {
        "a": ("`d` >= CAST('2020-01-01' AS DATE)", "`s` LIKE 'x%'"),
        "b": ("(`s` = 'p' OR `s` = 'q')",),
        "v": ("(`z` = 1 OR `z` = 2)",),
    }


def schema_of(text: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """What Spark would say of the few texts below."""
    assert set(schemas) == set(SCHEMAS)
    return pa.schema(
        [("value" if "DISTINCT" in text else "k", pa.int64()), ("m", pa.float64())][
            : 1 if "DISTINCT" in text else 2
        ]
    )


def test_subqueries_become_sources() -> None:
    text = "SELECT x FROM t, (SELECT k, max(y) AS m FROM u GROUP BY k) q WHERE t.k = q.k"
    planned = plan(text, SCHEMAS, host="spark", schema_of=schema_of)
    (block,) = planned.blocks
    assert [source.table for source in block.query.sources] == ["t", "__derived_0"]
    assert "GROUP BY" in planned.derived["__derived_0"]
    assert planned.kept == {"u"}
    assert planned.above is None
    assert plan(text, SCHEMAS, host="spark").blocks == ()


def test_in_is_a_join_with_distinct_values() -> None:
    text = "SELECT x FROM t, v WHERE t.k = v.k AND {} IN (SELECT k FROM u)"
    planned = plan(text.format("x"), SCHEMAS, host="spark", schema_of=schema_of)
    (block,) = planned.blocks
    assert [source.name for source in block.query.sources] == ["t", "v", "__values_0"]
    assert "SELECT DISTINCT" in planned.derived["__derived_0"]
    for other in ("t.s", "t.p", "x NOT", "soundex(t.s)"):  # another type, negated, not computable
        planned = plan(text.format(other), SCHEMAS, host="spark", schema_of=schema_of)
        assert planned.derived == {}
        assert planned.above is not None
        assert " IN (" in planned.above


def test_with_tables_are_derived_once_and_spelled_out() -> None:
    text = (
        "WITH q AS (SELECT k, max(y) AS m FROM u GROUP BY k), unused AS (SELECT max(k) AS k FROM u)"
        " SELECT a.m, b.m AS n FROM q a, q b, t WHERE a.k = b.k AND b.k = t.k"
    )
    planned = plan(text, SCHEMAS, host="spark", schema_of=schema_of)
    assert list(planned.derived) == ["__derived_0"]
    assert planned.derived["__derived_0"].startswith("WITH `q` AS")
    assert [s.table for s in planned.blocks[0].query.sources] == ["t", "__derived_0", "__derived_0"]


def test_correlated_subqueries_are_not_derived() -> None:
    text = "SELECT x FROM t, v WHERE t.k = v.k AND x IN (SELECT k FROM u WHERE u.s = t.s)"
    assert plan(text, SCHEMAS, host="spark", schema_of=schema_of).derived == {}


def test_dates_in_milliseconds_meet_dates() -> None:
    days = pa.array([18262, 18263, None], pa.int32()).cast(pa.date32())
    tables = {"a": pa.table({"d": days.cast(pa.date64())}), "b": pa.table({"d": days})}
    text = (
        "SELECT b.d FROM a, b WHERE a.d = b.d AND a.d > DATE '2020-01-01' AND a.d <> '2021-01-01'"
    )
    assert sql(text, tables)["d"].to_pylist() == [dt.date(2020, 1, 2)]


MOMENTS = {
    "a": pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("d", pa.date32()),
        ]
    ),
    "b": pa.schema([("at", pa.timestamp("us", "UTC"))]),
}


@pytest.mark.parametrize(
    "condition",
    [
        "hour(a.at) = 3",
        "a.at > '2020-01-01'",
        "a.at > TIMESTAMP '2020-01-01 00:00:00'",
        "a.at > a.d",
        "a.at > a.local",
        "CAST(a.at AS DATE) = a.d",
        "CAST(a.at AS STRING) = 'x'",
        "a.at + INTERVAL 1 DAY > b.at",
        "date_trunc('DAY', a.at) = b.at",
    ],
)
def test_conditions_that_depend_on_the_zone_run_above_outside_utc(condition: str) -> None:
    text = f"SELECT 1 AS n FROM a, b WHERE a.at = b.at AND {condition}"
    planned = plan(text, MOMENTS, time_zone="Europe/Berlin")
    assert planned.above is not None
    assert any("time zone" in reason for reason in planned.reasons)
    assert not any("time zone" in reason for reason in plan(text, MOMENTS).reasons)


def test_instants_are_compared_in_every_zone() -> None:
    text = (
        "SELECT a.at, hour(a.local) AS h FROM a, b WHERE a.at <= b.at AND a.at IS NOT NULL"
        " AND coalesce(a.at, b.at) = b.at AND a.d > DATE '2020-01-01'"
    )
    assert plan(text, MOMENTS, time_zone="Europe/Berlin").above is None


def test_constant_rows_that_depend_on_the_zone_are_left_to_spark() -> None:
    text = "SELECT a.d FROM a JOIN b ON a.at = b.at, VALUES (TIMESTAMP '2020-01-01 00:00:00') AS c (at)"
    assert plan(text, MOMENTS).constants
    assert not plan(text, MOMENTS, time_zone="Europe/Berlin").constants


@pytest.mark.parametrize(
    "condition",
    [
        *("t.k + 1 = 2", "t.x / 2 > 1", "CAST(s AS INT) = 1", "s = 1", "t.p * 2 > 1", "-t.x = 1"),
        *("coalesce(t.k, s) = 1", "CAST(t.x AS INT) = 1", "s IN (1, 2)", "z = CAST(1.5 AS FLOAT)"),
        *("CASE WHEN t.b THEN s ELSE t.k END = 1", "t.x % 2 = 0", "abs(t.k) = 1"),
    ],
)
def test_conditions_that_depend_on_ansi_mode_run_above_without_it(condition: str) -> None:
    text = f"SELECT 1 AS n FROM t, v WHERE t.k = v.k AND {condition}"
    planned = plan(text, SCHEMAS, ansi=False)
    assert planned.above is not None
    assert any("ansi" in reason for reason in planned.reasons)
    assert not any("ansi" in reason for reason in plan(text, SCHEMAS).reasons)


def test_what_does_not_depend_on_ansi_mode_stays_in_the_block() -> None:
    text = (
        "SELECT t.k, upper(t.s) AS s FROM t, u, v WHERE t.k = u.k AND t.x = v.k AND t.x > 3 AND t.p < 5"
        " AND t.d >= '2020-01-01' AND t.d < DATE '2021-01-01' AND u.y > 1 AND u.y + 1.5D < 2D"
        " AND t.s IN ('a', 'b') AND TRY_CAST(t.s AS INT) IS NULL AND coalesce(t.x, v.k) <> 1"
    )
    planned = plan(text, SCHEMAS, ansi=False)
    assert planned.above is None, planned.reasons


@pytest.mark.parametrize("type", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str)
def test_unsigned_integers_meet_literals_and_each_other(type: pa.DataType) -> None:
    schemas = {"a": pa.schema([("n", type), ("m", pa.int64())]), "b": pa.schema([("n", type)])}
    text = (
        "SELECT a.n + 1 AS more FROM a, b WHERE a.n = b.n AND a.n > 3 AND a.n < m AND a.n IN (5, 7)"
    )
    planned = plan(text, schemas)
    assert planned.above is None
    assert planned.blocks[0].query.equalities[0].type == type
    column = pa.array([3, 5, 7, 7, None], type)
    tables = {"a": pa.table({"n": column, "m": [9, 9, 9, 7, 9]}), "b": pa.table({"n": column})}
    assert sql(text, tables)["more"].to_pylist() == [6, 8, 8]


@pytest.mark.parametrize("type", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str)
def test_unsigned_columns_have_an_order(type: pa.DataType) -> None:
    tables = {"a": pa.table({"n": pa.array([0, 200, None], type)})}
    text = "SELECT x.n AS n, y.n AS m FROM a x, a y WHERE x.n < y.n OR (x.n = x.n AND x.n <> y.n)"
    found = sql(text, tables)
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == [(0, 200), (200, 0)]


def test_condition_with_a_spark_function_runs_above() -> None:
    planned = plan("SELECT x FROM t, v WHERE t.k = v.k AND soundex(s) = 'A1'", SCHEMAS)
    assert planned.above is not None
    assert "SOUNDEX" in planned.above
    assert len(planned.blocks[0].query.equalities) == 1


def test_an_item_with_a_spark_function_runs_above() -> None:
    planned = plan("SELECT soundex(s) AS sound FROM t, v WHERE t.k = v.k", SCHEMAS)
    assert planned.above is not None
    assert any("SELECT item" in reason and "SOUNDEX" in reason for reason in planned.reasons)


def test_a_number_beyond_all_doubles_is_left_to_spark() -> None:
    assert plan("SELECT 1e999 AS n FROM t, v WHERE t.k = v.k", SCHEMAS).above is not None


@pytest.mark.parametrize("key", ["1.5", "1e0", "'a'"])
def test_a_constant_that_is_no_position_is_a_group_key(key: str) -> None:
    text = f"SELECT {key} AS c, count(*) AS n FROM t GROUP BY {key}"
    assert sql(text, {"t": pa.table({"x": [1, 2]})})["n"].to_pylist() == [2]


def test_where_on_the_null_supplying_side_stays_above() -> None:
    planned = plan(
        "SELECT t.x FROM t LEFT JOIN (u JOIN v ON u.k = v.k) ON t.k = u.k "
        "WHERE coalesce(v.z, 1) = 1",
        SCHEMAS,
    )
    assert planned.blocks[0].query.selections == ()
    assert planned.kept == {"t"}


def test_an_outer_join_whose_added_rows_are_rejected_is_an_inner_join() -> None:
    for text in (
        "SELECT t.x FROM t LEFT JOIN (u JOIN v ON u.k = v.k) ON t.k = u.k WHERE v.z = 1",
        "SELECT t.x FROM u JOIN v ON u.k = v.k RIGHT JOIN t ON t.k = u.k WHERE NOT v.z IN (2, 3)",
        "SELECT t.x FROM t LEFT JOIN u ON t.k = u.k JOIN v ON u.k = v.k",
        "SELECT t.x FROM t FULL JOIN u ON t.k = u.k JOIN v ON t.k = v.k WHERE u.y IS NOT NULL",
        "SELECT t.x FROM t LEFT JOIN u ON t.k = u.k LEFT JOIN v ON u.k = v.k WHERE v.z + 1 > t.x",
    ):
        planned = plan(text, SCHEMAS)
        assert planned.kept == frozenset(), text
        assert len(planned.blocks[0].query.sources) == 3, text


def test_correlated_subquery_stays_with_spark() -> None:
    planned = plan(
        "SELECT x FROM t, v WHERE t.k = v.k AND EXISTS (SELECT 1 FROM u WHERE u.k = t.k)", SCHEMAS
    )
    assert planned.kept == {"u"}
    assert len(planned.blocks) == 1


def test_a_query_over_a_with_table_that_has_a_block_has_its_own() -> None:
    planned = plan(
        "WITH q AS (SELECT t.k, max(x) AS m FROM t, v WHERE t.k = v.k GROUP BY t.k) "
        "SELECT q.m FROM q, u, v WHERE q.k = u.k AND u.k = v.k",
        SCHEMAS,
    )
    assert len(planned.blocks) == 2
    assert planned.kept == frozenset()


def test_nothing_is_computed_early_below_a_condition_that_stays_above() -> None:
    planned = plan("SELECT 1 / x AS q FROM t, v WHERE t.k = v.k AND soundex(s) = 'A'", SCHEMAS)
    assert all(isinstance(output.expr, Column) for output in planned.blocks[0].query.output)


@pytest.mark.parametrize("expensive", [True, False])
def test_user_functions(expensive: bool) -> None:
    score = UserFunction("score", lambda x: x, pa.int64(), expensive=expensive)
    text = "SELECT score(x) FROM t, v WHERE score(x) > 3 AND score(x) > z AND score(x) = z"
    planned = plan(text, SCHEMAS, [score])
    query = planned.blocks[0].query
    assert planned.above is None
    assert [predicate.expensive for predicate in (*query.selections, *query.filters)] == [
        expensive,
        expensive,
    ]
    assert len(query.equalities) == 1


@pytest.mark.parametrize("name", ["upper", "add", "not a name"])
def test_user_function_with_a_taken_name(name: str) -> None:
    with pytest.raises(PlanError, match="rename"):
        plan("SELECT x FROM t", SCHEMAS, [UserFunction(name, abs, pa.int64())])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT x FROM t WHERE )", PlanError, "line 1, column 23"),
        ("", PlanError, "empty"),
        ("SELECT 1; SELECT 2", UnsupportedError, "2 statements"),
        ("DROP TABLE t", UnsupportedError, "DROP"),
        ("SELECT x FROM tt", UnknownNameError, "did you mean 't'"),
        ("SELECT xx FROM t", UnknownNameError, "did you mean 'x'"),
        ("SELECT t.xx FROM t", UnknownNameError, "did you mean 'x'"),
        ("SELECT w.x FROM t", UnknownNameError, "not a table of this FROM"),
        ("SELECT k FROM t, u", PlanError, "ambiguous: it could be t.k, u.k"),
        ("SELECT 1 FROM t a, u a", PlanError, "two relations"),
        ("SELECT x FROM t WHERE rand() > 0.5", UnsupportedError, "RAND"),
        ("SELECT x FROM t WHERE x = ?", UnsupportedError, "parameter"),
        ("SELECT x FROM t WHERE b = 1", TypeMismatchError, "boolean"),
        ("SELECT x FROM t WHERE x", TypeMismatchError, "boolean"),
        ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", UnsupportedError, "RECURSIVE"),
        ("SELECT x FROM t JOIN v USING (q)", UnknownNameError, "USING"),
        ("SELECT", PlanError, "without items"),
        ("SELECT x FROM t WHERE k IN (SELECT FROM v)", PlanError, "without items"),
    ],
)
def test_refusals(text: str, error: type[PlanError], message: str) -> None:
    with pytest.raises(error, match=message):
        plan(text, SCHEMAS)


def test_too_many_sources() -> None:
    sources = ", ".join(f"v v{number}" for number in range(MAX_SOURCES + 1))
    with pytest.raises(UnsupportedError, match=str(MAX_SOURCES)):
        plan(f"SELECT 1 FROM {sources}", SCHEMAS)


def test_describe_shows_blocks_and_what_runs_above() -> None:
    text = describe(plan("SELECT DISTINCT x FROM t, v WHERE t.k = v.k AND z > 1", SCHEMAS))
    assert "equality t.k = v.k as int" in text
    assert "selection v.z > 1" in text
    assert "because: DISTINCT runs above" in text


@pytest.mark.parametrize(
    "item", ["explode(array(u.k))", "count(*)", "try_sum(u.k)", "max(u.k) OVER ()"]
)
def test_exists_of_what_is_not_a_row_for_a_row_is_not_asked(item: str) -> None:
    text = f"SELECT t.x FROM t, v WHERE t.k = v.k AND EXISTS (SELECT {item} FROM u WHERE u.k = t.k)"
    planned = plan(text, SCHEMAS, host="spark", may_ask=True, direct=list(SCHEMAS))
    assert all(not block.query.exists for block in planned.blocks)


def test_one_table_is_asked_only_where_tasks_read() -> None:
    text = "SELECT t.x FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k)"
    (block,) = plan(text, SCHEMAS, host="spark", may_ask=True, direct=list(SCHEMAS)).blocks
    assert block.query.exists
    assert plan(text, SCHEMAS, host="spark", may_ask=True).blocks == ()
