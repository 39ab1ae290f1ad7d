"""Windows are read, checked and made part of the query."""

from __future__ import annotations

from datetime import timedelta
from itertools import cycle, pairwise

import pyarrow as pa
import pytest

from eddies.core.constraints import legal_moves
from eddies.core.eddy import Eddy
from eddies.core.expr import Call, Column
from eddies.core.graph import make_graph
from eddies.core.lineage import Signature
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Selection, Source, UserFunction
from eddies.core.window import GivenWindow
from eddies.errors import OptionError, StateError
from eddies.streaming.watermark import Moment, Seen
from eddies.streaming.windows import (
    RowWindow,
    TimeWindow,
    WindowedTable,
    check_names,
    choose_windows,
    relation_windows,
    with_windows,
)

MINUTE = 60_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("number", pa.int32()),
        ("text", pa.string()),
    ]
)
TABLE = WindowedTable(SCHEMA, True)


def chain(*tables: str) -> Query:
    """Sources a, b, ... over `tables`, joined one to the next."""
    names = "abcdef"[: len(tables)]
    schema = pa.schema([("k", pa.int64()), ("j", pa.int64())])
    return Query(
        tuple(Source(name, table, schema) for name, table in zip(names, tables, strict=True)),
        equalities=tuple(
            Equality(Column(left, key), Column(right, key), pa.int64())
            for (left, right), key in zip(pairwise(names), cycle("kj"), strict=False)
        ),
        output=(Output("k", Column("a", "k"), pa.int64()),),
    )


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("10 minutes", GivenWindow(10 * MINUTE, "microseconds")),
        (" 1 Hour 30 minutes ", GivenWindow(90 * MINUTE, "microseconds")),
        ("1.5 seconds", GivenWindow(1_500_000, "microseconds")),
        ("2 weeks", GivenWindow(14 * 24 * 60 * MINUTE, "microseconds")),
        (timedelta(minutes=1), GivenWindow(MINUTE, "microseconds")),
        (("at", "1 day"), GivenWindow(24 * 60 * MINUTE, "microseconds", "at")),
        (("at", "1 minute", "0 seconds"), GivenWindow(MINUTE, "microseconds", "at", 0)),
        (("number", 7), GivenWindow(7, "steps", "number")),
        (("number", "7", 2), GivenWindow(7, "steps", "number", 2)),
        ("1000 rows", GivenWindow(1000, "rows")),
        ("1 row", GivenWindow(1, "rows")),
    ],
)
def test_windows_as_they_are_written(text: object, window: GivenWindow) -> None:
    assert Options(window={"t": text}).windows == {"t": window}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("10 minutes", "must be a mapping"),
        ({3: "10 minutes"}, "names a source by 3"),
        ({"t": "ten minutes"}, "window of 't': 'ten minutes' is not a length"),
        ({"t": "10 parsecs"}, "Units are microseconds"),
        ({"t": "10 minutes or so"}, "is not a length"),
        ({"t": "1 month"}, "is not a length"),
        ({"t": "-5 seconds"}, "is not a length"),
        ({"t": ""}, "is not a length"),
        ({"t": None}, "is not a length"),
        ({"t": True}, "is not a length"),
        ({"t": 1.5}, "is not a length"),
        ({"t": "0 seconds"}, "longer than nothing"),
        ({"t": "0 rows"}, "longer than nothing"),
        ({"t": 5}, "needs a column of integers"),
        ({"t": ("at",)}, r"or \(column, length\)"),
        ({"t": ("at", "1 second", "1 second", 4)}, r"or \(column, length\)"),
        ({"t": ("at", "10 rows")}, "counts rows"),
        ({"t": ("at", "10 seconds", 4)}, "both be times, or both be numbers"),
        ({"t": ("at", "10 seconds", "soon")}, "'soon' is not a delay"),
    ],
)
def test_windows_that_are_none(given: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(window=given)  # type: ignore[arg-type]


def test_options_that_do_not_go_with_windows() -> None:
    with pytest.raises(OptionError, match="counts rows, which is exact only"):
        Options(window={"t": "10 rows"}, memory="1MB")
    Options(window={"t": "10 seconds"}, memory="1MB")
    with pytest.raises(OptionError, match="stem='grace' cannot forget"):
        Options(window={"t": "10 seconds"}, stem="grace")
    with pytest.raises(OptionError, match="for streaming queries"):
        Eddy(chain("t", "u"), Options(window={"t": "10 seconds"}))


def choose(given: dict[str, object], query: Query, **tables: WindowedTable) -> dict[str, object]:
    windows = Options(window=given).windows  # type: ignore[arg-type]
    known = {source.table: TABLE for source in query.sources} | tables
    return dict(choose_windows(windows, query, known))


def test_a_window_is_found_by_alias_or_table_in_any_case() -> None:
    query = chain("Orders", "items", "items")
    given = {"ORDERS": ("at", "1 minute"), "items": ("AT", "2 minutes"), "c": ("at", "3 minutes")}
    assert choose(given, query) == {
        "a": TimeWindow("at", MINUTE),
        "b": TimeWindow("at", 2 * MINUTE),
        "c": TimeWindow("at", 3 * MINUTE),
    }
    by_relation = relation_windows(query, choose(given, query))  # type: ignore[arg-type]
    assert by_relation["items"] == TimeWindow("at", 3 * MINUTE)
    check_names(given, query.sources)
    with pytest.raises(
        OptionError, match="names 'd', which no eddy of this query joins; it joins a,"
    ):
        check_names({"d": ""}, query.sources)


def test_the_watermarked_column_is_the_time() -> None:
    marked = WindowedTable(SCHEMA, True, ("at", 5 * MINUTE))
    query = chain("t", "u")
    assert choose({"t": "1 minute"}, query, t=marked) == {"a": TimeWindow("at", MINUTE, 5 * MINUTE)}
    own = choose({"t": ("at", "1 minute", "1 second")}, query, t=marked)
    assert own == {"a": TimeWindow("at", MINUTE, 1_000_000)}
    other = choose({"t": ("local", "1 minute")}, query, t=marked)
    assert other == {"a": TimeWindow("local", MINUTE)}
    with pytest.raises(OptionError, match="'t' needs a time column"):
        choose({"t": "1 minute"}, query)


def test_units_follow_the_column() -> None:
    assert choose({"t": ("day", "2 days", "30 hours")}, chain("t", "u")) == {
        "a": TimeWindow("day", 2, 2)
    }
    assert choose({"t": ("number", 9)}, chain("t", "u")) == {"a": TimeWindow("number", 9)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"t": ("text", "1 minute")}, "over column 'text' of type string"),
        ({"t": ("missing", "1 minute")}, "over column 'missing'; it has k, at"),
        ({"t": ("day", "36 hours")}, "in whole days"),
        ({"t": ("number", "1 minute")}, "give the length of its window as a number"),
        ({"t": ("at", 5)}, "give the length of its window as a time"),
        (
            {"t": ("at", "1 day"), "u": ("day", "1 day")},
            "must be of one type; here are a: timestamp",
        ),
        ({"t": ("at", "1 day"), "u": ("local", "1 day")}, "must be of one type"),
        ({"still": ("at", "1 day")}, "does not stream"),
    ],
)
def test_windows_that_do_not_fit_their_table(given: dict[str, object], message: str) -> None:
    still = WindowedTable(SCHEMA, False)
    with pytest.raises(OptionError, match=message):
        choose(given, chain("t", "u", "still"), still=still)


@pytest.mark.parametrize(
    "given",
    [
        {"a": ("at", "1 minute")},
        {"a": ("at", "1 minute"), "b": ("local", "1 minute")},
        {"a": ("at", "1 minute"), "b": "5 rows"},
        {"a": "4 rows", "b": "5 rows"},
    ],
)
def test_roles_of_one_table_have_windows_of_one_kind(given: dict[str, object]) -> None:
    with pytest.raises(
        OptionError, match=r"'t' is read more than once, as a, b|must be of one type"
    ):
        choose(given, chain("t", "t"))


def test_windows_are_checked_but_lead_nowhere() -> None:
    """A chain stays one: rows of a and c meet by b, not because both are recent."""
    query = chain("t", "u", "v")
    windows = {name: TimeWindow("at", MINUTE) for name in "abc"}
    graph = make_graph(with_windows(query, windows, dict.fromkeys("tuv", TABLE)))
    assert len(graph.filters) == 6
    assert [move.target for move in legal_moves(graph, Signature(1))] == [1]
    stored = [relation.stored.names for relation in graph.relations]
    assert stored == [["k", "at"], ["k", "j", "at"], ["j", "at"]], "times, and nothing made of them"


def test_windows_without_keys_are_bands_over_the_times_themselves() -> None:
    query = Query(chain("t", "u").sources, output=chain("t", "u").output)
    windows = {"a": TimeWindow("day", 3), "b": TimeWindow("day", 5)}
    graph = make_graph(with_windows(query, windows, dict.fromkeys("tu", TABLE)))
    bands = [band for predicate in graph.filters for band in predicate.bands]
    assert {(band.target, band.column) for band in bands} == {(0, "day"), (1, "day")}
    assert {band.shift for band in bands if band.target == 0} == {0, 5}


def test_evicted_rows_are_not_found_and_answers_stay_with_their_rows() -> None:
    """What an expensive predicate said of a row is remembered by row id, and these change."""
    asked: list[int] = []

    def is_even(value: int) -> bool:
        asked.append(value)
        return value % 2 == 0

    schema = pa.schema([("k", pa.int64())])
    query = Query(
        (Source("a", "t", schema), Source("b", "u", schema)),
        selections=(Selection(Call("is_even", (Column("a", "k"),)), expensive=True),),
        equalities=(Equality(Column("a", "k"), Column("b", "k"), pa.int64()),),
        output=(Output("k", Column("b", "k"), pa.int64()),),
        functions=(UserFunction("is_even", is_even, pa.bool_()),),
    )
    eddy = Eddy(query, Options(state="stems"))

    def found(table: str, *keys: int) -> list[int]:
        eddy.push(table, pa.record_batch({"k": pa.array(keys, pa.int64())}))
        return sorted(key for rows in eddy.settle() for key in rows["k"].to_pylist())

    assert found("t", *range(10)) == []
    assert found("u", *range(10)) == [0, 2, 4, 6, 8]
    assert eddy.evict("t", "k", 1, least=0.5) == 0
    assert eddy.evict("t", "k", 4, least=0.5) == 5
    assert found("u", *range(10)) == [6, 8]
    assert found("t", 4, 5) == [4, 4]
    assert eddy.progress().sources[0].n_stored == 7
    assert len(asked) <= 12, "rows that stay are not asked about again"
    assert eddy.evict("t", "k", 100) == 7
    assert found("u", 6) == []


WINDOWS = {"t": TimeWindow("at", 10, 2), "u": TimeWindow("at", 10), "r": RowWindow(3)}


def seen(**latest: int | None) -> dict[str, Seen]:
    return {name: Seen(n_rows=5, latest=time) for name, time in latest.items()}


def test_the_watermark_is_the_least_and_only_moves_on() -> None:
    begin = Moment(None, seen(t=None, u=None, r=None))
    assert begin.after(seen(t=50, u=None, r=None), WINDOWS).watermark is None
    first = begin.after(seen(t=50, u=60, r=None), WINDOWS)
    assert first.watermark == 48
    assert first.horizon("t", WINDOWS["t"]) == 38
    assert first.horizon("r", WINDOWS["r"]) == 1  # rows 2, 3 and 4 are the last three
    ended = seen(t=50, u=60, r=None) | {"t": Seen(5, 0, 50, True)}
    second = first.after(ended, WINDOWS)
    assert second.watermark == 60
    third = second.after(ended | {"u": Seen(5, 0, 61, True)}, WINDOWS)
    assert third.watermark == 60, "when all have ended, it stays where it is"
    assert Moment.from_bytes(third.to_bytes()) == third


def test_a_stream_without_window_holds_the_watermark_back_until_it_ends() -> None:
    begin = Moment(None, seen(t=None, other=None))
    windows = {"t": WINDOWS["t"]}
    assert begin.after(seen(t=50, other=None), windows).watermark is None
    ended = seen(t=50) | {"other": Seen(5, 0, None, True)}
    assert begin.after(ended, windows).watermark == 48


def test_a_damaged_moment_is_noticed() -> None:
    with pytest.raises(StateError, match="cannot be read"):
        Moment.from_bytes(b"{}")
