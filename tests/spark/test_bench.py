"""The benches with Spark taking part, small: in processes of their own, as people run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run_bench(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eddies.cli", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("inputs", [[], ["--exchange"]])
def test_all_engines_on_spark_answer_alike(tmp_path: Path, inputs: list[str]) -> None:
    path = tmp_path / "figures.json"
    cases = ["--case", "q03", "--case", "q05_worst", "--case", "skew3"]

    run_bench(
        "spark", *cases, "--scale", "0.01", "--data", str(tmp_path), "--json", str(path), *inputs
    )

    report = json.loads(path.read_text())
    assert list(report) == ["q03", "q05_worst", "skew3"]
    for figures in report.values():
        assert all(figures[f"{name}_s"] > 0 for name in ("us", "spark", "spark_cbo", "duckdb2"))
        assert not figures["failures"]
        assert not figures["differences"]
    assert report["q05_worst"]["us_best_s"] > 0


def test_the_first_query_of_a_process(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    run_bench(
        "spark",
        "--cold",
        "--repeat",
        "1",
        "--scale",
        "0.01",
        "--data",
        str(tmp_path),
        "--json",
        str(path),
    )
    report = json.loads(path.read_text())["cold"]
    assert report["us_s"] > 0
    assert report["spark_s"] > 0


def test_streaming(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    run_bench("streaming", "--minutes", "0.3", "--arrival-s", "6", "--json", str(path))
    report = json.loads(path.read_text())
    assert list(report) == ["epochs", "rate", "early", "windows"]
    assert report["epochs"]["rows_read"] == 4 * 18 * 25_000
    assert report["epochs"]["rows_stored_at_the_end"] > 0
    assert report["rate"]["rows_a_second"] > 0
    assert 0 < report["early"]["share_delivered_by_then"] <= 1
    assert report["windows"]["rows_stored_at_the_end"] < report["windows"]["results"]
