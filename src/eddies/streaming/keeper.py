"""The process that keeps a cell's eddy alive from epoch to epoch.

Spark gives the task of a cell to any of its Python workers, a different one each epoch, and kills
workers when it likes. So the eddy does not live in a worker. Each cell has a *keeper*, a process beside
the workers that holds the stored rows, the indexes and everything the policy has learned. A task writes
the rows of its epoch to the log, asks the keeper to run the epoch, and passes the results on.

A keeper is a cache. It may be killed at any time, be missing on a host where the cell never ran before,
or lag behind because the cell ran elsewhere: the log has everything, and `Cell` catches up from there.

The keeper listens on a socket in a directory that only its user may enter, and serves one task at a
time. A task that neither reads nor writes any more is cut off when another waits: it was given up, and
its next attempt must not wait for it. The keeper leaves, with its files, when Spark's process that
asked last has gone from this host, when nobody has asked for a while, or when it is told that the query
has stopped.

    python -m eddies.streaming.keeper PLACE PARENT_PID IDLE_SECONDS STUCK_SECONDS
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from eddies.errors import EddiesError, StateError
from eddies.streaming.cell import Cell
from eddies.streaming.guardian import Guardian
from eddies.streaming.log import serialised
from eddies.streaming.messages import Done, Failed, Request, cell_folder
from eddies.streaming.place import Place, drop_spilled, sweep
from eddies.streaming.progress_file import write_progress

__all__ = ["main", "serve"]

_LOOK_EVERY_S = 0.5
_CLEAR_S = 5.0  # to wait for the lock of a place that is to be cleared
_BACKLOG = 16


class _Gone(Exception):
    """The task at the other end is no more."""


class _Talk:
    """A connection with one task. Knows since when it waits for the other side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waits_since_s: float | None = None

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waits_since_s = time.monotonic()
        try:
            yield
        except (OSError, EOFError) as error:
            raise _Gone from error
        finally:
            self._waits_since_s = None

    def receive(self) -> Request | None:
        with self._waiting():
            request: Request | None = self._connection.recv()
        return request

    def send_bytes(self, content: object) -> None:
        with self._waiting():
            self._connection.send_bytes(content)  # type: ignore[arg-type]  # any buffer will do

    def send(self, message: object) -> None:
        with self._waiting():
            self._connection.send(message)

    def waits_longer_than(self, most_s: float) -> bool:
        since_s = self._waits_since_s
        return since_s is not None and time.monotonic() - since_s > most_s

    def cut(self) -> None:
        """Let the thread that waits find the connection broken."""
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as other,
        ):
            other.shutdown(socket.SHUT_RDWR)


class _Cells:
    """The one cell that is kept, made for what is asked. Its eddy puts rows on disk where a later
    keeper on this host finds and removes them.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: object = None
        self._cell: Cell | None = None
        self._spill_dir: str | None = None

    def cell_for(self, request: Request) -> Cell:
        if self._cell is None or self._known != request.what:
            if self._cell is not None:
                self._cell.forget()
            self._cell = None  # what follows may fail
            spec = request.cell_spec()
            if spec.options.memory is not None:
                folder = self._place.spill_in(spec.options.spill_dir)
                os.makedirs(folder, 0o700, exist_ok=True)
                drop_spilled(folder)
                self._spill_dir = folder
                spec = replace(spec, options=replace(spec.options, spill_dir=folder))
            self._cell, self._known = request.cell(spec), request.what
        return self._cell

    def drop_files(self) -> None:
        """Remove what the cell has put on disk; it is not used again."""
        if self._spill_dir is not None:
            shutil.rmtree(self._spill_dir, ignore_errors=True)


class _Watch:
    """Looks, in a thread of its own, whether the keeper is needed and its task alive."""

    def __init__(
        self,
        place: Place,
        cells: _Cells,
        listener: socket.socket,
        guardian: Guardian,
        idle_s: float,
        stuck_s: float,
    ) -> None:
        self._place = place
        self._cells = cells
        self._bound = os.stat(place.socket)
        self._listener = listener
        self.guardian = guardian
        self._idle_s, self._stuck_s = idle_s, stuck_s
        self._talk: _Talk | None = None
        self._last_used_s = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()

    @contextlib.contextmanager
    def over(self, talk: _Talk) -> Iterator[None]:
        """While a task is served."""
        self._talk = talk
        try:
            yield
        finally:
            self._talk = None
            self._last_used_s = time.monotonic()

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            talk = self._talk
            is_idle = talk is None and time.monotonic() - self._last_used_s > self._idle_s
            if is_idle or not self.guardian.is_alive:
                self.leave()
            if talk is not None and talk.waits_longer_than(self._stuck_s) and self._others_wait():
                talk.cut()

    def _others_wait(self) -> bool:
        return bool(select.select([self._listener], [], [], 0)[0])

    def leave(self, *_: object) -> None:
        """End the process; take its files along if they are still its own."""
        with contextlib.suppress(Exception), self._place.locked(_CLEAR_S):
            self._cells.drop_files()
            if os.path.samestat(os.stat(self._place.socket), self._bound):
                self._place.clear()
        os._exit(0)


def serve(place: Place, parent: int, idle_s: float, stuck_s: float) -> None:
    """Answer requests until it is time to leave."""
    cells = _Cells(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place.socket)
        listener.listen(_BACKLOG)
        watch = _Watch(place, cells, listener, Guardian.of(parent), idle_s, stuck_s)
        signal.signal(signal.SIGTERM, watch.leave)
        sweep(place)
        while True:
            accepted, _ = listener.accept()
            with Connection(accepted.detach()) as connection:
                talk = _Talk(connection)
                with contextlib.suppress(_Gone), watch.over(talk):
                    request = talk.receive()
                    if request is None:
                        watch.leave()
                        return
                    watch.guardian = request.guardian
                    _answer(talk, cells, request)


def _answer(talk: _Talk, cells: _Cells, request: Request) -> None:
    """Run the epoch. If this raises `_Gone`, whoever asks next finds the cell in order."""
    last: Done | Failed
    try:
        cell = cells.cell_for(request)
        for rows in cell.run(request.epoch):
            talk.send_bytes(serialised(rows))
        last = Done(cell.n_rebuilt, cell.progress())
    except _Gone:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised again in the task
        last = Failed(_sendable(error), traceback.format_exc())
    talk.send_bytes(b"")
    talk.send(last)
    if isinstance(last, Done):
        # What is not done now, for want of space, say, is done after a later epoch.
        with contextlib.suppress(EddiesError, OSError):
            if last.progress is not None:
                write_progress(cell_folder(request.folder, request.number), last.progress)
            cell.tidy(request.epoch)


def _sendable(error: BaseException) -> BaseException:
    """`error`, or its text where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception's own code may raise
        return StateError(f"{type(error).__name__}: {error}")
    return (
        error if isinstance(error, EddiesError) else StateError(f"{type(error).__name__}: {error}")
    )


def main(arguments: list[str]) -> None:
    """What the process runs."""
    path, parent, idle_s, stuck_s = arguments
    serve(Place(path), int(parent), float(idle_s), float(stuck_s))


if __name__ == "__main__":
    main(sys.argv[1:])
