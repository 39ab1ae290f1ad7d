"""Where generated tables lie: a cache folder outside the project, one sub-folder for each data set.

A data set is a folder of Parquet files, one for each table, named after it. It is made once: the
generator writes into a folder beside it, which takes its final name when everything is written, so
that an interrupted generator leaves nothing that looks finished. A generator whose output changes
must change the data set's name.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from eddies.bench.data import Tables
from eddies.errors import SourceError

__all__ = ["Files", "default_data_folder", "files_in", "made_once", "write_tables"]

Files = dict[str, Path]

# Small enough that two cores always have row groups to share, large enough to be read in one go.
ROW_GROUP_ROWS = 1 << 18


def default_data_folder() -> Path:
    """`eddies/bench` in the user's cache folder."""
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "eddies" / "bench"


def made_once(folder: Path, make: Callable[[Path], None]) -> Files:
    """The tables in `folder`; if there is no such folder, `make` fills it first."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            make(unfinished)
            unfinished.chmod(0o755)  # what mkdtemp makes is for its owner only
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return files_in(folder)


def files_in(folder: Path) -> Files:
    """The Parquet files of `folder` by table."""
    files = {path.stem: path.absolute() for path in sorted(folder.glob("*.parquet"))}
    if not files:
        raise SourceError(f"{folder} holds no Parquet files: delete it, and it is made again")
    return files


def write_tables(tables: Tables, folder: Path) -> None:
    """One Parquet file for each table."""
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")


def write_table(table: pa.Table, path: Path) -> None:
    """One Parquet file with row groups of `ROW_GROUP_ROWS`."""
    parquet.write_table(table, path, row_group_size=ROW_GROUP_ROWS)
