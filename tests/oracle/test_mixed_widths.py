"""Keys of several integer columns whose two sides have different widths."""

from __future__ import annotations

from itertools import product

import duckdb
import pyarrow as pa
import pytest

from eddies.core.options import Options
from eddies.hosts import local
from tests.support.bag import assert_same_bag

WIDTHS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


def _table(x: pa.DataType, y: pa.DataType, step: int) -> pa.Table:
    numbers = [*range(-40, 40, step), None, 7, 7]
    return pa.table(
        {
            "x": pa.array([None if n is None else n // 3 for n in numbers], x),
            "y": pa.array([None if n is None else n % 5 - 2 for n in numbers], y),
            "v": pa.array(range(len(numbers)), pa.int64()),
        }
    )


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(state="stairs"),
        Options(stem="sort"),
        *(Options(policy="random", seed=seed, batch_rows=7) for seed in range(3)),
    ],
)
@pytest.mark.parametrize(("x", "y"), list(product(WIDTHS, repeat=2)))
def test_composite_keys_of_mixed_widths(x: pa.DataType, y: pa.DataType, options: Options) -> None:
    text = "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a, b, c WHERE a.x = b.x AND a.y = b.y "
    text += "AND b.x = c.x AND c.y = a.y"
    tables = {
        "a": _table(x, y, 1),
        "b": _table(pa.int32(), pa.int64(), 2),
        "c": _table(pa.int16(), pa.int16(), 3),
    }
    with duckdb.connect() as oracle:
        for name, table in tables.items():
            oracle.register(name, table)
        expected = oracle.sql(text).to_arrow_table()
    assert_same_bag(local.sql(text, tables, options), expected)


def test_columns_packed_side_by_side_are_not_another_key() -> None:
    """(1, 0) as 32 and 16 bits was (0, 65536) as 32 and 32."""
    tables = {
        "a": pa.table({"x": pa.array([1], pa.int32()), "y": pa.array([0], pa.int16())}),
        "b": pa.table({"x": pa.array([0], pa.int32()), "y": pa.array([65536], pa.int32())}),
    }
    found = local.sql("SELECT a.x FROM a, b WHERE a.x = b.x AND a.y = b.y", tables)
    assert found.num_rows == 0


@pytest.mark.parametrize("seed", range(5))
def test_two_columns_of_one_source_in_a_class_of_mixed_widths(seed: int) -> None:
    """b.x = a.x = b.w, compared as whole numbers of three widths, and through c once more."""
    numbers = [*range(-20, 20), None]
    tables = {
        "a": pa.table({"x": pa.array(numbers, pa.int64())}),
        "b": pa.table({"x": pa.array(numbers, pa.int32()), "w": pa.array(numbers, pa.int16())}),
        "c": pa.table({"x": pa.array(numbers[::2], pa.int8())}),
    }
    text = "SELECT a.x, b.w, c.x AS cx FROM a, b, c WHERE a.x = b.x AND b.w = a.x AND b.x = c.x"
    with duckdb.connect() as oracle:
        for name, table in tables.items():
            oracle.register(name, table)
        expected = oracle.sql(text).to_arrow_table()
    options = Options(policy="random", seed=seed, batch_rows=7)
    assert_same_bag(local.sql(text, tables, options), expected)
