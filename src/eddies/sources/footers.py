"""Parquet footers: where the row groups lie, what types they hold, what their columns range over.

A footer is read once in a process for each state of a file (path, size and time of change), so a
second query over the same files reads none. Many footers are read by a few threads at a time, because
what they cost is mostly waiting for the disk or the network.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyarrow import parquet

from eddies.errors import SourceError
from eddies.sources.opening import cannot_read
from eddies.sources.paths import DataFile, Place

__all__ = ["footer_of", "footers_of", "forget_footers"]

_THREADS_LOCAL = 4
_THREADS_REMOTE = 32
# A column chunk's description takes about half a kilobyte.
_MOST_CHUNKS = 200_000

_Key = tuple[str, str, int, int]
_lock = threading.Lock()
_footer_by_key: OrderedDict[_Key, parquet.FileMetaData] = OrderedDict()
_n_chunks = 0


def footer_of(place: Place, file: DataFile) -> parquet.FileMetaData:
    """The footer of `file`, from memory if it was read before in this process."""
    key = (place.system.type_name, file.path, file.n_bytes, file.changed_ns)
    with _lock:
        footer = _footer_by_key.get(key)
        if footer is not None:
            _footer_by_key.move_to_end(key)
            return footer
    footer = _read(place, file)
    _remember(key, footer)
    return footer


def footers_of(place: Place, files: Sequence[DataFile]) -> list[parquet.FileMetaData]:
    """The footers of `files`, in their order."""
    n_threads = _THREADS_LOCAL if place.is_local else _THREADS_REMOTE
    if len(files) < n_threads:
        return [footer_of(place, file) for file in files]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(lambda file: footer_of(place, file), files))


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


def _read(place: Place, file: DataFile) -> parquet.FileMetaData:
    if file.n_bytes == 0:
        raise SourceError(f"{file.path} is empty (0 bytes), so it is no Parquet file; remove it")
    try:
        with place.system.open_input_file(file.path) as opened:
            return parquet.read_metadata(opened)
    except (OSError, pa.ArrowException) as error:
        raise cannot_read(file.path, error) from error
