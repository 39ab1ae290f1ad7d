"""The hash index over a row store: growth, NULLs, limits, flags, and probes that pause."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.state import scratch as scratch_module
from eddies.core.state.buffers import Shelf
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import key_words
from eddies.core.state.line_table import LineTable
from eddies.core.state.remainder_table import RemainderTable
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

NO_LIMIT = 2**31 - 1
APART = 1_000_003  # keys that lie closer together have slots


def store_of(**columns: pa.Array) -> RowStore:
    schema = pa.schema([(name, array.type) for name, array in columns.items()])
    store = RowStore("t", schema)
    append(store, **columns)
    return store


def append(store: RowStore, **columns: pa.Array) -> None:
    store.append(Block.from_arrow(columns, len(next(iter(columns.values())))))


def matches(
    index: HashIndex, keys: list[int], limit: int = NO_LIMIT, scratch: Scratch | None = None
) -> tuple[list[tuple[int, int]], int]:
    """All matches as (key, row), and how often the probe paused."""
    scratch = scratch or Scratch(len(keys))
    block = Block.from_arrow({"k": pa.array(keys, pa.int64())}, len(keys))
    words, _ = key_words([(block.column("k"), None)])
    found, pending = index.probe(words, limit, scratch)
    pairs = [
        (keys[p], r) for p, r in zip(scratch.positions[:found], scratch.rows[:found], strict=True)
    ]
    n_pauses = 0
    while pending is not None:
        n_pauses += 1
        found, pending = index.resume(pending, scratch)
        pairs += [
            (keys[p], r)
            for p, r in zip(scratch.positions[:found], scratch.rows[:found], strict=True)
        ]
    return [(key, int(row)) for key, row in pairs], n_pauses


def expected(
    stored: list[int | None], keys: list[int], limit: int = NO_LIMIT
) -> list[tuple[int, int]]:
    return sorted(
        (key, row) for key in keys for row, k in enumerate(stored) if k == key and row < limit
    )


def test_nothing_stored() -> None:
    index = HashIndex(store_of(k=pa.array([], pa.int64())), ["k"])
    assert index.catch_up(Scratch(4)) == 0
    assert matches(index, [1, 2]) == ([], 0)


def test_nulls_are_not_entered() -> None:
    stored = [1, None, 2, None, 1]
    index = HashIndex(store_of(k=pa.array(stored, pa.int64())), ["k"])
    assert index.catch_up(Scratch(4)) == 5
    assert index.n_entered == 3
    assert sorted(matches(index, [1, 2, 0])[0]) == expected(stored, [1, 2, 0])


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_growth_from_the_smallest_table(step: int) -> None:
    """Rows enter a few at a time, far beyond the first table; old matches stay where they are."""
    rng = random.Random(step)
    n = 600 if step == 1 else 5000
    stored = [rng.randrange(n) for _ in range(n)]
    store = store_of(k=pa.array([], pa.int64()))
    index = HashIndex(store, ["k"])
    scratch = Scratch(16)
    for start in range(0, n, step):
        append(store, k=pa.array(stored[start : start + step], pa.int64()))
        assert index.catch_up(scratch) == len(stored[start : start + step])
    keys = list(range(n))
    by_key: dict[int, list[int]] = {}
    for row, key in enumerate(stored):
        by_key.setdefault(key, []).append(row)
    assert sorted(matches(index, keys)[0]) == [(k, r) for k in keys for r in by_key.get(k, [])]


def test_a_hundred_thousand_rows_at_once() -> None:
    n = 100_000
    values = np.random.default_rng(1).permutation(n)
    index = HashIndex(store_of(k=pa.array(values)), ["k"])
    index.catch_up(Scratch(16))
    found, _ = matches(index, list(range(0, 2 * n, 7)))
    rows = np.argsort(values)
    assert sorted(found) == [(k, int(rows[k])) for k in range(0, n, 7)]
    assert index.n_duplicates == 0


@pytest.mark.parametrize("limit", [0, 1, 5, 9, 10, NO_LIMIT])
def test_rows_at_or_above_the_limit_are_not_seen(limit: int) -> None:
    stored = [1, 2, 1, 1, 3, 2, 1, None, 3, 1]
    index = HashIndex(store_of(k=pa.array(stored, pa.int64())), ["k"])
    index.catch_up(Scratch(4))
    assert sorted(matches(index, [1, 2, 3], limit)[0]) == expected(stored, [1, 2, 3], limit)


@pytest.mark.parametrize("fan_out", [2, 50, 3000])
@pytest.mark.parametrize("n_keys", [1, 3, 40])
def test_a_probe_with_many_matches_pauses_and_goes_on(fan_out: int, n_keys: int) -> None:
    stored: list[int | None] = [key for _ in range(fan_out) for key in range(n_keys)]
    index = HashIndex(store_of(k=pa.array(stored, pa.int64())), ["k"])
    index.catch_up(Scratch(4))
    keys = [*range(n_keys), n_keys + 1]
    limit = len(stored) - n_keys  # the newest row of every key is out of bounds
    scratch = Scratch(len(keys))
    n_at_once = scratch.positions.shape[0]
    found, n_pauses = matches(index, keys, limit, scratch)
    assert len(found) == (fan_out - 1) * n_keys
    assert sorted(found) == sorted((row % n_keys, row) for row in range(limit))
    assert (n_pauses > 0) == (len(found) + n_keys > n_at_once)


def test_chains_of_very_different_lengths() -> None:
    rng = random.Random(7)
    stored: list[int | None] = [0] * 2000 + list(range(1, 100)) * 2 + [None] * 10
    rng.shuffle(stored)
    index = HashIndex(store_of(k=pa.array(stored, pa.int64())), ["k"])
    index.catch_up(Scratch(4))
    keys = [*range(110), 0, 5, 5]
    assert sorted(matches(index, keys)[0]) == expected(stored, keys)


def test_only_rows_with_the_flag() -> None:
    stored = [1, 1, 2, 2, None]
    flags = [True, False, False, True, True]
    store = store_of(k=pa.array(stored, pa.int64()), f=pa.array(flags))
    index = HashIndex(store, ["k"], rows_with="f")
    index.catch_up(Scratch(4))
    assert sorted(matches(index, [1, 2])[0]) == [(1, 0), (2, 3)]


def test_tables_come_back_zeroed_from_the_shelf() -> None:
    shelf = Shelf(most_bytes=4 << 20)
    first = shelf.take_zeros(1 << 18)
    first[:] = 7
    shelf.put(first)
    assert shelf.n_bytes == first.nbytes
    again = shelf.take_zeros(1 << 18)
    assert again is first
    assert not again.any()
    assert again.ctypes.data % 64 == 0
    assert shelf.n_bytes == 0


def test_the_shelf_is_bounded() -> None:
    shelf = Shelf(most_bytes=3 << 20)
    for _ in range(3):
        shelf.put(np.zeros(1 << 18, np.uint64))
    assert shelf.n_bytes == 2 << 20


def test_the_filter_for_misses_loses_no_match() -> None:
    """It comes when most keys miss, grows with the index, and goes when keys hit again."""
    n = 200_000
    store = store_of(k=pa.array(np.arange(n) * APART))
    index = HashIndex(store, ["k"])
    scratch = Scratch(16)
    index.catch_up(scratch)
    without = index.n_bytes
    misses = list(range(1, APART * n, APART))
    assert matches(index, misses)[0] == []
    assert index.is_behind
    assert index.n_bytes == without, "a probe that is timed makes no filter"
    assert index.catch_up(scratch) == n
    assert not index.is_behind
    assert index.n_bytes > without, "no filter was made"
    some = [*range(0, APART * n, 100 * APART), *range(1, APART * n, 50 * APART)]
    expected_rows = [(key, key // APART) for key in sorted(some) if key % APART == 0]
    assert sorted(matches(index, some)[0]) == expected_rows
    # Rows that come later, first few, then so many that the filter is made anew; and duplicates.
    for first, more in ((n, 1000), (n + 1000, 2 * n)):
        append(store, k=pa.array(np.arange(first, first + more) * APART))
        index.catch_up(scratch)
        end = first + more - 1
        late = [first * APART, end * APART, first * APART + 1, 0]
        found = matches(index, late)[0]
        assert found == [(first * APART, first), (end * APART, end), (0, 0)]
    append(store, k=pa.array([0, APART, 0]))
    index.catch_up(scratch)
    last = store.n_rows
    assert sorted(matches(index, [0, APART, 1])[0]) == sorted(
        [(0, 0), (0, last - 3), (0, last - 1), (APART, 1), (APART, last - 2)]
    )
    with_filter = index.n_bytes
    assert len(matches(index, list(range(0, APART * n, APART)))[0]) == n + 3
    assert index.n_bytes < with_filter, "the filter was kept though all keys hit"
    assert matches(index, misses[:1000])[0] == []


def test_few_keys_in_many_rows_hold_a_small_table() -> None:
    n = 400_000
    index = HashIndex(store_of(k=pa.array(np.arange(n) % 10)), ["k"])
    index.catch_up(Scratch(64))
    assert index.n_keys == 10
    chain_bytes = 4 * 2 ** (n - 1).bit_length()
    assert index.n_bytes < chain_bytes + (3 << 20)  # a table for all rows would have 16 MiB


@pytest.mark.parametrize("n_duplicates_first", [0, 100_000])
@pytest.mark.parametrize("apart", [1, APART])
def test_keys_of_a_large_table_are_all_found(n_duplicates_first: int, apart: int) -> None:
    """What the first rows look like says nothing certain about the others."""
    numbers = np.concatenate([np.zeros(n_duplicates_first, np.int64), np.arange(1, 200_000)])
    index = HashIndex(store_of(k=pa.array(numbers * apart)), ["k"])
    index.catch_up(Scratch(64))
    assert index.n_keys == len(np.unique(numbers))
    if isinstance(index._table, LineTable):
        assert index.n_keys <= 0.5 * 5 * index._table.n_lines
    wanted = list(range(1, 200_000, 997))
    found = matches(index, [k * apart for k in wanted])[0]
    assert sorted(found) == [(k * apart, n_duplicates_first + k - 1) for k in wanted]


def test_a_complete_unique_relation_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(table: LineTable | RemainderTable, n: int) -> None:
        sizes.append(n)
        grow_by_type[type(table)](table, n)

    grow_by_type = {kind: kind.grow for kind in (LineTable, RemainderTable)}
    n = 300_000
    index = HashIndex(store_of(k=pa.array(np.arange(n) * APART)), ["k"])
    for kind in grow_by_type:
        monkeypatch.setattr(kind, "grow", counted)
    index.catch_up(Scratch(64))
    assert isinstance(index._table, RemainderTable)
    n_lines_left_over = [size for size in sizes if size < 4096]
    assert sizes == [4096, *n_lines_left_over], "for a sample; that becomes remainders for all"


def test_scratch_comes_from_the_shelf_and_returns_there(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    monkeypatch.setattr(scratch_module, "SHELF", shelf)
    scratch = Scratch(100_000)
    for name in ("homes", "leftovers", "marked", "passed_positions", "passed_words", "rows"):
        getattr(scratch, name).fill(7)
    scratch.positions.fill(9)
    assert (scratch.rows == 7).all(), "buffers do not overlap"
    held = scratch.positions
    scratch.reserve(200_000)
    assert scratch.positions.shape[0] >= 800_000
    assert shelf.n_bytes == 0, "somebody holds the smaller buffers"
    assert (held == 9).all()
    again = Scratch(100_000)
    memory = again.positions.base
    again.release()
    again.release()
    assert shelf.n_bytes == memory.nbytes, "it went back once"
    del scratch  # which may happen while the shelf is locked
    assert shelf.n_bytes == memory.nbytes
    for n_rows in (70_000, 90_000, 131_072):
        again.reserve(n_rows)
        assert again.positions.base is memory, "sizes are few"
        again.release()


@pytest.mark.parametrize("n_rows", [10, 70_000])
def test_keys_that_come_in_one_chunk_are_read_once(n_rows, monkeypatch):
    """Also while their range is learned. More are read in pieces, and once more for their range."""
    store = store_of(k=pa.array(APART * np.arange(n_rows)))
    index = HashIndex(store, ["k"])
    read, plain = [], HashIndex._entered_words

    def counted(index, start, stop):
        read.append(stop - start)
        return plain(index, start, stop)

    monkeypatch.setattr(HashIndex, "_entered_words", counted)
    index.catch_up(Scratch(16))
    assert sum(read) == (n_rows if n_rows <= 65_536 else 2 * n_rows)
    keys = [0, APART * (n_rows - 1), 5]
    assert matches(index, keys)[0] == [(0, 0), (APART * (n_rows - 1), n_rows - 1)]
