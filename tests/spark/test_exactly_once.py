"""Exactly once: whoever is killed, and however often, each result is written once.

A driver process (`tests.support.stream_driver`) joins four streams of files on a standalone cluster and
writes the results to Parquet. Python workers, Spark's daemons, keepers, executors and the driver are
killed at random moments, while rows arrive; the driver is started again from the checkpoint. At the end
the bag of results is that of DuckDB, and no process or file is left over.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.support.bag import assert_same_bag
from tests.support.clusters import SPARK_VARIABLE, cluster
from tests.support.killing import MARK_VARIABLE, Kind, Marked, kill, wait_until
from tests.support.stream_driver import DriverSettings
from tests.support.stream_tables import expected_answer, stream_tables

pytestmark = [
    pytest.mark.skipif(SPARK_VARIABLE in os.environ, reason="it has a Spark of its own"),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes as Linux shows them"),
]

TESTS = Path(__file__).parents[1]
START_S = 240.0  # until a driver has committed something; the machine may be busy
END_S = 400.0  # until everything is written after the last kill
GONE_S = 180.0  # until nobody is left whose driver has gone; Spark has its own time-outs there
FILES_A_KILL = 2
LONGEST_PAUSE_S = 1.5  # before a kill
PROGRESS_SHARE = 0.6  # of the kills come after an epoch was committed; others at once after another


@dataclass
class Run:
    """A query under attack."""

    settings: DriverSettings
    environment: dict[str, str]
    rng: random.Random
    arrivals: list[tuple[str, pa.Table]]
    marked: Marked
    driver: subprocess.Popen[bytes] | None = None
    n_starts: int = 0
    kills: Counter[Kind] = field(default_factory=Counter)
    has_spilled: bool = False
    quiet_until_s: float = 0.0

    # Files that arrive

    def arrive(self, n_files: int) -> None:
        """The next files are there."""
        for _ in range(min(n_files, len(self.arrivals))):
            name, rows = self.arrivals.pop()
            folder = self.settings.inputs / name
            written = folder.parent / f"{name}.part"
            parquet.write_table(rows, written)
            written.rename(folder / f"{len(self.arrivals)}.parquet")

    # The driver

    def start(self) -> None:
        self.n_starts += 1
        log = Path(self.settings.folder) / f"driver-{self.n_starts}.log"
        path = Path(self.settings.folder) / "settings.json"
        self.settings.write(path)
        with log.open("wb") as output:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "tests.support.stream_driver", str(path)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=TESTS.parent,
            )

    def check(self) -> None:
        """The driver has not failed by itself."""
        assert self.driver is not None
        code = self.driver.poll()
        if code:
            log = Path(self.settings.folder) / f"driver-{self.n_starts}.log"
            raise AssertionError(f"the driver ended with {code}:\n{log.read_text()[-6000:]}")

    def last_committed(self) -> int:
        """The last epoch, -1 before the first. The driver must be alive."""
        self.check()
        if any(self.temporary.glob("*.spill/*")):
            self.has_spilled = True
        return self.last_committed_file()

    def last_committed_file(self) -> int:
        commits = self.settings.checkpoint / "commits"
        found = os.listdir(commits) if commits.exists() else []
        return max((int(name) for name in found if name.isdigit()), default=-1)

    def wait_for_progress(self, why: str) -> None:
        """Until an epoch was committed; files must have arrived that were not read yet."""
        before = self.last_committed()
        wait_until(lambda: self.last_committed() > before, START_S, why)

    @property
    def temporary(self) -> Path:
        return Path(self.environment["TMPDIR"]) / f"eddies-{os.getuid()}"

    # Killing

    def kill_some(self, kind: Kind) -> None:
        """Kill a process of this kind; waits until there is one."""

        def there() -> list[int]:
            self.check()
            found = self.marked.of_kind(kind)
            if not found and time.monotonic() > self.quiet_until_s:
                self.arrive(1)  # workers and keepers are started for tasks
                self.quiet_until_s = time.monotonic() + 5
            return found

        is_killed = False
        while not is_killed:
            wait_until(there, START_S, f"there is a {kind}")
            found = self.marked.of_kind(kind)
            is_killed = bool(found) and kill(self.rng.choice(found))
        self.kills[kind] += 1
        said = f"kill {self.kills.total()}: a {kind}, after epoch {self.last_committed_file()}"
        logging.getLogger(__name__).info(said)
        if kind in ("driver", "gateway"):
            self.start_again()

    def start_again(self) -> None:
        """After a driver's death, or that of its Java; at once, or when everything of it has gone."""
        assert self.driver is not None
        self.driver.wait(GONE_S)
        if self.rng.random() < 0.5:
            self.marked.wait_until_gone(GONE_S, "what belongs to a killed driver leaves by itself")
        self.arrive(1)
        self.start()
        self.wait_for_progress("the new driver goes on")


@dataclass(frozen=True)
class Field:
    """A cluster whose processes, and those of its drivers, can be told from all others."""

    master: str
    mark: str
    temporary: Path
    reader: SparkSession


@contextmanager
def field_of(reader: SparkSession, n_workers: int, n_cores: int) -> Iterator[Field]:
    """`reader` was started before anything was marked, so it is never killed."""
    mark = uuid.uuid4().hex
    # With a short name, for the names of sockets must be short.
    temporary = Path(tempfile.mkdtemp(prefix="eddies-test-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK_VARIABLE, mark)
        patch.setenv("TMPDIR", str(temporary))
        with cluster(n_workers, n_cores) as master:
            yield Field(master, mark, temporary, reader)
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> Iterator[Field]:
    """One executor, with all that a few kills need."""
    with field_of(spark, 1, 2) as found:
        yield found


@pytest.fixture(scope="module")
def large(spark: SparkSession) -> Iterator[Field]:
    """Two executors, so that cells move between them and find each other's shuffled rows gone."""
    with field_of(spark, 2, 1) as found:
        yield found


def cut(
    tables: dict[str, pa.Table], n_files: int, rng: random.Random
) -> list[tuple[str, pa.Table]]:
    """The rows of all tables as files in some order, about `n_files` in all."""
    n_rows = sum(table.num_rows for table in tables.values())
    files: list[tuple[str, pa.Table]] = []
    for name, table in tables.items():
        n_parts = max(2, round(n_files * table.num_rows / n_rows))
        size = -(-table.num_rows // n_parts)
        files += [(name, table.slice(i * size, size)) for i in range(n_parts)]
    rng.shuffle(files)
    return files


def attack(
    folder: Path, on: Field, kinds: list[Kind], *, seed: int, n_orders: int, spills: bool
) -> Run:
    """Run the query while processes of `kinds` are killed, in this order; everything is checked."""
    rng = random.Random(seed)
    tables = stream_tables(n_orders, seed)
    n_bytes = sum(table.nbytes for table in tables.values())
    environment = os.environ | {MARK_VARIABLE: on.mark, "TMPDIR": str(on.temporary)}
    settings = DriverSettings(on.master, str(folder), n_bytes // 10 if spills else None)
    for name in tables:
        (settings.inputs / name).mkdir(parents=True)
    arrivals = cut(tables, (FILES_A_KILL + 2) * len(kinds) + 8, rng)
    run = Run(settings, environment, rng, arrivals, Marked(on.mark))
    try:
        _attack(run, kinds)
    finally:
        for number in run.marked.of_kind("driver", "gateway"):
            kill(number)
        if run.driver is not None:
            run.driver.wait(GONE_S)
    run.marked.wait_until_gone(GONE_S, "no process is left over")
    found = read_sink(on.reader, settings.out)
    assert_same_bag(found, expected_answer(tables), f"seed {seed}, killed: {dict(run.kills)}")
    assert run.kills.total() == len(kinds)
    assert not spills or run.has_spilled
    assert not list(run.temporary.iterdir()), "no file of a keeper is left over"
    return run


def _attack(run: Run, kinds: list[Kind]) -> None:
    run.arrive(6)
    run.start()
    wait_until(lambda: run.last_committed() >= 0, START_S, "the driver begins")
    for kind in kinds:
        run.arrive(FILES_A_KILL)
        if run.rng.random() < PROGRESS_SHARE:
            run.wait_for_progress("epochs go on between kills")
        time.sleep(run.rng.uniform(0, LONGEST_PAUSE_S))
        run.kill_some(kind)
    run.arrive(len(run.arrivals))
    run.settings.complete.touch()

    def is_done() -> bool:
        run.last_committed()
        return run.settings.done.exists()

    wait_until(is_done, END_S, "all results are written")
    assert run.driver is not None
    assert run.driver.wait(GONE_S) == 0


def read_sink(spark: SparkSession, out: Path) -> pa.Table:
    """What Spark's own list of files says is there: others were left by tasks that were killed."""
    return spark.read.parquet(str(out)).toArrow()


SHORT: list[Kind] = ["worker", "keeper", "executor", "driver", "worker"]


@pytest.mark.parametrize(
    "spills",
    [pytest.param(False, marks=pytest.mark.slow, id="in memory"), pytest.param(True, id="on disk")],
)
def test_a_few_kills(spills: bool, tmp_path: Path, small: Field) -> None:
    attack(tmp_path, small, SHORT, seed=1 + spills, n_orders=4000, spills=spills)


def many(seed: int, n_kills: int) -> list[Kind]:
    """Some of each, in some order."""
    rng = random.Random(seed)
    each: dict[Kind, int] = {"worker": 16, "daemon": 6, "keeper": 14, "executor": 9}
    each |= {"driver": 4, "gateway": 3}
    kinds = [kind for kind, n in each.items() for _ in range(n)]
    rng.shuffle(kinds)
    assert len(kinds) >= n_kills
    return kinds


@pytest.mark.slow
@pytest.mark.parametrize("spills", [False, True], ids=["in memory", "on disk"])
def test_fifty_kills(spills: bool, tmp_path: Path, large: Field) -> None:
    kinds = many(11 + spills, 50)
    run = attack(tmp_path, large, kinds, seed=11 + spills, n_orders=40_000, spills=spills)
    assert run.kills.total() >= 50
