"""Where the keeper of a cell is found on a host: its socket, and the files beside it.

All keepers of a user have their files in one directory, which nobody else may enter. A place is known
by the query, the block and the cell, so whoever runs the cell's next task finds it. There are

* `.socket`, on which the keeper listens;
* `.lock`, held while somebody starts a keeper there or clears the place up: so there is one keeper;
* `.log`, what the keeper has printed: nothing, unless something is wrong;
* `.spill`, a directory for rows that its eddy puts on disk.

A keeper that leaves takes its files with it. One that was killed cannot: the next keeper that starts
on the host, of whatever query, clears such places up.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from eddies.errors import StateError
from eddies.streaming.guardian import exists

__all__ = ["Place", "drop_spilled", "places_of", "sweep"]

_LOCK = ".lock"
_GLANCE_S = 0.01
_SPILL = re.compile(r"eddies-spill-([0-9]+)-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one keeper. `path` is what their names begin with."""

    path: str

    @classmethod
    def of(cls, query_id: str, block: str, cell: int) -> Place:
        """The place of a cell on this host."""
        return cls(os.path.join(_folder(), f"{_mark(query_id)}-{_mark(block)[:6]}-{cell}"))

    @property
    def socket(self) -> str:
        return f"{self.path}.socket"

    @property
    def log(self) -> str:
        return f"{self.path}.log"

    @property
    def spill(self) -> str:
        return f"{self.path}.spill"

    def spill_in(self, folder: str | None) -> str:
        """Where rows go if they are to go to `folder`, which hosts may share; None: to `spill`."""
        if folder is None:
            return self.spill
        return os.path.join(folder, f"{socket.gethostname()}-{os.path.basename(self.spill)}")

    @contextlib.contextmanager
    def locked(self, most_s: float | None = None) -> Iterator[None]:
        """Be the only one who starts a keeper here or clears up; `TimeoutError` after `most_s`."""
        until_s = None if most_s is None else time.monotonic() + most_s
        while True:
            with open(f"{self.path}{_LOCK}", "a") as lock:
                _acquire(lock.fileno(), until_s)
                # Whoever held it before may have removed the file: then it locks nothing any more.
                if _is_same(lock.fileno(), lock.name):
                    yield
                    return

    def is_taken(self) -> bool:
        """Whether somebody listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(1.0)
            try:
                caller.connect(self.socket)
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:
                return True  # too busy to answer
        return True

    def said(self) -> str:
        """The end of what the keeper has printed."""
        try:
            with open(self.log, "rb") as output:
                return output.read()[-2000:].decode(errors="replace").strip()
        except OSError:
            return ""

    def clear(self) -> None:
        """Remove everything. The caller holds the lock, and nobody listens, or only the caller."""
        shutil.rmtree(self.spill, ignore_errors=True)
        for path in (self.socket, self.log, f"{self.path}{_LOCK}"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def clear_if_dead(self) -> None:
        """Remove everything if the keeper was killed. Does nothing if somebody holds the lock."""
        with contextlib.suppress(OSError), self.locked(0.0):
            if not self.is_taken():
                self.clear()


def places_of(query_id: str) -> list[Place]:
    """All places of a query on this host, also those whose keeper is dead."""
    return [
        place for place in _places() if os.path.basename(place.path).startswith(_mark(query_id))
    ]


def sweep(own: Place) -> None:
    """Clear up all places but `own` whose keepers were killed."""
    for place in _places():
        if place != own:
            place.clear_if_dead()


def drop_spilled(folder: str) -> None:
    """Remove what eddies of processes that are no more have put on disk in `folder`."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            found = _SPILL.fullmatch(name)
            if found and not exists(int(found[1])):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _places() -> list[Place]:
    folder = _folder()
    found = sorted(name for name in os.listdir(folder) if name.endswith(_LOCK))
    return [Place(os.path.join(folder, name.removesuffix(_LOCK))) for name in found]


def _acquire(descriptor: int, until_s: float | None) -> None:
    if until_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= until_s:
                raise TimeoutError("somebody else holds the lock") from error
            time.sleep(_GLANCE_S)


def _is_same(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _folder() -> str:
    """Where all places are: a directory of this user's own."""
    folder = os.path.join(tempfile.gettempdir(), f"eddies-{os.getuid()}")
    os.makedirs(folder, 0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid():
        raise StateError(
            f"{folder!r} belongs to somebody else; set TMPDIR to a directory of your own"
        )
    return folder


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
