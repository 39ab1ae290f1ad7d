"""What is written narrow comes back as it was, bit by bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.spill.narrow import narrowed, widened

_NUMBERS = {1: pa.int8(), 4: pa.int32(), 8: pa.int64()}


def there_and_back(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    form, written = narrowed(batch)
    return written, widened(written, form, batch.schema, batch.num_rows)


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([0, 1, 127], 1),
        ([-128, 3], 1),
        ([0, 128], 2),
        ([-(1 << 15), 5], 2),
        ([0, 1 << 15], 4),
        ([-(1 << 31), (1 << 31) - 1], 4),
        ([0, 1 << 31], 8),
        ([-(1 << 63), (1 << 63) - 1], 8),
    ],
)
def test_integers_are_as_narrow_as_they_are(values: list[int], width: int) -> None:
    batch = pa.record_batch({"x": pa.array(values, pa.int64())})
    written, back = there_and_back(batch)
    assert written.column(0).type.byte_width == width
    assert back.equals(batch)
    assert narrowed(batch)[0].saved_row_bytes == 8 - width


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.int64(), pa.uint64(), pa.date32(), pa.timestamp("us"), pa.time64("ns")]
)
def test_a_constant_is_not_written(type_: pa.DataType) -> None:
    constant = pa.array([7] * 5, pa.int64())
    batch = pa.record_batch({"x": constant.cast(_NUMBERS[type_.byte_width]).view(type_)})
    written, back = there_and_back(batch)
    assert written.num_columns == 0
    assert back.equals(batch)


def test_other_types_and_nulls_are_left_alone() -> None:
    batch = pa.record_batch(
        {
            "none": pa.array([1, None, 3], pa.int64()),
            "real": pa.array([1.0, 1.0, 1.0]),
            "text": pa.array(["a", "a", "a"]),
            "flag": pa.array([True, True, True]),
            "sum": pa.array([1, 1, 1], pa.decimal128(20, 2)),
        }
    )
    written, back = there_and_back(batch)
    assert written.schema.types == batch.schema.types
    assert back.equals(batch)


def test_unsigned_numbers_and_times_come_back_as_they_were() -> None:
    rng = np.random.default_rng(3)
    wide = rng.integers(0, 1 << 63, 50).astype(np.uint64) * np.uint64(2)
    batch = pa.record_batch(
        {
            "ends": pa.array(np.array([0, (1 << 64) - 1] * 25, dtype=np.uint64)),
            "wide": pa.array(wide),
            "when": pa.array(rng.integers(0, 1000, 50)).cast(pa.timestamp("us", "UTC")),
            "short": pa.array(rng.integers(0, 60_000, 50).astype(np.uint16)),
        }
    )
    written, back = there_and_back(batch)
    assert back.equals(batch)
    assert written.column(0).type == pa.int8()  # 0 and -1, bit by bit


def test_slices_of_batches_are_narrowed() -> None:
    batch = pa.record_batch({"x": pa.array(range(100), pa.int64()), "s": ["t"] * 100}).slice(10, 7)
    assert there_and_back(batch)[1].equals(batch)
