"""The core stands alone, and what one process compiled the next one loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

ALONE = """
import importlib.abc, pkgutil, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "duckdb", "sqlglot", "pandas", "polars", "click", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import eddies.core
for module in pkgutil.walk_packages(eddies.core.__path__, "eddies.core."):
    __import__(module.name)
import pyarrow as pa
from eddies.core.eddy import Eddy
from eddies.core.expr import Column
from eddies.core.query import Equality, Output, Query, Source
import eddies.hosts.local
schema = pa.schema([("x", pa.int64())])
query = Query(
    (Source("a", "a", schema), Source("b", "b", schema)),
    equalities=(Equality(Column("a", "x"), Column("b", "x"), pa.int64()),),
    output=(Output("x", Column("a", "x"), pa.int64()),),
)
tables = {"a": pa.table({"x": [1, 2]}), "b": pa.table({"x": [2, 3]})}
print(eddies.hosts.local.run(query, tables).table()["x"].to_pylist())
"""

CACHE = """
import json, pkgutil, numba
import eddies.core.kernels as package
hits, misses = 0, 0
for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    module = __import__(found.name, fromlist=["x"])
    for value in vars(module).values():
        if isinstance(value, numba.core.registry.CPUDispatcher) and value.signatures:
            hits += sum(value.stats.cache_hits.values())
            misses += sum(value.stats.cache_misses.values())
print(json.dumps([hits, misses]))
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_core_needs_neither_spark_nor_sql() -> None:
    assert python(ALONE).strip() == "[2]"


def test_the_second_process_compiles_nothing() -> None:
    """The first process is whichever imported the kernels before; here, at the latest."""
    python(CACHE)
    hits, misses = json.loads(python(CACHE))
    assert misses == 0
    assert hits > 10
