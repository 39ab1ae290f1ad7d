"""Parquet footers: where the row groups lie, what types they hold, what their columns range over.

A footer is read once in a process for each state of a file (path, size and time of change), so a
second query over the same files reads none. Many footers are read by a few threads at a time, because
what they cost is mostly waiting for the disk or the network.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyarrow import fs, parquet

from eddies.errors import SourceError
from eddies.sources.paths import DataFile

__all__ = ["cannot_read", "check_unchanged", "footer_of", "footers_of", "forget_footers"]

_THREADS_LOCAL = 4
_THREADS_REMOTE = 32
# A column chunk's description takes about half a kilobyte.
_MOST_CHUNKS = 200_000

_Key = tuple[str, str, int, int]
_lock = threading.Lock()
_footer_by_key: OrderedDict[_Key, parquet.FileMetaData] = OrderedDict()
_n_chunks = 0


def footer_of(system: fs.FileSystem, file: DataFile) -> parquet.FileMetaData:
    """The footer of `file`, from memory if it was read before in this process."""
    key = (system.type_name, file.path, file.n_bytes, file.changed_ns)
    with _lock:
        footer = _footer_by_key.get(key)
        if footer is not None:
            _footer_by_key.move_to_end(key)
            return footer
    footer = _read(system, file)
    _remember(key, footer)
    return footer


def footers_of(system: fs.FileSystem, files: Sequence[DataFile]) -> list[parquet.FileMetaData]:
    """The footers of `files`, in their order."""
    n_threads = _THREADS_LOCAL if isinstance(system, fs.LocalFileSystem) else _THREADS_REMOTE
    if len(files) < n_threads:
        return [footer_of(system, file) for file in files]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(lambda file: footer_of(system, file), files))


def forget_footers() -> None:
    """Drop what is remembered, for measurements that want a cold start."""
    global _n_chunks
    with _lock:
        _footer_by_key.clear()
        _n_chunks = 0


def _remember(key: _Key, footer: parquet.FileMetaData) -> None:
    global _n_chunks
    with _lock:
        if key in _footer_by_key:
            return
        _footer_by_key[key] = footer
        _n_chunks += footer.num_columns * footer.num_row_groups
        while _n_chunks > _MOST_CHUNKS and len(_footer_by_key) > 1:
            _, oldest = _footer_by_key.popitem(last=False)
            _n_chunks -= oldest.num_columns * oldest.num_row_groups


def _read(system: fs.FileSystem, file: DataFile) -> parquet.FileMetaData:
    if file.n_bytes == 0:
        raise SourceError(f"{file.path} is empty (0 bytes), so it is no Parquet file; remove it")
    try:
        with system.open_input_file(file.path) as opened:
            return parquet.read_metadata(opened)
    except (OSError, pa.ArrowException) as error:
        raise cannot_read(file.path, error) from error


def check_unchanged(system: fs.FileSystem, file: DataFile) -> None:
    """Raise `SourceError` if a local file is gone, or is not what it was when it was listed."""
    if not isinstance(system, fs.LocalFileSystem):
        return  # asking costs a round trip; a reader notices a change of size anyway
    try:
        status = os.stat(file.path)
    except OSError as error:
        raise cannot_read(file.path, error) from error
    if status.st_size != file.n_bytes or status.st_mtime_ns != file.changed_ns:
        raise SourceError(
            f"{file.path} on {socket.gethostname()} is not the file that was listed when the source "
            f"was made: {file.n_bytes} bytes then, {status.st_size} now. Make the source anew with "
            "eddies.read; if the machines hold different copies, put the file where all see the same"
        )


def cannot_read(path: str, error: Exception) -> SourceError:
    """What to tell about a file that cannot be read."""
    host = socket.gethostname()
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"host {host} does not see {path}. Every machine that runs tasks must reach the file "
            "under this path: put it on a shared file system or an object store, or read it through "
            "Spark"
        )
    if isinstance(error, PermissionError):
        return SourceError(
            f"host {host} may not read {path} ({error}): give the user that runs the tasks read "
            "permission on the file and on the folders above it"
        )
    reason = str(error).partition("\n")[0]
    return SourceError(f"{path} cannot be read on host {host}: {reason}")
