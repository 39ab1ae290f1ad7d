"""How a task finds the keeper of its cell, and starts one where there is none."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection

import pyarrow as pa

from eddies.errors import StateError
from eddies.streaming.messages import Done, Failed, Request

__all__ = ["dismiss", "run_epoch"]

_START_S = 60.0  # that a keeper may take until it listens
_IDLE_S = 600.0  # after which a keeper that nobody asks leaves
_HELD_BYTES = 64 << 20  # results held back, so that a keeper that dies can be replaced unnoticed
_ATTEMPTS = 3


def run_epoch(block: str, request: Request) -> Iterator[pa.RecordBatch]:
    """The results of an epoch, from the keeper of the cell.

    If a keeper dies before much has been passed on, another is started and asked; afterwards it is an
    error, and Spark runs the task again.
    """
    for attempt in range(_ATTEMPTS):
        held: list[pa.RecordBatch] = []
        n_held, passed_on = 0, False
        try:
            with contextlib.closing(_connect(block, request)) as connection:
                connection.send(request)
                for rows in _received(connection):
                    if not passed_on:
                        held.append(rows)
                        n_held += rows.nbytes
                        if n_held < _HELD_BYTES:
                            continue
                        passed_on = True
                        yield from held
                        held = []
                    else:
                        yield rows
            yield from held
            return
        except (EOFError, ConnectionError) as error:
            if passed_on or attempt == _ATTEMPTS - 1:
                raise StateError(
                    f"the process that keeps cell {request.number} has gone in epoch "
                    f"{request.epoch}; the epoch must run again"
                ) from error


def _received(connection: Connection) -> Iterator[pa.RecordBatch]:
    while message := connection.recv_bytes():
        yield from pa.ipc.open_stream(message)
    last: Done | Failed = connection.recv()
    if isinstance(last, Failed):
        last.error.add_note(f"in the keeper of the cell:\n{last.trace}")
        raise last.error


def dismiss(query_id: str) -> int:
    """Tell all keepers of a query on this host to leave; returns how many were told."""
    n_told = 0
    folder = _folder()
    for name in os.listdir(folder):
        if name.startswith(_mark(query_id)) and name.endswith(".socket"):
            with contextlib.suppress(OSError, EOFError):
                with Client(os.path.join(folder, name), "AF_UNIX") as connection:
                    connection.send(None)
                n_told += 1
    return n_told


def _connect(block: str, request: Request) -> Connection:
    cell = request.number
    name = os.path.join(_folder(), f"{_mark(request.query_id)}-{block}-{cell}")
    socket = f"{name}.socket"
    with open(f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tasks must not start two keepers
        try:
            return Client(socket, "AF_UNIX")
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(socket)
        return _started(socket, f"{name}.log", cell)


def _started(socket: str, log: str, cell: int) -> Connection:
    arguments = [
        sys.executable,
        "-m",
        "eddies.streaming.keeper",
        socket,
        str(os.getppid()),
        str(_IDLE_S),
    ]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            return Client(socket, "AF_UNIX")
        except OSError:
            time.sleep(0.01)
    with open(log, "rb") as output:
        said = output.read()[-2000:].decode(errors="replace")
    process.kill()
    raise StateError(f"the process that should keep cell {cell} did not start: {said}")


def _folder() -> str:
    """Where sockets are: a directory of this user's own."""
    folder = os.path.join(tempfile.gettempdir(), f"eddies-{os.getuid()}")
    os.makedirs(folder, 0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid():
        raise StateError(
            f"{folder!r} belongs to somebody else; set TMPDIR to a directory of your own"
        )
    return folder


def _mark(query_id: str) -> str:
    return hashlib.sha256(query_id.encode()).hexdigest()[:16]
