"""Aggregates of a join, global and grouped, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddies.core import evaluate as evaluate_module
from eddies.core.expr import Call, Expr, Literal
from eddies.core.functions import FUNCTIONS
from eddies.core.modules import aggregate as aggregate_module
from eddies.core.modules import group_table
from eddies.core.options import Options
from eddies.core.query import Aggregate, Aggregation, Output
from eddies.core.state.columns import column_of
from eddies.errors import EvaluationError
from eddies.hosts.local import run
from tests.support.bag import assert_same_bag
from tests.support.small import answer, col, make_query

NAN = float("nan")


def aggregate_of(
    columns: dict[str, pa.Array],
    groups: list[str],
    aggregates: list[tuple[str, str | None, pa.DataType]],
    **settings: object,
) -> pa.Table:
    """Aggregates of one table `t`."""
    table = pa.table(columns)
    aggregation = Aggregation(
        tuple(Output(name, col(f"t.{name}"), table.schema.field(name).type) for name in groups),
        tuple(
            Aggregate(f"s{i}", function, None if arg is None else col(f"t.{arg}"), type_)  # type: ignore[arg-type]
            for i, (function, arg, type_) in enumerate(aggregates)
        ),
    )
    query = make_query({"t": table}, output=(), aggregation=aggregation)
    return answer(query, {"t": table}, **settings)  # type: ignore[arg-type]


ALL = [
    ("count_star", None, pa.int64()),
    ("count", "x", pa.int64()),
    ("sum", "x", pa.int64()),
    ("min", "x", pa.int64()),
    ("max", "x", pa.int64()),
]


def test_no_rows_give_one_global_row_and_no_group() -> None:
    empty = {"g": pa.array([], pa.int64()), "x": pa.array([], pa.int64())}
    assert aggregate_of(empty, [], ALL).to_pylist() == [
        {"s0": 0, "s1": 0, "s2": None, "s3": None, "s4": None}
    ]
    assert aggregate_of(empty, ["g"], ALL).num_rows == 0


def test_parts_that_arguments_share_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    functions = dict(FUNCTIONS)
    for name in ("multiply", "subtract"):
        known = FUNCTIONS[name]

        def counted(*values: Any, kernel: Any = known.kernel, name: str = name) -> Any:
            calls.append(name)
            return kernel(*values)

        functions[name] = replace(known, kernel=counted)
    monkeypatch.setattr(evaluate_module, "FUNCTIONS", functions)
    x, y, one = col("t.x"), col("t.y"), Literal(1, pa.int64())
    less = Call("subtract", (one, y))
    product = Call("multiply", (x, less))
    guarded = Call("if", (Call("gt", (y, one)), product, x))
    table = pa.table({"x": [1, 2, None, 4], "y": [5, None, 7, -8]})
    arguments = (product, Call("multiply", (product, product)), less, guarded, product, x)
    aggregation = Aggregation(
        (),
        tuple(Aggregate(f"s{i}", "sum", arg, pa.int64()) for i, arg in enumerate(arguments)),
    )
    found = answer(make_query({"t": table}, output=(), aggregation=aggregation), {"t": table})
    assert found.to_pylist() == [{"s0": 32, "s1": 1312, "s2": -1, "s3": 2, "s4": 32, "s5": 7}]
    assert sorted(calls) == ["multiply", "multiply", "subtract"]


def test_only_nulls() -> None:
    nulls = {"g": pa.array([None, None], pa.int64()), "x": pa.array([None, None], pa.int64())}
    expected = {"s0": 2, "s1": 0, "s2": None, "s3": None, "s4": None}
    assert aggregate_of(nulls, [], ALL).to_pylist() == [expected]
    assert aggregate_of(nulls, ["g"], ALL).to_pylist() == [{"g": None, **expected}]


@pytest.mark.parametrize("rows", [1, 2, None])
def test_null_is_a_group_of_its_own(rows: int | None) -> None:
    columns = {"g": pa.array([1, None, 1, None, 2]), "x": pa.array([1, 2, None, 4, 5])}
    found = aggregate_of(columns, ["g"], ALL, rows=rows)
    expected = pa.table(
        {
            "g": [1, None, 2],
            "s0": [2, 2, 1],
            "s1": [1, 2, 1],
            "s2": [1, 6, 5],
            "s3": [1, 2, 5],
            "s4": [1, 4, 5],
        }
    )
    assert_same_bag(found, expected)


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("rows", [1, 3, None])
@pytest.mark.parametrize("grouped", [False, True])
def test_nan_is_the_largest_number(type_: pa.DataType, rows: int | None, grouped: bool) -> None:
    columns = {
        "g": pa.array([1, 1, 1, 2, 2, 3, 3]),
        "x": pa.array([1.0, NAN, float("inf"), NAN, None, None, -2.0], type_),
    }
    wanted = [("min", "x", type_), ("max", "x", type_)]
    found = aggregate_of(columns, ["g"] if grouped else [], wanted, rows=rows)
    if grouped:
        expected = pa.table({"g": [1, 2, 3], "s0": [1.0, NAN, -2.0], "s1": [NAN, NAN, -2.0]})
    else:
        expected = pa.table({"s0": [-2.0], "s1": [NAN]})
    assert_same_bag(found, expected)


@pytest.mark.parametrize("rows", [1, None])
def test_zeros_of_both_signs_are_one_group_and_so_is_every_nan(rows: int | None) -> None:
    other_nan = pa.array([0xFFF8000000000001, 0x7FF8000000000000], pa.uint64()).view(pa.float64())
    columns = {"g": pa.concat_arrays([pa.array([0.0, -0.0, NAN]), other_nan])}
    found = aggregate_of(columns, ["g"], [("count_star", None, pa.int64())], rows=rows)
    assert_same_bag(found, pa.table({"g": [0.0, NAN], "s0": [2, 3]}))


def test_sum_is_exact_where_partial_sums_leave_the_range() -> None:
    high = 2**63 - 1
    found = aggregate_of({"x": pa.array([high, high, -high, -high + 5])}, [], ALL, rows=1)
    assert found["s2"].to_pylist() == [5]


@pytest.mark.parametrize("groups", [[], ["g"]])
def test_sum_beyond_its_type_is_an_error_that_names_it(groups: list[str]) -> None:
    columns = {"g": pa.array([1, 1]), "x": pa.array([2**63 - 1, 1])}
    with pytest.raises(EvaluationError, match="'s2' overflows int64; cast its argument"):
        aggregate_of(columns, groups, ALL)


def test_sum_of_integers_as_decimal_does_not_overflow() -> None:
    type_ = pa.decimal128(38, 0)
    found = aggregate_of({"x": pa.array([2**63 - 1] * 3)}, [], [("sum", "x", type_)])
    assert found["s0"].to_pylist() == [Decimal(3 * (2**63 - 1))]


@pytest.mark.parametrize("groups", [[], ["g"]])
def test_sum_of_decimals_beyond_38_digits_is_an_error(groups: list[str]) -> None:
    type_ = pa.decimal128(38, 0)
    columns = {"g": pa.array([1, 1]), "x": pa.array([Decimal(9 * 10**37)] * 2, type_)}
    with pytest.raises(EvaluationError, match="overflows"):
        aggregate_of(columns, groups, [("sum", "x", type_)])


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", None, "", "abc"]),
        pa.array([b"b", None, b"", b"\xff"]),
        pa.array([True, None, False, False]),
        pa.array([Decimal("1.5"), None, Decimal("-2"), Decimal(0)], pa.decimal128(38, 4)),
        pa.array([5, None, -1, 3], pa.timestamp("us")),
        pa.array([5, None, -1, 3], pa.date32()),
        pa.array([5, None, 2**64 - 1, 3], pa.uint64()),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("rows", [1, None])
def test_least_and_greatest_of_every_type(values: pa.Array, rows: int | None) -> None:
    present = [value for value in values.to_pylist() if value is not None]
    columns = {"g": pa.array([7] * len(values)), "x": values}
    wanted = [("min", "x", values.type), ("max", "x", values.type), ("count", "x", pa.int64())]
    expected = {"s0": min(present), "s1": max(present), "s2": 3}
    assert aggregate_of(columns, [], wanted, rows=rows).to_pylist() == [expected]
    assert aggregate_of(columns, ["g"], wanted, rows=rows).to_pylist() == [{"g": 7, **expected}]


@pytest.mark.parametrize("groups", [[], ["g"]])
def test_sum_of_unsigned_integers_above_the_signed_range(groups: list[str]) -> None:
    type_ = pa.decimal128(38, 0)
    columns = {"g": pa.array([1, 1]), "x": pa.array([2**64 - 1, 2**64 - 1], pa.uint64())}
    found = aggregate_of(columns, groups, [("sum", "x", type_)])
    assert found["s0"].to_pylist() == [Decimal(2 * (2**64 - 1))]


def test_many_partial_groups_are_merged_on_the_way() -> None:
    n = 200_000
    columns = {"g": pa.array(range(n)), "x": pa.array([1] * n)}
    options = Options(batch_rows=20_000)
    found = aggregate_of(columns, ["g"], ALL, options=options)
    assert found.num_rows == n
    assert set(found["s2"].to_pylist()) == {1}


@pytest.mark.parametrize(
    ("type_", "far"),
    [
        (pa.date32(), 4_000_000),
        (pa.date32(), -1_000_000),
        (pa.timestamp("us"), 2**60),
        (pa.timestamp("ns"), 2**60 + 1),
        (pa.timestamp("ns", "UTC"), 2**60 + 1),
        (pa.time64("ns"), 86_399_999_999_999),
    ],
)
def test_extremes_that_python_has_no_value_for(type_: pa.DataType, far: int) -> None:
    storage = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    values = pa.array([1, far, None], storage).cast(type_)
    wanted = [("min", "x", type_), ("max", "x", type_)]
    found = aggregate_of({"x": values}, [], wanted, rows=1)
    assert [found[name].cast(storage)[0].as_py() for name in ("s0", "s1")] == sorted([1, far])


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("rows", [1, None])
def test_least_and_greatest_of_types_that_arrow_does_not_compare(
    grouped: bool, rows: int | None
) -> None:
    halves = pa.array(np.array([1.5, np.nan, -2.0, 0.25], np.float16))
    durations = pa.array([5, None, -1, 3], pa.duration("us"))
    columns = {"g": pa.array([1, 1, 1, 1]), "h": halves, "x": durations}
    wanted = [("min", "h", pa.float16()), ("max", "h", pa.float16())]
    wanted += [("min", "x", durations.type), ("max", "x", durations.type)]
    found = aggregate_of(columns, ["g"] if grouped else [], wanted, rows=rows)
    assert found["s0"].to_pylist() == [-2.0]
    assert np.isnan(found["s1"][0].as_py())
    assert [found[name].cast(pa.int64()).to_pylist() for name in ("s2", "s3")] == [[-1], [5]]


def test_groups_of_types_that_arrow_does_not_compare() -> None:
    halves = pa.array(np.array([0.0, -0.0, np.nan, np.nan], np.float16))
    columns = {"h": halves, "d": pa.array([7, 7, None, None], pa.duration("s"))}
    found = aggregate_of(columns, ["h", "d"], [("count_star", None, pa.int64())])
    assert found.schema.types[:2] == [pa.float16(), pa.duration("s")]
    assert found["s0"].to_pylist() == [2, 2]


def partial_rows(n: int, n_groups: int, options: Options) -> tuple[list[pa.RecordBatch], pa.Table]:
    """The batches that a partial aggregation of `n` rows gives, and its input."""
    numbers = np.arange(n)
    table = pa.table(
        {
            "g": pa.array(numbers * 7919 % n_groups),
            "x": pa.array(numbers % 1000, mask=numbers % 11 == 0),
            "y": pa.array(numbers / 8, mask=numbers % 13 == 0),
            "p": pa.array(numbers).cast(pa.decimal128(19, 0)).cast(pa.decimal128(30, 2)),
        }
    )
    listed = [
        ("count_star", None, pa.int64()),
        ("count", "x", pa.int64()),
        ("sum", "x", pa.int64()),
    ]
    listed += [("min", "y", pa.float64()), ("max", "x", pa.int64())]
    listed += [("sum", "p", pa.decimal128(38, 2))]
    aggregation = Aggregation(
        (Output("g", col("t.g"), pa.int64()),),
        tuple(
            Aggregate(f"s{i}", function, None if arg is None else col(f"t.{arg}"), type_)  # type: ignore[arg-type]
            for i, (function, arg, type_) in enumerate(listed)
        ),
        partial=True,
    )
    query = make_query({"t": table}, output=(), aggregation=aggregation)
    return run(query, {"t": table}, options).table().to_batches(), table


def assert_merges_to(batches: list[pa.RecordBatch], table: pa.Table) -> None:
    how = [("s0", "sum"), ("s1", "sum"), ("s2", "sum"), ("s3", "min"), ("s4", "max"), ("s5", "sum")]
    merged = pa.Table.from_batches(batches).group_by("g").aggregate(how)
    merged = merged.rename_columns(["g", *(name for name, _ in how)])
    how = [
        ([], "count_all"),
        ("x", "count"),
        ("x", "sum"),
        ("y", "min"),
        ("x", "max"),
        ("p", "sum"),
    ]
    expected = table.group_by("g").aggregate(how).rename_columns(merged.column_names)
    order = [("g", "ascending")]
    assert merged.sort_by(order).equals(expected.cast(merged.schema).sort_by(order))


def test_partial_aggregation_passes_rows_on_where_groups_are_no_fewer() -> None:
    batches, table = partial_rows(400_000, 400_000, Options(batch_rows=10_000))
    assert_merges_to(batches, table)
    assert len(batches) > 10, "rows are held until the end"


def test_partial_aggregation_holds_a_bounded_number_of_groups() -> None:
    batches, table = partial_rows(1_600_000, 400_000, Options(batch_rows=50_000))
    assert_merges_to(batches, table)
    assert sum(batch.num_rows for batch in batches) > 400_000, "a group may come in several rows"


def judged_rows(n_rows: int, n_groups: int, options: Options, least: int | Expr) -> pa.Table:
    """Counts of groups, of which those with fewer than `least` rows, or for which it is not true, may
    be left out.
    """
    table = pa.table({"g": pa.array(np.arange(n_rows) * 7919 % n_groups)})
    having = least
    if isinstance(having, int):
        having = Call("ge", (col(".n"), Literal(having, pa.int64())))
    aggregation = Aggregation(
        (Output("g", col("t.g"), pa.int64()),),
        (Aggregate("n", "count_star", None, pa.int64()),),
        partial=True,
        having=having,
    )
    query = make_query({"t": table}, output=(), aggregation=aggregation)
    return run(query, {"t": table}, options).table()


@pytest.mark.parametrize("threads", [1, 2])
def test_groups_are_left_out_when_all_their_rows_are_there(threads: int) -> None:
    options = Options(batch_rows=100, threads=threads)
    found = judged_rows(1_050, 100, options, 11)
    assert found.num_rows == 50
    assert set(found["n"].to_pylist()) == {11}
    assert judged_rows(1_050, 100, options, 12).num_rows == 0
    assert judged_rows(0, 100, options, 1).num_rows == 0


def test_nothing_is_left_out_by_a_condition_that_fails() -> None:
    """What stands beside it in the text may keep it from groups on which it fails."""
    above_ten = Call("subtract", (col(".n"), Literal(10, pa.int64())))
    share = Call("int_divide", (Literal(100, pa.int64()), above_ten))
    condition = Call("gt", (share, Literal(2, pa.int64())))
    assert judged_rows(1_000, 100, Options(), condition).num_rows == 100
    assert judged_rows(1_100, 100, Options(), condition).num_rows == 100
    assert judged_rows(20_000, 100, Options(), condition).num_rows == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_is_left_out_once_groups_were_handed_out(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate_module, "_MOST_JUDGED", 60)
    found = judged_rows(1_050, 100, Options(batch_rows=100, threads=threads), 11)
    merged = found.group_by("g").aggregate([("n", "sum")])
    assert merged.num_rows == 100
    assert sorted(set(merged["n_sum"].to_pylist())) == [10, 11]


def test_partial_aggregation_of_few_groups_is_whole() -> None:
    batches, table = partial_rows(300_000, 50, Options(batch_rows=10_000))
    assert sum(batch.num_rows for batch in batches) == 50
    assert_merges_to(batches, table)


def mixed_table(n: int, seed: int) -> pa.Table:
    """Keys and values of every kind that groups are made of, with NULLs."""
    random = np.random.default_rng(seed)

    def column(values: npt.NDArray[np.int64], type_: pa.DataType) -> pa.Array:
        return pa.array(values, mask=random.random(n) < 0.1).cast(type_)

    numbers = random.integers(-6, 6, n)
    names = [
        None if number == 5 else "n" * (number + 6) + "key" * (number % 3) for number in numbers
    ]
    wide = pa.array([Decimal(int(number)) * 10**30 for number in numbers], pa.decimal128(38, 0))
    return pa.table(
        {
            "i": column(random.integers(-3, 3, n), pa.int32()),
            "d": column(random.integers(0, 3, n), pa.int32()).cast(pa.date32()),
            "s": pa.array(names),
            "w": wide,
            "f": pc.divide(column(numbers, pa.int64()).cast(pa.float64()), 0.0),
            "b": pc.greater(column(numbers, pa.int64()), 0),
            "x": column(random.integers(-(2**62), 2**62, n), pa.int64()),
            "p": pc.negate(wide),
            "y": column(numbers, pa.int64()).cast(pa.float64()),
            "t": column(random.integers(0, 10**9, n), pa.int64()).cast(pa.timestamp("us")),
        }
    )


SHAPES = [["i"], ["s"], ["w"], ["f"], ["i", "d"], ["i", "s"], ["s", "w", "b"], ["d", "f", "s", "i"]]


@pytest.mark.parametrize("keys", SHAPES, ids="-".join)
@pytest.mark.parametrize("rows", [7, None])
def test_groups_of_every_kind_of_key(keys: list[str], rows: int | None) -> None:
    table = mixed_table(500, len(keys))
    listed = [("count_star", None, pa.int64()), ("count", "s", pa.int64())]
    listed += [("sum", "i", pa.int64()), ("sum", "x", pa.decimal128(38, 0))]
    listed += [("sum", "p", pa.decimal128(38, 0)), ("sum", "y", pa.float64())]
    listed += [
        ("min", "d", pa.date32()),
        ("max", "t", pa.timestamp("us")),
        ("max", "i", pa.int32()),
    ]
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    found = aggregate_of(columns, keys, listed, rows=rows)
    assert_same_bag(found, expected_groups(table, keys, listed), keys)


def expected_groups(
    table: pa.Table, keys: list[str], listed: list[tuple[str, str | None, pa.DataType]]
) -> pa.Table:
    """The same, with dictionaries."""
    members: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        key = tuple("NaN" if row[k] is not None and row[k] != row[k] else row[k] for k in keys)
        members.setdefault(key, []).append(row)
    rows = []
    for key, group in members.items():
        answer = {k: NAN if part == "NaN" else part for k, part in zip(keys, key, strict=True)}
        for i, (function, name, _) in enumerate(listed):
            values = [row[name] for row in group if row[name] is not None] if name else group
            if function.startswith("count"):
                answer[f"s{i}"] = len(values)
            elif values:
                answer[f"s{i}"] = {"sum": sum, "min": min, "max": max}[function](values)
        rows.append(answer)
    fields = [(name, table.schema.field(name).type) for name in keys]
    fields += [(f"s{i}", type_) for i, (_, _, type_) in enumerate(listed)]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


LISTED: list[tuple[str, str | None, pa.DataType]] = [
    ("count_star", None, pa.int64()),
    ("count", "s", pa.int64()),
    ("sum", "x", pa.decimal128(38, 0)),
    ("sum", "p", pa.decimal128(38, 0)),
    ("sum", "y", pa.float64()),
    ("min", "d", pa.date32()),
    ("max", "t", pa.timestamp("us")),
    ("max", "i", pa.int32()),
]


def group_table_of(table: pa.Table, keys: list[str]) -> group_table.GroupTable:
    """The groups of `table`, whose rows come in pieces."""
    accumulators = []
    for i, (function, name, type_) in enumerate(LISTED):
        aggregate = Aggregate(f"s{i}", function, None, type_)  # type: ignore[arg-type]
        given = None if name is None else table.schema.field(name).type
        accumulator = group_table.accumulator_of(f"a{i}", aggregate, given)
        assert accumulator is not None
        accumulators.append(accumulator)
    groups = group_table.GroupTable([table.schema.field(key).type for key in keys], accumulators)
    for batch in table.to_batches(max_chunksize=70):
        side = [(column_of(batch.column(key)), None) for key in keys]
        values = [None if name is None else batch.column(name) for _, name, _ in LISTED]
        assert groups.add(side, batch.num_rows, values)
    return groups


@pytest.mark.parametrize("keys", [["i"], ["s"], ["w"], ["i", "s"], ["s", "w", "b"]], ids="-".join)
@pytest.mark.parametrize("n", [0, 30, 500, 9_000])
def test_a_table_absorbs_the_groups_of_another(keys: list[str], n: int) -> None:
    more = pa.table({"p": pa.array([Decimal(10**38 - 1)] * 3, pa.decimal128(38, 0))})
    first, second = mixed_table(500, 3), mixed_table(max(n, 30), 4).slice(0, n)
    if n:  # sums beyond 128 bits
        high = second.slice(0, 1).take([0, 0, 0]).set_column(7, "p", more["p"])
        first, second = pa.concat_tables([first, high]), pa.concat_tables([second, high])
    both = group_table_of(pa.concat_tables([first, second]), keys)
    one, other = group_table_of(first, keys), group_table_of(second, keys)
    assert one.absorb(other)
    assert one.n_groups == both.n_groups
    assert_same_bag(pa.table(one.columns()), pa.table(both.columns()), keys, 11)


def test_a_table_refuses_groups_of_other_kinds_or_that_it_cannot_tell_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = mixed_table(40, 1)
    other = table.set_column(7, "p", table["p"].cast(pa.decimal128(38, 1), safe=False))
    assert not group_table_of(table, ["i"]).absorb(group_table_of(other, ["i"]))
    assert not group_table_of(table, ["i"]).absorb(group_table_of(table, ["s"]))
    one, more = (group_table_of(table.slice(at, 1), ["i", "s"]) for at in (0, 1))

    def same_word(into: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> None:
        into[:] = one._words[0]

    monkeypatch.setattr(group_table, "mix_words", same_word)
    assert not one.absorb(more)
    assert one.n_groups == 1


@pytest.mark.parametrize("keys", [["i", "s"], ["s", "w", "b"]], ids="-".join)
def test_keys_that_only_share_a_word_are_told_apart(
    keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def same_word(into: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> None:
        into[:] = 1

    monkeypatch.setattr(group_table, "mix_words", same_word)
    table = mixed_table(300, 1)
    listed = [("count_star", None, pa.int64()), ("sum", "i", pa.int64())]
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    found = aggregate_of(columns, keys, listed, rows=20)
    assert_same_bag(found, expected_groups(table, keys, listed), keys)
