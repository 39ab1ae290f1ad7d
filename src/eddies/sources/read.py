"""`eddies.read`: tables that lie in files, to be joined without loading them first.

    lineitem = eddies.read.parquet("data/lineitem")             # folder, file, pattern, list, URI
    eddies.sql("SELECT ... FROM lineitem, ...", {"lineitem": lineitem, ...})

Each function lists the files and reads what describes them, no rows; mistakes in the path or in the
files are reported there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.parquet import ParquetSource
from eddies.sources.paths import NoFileSystem, Paths, find_files
from eddies.sources.reachable import AccessSource
from eddies.sources.source import Source

__all__ = ["lookup", "parquet"]


def lookup(
    schema: pa.Schema, on: Sequence[str], lookup: Callable[[pa.RecordBatch], object], **settings: Any
) -> AccessSource:
    """A source without a scan: its rows are looked up by the columns `on`, and nothing else.

    For `settings` see `Reachable.index`.
    """
    return AccessSource("look-ups", schema, ()).index(on, lookup, **settings)


def parquet(path: Paths, *, schema: pa.Schema | None = None) -> Source:
    """Parquet files as one table."""
    files = find_files(path)
    if isinstance(files, NoFileSystem):
        raise SourceError(files.reason)
    return ParquetSource(files, schema)
