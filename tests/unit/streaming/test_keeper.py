"""Keepers are real processes here: killed, left alone, asked twice, and cleared up after."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection
from pathlib import Path

import pyarrow as pa
import pytest

from eddies.core.expr import Column
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Source
from eddies.errors import StateError
from eddies.streaming import attach
from eddies.streaming.cell import CellSpec
from eddies.streaming.guardian import Guardian
from eddies.streaming.log import EpochLog, serialised
from eddies.streaming.messages import Request, cell_folder
from eddies.streaming.place import Place
from tests.support.keepers import keepers_at

QUERY_ID, BLOCK = "a-query", "block"
SCHEMA = pa.schema([("k", pa.int64())])
WAIT_S = 60.0


def until(what: Callable[[], bool], why: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end_s, why
        time.sleep(0.02)


class Host:
    """A host with one cell. Guardians stand for Spark's daemons."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder, self.temporary = folder, temporary
        self.guardians: list[subprocess.Popen[bytes]] = []
        self.place = Place.of(QUERY_ID, BLOCK, 0)

    def guardian(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.guardians.append(process)
        return process

    def log(self) -> EpochLog:
        return EpochLog(cell_folder(str(self.folder), 0))

    def request(self, epoch: int, guardian: int, **options: object) -> Request:
        keys = Column("l", "k"), Column("r", "k")
        query = Query(
            sources=(Source("l", "l", SCHEMA), Source("r", "r", SCHEMA)),
            equalities=(Equality(*keys, pa.int64()),),
            output=(Output("k", keys[0], pa.int64()),),
        )
        spec = CellSpec(query, Options(state="stems", **options), ("l", "r"))  # type: ignore[arg-type]
        watched = Guardian.of(guardian)
        folder = str(self.folder)
        return Request(pickle.dumps(spec), 0, (), folder, epoch, QUERY_ID, watched)

    def run(self, epoch: int, guardian: int, **options: object) -> int:
        request = self.request(epoch, guardian, **options)
        return sum(rows.num_rows for rows in attach.run_epoch(BLOCK, request))

    def keeper(self) -> int:
        """The process that listens now."""
        found = keepers_at(self.place)
        assert len(found) == 1, found
        return found[0]

    def files(self) -> list[str]:
        folder = self.temporary / f"eddies-{os.getuid()}"
        return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def is_gone(process: int) -> bool:
    return not Guardian.of(process).began


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # Names of sockets are short: the folder of a test may be too deep.
    temporary = Path(tempfile.mkdtemp(prefix="eddies-test-"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    found = Host(tmp_path / "block", temporary)
    yield found
    for process in found.guardians:
        process.kill()
        process.wait()
    attach.dismiss(QUERY_ID)
    until(lambda: not keepers_at(found.place), "keepers leave when their guardian has gone")
    shutil.rmtree(temporary)


def keys(*values: int) -> pa.Buffer:
    return serialised(pa.RecordBatch.from_pydict({"k": list(values)}, schema=SCHEMA))


def write(host: Host, epoch: int, n_rows: int = 3) -> None:
    """Rows of one side and then of the other, with equal keys."""
    host.log().write(epoch, [(epoch % 2, keys(*(7 for _ in range(n_rows))))])


def test_one_keeper_runs_all_epochs_and_takes_its_files_along(host: Host) -> None:
    spark = host.guardian()
    found = []
    for epoch in range(4):
        write(host, epoch)
        found.append(host.run(epoch, spark.pid))
    assert found == [0, 9, 9, 18]
    process = host.keeper()
    assert attach.dismiss(QUERY_ID) == 1
    until(lambda: is_gone(process), "a dismissed keeper leaves")
    assert host.files() == []


def test_a_killed_keeper_is_replaced(host: Host) -> None:
    spark = host.guardian()
    write(host, 0)
    host.run(0, spark.pid)
    os.kill(host.keeper(), signal.SIGKILL)
    write(host, 1)
    assert host.run(1, spark.pid) == 9


def test_a_keeper_killed_while_it_starts_is_replaced(host: Host) -> None:
    spark = host.guardian()
    killed: list[int] = []

    def kill_two() -> None:
        while len(killed) < 2:
            for process in keepers_at(host.place):
                if process not in killed:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)

    thread = threading.Thread(target=kill_two, daemon=True)
    thread.start()
    write(host, 0)
    host.run(0, spark.pid)
    thread.join(WAIT_S)
    assert len(killed) == 2
    write(host, 1)
    assert host.run(1, spark.pid) == 9


@pytest.mark.parametrize("n_received", [0, 1, 3])
def test_a_keeper_killed_in_the_middle_is_replaced(
    host: Host, n_received: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it works on the first results, or when so many batches of them have come."""
    spark = host.guardian()
    write(host, 0, 2000)
    host.run(0, spark.pid)
    process = host.keeper()
    write(host, 1, 2000)
    received, to_kill = attach._received, [process]

    def killing(connection: Connection) -> Iterator[pa.RecordBatch]:
        if not n_received and to_kill:
            threading.Timer(0.01, os.kill, (to_kill.pop(), signal.SIGKILL)).start()
        for number, rows in enumerate(received(connection), 1):
            if number == n_received and to_kill:
                os.kill(to_kill.pop(), signal.SIGKILL)
            yield rows

    monkeypatch.setattr(attach, "_received", killing)
    results = attach.run_epoch(BLOCK, host.request(1, spark.pid))
    assert sum(rows.num_rows for rows in results) == 2000 * 2000
    assert host.keeper() != process


def test_a_keeper_leaves_when_spark_has_gone(host: Host) -> None:
    spark = host.guardian()
    write(host, 0)
    host.run(0, spark.pid, memory=1 << 20)
    process = host.keeper()
    assert Path(host.place.spill).is_dir()
    spark.kill()
    spark.wait()
    until(lambda: is_gone(process), "a keeper does not outlive Spark")
    assert host.files() == []


def test_a_keeper_from_an_older_run_serves_the_next_and_stays_with_it(host: Host) -> None:
    older, newer = host.guardian(), host.guardian()
    write(host, 0)
    host.run(0, older.pid)
    process = host.keeper()
    write(host, 1)
    assert host.run(1, newer.pid) == 9
    older.kill()
    older.wait()
    time.sleep(1.5)  # longer than a keeper takes to look
    write(host, 2)
    assert host.run(2, newer.pid) == 9
    assert host.keeper() == process
    newer.kill()
    newer.wait()
    until(lambda: is_gone(process), "it leaves with the process that asked last")


@pytest.mark.parametrize("when", ["before it asked", "while results come"])
def test_a_task_that_is_stuck_makes_room_for_its_next_attempt(
    when: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "_STUCK_S", 0.5)
    spark = host.guardian()
    write(host, 0, 1000)
    host.run(0, spark.pid)
    write(host, 1, 1000)
    with Client(host.place.socket, "AF_UNIX") as stuck:
        if when == "while results come":
            stuck.send(host.request(1, spark.pid))
            assert stuck.poll(WAIT_S)
        assert host.run(1, spark.pid) == 1000 * 1000


def test_two_who_ask_for_one_epoch_get_the_same(host: Host) -> None:
    spark, other = host.guardian(), host.guardian()
    found: list[int] = []

    def drive(guardian: int) -> None:
        for epoch in range(6):
            write(host, epoch, 300)
            found.append(host.run(epoch, guardian))

    threads = [threading.Thread(target=drive, args=(p.pid,)) for p in (spark, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    n_each = [0, 1, 1, 2, 2, 3]
    assert sorted(found) == sorted(90_000 * n for n in n_each + n_each)


def test_what_a_killed_keeper_left_is_cleared_up_by_another_query(host: Host) -> None:
    spark = host.guardian()
    write(host, 0)
    host.run(0, spark.pid, memory=1 << 20)
    os.kill(host.keeper(), signal.SIGKILL)
    until(lambda: not keepers_at(host.place), "it was killed")
    assert len(host.files()) == 4
    elsewhere = Place.of("another", BLOCK, 0)
    request = host.request(0, spark.pid)
    other = Request(
        *(getattr(request, name) for name in request.__slots__[:5]), "another", request.guardian
    )
    for _ in attach.run_epoch(BLOCK, other):
        pass
    until(lambda: not Path(f"{host.place.path}.lock").exists(), "the dead place is cleared")
    assert Path(elsewhere.socket).exists()
    attach.dismiss("another")
    assert host.files() == []


def test_what_is_wrong_in_a_keeper_is_told_and_can_be_mended(host: Host) -> None:
    spark = host.guardian()
    write(host, 0)
    host.run(0, spark.pid)
    os.kill(host.keeper(), signal.SIGKILL)
    log = host.log()
    path = Path(log.folder) / log.segments(1)[1].name
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    write(host, 1)
    with pytest.raises(StateError, match="damaged"):
        host.run(1, spark.pid)
    path.write_bytes(whole)
    assert host.run(1, spark.pid) == 9


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """As on a disk that has no space for more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def segment_files(log: EpochLog) -> list[str]:
    """Also those that are not whole."""
    return sorted(path.name for path in Path(log.folder).iterdir() if ".arrow" in path.name)


def test_a_full_disk_leaves_the_log_as_it_was(host: Host) -> None:
    spark = host.guardian()
    write(host, 0)
    host.run(0, spark.pid)
    log = host.log()
    before = segment_files(log)
    rows = keys(*range(200_000))
    with largest_file(100_000), pytest.raises(StateError, match="free space"):
        log.write(1, [(1, rows)])
    assert segment_files(log) == before
    write(host, 1)
    assert host.run(1, spark.pid) == 9


def test_a_keeper_goes_on_when_it_cannot_tidy_up(host: Host) -> None:
    spark = host.guardian()
    n_epochs, n_rows = 41, 40
    found = []
    with largest_file(6_000):  # enough for a segment, not for many put together
        for epoch in range(n_epochs):
            write(host, epoch, n_rows)
            found.append(host.run(epoch, spark.pid))
        process = host.keeper()
    assert sum(found) == n_rows * n_rows * (n_epochs // 2) * (n_epochs - n_epochs // 2)
    assert len(host.log().segments(n_epochs)) == n_epochs + 1, "nothing could be put together"
    assert host.keeper() == process
