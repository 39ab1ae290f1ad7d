"""What is written narrow comes back as it was, bit by bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.spill.narrow import NarrowRows, joined, narrow_rows
from eddies.core.state.columns import column_of
from eddies.core.state.narrow_column import narrow_taken
from eddies.core.state.rows import Block, RowStore

_NUMBERS = {1: pa.int8(), 4: pa.int32(), 8: pa.int64()}


def there_and_back(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    rows = narrow_rows(batch)
    return rows.written, rows.widened(batch.schema)


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


TYPES = [pa.int8(), pa.int64(), pa.uint32(), pa.uint64(), pa.date32(), pa.timestamp("us")]
SOME = np.random.default_rng(5).permutation(40).astype(np.int32)


def numbers(type_: pa.DataType, most: int) -> pa.Array:
    """Forty numbers, some of them with the highest bit set if the type has as many bits as `most`."""
    signed = {1: pa.int8(), 4: pa.int32(), 8: pa.int64()}[type_.byte_width]
    rng = np.random.default_rng(most)
    most = min(most, 2 ** (8 * type_.byte_width - 1) - 1)
    return pa.array(rng.integers(-most, most, 40), signed).view(type_)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("most", [100, 30_000, 2_000_000_000, 2**62])
def test_a_narrow_column_has_the_values_and_words_of_its_type(
    type_: pa.DataType, most: int
) -> None:
    array = numbers(type_, most)
    (narrow,) = narrow_rows(pa.record_batch({"x": array})).columns([type_])
    wide = column_of(array)
    assert narrow.n_bytes <= wide.n_bytes
    assert narrow.take(None).equals(array)
    assert narrow.take(SOME).equals(wide.take(SOME))
    assert (narrow.words(None) == wide.words(None)).all()
    assert (narrow.words(SOME) == wide.words(SOME)).all()
    assert (narrow.words(None, 3, 9) == wide.words(None, 3, 9)).all()
    assert narrow.valid(None) is None
    assert narrow.exact == wide.exact
    for column in (narrow, wide):
        taken = NarrowRows.of([narrow_taken(column, SOME)], 40)
        assert taken.n_bytes == narrow.n_bytes
        assert taken.widened(pa.schema({"x": type_})).column(0).equals(wide.take(SOME))


@pytest.mark.parametrize("type_", TYPES)
def test_rows_of_any_width_are_appended_to_each_other(type_: pa.DataType) -> None:
    """Narrow, narrower, wider, and with NULLs, in every order; what is kept stays narrow."""
    schema = pa.schema({"x": type_})
    parts = [numbers(type_, most) for most in (100, 30_000, 2_000_000_000, 2**62)]
    parts.append(pa.array([None] * 40, type_))
    for i in range(len(parts)):
        order = parts[i:] + parts[:i]
        store = RowStore("r", schema)
        for array in order:
            store.append(Block.from_arrow({"x": array}, 40).narrowed(schema))
        whole = pa.concat_arrays(order)
        assert store.take("x", None).equals(whole)
        ids = np.arange(0, 200, 3, dtype=np.int32)
        store.keep_only(ids)
        assert store.take("x", None).equals(whole.take(pa.array(ids)))
        rows = [narrow_rows(pa.record_batch({"x": array})) for array in order]
        assert joined(rows, schema).widened(schema).column(0).equals(whole)


def test_rows_that_are_kept_stay_narrow() -> None:
    schema = pa.schema({"x": pa.int64()})
    store = RowStore("r", schema)
    store.append(Block.from_arrow({"x": pa.array(range(1000), pa.int64())}, 1000).narrowed(schema))
    assert store.n_bytes == 2000
    store.keep_only(np.arange(500, dtype=np.int32))
    assert store.n_bytes == 1000


def test_constants_of_several_batches_become_a_column() -> None:
    schema = pa.schema({"x": pa.int64(), "y": pa.int32()})
    batches = [
        pa.record_batch({"x": pa.array([x] * 3, pa.int64()), "y": pa.array([7] * 3, pa.int32())})
        for x in (5, 5, 300, -(2**40))
    ]
    rows = joined([narrow_rows(batch) for batch in batches], schema)
    assert rows.n_rows == 12
    assert rows.written.num_columns == 1
    assert rows.numbers(1) == 7
    expected = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    assert rows.widened(schema).equals(expected)
    order = np.arange(11, -1, -1, dtype=np.int32)
    assert rows.take(order).slice(2, 20).widened(schema).equals(expected.take(pa.array(order[2:])))
    same = joined([narrow_rows(batch) for batch in batches[:2]], schema)
    assert (same.n_rows, same.written.num_columns) == (6, 0)
    assert same.slice(1, 4).widened(schema).equals(expected.slice(0, 4))
