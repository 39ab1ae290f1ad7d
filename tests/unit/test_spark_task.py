"""What a task does with batches before the eddy sees them. Needs no Spark."""

from __future__ import annotations

import pyarrow as pa

from eddies.spark.task import _SMALL_ROWS, _in_larger_batches


def batches(*sizes: int) -> list[pa.RecordBatch]:
    found, first = [], 0
    for size in sizes:
        found.append(pa.record_batch({"x": pa.array(range(first, first + size), pa.int64())}))
        first += size
    return found


def test_small_batches_come_together_and_large_ones_as_they_are() -> None:
    given = batches(10, 20, _SMALL_ROWS, 5, _SMALL_ROWS - 5, 7, 8)
    found = list(_in_larger_batches(iter(given)))
    assert [b.num_rows for b in found] == [30, _SMALL_ROWS, _SMALL_ROWS, 15]
    assert found[1] is given[2]
    assert [x for b in found for x in b["x"].to_pylist()] == list(range(2 * _SMALL_ROWS + 45))


def test_batches_of_different_types_stay_apart() -> None:
    text = pa.record_batch({"x": ["a"]})
    found = list(_in_larger_batches(iter([*batches(1, 1), text, text])))
    assert [(b.num_rows, b.schema.field(0).type) for b in found] == [
        (2, pa.int64()),
        (2, pa.string()),
    ]
    assert not list(_in_larger_batches(iter([])))


def test_no_more_bytes_wait_than_one_array_can_hold() -> None:
    text = pa.record_batch({"s": ["x" * 20_000_000]})
    found = [batch.num_rows for batch in _in_larger_batches(iter([text] * 5))]
    assert found == [2, 2, 1]
