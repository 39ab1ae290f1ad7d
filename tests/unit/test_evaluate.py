"""Contract of `type_of`, `evaluate`, `keep` and `render`: NULLs, emptiness, laziness, errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal as D

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.evaluate import evaluate, keep, render, type_of
from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.functions import FUNCTIONS
from eddies.core.query import UserFunction
from eddies.errors import (
    EvaluationError,
    PlanError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)

BOOL, I32, I64, F64, STR = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string()
TS = pa.timestamp("us", "UTC")
A, B, S = Column("t", "a"), Column("t", "b"), Column("t", "s")


def call(name: str, *args: Expr) -> Call:
    return Call(name, args)


def i64(value: int | None) -> Literal:
    return Literal(value, I64)


def text(value: str | None) -> Literal:
    return Literal(value, STR)


def reader(**columns: pa.Array) -> Callable[[Column], pa.Array]:
    return lambda column: columns[column.name]


def types(**columns: pa.DataType) -> Callable[[Column], pa.DataType]:
    return lambda column: columns[column.name]


def values(expr: Expr, n_rows: int, **columns: pa.Array) -> list[object]:
    result = evaluate(expr, reader(**columns), n_rows, {})
    result.validate(full=True)
    assert len(result) == n_rows
    return result.to_pylist()


# One well-typed call of every function: sample values, which become columns, and the arguments that
# must be literals.
DATE, WHEN = date(2024, 1, 31), datetime(2024, 1, 31, 10)
ONE, TWO = Literal(1, I32), Literal(2, I32)
X, Y = text("xax"), text("x")
HALF, DAY, INSTANT = Literal(0.5, F64), Literal(DATE, pa.date32()), Literal(WHEN, TS)
YES = Literal(True, BOOL)
SAMPLES: dict[str, tuple[list[Literal], list[Literal]]] = {
    **{name: ([ONE, TWO], []) for name in ("add", "subtract", "multiply", "modulo", "int_divide")},
    **{name: ([HALF, HALF], []) for name in ("divide", "power")},
    **{name: ([ONE], []) for name in ("negate", "abs")},
    **{name: ([HALF], []) for name in ("floor", "ceil", "sign", "sqrt", "exp", "ln", "log10")},
    **{name: ([ONE, TWO], []) for name in ("eq", "ne", "lt", "le", "gt", "ge", "nullif")},
    "round": ([HALF], [ONE]),
    "in_list": ([ONE], [ONE, TWO]),
    "not": ([YES], []),
    "xor": ([YES, YES], []),
    **{name: ([X], []) for name in ("upper", "lower", "reverse", "length")},
    **{name: ([X], [Y]) for name in ("trim", "ltrim", "rtrim", "like", "ilike", "rlike")},
    "substring": ([X, ONE, ONE], []),
    **{name: ([X, ONE], []) for name in ("left", "right", "repeat")},
    **{name: ([X, TWO, Y], []) for name in ("lpad", "rpad")},
    **{name: ([X, Y], []) for name in ("concat", "starts_with", "ends_with", "contains", "instr")},
    "locate": ([Y, X], []),
    "replace": ([X, Y, Y], []),
    "split_part": ([X, Y, ONE], []),
    **{
        name: ([DAY], [])
        for name in (
            *("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear"),
            *("weekofyear", "last_day", "to_date"),
        )
    },
    **{name: ([INSTANT], []) for name in ("hour", "minute", "second", "unix_micros")},
    **{name: ([DAY, ONE], []) for name in ("date_add", "date_sub", "add_months")},
    "datediff": ([DAY, DAY], []),
    "date_trunc": ([INSTANT], [text("month")]),
    "add_interval": ([INSTANT], [ONE, ONE, i64(1)]),
    "timestamp_diff": ([INSTANT, INSTANT], []),
}
OWN_NULL_RULES = {
    *("and", "or", "is_null", "is_not_null", "is_nan", "null_safe_eq", "case", "if", "coalesce"),
    *("greatest", "least", "concat_ws"),
}
ONLY_FIRST_COUNTS = {"nullif"}  # NULLIF(a, NULL) is a


def sample_call(name: str) -> tuple[Call, list[Literal]]:
    """A call of `name` on columns c0, c1, ..., and a sample value for each column."""
    samples, literals = SAMPLES[name]
    columns = tuple(Column("t", f"c{position}") for position in range(len(samples)))
    args = (*literals, *columns) if name == "date_trunc" else (*columns, *literals)
    return Call(name, args), samples


def test_samples_cover_every_function() -> None:
    assert set(SAMPLES) | OWN_NULL_RULES == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_null_in_any_argument_gives_null(name: str) -> None:
    expr, samples = sample_call(name)
    n_rows = 1 + len(samples)  # row 0 has no NULL, row k has one in argument k - 1
    columns = {}
    for position, sample in enumerate(samples):
        column: list[object] = [sample.value] * n_rows
        column[position + 1] = None
        columns[f"c{position}"] = pa.array(column, sample.type)
    result = values(expr, n_rows, **columns)
    assert result[0] is not None
    counted = 1 if name in ONLY_FIRST_COUNTS else len(samples)
    assert result[1 : counted + 1] == [None] * counted


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_empty_and_all_null_columns(name: str) -> None:
    expr, samples = sample_call(name)
    expected = type_of(expr, lambda column: samples[int(column.name[1:])].type, {})
    for n_rows in (0, 9):
        columns = {f"c{k}": pa.nulls(n_rows, sample.type) for k, sample in enumerate(samples)}
        result = evaluate(expr, reader(**columns), n_rows, {})
        assert result.type == expected
        assert result.to_pylist() == [None] * n_rows


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("offset", [1, 7, 8, 13])
def test_slices_across_bytes_of_the_null_bitmap(name: str, offset: int) -> None:
    expr, samples = sample_call(name)
    n_rows = 21
    whole = {
        f"c{k}": pa.array(
            [None if (row + k) % 3 == 0 else sample.value for row in range(offset + n_rows)],
            sample.type,
        )
        for k, sample in enumerate(samples)
    }
    sliced = {name: array[offset:] for name, array in whole.items()}
    copied = {name: pa.array(array.to_pylist(), array.type) for name, array in sliced.items()}
    assert values(expr, n_rows, **sliced) == values(expr, n_rows, **copied)


def test_null_slots_that_hold_zero_do_not_divide() -> None:
    zeros = pa.array([0, 0, 5], I64)
    hidden = pa.Array.from_buffers(I64, 3, [pa.py_buffer(b"\x04"), zeros.buffers()[1]])
    ones = pa.array([1, 1, 1], I64)
    for name in ("modulo", "int_divide"):
        assert values(call(name, A, B), 3, a=ones, b=hidden)[:2] == [None, None]
    zeros = pa.array([0.0, 0.0, 2.0])
    floats = pa.Array.from_buffers(F64, 3, [pa.py_buffer(b"\x04"), zeros.buffers()[1]])
    halves = values(call("divide", A, B), 3, a=pa.array([1.0, 1.0, 1.0]), b=floats)
    assert halves == [None, None, 0.5]


def test_kleene_logic() -> None:
    three = [True, False, None]
    left = pa.array([x for x in three for _ in three])
    right = pa.array([y for _ in three for y in three])
    both = {"a": left, "b": right}
    assert values(call("and", A, B), 9, **both) == [
        *(True, False, None),
        *(False, False, False),
        *(None, False, None),
    ]
    assert values(call("or", A, B), 9, **both) == [
        *(True, True, True),
        *(True, False, None),
        *(True, None, None),
    ]
    assert values(call("xor", A, B), 9, **both)[:4] == [False, True, None, True]
    assert values(call("not", A), 9, **both)[::3] == [False, True, None]
    assert values(call("is_null", A), 9, **both)[::3] == [False, False, True]
    assert values(call("is_not_null", A), 9, **both)[::3] == [True, True, False]
    assert values(call("null_safe_eq", A, B), 9, **both) == [x is y for x in three for y in three]


def ratio_over(limit: float) -> Call:
    return call("gt", call("divide", A, B), Literal(limit, F64))


NONZERO = call("ne", B, Literal(0.0, F64))
RATIO = {"a": pa.array([1.0, 6.0, 8.0, None]), "b": pa.array([0.0, 2.0, 8.0, 1.0])}


def test_and_does_not_fail_on_decided_rows() -> None:
    assert values(call("and", NONZERO, ratio_over(2.0)), 4, **RATIO) == [False, True, False, None]
    with pytest.raises(EvaluationError, match=r"t\.a / t\.b: division by zero"):
        values(call("and", ratio_over(2.0), NONZERO), 4, **RATIO)


def test_or_does_not_fail_on_decided_rows() -> None:
    zero = call("eq", B, Literal(0.0, F64))
    assert values(call("or", zero, ratio_over(2.0)), 4, **RATIO) == [True, True, False, None]


def test_case_evaluates_a_branch_only_where_it_is_reached() -> None:
    guarded = call("case", NONZERO, call("divide", A, B), Literal(-1.0, F64))
    assert values(guarded, 4, **RATIO) == [-1.0, 3.0, 1.0, None]
    with pytest.raises(EvaluationError, match="division by zero"):
        values(call("if", NONZERO, Literal(1.0, F64), call("divide", A, B)), 4, **RATIO)


def test_case_takes_the_first_true_condition() -> None:
    def below(limit: int) -> Call:
        return call("lt", A, i64(limit))

    expr = call("case", below(2), text("low"), below(4), text("middle"), text("high"))
    numbers = pa.array([1, 3, 5, None])
    assert values(expr, 4, a=numbers) == ["low", "middle", "high", "high"]


def test_coalesce_stops_at_the_first_known_value() -> None:
    fallback = Cast(text("no number"), I64)
    assert values(call("coalesce", A, fallback), 2, a=pa.array([1, 2])) == [1, 2]
    assert values(
        call("coalesce", A, B, i64(9)),
        3,
        a=pa.array([None, 2, None], I64),
        b=pa.array([None, 5, 6], I64),
    ) == [9, 2, 6]
    with pytest.raises(EvaluationError, match="no number"):
        values(call("coalesce", A, fallback), 1, a=pa.array([None], I64))


def test_rounding_away_all_digits_of_the_widest_decimal() -> None:
    numbers = pa.array([D(0), D("9" * 37), None], pa.decimal128(37, 0))
    assert values(call("round", A, Literal(-39, I32)), 3, a=numbers) == [D(0), D(0), None]


def test_greatest_and_least_of_columns() -> None:
    nan = float("nan")
    left, right = pa.array([1.0, nan, None, nan]), pa.array([2.0, 1.0, nan, None])
    assert str(values(call("greatest", A, B), 4, a=left, b=right)) == "[2.0, nan, nan, nan]"
    assert str(values(call("least", A, B), 4, a=left, b=right)) == "[1.0, 1.0, nan, nan]"


def test_search_texts_from_columns() -> None:
    subject = pa.array(["banana", "élan", None, "aXbXc", "x"])
    search = pa.array(["an", "an", "a", "X", None])
    both = {"a": subject, "s": search}
    assert values(call("instr", A, S), 5, **both) == [2, 3, None, 2, None]
    assert values(call("contains", A, S), 5, **both) == [True, True, None, True, None]
    assert values(call("starts_with", A, S), 5, **both) == [False, False, None, False, None]
    assert values(call("ends_with", A, S), 5, **both) == [False, True, None, False, None]
    replaced = values(call("replace", A, S, text("-")), 5, **both)
    assert replaced == ["b--a", "él-", None, "a-b-c", None]
    last_part = values(call("split_part", A, S, Literal(-1, I32)), 5, **both)
    assert last_part == ["a", "", None, "c", None]


def test_try_cast_gives_null_for_what_does_not_fit() -> None:
    words = pa.array(["1", "x", None, "300"])
    assert values(Cast(S, pa.int8(), lenient=True), 4, s=words) == [1, None, None, None]
    decimals = values(Cast(S, pa.decimal128(3, 1), lenient=True), 4, s=words)
    assert decimals == [D("1.0"), None, None, None]
    numbers = pa.array([1.5, 1e9, float("nan")])
    assert values(Cast(A, pa.int8(), lenient=True), 3, a=numbers) == [1, None, None]
    with pytest.raises(EvaluationError, match=r"CAST\(t\.s AS int8\): 'x'"):
        values(Cast(S, pa.int8()), 4, s=words)


KEEP_COLUMNS = {"a": pa.array([1, 2, None, 4, 5] * 5)[5:], "b": pa.array([0, 1, 2, 3, 4] * 5)[5:]}


class TestKeep:
    def mask(self, expr: Expr) -> np.ndarray | None:
        return keep(expr, reader(**KEEP_COLUMNS), 20, {})

    def test_none_when_all_rows_pass(self) -> None:
        assert self.mask(call("ge", B, i64(0))) is None
        assert self.mask(Literal(True, BOOL)) is None
        assert self.mask(call("and", call("ge", B, i64(0)), call("le", B, i64(4)))) is None

    def test_null_is_not_true(self) -> None:
        mask = self.mask(call("gt", A, i64(1)))
        assert mask is not None
        assert mask.dtype == np.bool_
        assert mask.tolist() == [False, True, False, True, True] * 4

    def test_constants(self) -> None:
        for value in (False, None):
            mask = self.mask(Literal(value, BOOL))
            assert mask is not None
            assert not mask.any()

    def test_later_conjuncts_see_only_what_is_left(self) -> None:
        seen: list[int] = []

        def picky(number: int) -> bool:
            seen.append(number)
            return number != 4

        function = UserFunction("picky", picky, BOOL)
        expr = call("and", call("gt", A, i64(1)), call("picky", B))
        mask = keep(expr, reader(**KEEP_COLUMNS), 20, {"picky": function})
        assert mask is not None
        assert mask.tolist() == [False, True, False, True, False] * 4
        assert seen == [1, 3, 4] * 4

    def test_a_conjunct_does_not_fail_on_dropped_rows(self) -> None:
        quotient = call("int_divide", i64(12), B)
        expr = call("and", call("ne", B, i64(0)), call("eq", quotient, i64(4)))
        mask = self.mask(expr)
        assert mask is not None
        assert mask.tolist() == [False, False, False, True, False] * 4
        with pytest.raises(EvaluationError, match="division by zero"):
            self.mask(call("eq", quotient, i64(4)))

    def test_few_rows_left(self) -> None:
        only = call("and", call("eq", B, i64(4)), call("eq", A, i64(5)))
        mask = self.mask(only)
        assert mask is not None
        assert mask.tolist() == [False, False, False, False, True] * 4

    def test_no_rows(self) -> None:
        assert keep(call("gt", A, i64(1)), reader(a=pa.array([], I64)), 0, {}) is None


class TestUserFunctions:
    def run(self, function: UserFunction, *args: Expr) -> list[object]:
        columns = reader(a=pa.array([0, 1, 2, None])[1:])
        expr, functions = Call(function.name, args), {function.name: function}
        return evaluate(expr, columns, 3, functions).to_pylist()

    def test_plain(self) -> None:
        add = UserFunction("plus", lambda x, y: None if x is None else x + y, I64)
        assert self.run(add, A, i64(10)) == [11, 12, None]

    def test_arrow(self) -> None:
        import pyarrow.compute as pc

        double = UserFunction("double", lambda x: pc.multiply(x, 2), I64, arrow=True)
        assert self.run(double, A) == [2, 4, None]
        chunked = UserFunction("cut", lambda x: pa.chunked_array([x[:1], x[1:]]), I64, arrow=True)
        assert self.run(chunked, A) == [1, 2, None]

    def test_plain_failure_names_function_and_arguments(self) -> None:
        bad = UserFunction("inverse", lambda x, y: y // (x - 2), I64)
        with pytest.raises(EvaluationError, match=r"inverse\(2, 7\) failed: ZeroDivisionError"):
            self.run(bad, A, i64(7))

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda x: x.cast(STR), "declared to return int64 but returned string"),
            (lambda x: x[:1], "returned 1 values for 3 rows"),
            (lambda x: [1, 2, 3], "must return a pyarrow.Array, not list"),
            (lambda x: 1 / 0, "odd failed: ZeroDivisionError"),
        ],
    )
    def test_arrow_contract(self, function: Callable[..., object], message: str) -> None:
        with pytest.raises(EvaluationError, match=message):
            self.run(UserFunction("odd", function, I64, arrow=True), A)

    def test_plain_result_of_wrong_type(self) -> None:
        with pytest.raises(EvaluationError, match="wrong is declared to return int64"):
            self.run(UserFunction("wrong", lambda x: "word", I64), A)

    def test_not_called_where_a_case_does_not_reach_it(self) -> None:
        seen: list[object] = []
        function = UserFunction("note", lambda x: seen.append(x) or x, I64)
        expr = call("case", call("eq", A, i64(2)), call("note", A), i64(0))
        got = evaluate(expr, reader(a=pa.array([1, 2, None])), 3, {"note": function})
        assert (got.to_pylist(), seen) == ([0, 2, 0], [2])


class TestPlanning:
    SCHEMA = staticmethod(types(a=I64, b=I32, s=STR))

    @pytest.mark.parametrize(
        ("expr", "error", "message"),
        [
            (call("add", A, B), TypeMismatchError, r"t\.a \+ t\.b: add .* not \(int64, int32\)"),
            (call("divide", A, A), TypeMismatchError, "cast integers to double"),
            (call("eq", A, S), TypeMismatchError, r"t\.a = t\.s"),
            (call("and", A, A), TypeMismatchError, "booleans"),
            (call("case", A, A), TypeMismatchError, "case"),
            (call("like", S, S), TypeMismatchError, "must be a literal"),
            (call("like", S, text("a\\b")), PlanError, "escape character"),
            (call("like", S, text("a\\")), PlanError, "escape character"),
            (call("rlike", S, text("(?=a)")), UnsupportedError, "RE2"),
            (call("rlike", S, text("[a-z&&[^b]]")), UnsupportedError, "&&"),
            (call("frobnicate", S), UnknownNameError, "no function frobnicate"),
            (Cast(A, pa.binary()), UnsupportedError, "no cast from int64 to binary"),
            (Literal("x", I64), TypeMismatchError, "literal 'x' is not a int64"),
            (call("date_trunc", text("era"), Literal(WHEN, TS)), UnsupportedError, "'era'"),
        ],
    )
    def test_refused(self, expr: Expr, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            type_of(expr, self.SCHEMA, {})

    def test_user_functions_have_their_declared_type(self) -> None:
        functions = {"f": UserFunction("f", len, F64)}
        assert type_of(call("f", S), self.SCHEMA, functions) == F64


@pytest.mark.parametrize("type_", [pa.large_string(), pa.string_view(), pa.dictionary(I32, STR)])
def test_other_layouts_of_text_are_tolerated(type_: pa.DataType) -> None:
    words = pa.array(["x", None, "y"], STR)
    array = words.dictionary_encode() if pa.types.is_dictionary(type_) else words.cast(type_)
    assert values(call("eq", S, text("x")), 3, s=array) == [True, None, False]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (call("and", call("or", A, B), call("not", S)), "(t.a OR t.b) AND NOT t.s"),
        (call("subtract", A, call("subtract", B, i64(1))), "t.a - (t.b - 1)"),
        (call("subtract", call("subtract", A, B), i64(1)), "t.a - t.b - 1"),
        (call("negate", call("add", A, B)), "-(t.a + t.b)"),
        (call("eq", S, text("it's")), "t.s = 'it''s'"),
        (call("is_null", call("eq", A, B)), "(t.a = t.b) IS NULL"),
        (call("in_list", A, *map(i64, range(9))), "t.a IN (0, 1, 2, 3, 4, 5, ... 9 in all)"),
        (call("case", A, i64(1), i64(None)), "CASE WHEN t.a THEN 1 ELSE NULL END"),
        (call("like", S, text("a!%"), text("!")), "t.s LIKE 'a!%' ESCAPE '!'"),
        (Cast(A, STR, lenient=True), "TRY_CAST(t.a AS string)"),
        (call("upper", S), "upper(t.s)"),
        (Literal(date(2024, 1, 2), pa.date32()), "DATE '2024-01-02'"),
        (Literal(b"\xff", pa.binary()), "X'FF'"),
    ],
)
def test_render(expr: Expr, expected: str) -> None:
    assert render(expr) == expected


def test_bytes_are_text_whether_or_not_they_are_utf8() -> None:
    column = pa.array([b"a", b"\xff\x00", None, b""], pa.binary())
    found = evaluate(Cast(A, STR), reader(a=column), 4, {})
    assert found.type == STR
    assert found.view(pa.binary()).equals(column)
