"""The process that keeps a cell's eddy alive from epoch to epoch.

Spark gives the task of a cell to any of its Python workers, a different one each epoch, and kills
workers when it likes. So the eddy does not live in a worker. Each cell has a *keeper*, a process beside
the workers that holds the stored rows, the indexes and everything the policy has learned. A task writes
the rows of its epoch to the log, asks the keeper to run the epoch, and passes the results on.

A keeper is a cache. It may be killed at any time, be missing on a host where the cell never ran before,
or lag behind because the cell ran elsewhere: the log has everything, and `Cell` catches up from there.

The keeper listens on a socket in a directory that only its user may enter, and serves one task at a
time. It ends when Spark's own processes on this host have gone, when nobody has asked for a while, or
when it is told that the query has stopped.

    python -m eddies.streaming.keeper SOCKET PARENT_PID IDLE_SECONDS
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection, Listener

from eddies.errors import EddiesError, StateError
from eddies.streaming.cell import Cell
from eddies.streaming.log import serialised
from eddies.streaming.messages import Done, Failed, Request, cell_folder
from eddies.streaming.progress_file import write_progress

__all__ = ["main", "serve"]

_LOOK_EVERY_S = 1.0


class _Watch:
    """Ends the process when it is not needed any more."""

    def __init__(self, socket: str, parent: int, idle_s: float) -> None:
        self._socket, self._parent, self._idle_s = socket, parent, idle_s
        self.busy = threading.Lock()
        self.last_used = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            idle = not self.busy.locked() and time.monotonic() - self.last_used > self._idle_s
            if idle or not _is_alive(self._parent):
                self.leave()

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._socket)
        os._exit(0)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def serve(socket: str, parent: int, idle_s: float) -> None:
    """Answer requests until it is time to leave."""
    watch = _Watch(socket, parent, idle_s)
    known: object = None
    cell: Cell | None = None
    with Listener(socket, "AF_UNIX") as listener:
        while True:
            with listener.accept() as connection, watch.busy:
                try:
                    request = connection.recv()
                    if request is None:
                        watch.leave()
                    if known != request.what:
                        if cell is not None:
                            cell.forget()
                        cell, known = None, request.what
                    cell = _answer(connection, cell, request)
                except (EOFError, OSError):
                    pass  # the task has gone; whoever asks next finds the cell in order
                watch.last_used = time.monotonic()


def _answer(connection: Connection, cell: Cell | None, request: Request) -> Cell | None:
    try:
        cell = cell or request.cell()
        for rows in cell.run(request.epoch):
            connection.send_bytes(serialised(rows))
        last: Done | Failed = Done(cell.n_rebuilt, cell.progress())
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised again in the task
        last, cell = Failed(_sendable(error), traceback.format_exc()), None
    connection.send_bytes(b"")
    connection.send(last)
    if cell is not None and isinstance(last, Done):
        if last.progress is not None:
            write_progress(cell_folder(request.folder, request.number), last.progress)
        cell.tidy(request.epoch)
    return cell


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
    socket, parent, idle_s = arguments
    serve(socket, int(parent), float(idle_s))


if __name__ == "__main__":
    main(sys.argv[1:])
