"""`Options(cache=...)`: the same rows again, also of files that were written again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.errors import OptionError
from tests.support.bag import assert_same_bag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "SELECT f.id, d.name FROM f, d, e WHERE f.k = d.k AND d.k = e.k AND f.id % 2 = 0"


def facts(n_rows: int) -> pa.Table:
    return pa.table({"id": range(n_rows), "k": [i % 7 for i in range(n_rows)]})


def expected(n_rows: int) -> pa.Table:
    kept = [i for i in range(0, n_rows, 2) if i % 7 < 5]
    return pa.table({"id": kept, "name": [f"name {i % 7}" for i in kept]})


@pytest.mark.parametrize("cache", ["1MB", "10KB", 1])
def test_the_same_rows_again(spark: SparkSession, tmp_path: Path, cache: str | int) -> None:
    parquet.write_table(facts(5000), tmp_path / "f.parquet", row_group_size=700)
    names = pa.table({"k": range(7), "name": [f"name {i}" for i in range(7)]})
    parquet.write_table(names, tmp_path / "d.parquet")
    parquet.write_table(pa.table({"k": range(5)}), tmp_path / "e.parquet")
    tables = {name: str(tmp_path / f"{name}.parquet") for name in ("f", "d", "e")}
    options = eddies.Options(cache=cache, cells=2)
    for _ in range(3):
        found = eddies.sql(TEXT, tables, spark=spark, options=options).toArrow()
        assert_same_bag(found, expected(5000))
    parquet.write_table(facts(4000), tmp_path / "f.parquet", row_group_size=700)
    for _ in range(3):
        found = eddies.sql(TEXT, tables, spark=spark, options=options).toArrow()
        assert_same_bag(found, expected(4000))


def test_what_is_no_size_is_named() -> None:
    with pytest.raises(OptionError, match="cache 'much' is not a size"):
        eddies.Options(cache="much")
