"""Opening a listed file where a task runs, and saying plainly why that fails.

A source is made on one machine and read on others. What can differ there: the file is not visible, may
not be read, or is another one. Each case has its own message, with the machine's name.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.paths import DataFile, Place

__all__ = ["cannot_read", "check_unchanged", "reading"]


def check_unchanged(place: Place, file: DataFile) -> None:
    """Raise `SourceError` if a local file is gone, or is not what it was when it was listed.

    The time of change is compared on the machine that listed the file; copies on other machines have
    their own.
    """
    if not place.is_local:
        return  # asking costs a round trip
    try:
        status = os.stat(file.path)
    except OSError as error:
        raise cannot_read(file.path, error) from error
    host = socket.gethostname()
    is_same = status.st_size == file.n_bytes
    if host == place.host:
        is_same = is_same and status.st_mtime_ns == file.changed_ns
    if not is_same:
        raise SourceError(
            f"{file.path} on host {host} is not the file that host {place.host} listed: it had "
            f"{file.n_bytes} bytes, now {status.st_size}, or was written again. Make the source anew "
            "with eddies.read; if machines hold different copies, put the file where all see the same"
        )


@contextmanager
def reading(file: DataFile) -> Iterator[None]:
    """Turns what goes wrong while `file` is read into a `SourceError` that names it."""
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise cannot_read(file.path, error) from error


def cannot_read(path: str, error: Exception) -> SourceError:
    """What to tell about a file that cannot be read."""
    host = socket.gethostname()
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"host {host} does not see {path}. Every machine that runs tasks must reach the file "
            "under this path: put it on a shared file system or an object store; or give a Spark "
            "DataFrame instead, if Spark can read it"
        )
    if isinstance(error, PermissionError):
        return SourceError(
            f"host {host} may not read {path} ({error}): give the user that runs the tasks read "
            "permission on the file and on the folders above it"
        )
    reason = str(error).partition("\n")[0]
    return SourceError(f"{path} cannot be read on host {host}: {reason}")
