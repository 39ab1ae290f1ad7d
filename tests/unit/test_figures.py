"""`eddies figures`: names, files, exit code."""

from __future__ import annotations

import csv
import json

import pytest

from eddies.errors import OptionError
from eddies.experiments.overheads import _queries
from eddies.experiments.wisconsin import run_base, run_eddy, run_fixed
from eddies.observe import figures
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series


def finding(value: float) -> Finding:
    claim = Claim("T-X1", "a test", (Check("a", value, high=1.0), Check("b", 0.5, 0.0, 1.0)))
    other = Claim("T-X2", "another", (Check("c", 1.0, high=1.0, strict=False),))
    line = Panel("", "x (rows)", "y (s)", (Series("s", [1, 2], [3, 4]),))
    bars = Panel("", "", "y (s)", (Series("s", ["p", "q"], [3, 4]),), kind="bars", marks={"m": 1})
    rows = ({"x": 1, "y": 3}, {"x": 2, "z": 4})
    return Finding((claim, other), (Figure("T-X1", "t", (line, bars), rows),))


@pytest.fixture
def one_experiment(monkeypatch):
    def install(value: float) -> None:
        experiment = Experiment("tests", "papers", ("T-X1", "T-X2"), lambda: finding(value))
        monkeypatch.setattr(figures, "all_experiments", lambda: (experiment,))

    return install


def test_files_and_exit_code_of_claims_that_hold(one_experiment, tmp_path, capsys):
    one_experiment(0.9)
    json_path = tmp_path / "found.json"
    assert figures.main(["papers"], tmp_path / "out", json_path) == 0
    assert (tmp_path / "out" / "T-X1.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "T-X1.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {"x": "1", "y": "3", "z": ""},
            {"x": "2", "y": "", "z": "4"},
        ]
    first, second = json.loads(json_path.read_text())
    assert (first["claim"], first["held"], first["value"], first["bound"]) == (
        "T-X1",
        True,
        0.9,
        "<= 1",
    )
    assert second["claim"] == "T-X2"
    assert "T-X1   held" in capsys.readouterr().out


def test_a_claim_that_does_not_hold_fails_the_command(one_experiment, tmp_path, capsys):
    one_experiment(1.2)
    assert figures.main([], tmp_path, None) == 1
    assert "T-X1   NOT HELD  a: 1.2 (bound <= 1)" in capsys.readouterr().out


def test_only_claims_asked_for_count(one_experiment, tmp_path):
    one_experiment(1.2)
    assert figures.main(["T-X2"], tmp_path, None) == 0
    assert figures.main(["T-X1"], tmp_path, None) == 1


def test_an_unknown_name_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(OptionError, match=r"no figure 'ED-X99'.*ED-X1\b"):
        figures.main(["ED-X99"], tmp_path, None)


def test_every_claim_of_both_papers_is_listed_once():
    listed = [claim for experiment in figures.all_experiments() for claim in experiment.claims]
    expected = {f"ED-X{i}" for i in range(1, 13)} | {f"OV-X{i}" for i in range(1, 8)}
    assert expected <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("query", _queries(scale=50), ids=lambda query: query.name)
@pytest.mark.parametrize("k", [1, 7, 1000])
def test_overhead_queries_give_the_same_answers_at_any_k(query, k):
    work = query.make(min(query.n_timed, 200), k)
    fixed = run_fixed(work).answer
    eddy = run_eddy(work, "rank", k).answer
    if fixed.num_rows > 1:
        fixed, eddy = (answer.sort_by(answer.column_names[0]) for answer in (fixed, eddy))
    assert eddy.equals(fixed)
    if query.family == "selections":
        assert run_base(work).answer.column(0)[0] == fixed.column(0)[0]
