"""How a task finds the keeper of its cell, and starts one where there is none."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection

import pyarrow as pa

from eddies.errors import StateError
from eddies.streaming.messages import Done, Failed, Request
from eddies.streaming.place import Place, places_of

__all__ = ["dismiss", "run_epoch"]

_START_S = 60.0  # that a keeper may take until it listens
_IDLE_S = 600.0  # after which a keeper that nobody asks leaves
_STUCK_S = 30.0  # after which a task that neither reads nor writes makes room for one that waits
_LEAVE_S = 5.0  # that a keeper may take to leave
_HELD_BYTES = 64 << 20  # results held back, so that a keeper that dies can be replaced unnoticed
_ATTEMPTS = 3
_GLANCE_S = 0.01

_started: list[subprocess.Popen[bytes]] = []  # by this worker; it reaps them when they have left


def run_epoch(block: str, request: Request) -> Iterator[pa.RecordBatch]:
    """The results of an epoch, from the keeper of the cell.

    If a keeper dies before much has been passed on, another is started and asked; afterwards it is an
    error, and Spark runs the task again.
    """
    place = Place.of(request.query_id, block, request.number)
    for attempt in range(_ATTEMPTS):
        held: list[pa.RecordBatch] = []
        n_held, passed_on = 0, False
        try:
            with contextlib.closing(_connect(place, request)) as connection:
                with _reaching():
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
        except _Gone as error:
            if passed_on or attempt == _ATTEMPTS - 1:
                raise StateError(
                    f"the process that keeps cell {request.number} has gone in epoch "
                    f"{request.epoch}; the epoch must run again. {place.said()}".strip()
                ) from error


class _Gone(Exception):
    """The keeper has died or left: what an error *of* the keeper, which it sends, never is."""


@contextlib.contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as error:  # a plain OSError where a message ends too soon
        raise _Gone from error


def _received(connection: Connection) -> Iterator[pa.RecordBatch]:
    while True:
        with _reaching():
            message = connection.recv_bytes()
        if not message:
            break
        yield from pa.ipc.open_stream(message)
    with _reaching():
        last: Done | Failed = connection.recv()
    if isinstance(last, Failed):
        last.error.add_note(f"in the keeper of the cell:\n{last.trace}")
        raise last.error


def dismiss(query_id: str) -> int:
    """Tell all keepers of a query on this host to leave, and wait until they have, unless they are
    busy; returns how many were told. What killed ones have left is removed.
    """
    told: list[Connection] = []
    for place in places_of(query_id):
        try:
            connection = Client(place.socket, "AF_UNIX")
            connection.send(None)
            told.append(connection)
        except (OSError, EOFError):
            place.clear_if_dead()
    until_s = time.monotonic() + _LEAVE_S
    for connection in told:
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.poll(max(0.0, until_s - time.monotonic()))
    return len(told)


def _connect(place: Place, request: Request) -> Connection:
    _started[:] = [process for process in _started if process.poll() is None]
    with place.locked():
        try:
            return Client(place.socket, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place.socket)
        return _start(place, request)


def _start(place: Place, request: Request) -> Connection:
    arguments = [sys.executable, "-m", "eddies.streaming.keeper", place.path]
    arguments += [str(request.guardian.process), str(_IDLE_S), str(_STUCK_S)]
    with open(place.log, "wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    _started.append(process)
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        ended = process.poll()
        try:
            return Client(place.socket, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if ended is None:
                time.sleep(_GLANCE_S)
            elif ended > 0:
                raise StateError(
                    f"the process that should keep cell {request.number} ended: {place.said()}"
                ) from None
            else:
                raise _Gone("the keeper was killed, or has left") from None
    process.kill()
    raise StateError(
        f"the process that should keep cell {request.number} did not start within {_START_S:.0f} s; "
        "the host has too much to do"
    )
