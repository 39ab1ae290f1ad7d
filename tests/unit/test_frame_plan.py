"""What footers tell of how many rows have one value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from eddies.spark.frame_plan import _equal

N = 200_000


@pytest.mark.parametrize("n_groups", [1, 7])
def test_share_of_one_value(tmp_path: Path, n_groups: int) -> None:
    numbers = np.random.default_rng(3).integers(0, 1 << 40, N)
    table = pa.table(
        {
            "four": [f"a text {i % 4}" for i in numbers],
            "hundred": numbers % 100,
            "all different": numbers,
            "one": ["x"] * N,
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=-(-N // n_groups))
    equal = _equal(parquet.read_metadata(tmp_path / "t.parquet"))
    assert 1 / 8 < equal["four"] < 1 / 2
    assert 1 / 400 < equal["hundred"] < 1 / 50
    assert equal["all different"] < 1 / 1000
    assert equal["one"] > 1 / 2


def test_small_and_empty_files(tmp_path: Path) -> None:
    table = pa.table({"name": [f"nation {i}" for i in range(25)]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert _equal(parquet.read_metadata(tmp_path / "t.parquet")) == {"name": 1 / 25}
    parquet.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    assert _equal(parquet.read_metadata(tmp_path / "none.parquet")) == {}
