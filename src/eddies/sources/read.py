"""`eddies.read`: tables that lie in files, to be joined without loading them first.

    lineitem = eddies.read.parquet("data/lineitem")             # folder, file, pattern, list, URI
    eddies.sql("SELECT ... FROM lineitem, ...", {"lineitem": lineitem, ...})

Each function lists the files and reads what describes them, no rows; mistakes in the path or in the
files are reported there.
"""

from __future__ import annotations

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.parquet import ParquetSource
from eddies.sources.paths import NoFileSystem, Paths, find_files
from eddies.sources.source import Source

__all__ = ["parquet"]


def parquet(path: Paths, *, schema: pa.Schema | None = None) -> Source:
    """Parquet files as one table."""
    files = find_files(path)
    if isinstance(files, NoFileSystem):
        raise SourceError(files.reason)
    return ParquetSource(files, schema)
