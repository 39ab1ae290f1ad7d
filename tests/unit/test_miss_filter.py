"""Bloom filter and its life: no match is ever lost, and it is there only while it pays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.kernels.bloom import add_words, may_contain
from eddies.core.kernels.sums import sum_parts
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

APART = 1_000_003  # keys that lie closer together have slots and no filter


@pytest.mark.parametrize("stride", [1, 8, 1 << 16, 1 << 40, 1_000_003])
def test_no_word_that_was_entered_is_turned_away(stride: int) -> None:
    words = np.arange(2000, dtype=np.uint64) * np.uint64(stride)
    bloom = np.zeros(256, dtype=np.uint64)
    add_words(words, bloom)
    positions, passed = np.empty(2001, np.int32), np.empty(2001, np.uint64)
    assert may_contain(words, bloom, positions, passed) == 2000
    np.testing.assert_array_equal(passed[:2000], words)
    np.testing.assert_array_equal(positions[:2000], np.arange(2000))


def test_most_others_are_turned_away() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**63, 20_000).astype(np.uint64)
    bloom = np.zeros(4096, dtype=np.uint64)
    add_words(words, bloom)
    others = rng.integers(0, 2**63, 20_000).astype(np.uint64)
    positions, passed = np.empty(20_001, np.int32), np.empty(20_001, np.uint64)
    assert may_contain(others, bloom, positions, passed) < 0.1 * 20_000


def _index_of(keys: np.ndarray) -> tuple[RowStore, HashIndex, Scratch]:
    store = RowStore("t", pa.schema([("k", pa.int64())]))
    store.append(Block.from_arrow({"k": pa.array(keys)}, len(keys)))
    scratch = Scratch(65_536)
    index = HashIndex(store, ["k"])
    index.catch_up(scratch)
    return store, index, scratch


def _found(index: HashIndex, probes: np.ndarray, scratch: Scratch) -> list[tuple[int, int]]:
    found, pending = index.probe(probes.view(np.uint64), index.n_rows, scratch)
    assert pending is None
    pairs = zip(scratch.positions[:found].tolist(), scratch.rows[:found].tolist(), strict=True)
    return sorted(pairs)


def test_an_index_that_mostly_misses_gets_a_filter_and_finds_the_same() -> None:
    keys = np.arange(200_000, dtype=np.int64) * APART
    store, index, scratch = _index_of(keys)
    plain = index.n_bytes
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 20_000_000, 65_536)
    probes = numbers * APART
    expected = sorted((i, int(row)) for i, row in enumerate(numbers) if row < 200_000)
    assert _found(index, probes, scratch) == expected
    index.catch_up(scratch)
    assert index.n_bytes > plain, "a filter was made"
    assert _found(index, probes, scratch) == expected

    more = np.arange(200_000, 201_000, dtype=np.int64) * APART
    store.append(Block.from_arrow({"k": pa.array(more)}, len(more)))
    index.catch_up(scratch)
    assert len(_found(index, more, scratch)) == len(more), "rows entered later pass the filter"

    for _ in range(2):
        assert len(_found(index, keys[:65_536], scratch)) == 65_536
    assert index.n_bytes == plain, "hits all the time: the filter is dropped"


def test_an_index_that_grows_while_it_is_asked_gets_no_filter() -> None:
    """Two streams that meet: nearly nothing is found at first, and every row would enter the filter."""
    store, index, scratch = _index_of(np.arange(200_000, dtype=np.int64) * APART)
    plain = index.n_bytes
    for part in range(200_000, 400_000, 50_000):
        more = np.arange(part, part + 50_000, dtype=np.int64) * APART
        assert _found(index, more, scratch) == [], "they come later"
        store.append(Block.from_arrow({"k": pa.array(more)}, len(more)))
        index.catch_up(scratch)
        assert index._filter.n_bytes == 0
    assert index.n_bytes > plain
    for _ in range(4):
        assert _found(index, -more, scratch) == []
        index.catch_up(scratch)
    assert index._filter.n_bytes > 0, "it grows no more, and still mostly misses"


def test_announced_rows_that_come_in_bursts_get_no_filter() -> None:
    """Every burst is looked up in four pieces: within a burst nothing seems to grow."""
    store = RowStore("t", pa.schema([("k", pa.int64())]), 1_000_000)
    index, scratch = HashIndex(store, ["k"]), Scratch(65_536)
    for burst in range(3):
        keys = np.arange(burst * 262_144, (burst + 1) * 262_144, dtype=np.int64) * APART
        store.append(Block.from_arrow({"k": pa.array(keys)}, len(keys)))
        for piece in np.split(-keys - 1, 4):
            index.catch_up(scratch)
            assert _found(index, piece, scratch) == []
    assert index._filter.n_bytes == 0
    for _ in range(48):  # far more keys than rows, and no row more
        assert _found(index, piece, scratch) == []
        index.catch_up(scratch)
    assert index._filter.n_bytes > 0


def test_a_filter_that_is_there_stays_when_rows_come_in_a_burst() -> None:
    store, index, scratch = _index_of(np.arange(400_000, dtype=np.int64) * APART)
    misses = np.arange(65_536, dtype=np.int64) * APART + 1
    assert _found(index, misses, scratch) == []
    assert index.catch_up(scratch) == 400_000, "the filter, of all keys"
    for part in range(400_000, 480_000, 20_000):
        more = np.arange(part, part + 20_000, dtype=np.int64) * APART
        store.append(Block.from_arrow({"k": pa.array(more)}, len(more)))
        assert index.catch_up(scratch) == 20_000, "not all keys again"
        assert _found(index, misses, scratch) == []
    index._wants_filter = True  # by another thread that asked before the filter was there
    assert index.catch_up(scratch) == 0
    assert not index.is_behind


def test_a_small_index_gets_no_filter() -> None:
    _, index, scratch = _index_of(np.arange(1000, dtype=np.int64))
    before = index.n_bytes
    assert _found(index, np.full(65_536, -1, dtype=np.int64), scratch) == []
    assert index.n_bytes == before


def test_a_relation_that_has_ended_grows_no_more() -> None:
    """Fewer rows came than were announced: the filter is not put off for those that never come."""
    store = RowStore("t", pa.schema([("k", pa.int64())]), 1_000_000)
    keys = np.arange(200_000, dtype=np.int64) * APART
    store.append(Block.from_arrow({"k": pa.array(keys)}, len(keys)))
    store.is_complete = True
    index, scratch = HashIndex(store, ["k"]), Scratch(65_536)
    index.catch_up(scratch)
    assert _found(index, -keys[:65_536] - 1, scratch) == []
    index.catch_up(scratch)
    assert index._filter.n_bytes > 0


def test_sums_do_not_overflow() -> None:
    values = np.array([2**63 - 1, 2**63 - 1, -(2**63), 5, -7], dtype=np.int64)
    high, low = sum_parts(values)
    assert (high << 32) + low == sum(int(v) for v in values)
