"""The Spark bench where no Java is needed: cases, turns, failures, claims, report."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from eddies.bench.spark import huge, run
from eddies.bench.spark.cases import Case, Group, cases_at, chosen
from eddies.bench.spark.claims import claims_of
from eddies.bench.spark.engines import OutOfTimeError, arena
from eddies.bench.spark.measure import US_BEST, Measured, measure
from eddies.bench.tpc import tpch_text
from eddies.errors import OptionError

SCALE = 0.01


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def case(name: str = "q05", group: Group = "tpch", best_sql: str | None = None) -> Case:
    return Case(name, name, group, "set", lambda folder: {}, tpch_text("q05"), best_sql)


def measured_as(name: str, group: Group, **median_s: float) -> Measured:
    return Measured(case(name, group), median_s)


def test_there_are_all_queries_their_worst_orders_a_star_and_skewed_joins() -> None:
    cases = cases_at(1.0)
    assert sum(one.group == "tpch" for one in cases.values()) == 22
    assert sum(one.group == "order" for one in cases.values()) == 10
    assert cases["star6"].n_joined == 6
    assert {"skew2", "skew3"} <= set(cases)
    assert list(cases_at(10.0)) == ["q03", "q05", "q07", "q09", "q10"]


def test_cases_are_chosen_by_pattern() -> None:
    names = [one.name for one in chosen(cases_at(1.0), ["q05*", "star6"])]
    assert names == ["q05", "q05_worst", "star6"]
    with pytest.raises(OptionError, match="no case is named 'z'"):
        chosen(cases_at(1.0), ["z"])


@pytest.mark.parametrize("name", ["star6", "skew2", "skew3"])
def test_generated_cases_have_an_answer(name: str, tmp_path: Path) -> None:
    one = cases_at(SCALE)[name]
    with arena(60.0) as made:
        asks = made.ask_by_engine(one.data_set, one.files(tmp_path), [one.sql], ["duckdb2"])
        (row,) = asks["duckdb2"](one.sql).to_pylist()
    assert row["n"] > 0


def test_what_goes_wrong_is_kept_in_words_and_stops_nobody() -> None:
    def fail(text: str) -> pa.Table:
        raise ValueError("no such thing")

    def be_late(text: str) -> pa.Table:
        raise OutOfTimeError("cancelled")

    asks = {
        "us": lambda text: pa.table({"x": [1, 2]}),
        "spark": fail,
        "spark_cbo": be_late,
        "duckdb2": lambda text: pa.table({"x": [1, 3]}),
    }

    measured = measure(case(), asks, n_turns=1)

    assert measured.failures == {"spark": "ValueError: no such thing"}
    assert measured.is_bound == {"spark_cbo"}
    assert measured.differences == {"us": "row (2,) instead of (3,) (of duckdb2)"}
    assert set(measured.median_s_by_name) == {"us", "spark_cbo", "duckdb2"}
    assert not measured.is_right


def test_our_best_text_order_is_asked_too() -> None:
    asked: list[str] = []

    def us(text: str) -> pa.Table:
        asked.append(text)
        return pa.table({"x": [1]})

    measured = measure(case(best_sql="SELECT 1"), {"us": us}, n_turns=1)

    assert set(asked) == {tpch_text("q05"), "SELECT 1"}
    assert set(measured.median_s_by_name) == {"us", US_BEST}
    assert measured.is_right


def test_claims_are_judged_by_means_and_largest_ratios() -> None:
    done = [
        measured_as("q05", "tpch", us=1.0, spark=2.0, duckdb2=0.5),
        measured_as("q07", "tpch", us=1.0, spark=8.0, duckdb2=0.125),
        measured_as("q05_worst", "order", us=1.2, us_best=1.0, spark=12.0),
    ]
    by_what = {(claim.case, claim.what): claim for claim in claims_of(done, 1.0)}
    mean = by_what["TPC-H, 3 sources or more", "Spark SQL / us, mean"]
    assert mean.measured == pytest.approx(4.0)
    assert mean.held
    assert by_what["TPC-H, 3 sources or more", "us / Spark SQL, largest (q05)"].held
    assert by_what["worst text order", "Spark SQL / us, mean"].held
    assert not by_what["worst text order", "us, worst / best order, largest (q05_worst)"].held
    assert by_what["TPC-H, 2 queries", "us / DuckDB, 2 threads, mean"].measured == pytest.approx(4)

    (large,) = claims_of(done[:2], 10.0)
    assert not large.held
    (exchange,) = claims_of(done[:2], 1.0, exchange=True)
    assert exchange.measured == pytest.approx(0.25)


def test_the_report_of_a_real_run(tmp_path: Path) -> None:
    console, path = quiet(), tmp_path / "figures.json"

    code = run.main(
        ["q03", "q05_worst"],
        engines=["duckdb2"],
        scale=SCALE,
        repeat=1,
        data_folder=tmp_path / "data",
        json_path=path,
        console=console,
    )

    assert code == 0
    assert "All engines gave the same answers" in printed(console)
    report = json.loads(path.read_text())
    assert list(report) == ["q03", "q05_worst"]
    assert report["q03"]["duckdb2_s"] > 0
    assert report["q05_worst"]["n_joined"] == 6


def test_wrong_answers_end_with_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = measured_as("q03", "tpch", us=1.0, duckdb2=1.0)
    wrong.differences["us"] = "row (1,) instead of (2,)"
    monkeypatch.setattr(run, "_measure_aloud", lambda *arguments: wrong)
    console = quiet()
    assert run.main(["q03"], scale=SCALE, data_folder=tmp_path, console=console) == 1
    assert "q03: us differs: row (1,) instead of (2,)" in printed(console)


def test_an_unknown_engine_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no engine 'oracle'"):
        run.main(engines=["oracle"])
    with pytest.raises(OptionError, match="there is no folder"):
        run.main(json_path=tmp_path / "nowhere" / "figures.json")


def test_the_huge_table_is_written_piece_by_piece_and_half_of_the_keys_are_found(
    tmp_path: Path,
) -> None:
    files = huge.huge_files(tmp_path, 300_000)
    assert set(files) == {"f", "d0", "d1", "d2", "d3"}
    with arena(60.0) as made:
        ask = made.ask_by_engine("huge", files, [], ["duckdb2"])["duckdb2"]
        assert ask("SELECT count(*) AS n FROM f").to_pylist() == [{"n": 300_000}]
        (row,) = ask(huge.query()).to_pylist()
    assert row["n"] / 300_000 == pytest.approx(0.5**4, abs=0.01)
