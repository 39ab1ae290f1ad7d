"""What the query graph derives from a query, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.expr import Call, Cast, Literal
from eddies.core.graph import make_graph
from eddies.core.query import (
    Aggregate,
    Aggregation,
    Equality,
    Filter,
    Output,
    Query,
    Selection,
    Source,
)
from eddies.errors import PlanError, TypeMismatchError, UnknownNameError
from tests.support.bag import assert_same_bag
from tests.support.small import answer, col, make_query

INT = pa.int64()
ABC = {name: pa.table({"x": pa.array([], INT), "y": pa.array([], INT)}) for name in "abc"}


def lit(value: int) -> Literal:
    return Literal(value, INT)


def test_equalities_make_classes_of_equal_columns() -> None:
    graph = make_graph(make_query(ABC, ["a.x = b.x", "b.x = c.y", "a.y = c.x"]))
    members = sorted(tuple(sorted(c.column_by_source.items())) for c in graph.classes)
    assert members == [((0, "x"), (1, "x"), (2, "y")), ((0, "y"), (2, "x"))]


def test_a_second_column_of_a_source_in_a_class_becomes_a_selection() -> None:
    graph = make_graph(make_query(ABC, ["a.x = b.x", "a.y = b.x"]))
    assert len(graph.classes) == 1
    assert graph.roles[0].selections == (Call("eq", (col("a.x"), col("a.y"))),)


def test_one_expression_in_two_roles_is_one_derived_column() -> None:
    def plus(source: str) -> Call:
        return Call("add", (col(f"{source}.x"), lit(1)))

    base = make_query({"t": ABC["a"]}, roles={"p": "t", "q": "t", "r": "t"})
    query = Query(
        base.sources,
        equalities=(
            Equality(plus("p"), col("q.y"), INT),
            Equality(plus("q"), col("r.y"), INT),
        ),
        output=base.output,
    )
    assert len(make_graph(query).relations[0].derived) == 1


def test_a_key_expression_of_a_column_that_only_one_role_reads() -> None:
    """Roles of one relation list only the columns they use; the first one need not have them all."""
    table = pa.table({"x": [1, 2, 3], "y": [2, 3, 9]})
    query = Query(
        sources=(
            Source("p", "t", pa.schema([("y", INT)])),
            Source("q", "t", pa.schema([("x", INT)])),
        ),
        equalities=(Equality(col("p.y"), Call("add", (col("q.x"), lit(1))), INT),),
        output=(Output("y", col("p.y"), INT), Output("x", col("q.x"), INT)),
    )
    assert_same_bag(answer(query, {"t": table}), pa.table({"y": [2, 3], "x": [1, 2]}))


def test_only_needed_columns_are_stored() -> None:
    graph = make_graph(make_query(ABC, ["a.x = b.x"], output=["a.y"]))
    assert [relation.stored.names for relation in graph.relations] == [["x", "y"], ["x"], []]


def test_a_role_of_a_shared_relation_with_selections_has_a_flag() -> None:
    selection = Selection(Call("gt", (col("q.x"), lit(0))))
    query = make_query(
        {"t": ABC["a"]}, ["p.x = q.x"], {"p": "t", "q": "t"}, selections=(selection,)
    )
    graph = make_graph(query)
    assert [role.flag for role in graph.roles] == [None, "__role_1"]
    assert "__role_1" in graph.relations[0].stored.names


def test_columns_may_have_the_names_of_columns_the_graph_adds() -> None:
    table = pa.table({"__role_0": [1, 2, 3], "__role_1": [2, 3, 4], "__derived_0": [7, 8, 9]})
    plus = Call("add", (col("q.__role_0"), lit(1)))
    base = make_query(
        {"t": table},
        roles={"p": "t", "q": "t"},
        output=["p.__role_0", "p.__role_1", "q.__role_0", "q.__derived_0"],
    )
    query = Query(
        base.sources,
        selections=(
            Selection(Call("gt", (col("p.__role_1"), lit(2)))),
            Selection(Call("lt", (col("q.__derived_0"), lit(9)))),
        ),
        equalities=(Equality(col("p.__role_0"), plus, INT),),
        output=base.output,
    )
    expected = {"p___role_0": [2, 3], "p___role_1": [3, 4], "q___role_0": [1, 2]}
    found = answer(query, {"t": table})
    assert_same_bag(found, pa.table(expected | {"q___derived_0": [7, 8]}))


def test_comparisons_are_bands_seen_from_both_sides() -> None:
    shifted = Call("add", (col("b.x"), lit(5)))
    query = make_query(ABC, filters=(Filter(Call("le", (col("a.x"), shifted))),))
    first, second = make_graph(query).filters[0].bands
    assert (first.target, first.column, first.is_lower, first.shift) == (0, "x", False, 0)
    assert (second.target, second.column, second.is_lower, second.shift) == (1, "x", True, -5)


def test_a_conjunction_is_split_into_filters() -> None:
    parts = [Call("lt", (col("a.x"), col("b.x"))), Call("ne", (col("a.y"), col("c.y")))]
    graph = make_graph(make_query(ABC, filters=(Filter(Call("and", tuple(parts))),)))
    assert [plan.mask for plan in graph.filters] == [0b011, 0b101]


def test_equal_optional_predicates_have_different_names() -> None:
    selection = Selection(Call("gt", (col("a.x"), lit(0))), expensive=True)
    graph = make_graph(make_query(ABC, selections=(selection, selection)))
    names = [optional.name for optional in graph.optionals]
    assert len(set(names)) == 2
    assert names[1] == f"{names[0]}#2"


def equality(left: object, right: object, type_: pa.DataType = INT) -> dict[str, object]:
    return {"equalities": (Equality(left, right, type_),)}  # type: ignore[arg-type]


BASE = make_query(ABC)
A_PLUS_B = Call("add", (col("a.x"), col("b.x")))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"sources": ()}, PlanError, "at least one source"),
        ({"sources": BASE.sources[:1] * 2}, PlanError, "two sources are named 'a'"),
        (
            {"sources": tuple(Source(f"s{i}", "t", pa.schema([])) for i in range(63))},
            PlanError,
            "63 sources; at most 62",
        ),
        (equality(col("a.x"), col("z.x")), UnknownNameError, "no source named 'z'"),
        (equality(col("a.x"), col("b.z")), UnknownNameError, "'b' has no column 'z'; it has x, y"),
        (equality(col("a.x"), col("a.y")), PlanError, "must read different sources"),
        (equality(A_PLUS_B, col("c.x")), PlanError, "exactly one source"),
        (equality(col("a.x"), col("b.x"), pa.int32()), TypeMismatchError, "compared as int32"),
        (
            equality(col("a.x"), Cast(col("b.x"), pa.int32())),
            TypeMismatchError,
            "has type int32, but is compared as int64",
        ),
        ({"selections": (Selection(col("a.x")),)}, TypeMismatchError, "not boolean"),
        (
            {"selections": (Selection(Call("gt", (A_PLUS_B, lit(1)))),)},
            PlanError,
            "must read exactly one source",
        ),
        (
            {"filters": (Filter(Call("gt", (col("a.x"), lit(1)))),)},
            PlanError,
            "must read two sources or more",
        ),
        ({"filters": (Filter(A_PLUS_B),)}, TypeMismatchError, "not boolean"),
        ({"output": (Output("o", col("a.q"), INT),)}, UnknownNameError, "no column 'q'"),
        (
            {"output": (Output("o", Call("no_such", (col("a.x"),)), INT),)},
            UnknownNameError,
            "no function no_such",
        ),
    ],
)
def test_a_query_without_sense_is_refused(
    settings: dict[str, object], error: type[Exception], message: str
) -> None:
    facts = {"sources": BASE.sources, "output": ()} | settings
    with pytest.raises(error, match=message):
        make_graph(Query(**facts))  # type: ignore[arg-type]


def test_a_relation_whose_roles_disagree_about_a_type_is_refused() -> None:
    sources = (
        Source("p", "t", pa.schema([("x", pa.int64())])),
        Source("q", "t", pa.schema([("x", pa.int32())])),
    )
    with pytest.raises(TypeMismatchError, match="int64 in one role and int32 in another"):
        make_graph(Query(sources))


def test_nested_types_are_carried_but_are_no_keys() -> None:
    type_ = pa.list_(pa.int64())
    lists = pa.table({"x": [1, 2], "l": pa.array([[1], None], type_)})
    tables = {"a": lists, "b": lists}
    with pytest.raises(TypeMismatchError, match="cannot be a join key"):
        make_graph(make_query(tables, ["a.l = b.l"]))
    found = answer(make_query(tables, ["a.x = b.x"], output=["a.x", "b.l"]), tables)
    assert sorted(found.to_pylist(), key=str) == [{"a_x": 1, "b_l": [1]}, {"a_x": 2, "b_l": None}]


@pytest.mark.parametrize(
    ("type_", "cast"),
    [
        (pa.binary(3), "cast the column to binary"),
        (pa.decimal256(50, 4), r"cast the column to decimal128\(38, 4\)"),
        (pa.struct([("a", INT)]), "cast it to a string"),
        (pa.null(), "cannot be a join key"),
        (pa.month_day_nano_interval(), "cannot be a join key"),
    ],
)
def test_a_key_of_a_type_without_key_words_is_refused(type_: pa.DataType, cast: str) -> None:
    tables = {name: pa.table({"k": pa.nulls(1, type_)}) for name in "ab"}
    with pytest.raises(TypeMismatchError, match=cast) as caught:
        make_graph(make_query(tables, ["a.k = b.k"]))
    assert str(type_) in str(caught.value)


def test_grouping_by_a_nested_type_is_refused() -> None:
    type_ = pa.list_(INT)
    tables = {"a": pa.table({"l": pa.nulls(1, type_)})}
    aggregation = Aggregation(
        (Output("l", col("a.l"), type_),), (Aggregate("n", "count_star", None, INT),)
    )
    with pytest.raises(TypeMismatchError, match="cannot be grouped by"):
        make_graph(make_query(tables, output=(), aggregation=aggregation))


def test_aggregates_of_unknown_columns_are_refused() -> None:
    aggregation = Aggregation((), (Aggregate("n", "sum", col("a.nothing"), INT),))
    with pytest.raises(UnknownNameError, match="no column 'nothing'"):
        make_graph(make_query(ABC, output=(), aggregation=aggregation))
