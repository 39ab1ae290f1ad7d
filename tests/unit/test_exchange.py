"""Rows on their way to the cells: blobs are small, and batches are put together again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.spark import exchange
from eddies.spark.cells import CellPlan, Delivery
from eddies.spark.exchange import Blobs, gathered, make_pack
from eddies.spark.session import default_settings

ROWS = pa.record_batch({"k": list(range(100_000)), "s": [f"text {i}" for i in range(100_000)]})
PLAN = CellPlan((1,), {"a": Delivery("a", "exchange", False)}, "a", 0.0)


def test_blobs_are_small_and_their_rows_come_in_large_batches() -> None:
    packed = list(make_pack(0, PLAN.deliveries["a"], PLAN)(iter([ROWS])))
    sizes = [len(blob) for batch in packed for blob in batch.column("payload").to_pylist()]
    assert len(sizes) > 10
    assert max(sizes) < 1.1 * exchange._BLOB_BYTES
    ((cell, blobs),) = Blobs.by_cell(iter(packed), ["a"])
    batches = list(blobs.arrivals()["a"]())
    assert cell == 0
    assert len(batches) == 2
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([ROWS])


def test_a_row_that_is_wider_than_a_blob_has_one_of_its_own() -> None:
    wide = pa.record_batch({"s": ["x" * 2 * exchange._BLOB_BYTES, "y" * 10, "z" * 300_000]})
    packed = list(make_pack(0, PLAN.deliveries["a"], PLAN)(iter([wide])))
    assert sum(batch.num_rows for batch in packed) == 3
    ((_, blobs),) = Blobs.by_cell(iter(packed), ["a"])
    assert pa.Table.from_batches(blobs.arrivals()["a"]()) == pa.Table.from_batches([wide])


@pytest.mark.parametrize("n_rows", [0, 1, 1000, 70_000])
def test_gathered_rows_are_the_same_in_the_same_order(n_rows: int) -> None:
    rows = ROWS.slice(5, n_rows)
    pieces = [rows.slice(i, 777) for i in range(0, n_rows, 777)]
    batches = list(gathered(iter(pieces)))
    assert pa.Table.from_batches(batches, rows.schema) == pa.Table.from_batches([rows])
    assert len(batches) == -(-n_rows // (exchange.BATCH_ROWS // 777 * 777))


def test_a_batch_of_blobs_fits_into_arrow_without_a_bound_on_its_bytes() -> None:
    """Spark spares measuring batches when their bytes have no bound, so their rows must be few."""
    settings = default_settings()
    assert settings["spark.sql.execution.arrow.maxBytesPerBatch"] == str(2**31 - 1)
    n_rows = int(settings["spark.sql.execution.arrow.maxRecordsPerBatch"])
    assert n_rows * 1.5 * exchange._BLOB_BYTES < 2**31
