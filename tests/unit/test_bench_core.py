"""The benchmark on tiny tables: it runs, it is fair, and it notices wrong answers."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from rich.console import Console

from eddies.bench import core, data
from eddies.bench.cases import CASES, Case
from eddies.bench.claims import claims_of
from eddies.bench.measure import Measured, measure
from eddies.bench.memory import Memory, load, peak_memory, save
from eddies.bench.timing import Answer, Contestant, take_turns
from eddies.errors import OptionError

SCALE = 0.0005


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def without_extras(case: Case) -> Case:
    """The case without its memory run (a process) and with two fixed orders instead of all."""
    return dataclasses.replace(case, memory_at_most=None, fixed_orders=case.fixed_orders[:2])


def measured_as(case: Case, **median_s: float) -> Measured:
    return Measured(case, {(1, 1): ["us"]}, median_s)


@pytest.mark.parametrize("name", CASES)
def test_all_engines_agree_and_find_something(name: str) -> None:
    measured = measure(without_extras(CASES[name]), n_turns=1, scale=SCALE)

    assert measured.agrees, measured.names_by_answer
    ((n_results, total),) = measured.names_by_answer
    assert n_results > 0
    assert total > 0
    (names,) = measured.names_by_answer.values()
    assert {"us", "us2", "duckdb1_arrow", "duckdb2_own", "polars_streaming"} <= set(names)
    assert len(measured.fixed_s_by_order) == len(without_extras(CASES[name]).fixed_orders)


@pytest.mark.parametrize("name", CASES)
def test_the_faster_way_of_a_peer_counts(name: str) -> None:
    median_s = measure(without_extras(CASES[name]), n_turns=1, scale=SCALE).median_s_by_name

    for peer, ways in {
        "duckdb1": ("arrow", "own"),
        "duckdb2": ("arrow", "own"),
        "polars": ("memory", "streaming"),
    }.items():
        assert median_s[peer] == min(median_s[f"{peer}_{way}"] for way in ways)


def test_contestants_take_turns_after_a_warm_up() -> None:
    ran: list[str] = []

    def contestant(name: str) -> Contestant:
        def run() -> Answer:
            ran.append(name)
            return (1,)

        return Contestant(name, run, prepare=lambda: ran.append(f"prepare {name}"))

    timing_by_name = take_turns([contestant("x"), contestant("y")], n_turns=2)

    assert [name for name in ran if "prepare" not in name] == ["x", "y", "y", "x", "x", "y"]
    assert ran[:2] == ["prepare x", "x"]
    assert all(len(timing.seconds) == 2 for timing in timing_by_name.values())


def test_a_wrong_answer_in_any_run_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Measured(
        CASES["f"],
        {(1, 2): ["us", "duckdb1_own"], (1, 3): ["us"]},
        {"us": 1.0, "us2": 1.0, "duckdb1": 1.0, "duckdb2": 1.0, "polars": 1.0},
    )
    monkeypatch.setattr(core, "measure", lambda *arguments: wrong)
    console = quiet()

    assert core.main(["f"], console=console) == 1
    assert "Case f: the answers differ" in printed(console)
    assert "(1, 3): us" in printed(console)


def test_the_report_has_every_figure_and_raises_too_few_repetitions(tmp_path: Path) -> None:
    console, path = quiet(), tmp_path / "figures.json"

    assert core.main(["b", "d"], repeat=1, json_path=path, scale=SCALE, console=console) == 0

    text = printed(console)
    assert "1 raised to 5" in text
    assert "same answers" in text
    assert "not judged" in text
    report = json.loads(path.read_text())
    assert list(report) == ["b", "d"]
    names = ("us_s", "us2_s", "duckdb1_s", "duckdb2_s", "polars_s", "duckdb1_arrow_s")
    assert all(report["d"][name] > 0 for name in names)
    assert report["b"]["us_worst_text_s"] == report["b"]["us_s"]
    assert report["b"]["us_best_text_s"] > 0
    assert len(report["d"]["claims"]) == 1


def test_claims_are_judged_by_their_ratios() -> None:
    median_s = {"us": 1.0, "us2": 0.7, "duckdb1": 1.9, "us_best_text": 0.95}
    b = {claim.what: claim for claim in claims_of(measured_as(CASES["b"], **median_s))}
    assert not b["us / DuckDB, one thread each"].held
    assert b["us, worst / best text order"].held
    assert not b["speed-up of two threads"].held

    shifting = measured_as(CASES["c"], us=0.8, us2=0.5, duckdb1=1.6)
    shifting.fixed_s_by_order = {"d0,d1,d2,d3": 1.2, "d3,d2,d1,d0": 1.0}
    c = {claim.what: claim for claim in claims_of(shifting)}
    assert c["us / own best fixed order"].measured == pytest.approx(0.8)
    assert all(claim.held for claim in c.values())

    small = measured_as(CASES["a"], us=1.0, us2=0.5, duckdb1=2.0)
    small.memory = Memory(peak_bytes=201, needed_bytes=100)
    assert [claim.held for claim in claims_of(small)] == [True, True, False]


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(OptionError, match="no case 'z'; choose from a, b, c"):
        core.main(["z"])


def test_a_missing_folder_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no folder"):
        core.main(["a"], json_path=tmp_path / "nowhere" / "figures.json")


def test_peak_memory_counts_the_input() -> None:
    tables = data.two_dimensions(0.05)

    memory = peak_memory(CASES["a"], tables)

    assert memory.needed_bytes == sum(table.nbytes for table in tables.values()) + 16
    assert memory.peak_bytes > 0.9 * memory.needed_bytes


def test_tables_survive_the_way_into_another_process(tmp_path: Path) -> None:
    tables = data.two_text_dimensions(SCALE)
    save(tables, tmp_path)
    assert load(tmp_path) == tables


def test_hit_rates_are_as_stated_and_shift_halfway() -> None:
    tables = data.shifting_star(0.01)
    n_half = tables["f"].num_rows // 2
    for number, (before, after) in enumerate(
        zip(data.STAR_HIT_RATES, data.STAR_HIT_RATES[::-1], strict=True)
    ):
        is_hit = np.isin(tables["f"][f"k{number}"].to_numpy(), tables[f"d{number}"]["k"].to_numpy())
        assert is_hit[:n_half].mean() == pytest.approx(before, abs=0.01)
        assert is_hit[n_half:].mean() == pytest.approx(after, abs=0.01)


def test_text_keys_have_13_bytes_and_edges_are_distinct() -> None:
    keys = data.two_text_dimensions(SCALE)["f"]["k0"].combine_chunks()
    assert set(pc.binary_length(keys).to_pylist()) == {13}
    edges = data.graph(0.01)["e"].select(["a", "b"])
    assert edges.group_by(["a", "b"]).aggregate([]).num_rows == edges.num_rows
