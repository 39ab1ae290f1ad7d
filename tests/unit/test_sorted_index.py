"""The sorted index: ranges hold every row a comparison could be true for."""

from __future__ import annotations

import datetime
import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.state.rows import Block, RowStore
from eddies.core.state.sorted_index import Bounds, SortedIndex, is_sortable, sort_values

NAN, INF = float("nan"), float("inf")


def store_of(values: pa.Array) -> RowStore:
    return RowStore("t", pa.schema([("x", values.type)]))


def candidates(index: SortedIndex, lowest: object, highest: object, dtype: type) -> list[list[int]]:
    """For one probe row each: the rows in its range, over all runs."""
    low = None if lowest is None else np.array(lowest, dtype)
    high = None if highest is None else np.array(highest, dtype)
    n = len(low if low is not None else high)  # type: ignore[arg-type]
    found: list[list[int]] = [[] for _ in range(n)]
    for starts, stops, rows in index.ranges(Bounds(low, high), n):
        for j in range(n):
            found[j] += rows[starts[j] : stops[j]].tolist()
    return [sorted(rows) for rows in found]


@pytest.mark.parametrize("step", [1, 3, 50])
def test_ranges_over_many_runs(step: int) -> None:
    rng = random.Random(step)
    values = [rng.choice([None, *range(20)]) for _ in range(50)]
    array = pa.array(values, pa.int64())
    store = store_of(array)
    index = SortedIndex(store, "x")
    for start in range(0, 50, step):
        piece = array.slice(start, step)
        store.append(Block.from_arrow({"x": piece}, len(piece)))
        assert index.catch_up() == len(piece)
    found = candidates(index, [5, 30, -1, 7], [9, 40, 100, 3], np.int64)
    for j, (low, high) in enumerate([(5, 9), (30, 40), (-1, 100), (7, 3)]):
        assert found[j] == [i for i, v in enumerate(values) if v is not None and low <= v <= high]
    n_runs = sum(1 for _ in index.ranges(Bounds(np.zeros(1, np.int64), None), 1))
    assert n_runs <= 7  # runs grow: O(log n) of them


def test_one_bound_only() -> None:
    array = pa.array([3, 1, None, 2])
    store = store_of(array)
    store.append(Block.from_arrow({"x": array}, 4))
    index = SortedIndex(store, "x")
    index.catch_up()
    assert candidates(index, [2], None, np.int64) == [[0, 3]]
    assert candidates(index, None, [2], np.int64) == [[1, 3]]


def test_nan_lies_with_infinity_at_the_top() -> None:
    array = pa.array([NAN, 1.0, INF, -INF, None])
    store = store_of(array)
    store.append(Block.from_arrow({"x": array}, 5))
    index = SortedIndex(store, "x")
    index.catch_up()
    assert candidates(index, [INF, -INF], None, np.float64) == [[0, 2], [0, 1, 2, 3]]


def test_nothing_new_to_enter() -> None:
    index = SortedIndex(store_of(pa.array([], pa.int64())), "x")
    assert index.catch_up() == 0
    assert candidates(index, [0], None, np.int64) == [[]]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None], pa.int8()), [1, 0]),
        (pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
        (pa.array([datetime.date(1970, 1, 3)]), [2]),
        (pa.array([5], pa.timestamp("us")), [5]),
        (pa.array([1.5], pa.float32()), [1.5]),
    ],
)
def test_values_of_every_sortable_type(array: pa.Array, expected: list[float]) -> None:
    assert is_sortable(array.type)
    assert sort_values(array).tolist() == expected


@pytest.mark.parametrize("type_", [pa.string(), pa.uint64(), pa.bool_(), pa.decimal128(5, 2)])
def test_types_without_a_sorted_index(type_: pa.DataType) -> None:
    assert not is_sortable(type_)
