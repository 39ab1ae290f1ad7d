"""Blocks and row stores: ids are arrival numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.state import rows as rows_module
from eddies.core.state.rows import Block, RowStore

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])


def block(*rows: tuple[int | None, str | None]) -> Block:
    arrays = {"x": pa.array([r[0] for r in rows], pa.int64()), "s": pa.array([r[1] for r in rows])}
    return Block.from_arrow({n: a.cast(SCHEMA.field(n).type) for n, a in arrays.items()}, len(rows))


def test_ids_count_arrivals_over_all_blocks() -> None:
    store = RowStore("t", SCHEMA)
    store.append(block((1, "a"), (2, None)))
    store.append(block())
    store.append(block((None, "a longer text")))
    assert store.n_rows == 3
    ids = np.array([2, 0, 2, 1], np.int32)
    assert store.column("x").take(ids).to_pylist() == [None, 1, None, 2]
    assert store.column("s").take(ids).to_pylist() == ["a longer text", "a", "a longer text", None]


def test_a_store_takes_only_the_columns_it_keeps() -> None:
    store = RowStore("t", SCHEMA.empty_table().select(["x"]).schema)
    store.append(block((5, "not kept")))
    assert store.column("x").take(None).to_pylist() == [5]


def test_text_outlives_the_batch_it_came_in() -> None:
    store = RowStore("t", SCHEMA)
    for i in range(50):
        store.append(block((i, f"text number {i}")))
    expected = [f"text number {i}" for i in range(50)]
    assert store.column("s").take(None).to_pylist() == expected


def test_memory_is_counted_as_it_grows() -> None:
    store = RowStore("t", SCHEMA)
    before = store.n_bytes
    store.append(block(*[(i, "x" * 100) for i in range(100)]))
    assert store.n_bytes >= before + 100 * (8 + 100)


def test_room_is_made_for_the_share_of_rows_that_selections_let_through() -> None:
    store = RowStore("t", pa.schema([("x", pa.int64())]), 3_000_000)
    for start in range(0, 30, 10):
        array = pa.array(range(start, start + 10), pa.int64())
        store.append(Block.from_arrow({"x": array}, 10, 100_000))
    assert store.expected_rows == 300
    assert store.n_bytes == 30 * 8
    assert store.column("x")._vector._lent.nbytes < 8192  # type: ignore[attr-defined]


def test_room_is_made_at_once_for_all_rows_of_a_relation_without_selections() -> None:
    store = RowStore("t", pa.schema([("x", pa.int64())]), 100_000)
    for start in range(0, 30, 10):
        array = pa.array(range(start, start + 10), pa.int64())
        store.append(Block.from_arrow({"x": array}, 10))
    assert store.column("x")._vector._lent.nbytes >= 800_000  # type: ignore[attr-defined]
    assert store.n_bytes == 30 * 8


@pytest.mark.parametrize("piece_rows", [2, 3, 100])
def test_rows_that_are_kept_keep_their_order(
    piece_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_PIECE_ROWS", piece_rows)
    store = RowStore("t", SCHEMA)
    for start in (0, 5):
        store.append(
            block(*[(None if i == 3 else i, f"text {i}") for i in range(start, start + 5)])
        )
    store.keep_only(np.array([1, 3, 4, 6, 7, 9], np.int32))
    assert store.n_rows == 6
    store.append(block((10, None)))
    assert store.column("x").take(None).to_pylist() == [1, None, 4, 6, 7, 9, 10]
    expected = ["text 1", "text 3", "text 4", "text 6", "text 7", "text 9", None]
    assert store.column("s").take(None).to_pylist() == expected
    store.keep_only(np.empty(0, np.int32))
    store.append(block((11, "again")))
    assert store.column("s").take(None).to_pylist() == ["again"]
