"""An index whose keys lie close together, far apart, or first one and then the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eddies.core.kernels.slots import insert_slots, probe_slots, word_range
from eddies.core.state import hash_index
from eddies.core.state.columns import column_of
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import key_words
from eddies.core.state.line_table import LineTable
from eddies.core.state.remainder_table import RemainderTable, domain_of
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch
from eddies.core.state.slot_table import Range, SlotTable
from tests.support.naive import Index

SMALL = st.integers(-3, 60)
ANY = st.one_of(SMALL, st.integers(-(2**63), 2**63 - 1))


def _as_words(keys: list[int]) -> np.ndarray:
    return np.array(keys, dtype=np.int64).view(np.uint64)


@given(st.lists(SMALL, max_size=80), st.lists(ANY, max_size=40))
@example([], [])
def test_slots_find_what_the_twin_finds(stored: list[int], asked: list[int]) -> None:
    twin = Index()
    twin.insert(stored, range(len(stored)))
    slots = np.zeros(65, dtype=np.int32)
    base = _as_words([-3])[0]
    chain = np.zeros(max(1, len(stored)), dtype=np.int32)
    rows = np.arange(len(stored), dtype=np.int32)
    n_duplicates = insert_slots(_as_words(stored), rows, slots, base, chain)
    assert n_duplicates == twin.n_duplicates
    positions, links = (np.empty(len(asked) + 1, dtype=np.int32) for _ in range(2))
    found = probe_slots(_as_words(asked), slots, base, positions, links)
    newest = zip(positions[:found].tolist(), (np.abs(links[:found]) - 1).tolist(), strict=True)
    assert list(newest) == twin.newest(asked)


@given(st.lists(ANY, min_size=1, max_size=50))
def test_the_range_of_words_is_that_of_signed_numbers(keys: list[int]) -> None:
    assert word_range(_as_words(keys)) == (min(keys), max(keys))


def test_entries_go_from_kind_to_kind() -> None:
    rng = np.random.default_rng(0)
    keys = rng.permutation(4000)[:1000] - 2000
    lines, scratch = LineTable(512), Scratch(1000)
    chain = np.zeros(1000, dtype=np.int32)
    lines.insert(keys.view(np.uint64), np.arange(1000, dtype=np.int32), chain, scratch)
    slots = SlotTable(Range(-2000, 1999))
    slots.enter(*lines.entries())
    spread = domain_of(Range(-2000, 1999), 100)
    assert spread is not None
    remainders = RemainderTable(spread, 100)  # far too small: many keys are left over
    remainders.enter(*slots.entries())
    assert 0 < remainders.n_left < 1000
    grown = RemainderTable(spread, 100)
    grown.enter(*remainders.entries())
    grown.grow(1000)
    assert grown.n_left < remainders.n_left
    again = LineTable(512)
    again.enter(*grown.entries())
    for table in (lines, slots, remainders, grown, again):
        found = table.probe(keys.view(np.uint64), scratch)
        pairs = zip(scratch.positions[:found], scratch.rows[:found], strict=True)
        assert sorted(pairs) == [(i, i + 1) for i in range(1000)]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.integers(1, 10**6))
def test_a_domain_contains_its_range_and_no_more_than_it_can_tell_apart(
    lowest: int, n_more: int, n_keys: int
) -> None:
    words = Range(lowest, min(2**63 - 1, lowest + n_more))
    spread = domain_of(words, n_keys)
    if spread is None:
        assert words.n_words >= 2**37
        return
    table = RemainderTable(spread, n_keys)
    assert table.contains(words)
    assert spread[1] < 2**32 * table.n_lines
    assert not table.contains(Range(lowest - 2**62, lowest))
    table.release()


def _index(n_expected: int = 0) -> tuple[RowStore, HashIndex]:
    store = RowStore("t", pa.schema([("k", pa.int64())]), n_expected)
    return store, HashIndex(store, ["k"])


def _append(store: RowStore, keys: np.ndarray) -> None:
    store.append(Block.from_arrow({"k": pa.array(keys)}, len(keys)))


PARTS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 40, 300, 3000]),  # rows
        st.sampled_from([1, 2, 7, 100, 2**40]),  # distance of keys
        st.sampled_from([0, -5000, 10_000, 2**62, -(2**63)]),  # where they begin
        st.booleans(),  # some NULL
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=150)
@given(PARTS, st.integers(0, 2**32 - 1), st.sampled_from([0, 100_000]), st.sampled_from([0, 60]))
def test_any_keys_in_any_parts_are_found(
    parts: list[tuple[int, int, int, bool]], seed: int, n_expected: int, n_few: int
) -> None:
    """The table changes its kind whenever a part makes the range too wide, or dense again."""
    with pytest.MonkeyPatch.context() as patch:
        if n_few:
            patch.setattr(hash_index, "FEWEST_KEYS", n_few)
        _check_parts(parts, seed, n_expected)


def _check_parts(parts: list[tuple[int, int, int, bool]], seed: int, n_expected: int) -> None:
    rng = np.random.default_rng(seed)
    store, index = _index(n_expected)
    scratch = Scratch(16)
    stored: list[int | None] = []
    for n_rows, distance, begin, has_nulls in parts:
        offsets = rng.integers(0, max(1, n_rows), n_rows).tolist()
        keys = [begin + offset * distance for offset in offsets]
        keys = [key if -(2**63) <= key < 2**63 else begin for key in keys]
        given_keys = [None if has_nulls and i % 5 == 0 else key for i, key in enumerate(keys)]
        _append(store, pa.array(given_keys, pa.int64()))
        stored += given_keys
        index.catch_up(scratch)
        asked = [*{key for key in stored if key is not None}, begin - 1, begin + 1, 2**63 - 1, 0]
        asked = list(dict.fromkeys(key for key in asked if -(2**63) <= key < 2**63))
        rows_by_key: dict[int, list[int]] = {key: [] for key in asked}
        for row, key in enumerate(stored):
            if key is not None:
                rows_by_key[key].append(row)
        for limit in (len(stored), len(stored) // 2):
            found, pending = index.probe(_as_words(asked), limit, scratch)
            got = [*zip(scratch.positions[:found], scratch.rows[:found], strict=True)]
            while pending is not None:
                found, pending = index.resume(pending, scratch)
                got += zip(scratch.positions[:found], scratch.rows[:found], strict=True)
            expected = [
                (i, row) for i, key in enumerate(asked) for row in rows_by_key[key] if row < limit
            ]
            assert sorted((int(i), int(row)) for i, row in got) == expected


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (np.arange(200_000), SlotTable),
        (np.arange(200_000)[::-1] * 7 - 400_000, SlotTable),
        (np.arange(200_000) * 9, RemainderTable),
        (np.arange(200_000) * 2**28, RemainderTable),
        (np.arange(50_000) % 10 * 100_000, LineTable),  # few keys in a wide range
        (np.arange(40_000) * 9, LineTable),
        (np.append(np.arange(200_000), 2**62), LineTable),
        (np.arange(200_000) * 2**32, LineTable),
    ],
)
def test_slots_are_for_close_keys_and_remainders_for_many(
    keys: np.ndarray, kind: type[object]
) -> None:
    store, index = _index()
    _append(store, keys)
    index.catch_up(Scratch(64))
    assert isinstance(index._table, kind)
    assert index.n_keys == len(np.unique(keys))


def test_growing_numbers_keep_their_slots_and_are_copied_rarely() -> None:
    store, index = _index()
    scratch, tables = Scratch(64), set()
    for first in range(0, 300_000, 3000):
        _append(store, np.arange(first, first + 3000))
        index.catch_up(scratch)
        tables.add(id(index._table))
        assert isinstance(index._table, SlotTable)
    assert len(tables) <= 10
    assert index.n_bytes < 16 * store.n_rows


def test_remainders_take_half_of_the_memory_of_words() -> None:
    store, index = _index()
    keys = np.arange(1_000_000) * 1_000_003
    _append(store, keys)
    store.is_complete = True
    index.catch_up(Scratch(64))
    assert isinstance(index._table, RemainderTable)
    assert index._table.n_bytes < 20 * len(keys) < LineTable(1 << 19).n_bytes
    assert index._table.n_left < 0.04 * len(keys)


def test_keys_that_leave_the_domain_are_hashed_as_words_from_then_on() -> None:
    store, index = _index()
    scratch = Scratch(64)
    keys = np.arange(100_000) * 1_000_003
    _append(store, keys)
    index.catch_up(scratch)
    assert isinstance(index._table, RemainderTable)
    _append(store, np.array([2**61, 5]))
    index.catch_up(scratch)
    assert isinstance(index._table, LineTable)
    asked = np.append(keys[::97], [2**61, 5, 6])
    found, _ = index.probe(asked.view(np.uint64), store.n_rows, scratch)
    rows = dict(zip(scratch.positions[:found].tolist(), scratch.rows[:found].tolist(), strict=True))
    assert [rows.get(i) for i in range(len(asked))] == [
        *range(0, 100_000, 97),
        100_000,
        100_001,
        None,
    ]


@pytest.mark.parametrize("text", ["{:07d}", "key number {}", "{:04d} AB"])
def test_many_texts_are_all_found(text: str) -> None:
    """Words of text are hashes, or up to seven bytes that differ at their low end only."""
    store = RowStore("t", pa.schema([("k", pa.string())]))
    index, scratch = HashIndex(store, ["k"]), Scratch(1 << 17)
    asked = pa.array([text.format(i) for i in range(100_000)])
    for start in range(0, 100_000, 30_000):
        store.append(
            Block.from_arrow(
                {"k": asked[start : start + 30_000]}, len(asked[start : start + 30_000])
            )
        )
        index.catch_up(scratch)
    words, _ = key_words([(column_of(asked), None)])
    found, pending = index.probe(words, store.n_rows, scratch)
    assert pending is None
    got = zip(scratch.positions[:found].tolist(), scratch.rows[:found].tolist(), strict=True)
    assert sorted(got) == [(i, i) for i in range(100_000)]
    assert index.n_keys == 100_000
