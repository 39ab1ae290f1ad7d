"""DataFrames that are nothing but files: tasks read them themselves.

`spark.read.parquet(path)` is a DataFrame, but no row of it needs to go through Java: its files can be
read by the cells directly, several times faster than Spark hands rows to Python. Taken are DataFrames
whose plan is a scan of Parquet files on a file system of this machine and nothing else: without
partition columns, options or a cache, and with the columns that the files have. All others are left to
Spark: what it computes, and what it reads in its own way.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import DataFrame

from eddies.errors import EddiesError
from eddies.sources import read
from eddies.sources.source import Source

__all__ = ["files_of"]

_HARMLESS = {"path", "paths"}  # options that say nothing but where the files are
_LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")


def files_of(frame: DataFrame, schema: pa.Schema) -> Source | None:
    """The files that `frame`, whose columns are `schema`, consists of; None if it is something else."""
    plan = _scan(frame)
    if plan is None or any(_is_set(frame, name) for name in _LENIENT):
        return None
    paths = [urlparse(path) for path in plan.location().inputFiles()]
    if not paths or any(path.scheme != "file" or path.netloc for path in paths):
        return None
    try:
        source = read.parquet([unquote(path.path) for path in paths])
    except EddiesError:  # Spark reads what we do not, or says itself what is wrong
        return None
    return source if source.is_direct and _same_columns(source.schema, schema) else None


def _scan(frame: DataFrame) -> Any:
    """Spark's relation of Parquet files, if the plan is a scan of one; it belongs to Java."""
    inner = getattr(frame, "_jdf", None)
    if inner is None or frame.isStreaming or _is_cached(frame):
        return None  # Spark Connect keeps plans to itself
    plan = inner.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    has_options = any(name.lower() not in _HARMLESS for name in _keys(relation.options()))
    if relation.fileFormat().toString() != "Parquet" or has_options:
        return None
    return None if relation.partitionSchema().length() or plan.isStreaming() else relation


def _is_cached(frame: DataFrame) -> bool:
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk or level.useOffHeap)


def _keys(options: Any) -> list[str]:
    iterator = options.keysIterator()
    found = []
    while iterator.hasNext():
        found.append(str(iterator.next()))
    return found


def _is_set(frame: DataFrame, name: str) -> bool:
    return str(frame.sparkSession.conf.get(name, "false")).lower() == "true"


def _same_columns(files: pa.Schema, schema: pa.Schema) -> bool:
    from eddies.spark.inputs import normal_schema

    given = [(field.name, field.type) for field in normal_schema(files)]
    return given == [(field.name, field.type) for field in schema]
