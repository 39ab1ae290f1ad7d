"""The torture bench on small tables: shapes, engines, limits, ranks. No Java here."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from eddies.bench.answers import difference, plain_rows
from eddies.bench.torture import run
from eddies.bench.torture.engines import open_engine
from eddies.bench.torture.run import Tried, claims_of
from eddies.bench.torture.shapes import SHAPES
from eddies.bench.torture.watchdog import Limits, Outcome, run_within
from eddies.errors import OptionError

SCALE = 0.003
FILM_SCALE = 0.02  # in fewer films nothing has all properties that are asked for
PEERS = ("duckdb_views", "duckdb_tables", "polars", "datafusion")
LIMITS = Limits(query_s=1.0, memory_bytes=400 * 10**6, start_s=30.0)
SAY_READY = 'print(\'{"event": "ready"}\', flush=True);'


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torture")


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@pytest.mark.parametrize(
    "name",
    # Some tables of TPC-DS have the same millions of rows at any scale.
    [pytest.param(name, marks=pytest.mark.slow) if "tpcds" in name else name for name in SHAPES],
)
def test_all_peers_understand_every_shape_and_agree(name: str, data_folder: Path) -> None:
    shape = SHAPES[name]
    files = shape.files(data_folder, FILM_SCALE if "film" in name else SCALE)
    # In the order of the text the chain explodes at any size, and only DuckDB takes another.
    peers = PEERS[:2] if name == "chain8_empty" else PEERS
    answers = {engine: plain_rows(open_engine(engine, files)(shape.sql)) for engine in peers}
    if shape.reference_sql is not None:
        answers["reference"] = plain_rows(open_engine("duckdb_views", files)(shape.reference_sql))

    for engine, rows in answers.items():
        assert difference(rows, answers["duckdb_views"]) is None, engine
    has_results = any(value not in (0, None) for row in answers["duckdb_views"] for value in row)
    assert has_results == (name != "chain8_empty")


def test_a_child_that_answers_has_finished() -> None:
    ran = 'print(\'{"event": "ran", "seconds": 0.5, "rows": [[1, null]]}\', flush=True)'
    outcome = run_within(python(SAY_READY + ran + "; import time; time.sleep(0.5)"), LIMITS)
    assert (outcome.status, outcome.seconds, outcome.rows) == ("finished", [0.5], [(1, None)])
    assert outcome.peak_bytes > 0


def test_a_child_that_takes_too_long_is_ended_with_its_children() -> None:
    grandchild = "import subprocess, sys, time; subprocess.Popen(['sleep', '61.7']);"
    outcome = run_within(python(grandchild + SAY_READY + "time.sleep(60)"), LIMITS)
    assert outcome.status == "out of time"
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] == ["sleep", "61.7"]
    ]


def test_a_child_that_takes_too_much_memory_is_ended() -> None:
    hungry = "import time; held = b'x' * 500_000_000; time.sleep(60)"
    outcome = run_within(python(SAY_READY + hungry), replace(LIMITS, query_s=30.0))
    assert outcome.status == "out of memory"
    assert outcome.peak_bytes > LIMITS.memory_bytes


def test_a_child_that_grows_at_once_meets_the_kernel() -> None:
    outcome = run_within(python(SAY_READY + "held = b'x' * 5_000_000_000"), LIMITS)
    assert outcome.status == "out of memory"
    assert "MemoryError" in outcome.message


def test_a_child_that_fails_leaves_its_last_words() -> None:
    outcome = run_within(python(SAY_READY + "raise ValueError('no such function')"), LIMITS)
    assert (outcome.status, outcome.message) == ("failed", "ValueError: no such function")


def test_a_child_ends_when_its_parent_is_gone() -> None:
    child = (
        "from eddies.bench.torture.watchdog import end_with_parent; import time;"
        "end_with_parent(); print('up', flush=True); time.sleep(120)"
    )
    parent = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(child.pid, flush=True)"
    )
    done = subprocess.run(python(parent), capture_output=True, text=True, check=True, timeout=60)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(int(done.stdout)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(int(done.stdout))


def test_time_is_counted_from_ready() -> None:
    slow_start = "import time; time.sleep(1.2);" + SAY_READY
    ran = 'print(\'{"event": "ran", "seconds": 0.1, "rows": []}\', flush=True)'
    begun = time.monotonic()
    assert run_within(python(slow_start + ran), LIMITS).status == "finished"
    assert time.monotonic() - begun > 1.2


def test_a_real_run_of_two_engines(tmp_path: Path, data_folder: Path) -> None:
    console, path = Console(file=io.StringIO(), width=160), tmp_path / "figures.json"

    code = run.main(
        ["triangle"],
        ["duckdb_views", "datafusion"],
        data_folder=data_folder,
        json_path=path,
        scale=SCALE,
        console=console,
    )

    assert code == 0
    assert isinstance(console.file, io.StringIO)
    assert "1 of 1" in console.file.getvalue()
    report = json.loads(path.read_text())["triangle"]
    assert report["datafusion"]["status"] == "finished"
    assert report["duckdb_views"]["seconds"] > 0


def finished(seconds: float, answer: int = 1) -> Outcome:
    return Outcome("finished", [seconds], [(answer,)])


def test_ranks_and_claims() -> None:
    shape = SHAPES["triangle"]
    second = Tried(shape, {"us": finished(2.0), "spark": finished(9.0), "polars": finished(1.0)})
    alone = Tried(shape, {"us": finished(5.0), "spark": Outcome("out of time")})
    lost = Tried(shape, {"us": Outcome("out of memory"), "polars": finished(1.0)})
    assert [tried.rank() for tried in (second, alone, lost)] == [2, 1, None]

    claims = claims_of([second, alone, lost])

    assert [(claim.what, claim.held) for claim in claims] == [
        ("shapes finished by us", False),
        ("us / best engine", True),
        ("us / best engine", True),
        ("us first or second, share", True),
    ]


def test_we_are_no_rival_of_ourselves() -> None:
    seconds = {"us": 8.0, "us_cached": 1.0, "polars": 2.0, "spark": 9.0}
    tried = Tried(SHAPES["triangle"], {name: finished(s) for name, s in seconds.items()})
    assert (tried.rank("us"), tried.rank("us_cached")) == (2, 1)
    _, to_best, _ = claims_of([tried])
    assert (to_best.what, to_best.measured, to_best.held) == ("us / best engine", 4.0, False)
    _, to_best, _ = claims_of([tried], "us_cached")
    assert (to_best.what, to_best.measured, to_best.held) == ("us, cached / best engine", 1.0, True)


def test_answers_that_differ_are_named() -> None:
    tried = Tried(SHAPES["triangle"], {"us": finished(1.0, 5), "duckdb_tables": finished(1.0, 4)})
    assert tried.differences == ["us: row (5,) instead of (4,) (of duckdb_tables)"]
    checked = Tried(SHAPES["three_sources"], {"us": finished(1.0, 5)}, [(5,)])
    assert checked.differences == []


def test_an_unknown_shape_is_named() -> None:
    with pytest.raises(OptionError, match="there is no shape 'square'"):
        run.main(["square"])
