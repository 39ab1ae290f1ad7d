"""What the benches share: answers as bags, tables on disk, texts in any order, patience."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from eddies.bench import tpc
from eddies.bench.answers import difference, plain_rows
from eddies.bench.spark.engines import to_duckdb
from eddies.bench.storage import default_data_folder, files_in, made_once, write_tables
from eddies.bench.timing import Answer, Contestant, take_turns
from eddies.errors import SourceError


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")]),
        ([(0.1234564,)], [(0.1234567,)]),
        ([("x", 5), ("y", 1.0000001)], [("y", 1), ("x", 5.0000001)]),
        ([(None, 1)], [(None, 1)]),
        ([(float("nan"),)], [(float("nan"),)]),
        ([], []),
    ],
)
def test_the_same_bag(found: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> None:
    assert difference(found, expected) is None


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], "instead of"),
        ([(1,)], [(1,), (1,)], "1 rows instead of 2"),
        ([(10**15 + 1,)], [(10**15,)], "instead of"),
        ([(1.001,)], [(1.0,)], "instead of"),
        ([(None,)], [(0,)], "instead of"),
        ([(None,)], [(0.5,)], "instead of"),
        ([(1, 2)], [(1,)], "rows of 1 and 2 columns"),
    ],
)
def test_a_difference_is_named(
    found: list[tuple[object, ...]], expected: list[tuple[object, ...]], words: str
) -> None:
    text = difference(found, expected)
    assert text is not None
    assert words in text


def test_rows_are_plain_whatever_the_engine_calls_them() -> None:
    one = pa.table({"n": pa.array([Decimal("3.00")]), "d": pa.array([date(2020, 1, 2)])})
    other = pa.table({"x": pa.array([3]), "y": pa.array([datetime(2020, 1, 2)])})
    assert plain_rows(one) == plain_rows(other) == [(3, "2020-01-02")]


def test_tables_are_made_once_and_never_by_half(tmp_path: Path) -> None:
    made = 0

    def make(folder: Path) -> None:
        nonlocal made
        made += 1
        write_tables({"a": pa.table({"x": [made]})}, folder)
        if made == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "set", make)
    assert list(tmp_path.iterdir()) == []
    first = made_once(tmp_path / "set", make)
    assert made_once(tmp_path / "set", make) == first
    assert made == 2
    assert list(first) == ["a"]


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no Parquet files"):
        files_in(tmp_path)


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_data_folder() == tmp_path / "eddies" / "bench"


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, path in tpc.tpch_files(tmp_path_factory.mktemp("data"), 0.01).items():
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{path}'")
    return connection


@pytest.mark.parametrize("name", tpc.WORST_ORDER)
def test_any_text_order_is_the_same_query(tpch: duckdb.DuckDBPyConnection, name: str) -> None:
    text = tpc.tpch_text(name)
    worst = tpc.with_sources_in_order(text, tpc.WORST_ORDER[name])
    best = tpc.with_sources_in_order(text, tpc.BEST_ORDER[name])
    assert worst != best

    answers = [
        plain_rows(tpch.sql(to_duckdb(spelled)).to_arrow_table()) for spelled in (text, worst, best)
    ]

    assert difference(answers[1], answers[0]) is None
    assert difference(answers[2], answers[0]) is None
    assert tpc.n_joined_sources(worst) == tpc.n_joined_sources(text) == len(tpc.WORST_ORDER[name])


def test_worst_orders_cover_every_join_of_three_or_more() -> None:
    many = [name for name in tpc.TPCH_NAMES if tpc.n_joined_sources(tpc.tpch_text(name)) >= 3]
    assert many == list(tpc.WORST_ORDER) == list(tpc.BEST_ORDER)


def test_an_order_of_other_sources_is_refused() -> None:
    with pytest.raises(ValueError, match="no FROM list holds exactly a, z"):
        tpc.with_sources_in_order("SELECT 1 FROM a, b", ("a", "z"))


def test_a_generator_that_fails_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="tpcgen-cli failed"):
        tpc.tpcds_files(tmp_path, 0.01, ["no_such_table"])
    assert list(tmp_path.iterdir()) == []


def test_who_is_too_slow_runs_once() -> None:
    ran: list[str] = []

    def contestant(name: str) -> Contestant:
        def run() -> Answer:
            ran.append(name)
            return ()

        return Contestant(name, run)

    timing = take_turns([contestant("x"), contestant("y")], n_turns=3, patience_s=0.0)

    assert sorted(ran) == ["x", "y"]
    assert all(len(one.seconds) == 1 for one in timing.values())
