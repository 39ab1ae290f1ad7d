"""Kernels that move rows, bytes, words and ranges, against their twins."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.kernels import gather as kernels
from eddies.core.kernels.bloom import PATTERNS, add_words, may_contain
from eddies.core.kernels.ranges import expand_ranges
from eddies.core.kernels.sampling import best_cut, n_equal_each, n_equal_pairs, n_equal_picked
from eddies.core.kernels.sums import add_rows, sum_parts
from eddies.core.kernels.words import mix_words, text_words, verify_text, verify_words
from tests.support import naive

IDS = [[], [0], [3, 3, 3], [4, 0, 2, 2], list(range(5))]
STRINGS = [
    *(b"", b"a", b"b", b"1234567", b"1234568", b"12345678", b"12345679", b"123456789"),
    *(b"\0" * 7, b"\0" * 8, b"x" * 15, b"x" * 16, b"x" * 17, b"x" * 16 + b"y", b"y" + b"x" * 16),
]


def addresses_of(strings: list[bytes]) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The array that holds the bytes (keep it), their addresses and lengths."""
    array = pa.array(strings, pa.binary())
    offsets = np.frombuffer(array.buffers()[1], np.int32)[: len(strings) + 1]
    base = array.buffers()[2].address if strings else 0
    return array, offsets[:-1].astype(np.int64) + base, np.diff(offsets).astype(np.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int32])
@pytest.mark.parametrize("ids", IDS)
def test_gather(dtype: type, ids: list[int]) -> None:
    values = np.array([0, 1, 2, 100, np.iinfo(dtype).max], dtype=dtype)
    out = np.empty(len(ids), dtype=dtype)
    kernels.gather(values, np.array(ids, np.int32), out)
    assert out.tolist() == naive.gather(values.tolist(), ids)


@pytest.mark.parametrize("ids", IDS)
def test_gather_pairs(ids: list[int]) -> None:
    pairs = [(i, 2**64 - 1 - i) for i in range(5)]
    out = np.empty(2 * len(ids), np.uint64)
    kernels.gather_pairs(np.array(pairs, np.uint64).ravel(), np.array(ids, np.int32), out)
    assert [tuple(pair) for pair in out.reshape(-1, 2).tolist()] == naive.gather(pairs, ids)


@pytest.mark.parametrize("keep", [[], [True], [False], [True, False, True], [False, False, True]])
def test_compact(keep: list[bool]) -> None:
    positions = np.arange(10, 10 + len(keep), dtype=np.int32)
    rows = np.arange(20, 20 + len(keep), dtype=np.int32)
    expected = naive.compact(keep, list(zip(positions.tolist(), rows.tolist(), strict=True)))
    kept = kernels.compact(np.array(keep, np.bool_), positions, rows, len(keep))
    assert list(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True)) == expected


@pytest.mark.parametrize("n_few", [0, 1, 2, 3, 17, 64])
@pytest.mark.parametrize("n_keys", [1, 5, 1000])
def test_equal_pairs(n_few: int, n_keys: int) -> None:
    rng = random.Random(n_few)
    keys = [rng.choice((0, 1, 2**64 - 1, rng.getrandbits(64))) for _ in range(n_keys)]
    few, many = ([rng.choice(keys) for _ in range(n)] for n in (n_few, 70))
    found = n_equal_pairs(np.array(few, np.uint64), np.array(many, np.uint64))
    assert found == naive.n_equal_pairs(few, many)
    each = np.empty(n_few, np.int64)
    n_equal_each(np.array(few, np.uint64), np.array(many, np.uint64), each)
    assert each.tolist() == naive.n_equal_each(few, many)


@pytest.mark.parametrize("n_rows", [1, 3, 100])
def test_equal_pairs_at_places(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    few, many = rng.integers(0, 9, n_rows, np.uint64), rng.integers(0, 9, 2 * n_rows, np.uint64)
    few_places, many_places = rng.random(20), rng.random(20)
    picked_few = [int(few[int(place * n_rows)]) for place in few_places]
    picked_many = [int(many[int(place * 2 * n_rows)]) for place in many_places]
    found = n_equal_picked(few, few_places, many, many_places)
    assert found == naive.n_equal_pairs(picked_few, picked_many)


@pytest.mark.parametrize("n_rows", [0, 1, 2, 9, 40])
@pytest.mark.parametrize("n_values", [1, 3, 100])
@pytest.mark.parametrize("n_joins", [2, 3])
def test_best_cut(n_rows: int, n_values: int, n_joins: int) -> None:
    rng = random.Random(f"{n_rows} {n_values} {n_joins}")
    values = sorted(rng.randrange(n_values) for _ in range(n_rows))
    costs = [[float(rng.randrange(4)) for _ in range(n_joins)] for _ in values]
    cost = np.empty(1)
    for fewest in (1, 2, 5):
        place = best_cut(np.array(values, np.int64), np.array(costs).ravel(), fewest, cost)
        expected = naive.best_cut(values, costs, fewest)
        assert cost[0] == expected
        assert (place >= 0) == (expected < float("inf"))
        if place >= 0:
            assert values[place] < values[place + 1]


@pytest.mark.parametrize("lengths", [[], [0], [3], [0, 2, 0, 5]])
def test_offsets(lengths: list[int]) -> None:
    offsets = np.empty(len(lengths) + 1, np.int32)
    assert kernels.offsets_of(np.array(lengths, np.int32), offsets) == sum(lengths)
    assert offsets.tolist() == naive.offsets_of(lengths)


def test_offsets_report_a_total_beyond_their_range() -> None:
    lengths = np.array([2**31 - 1, 2**31 - 1], np.int32)
    assert kernels.offsets_of(lengths, np.empty(3, np.int32)) == 2**32 - 2


@pytest.mark.parametrize("strings", [[], [b""], *([s] for s in STRINGS), STRINGS, STRINGS[::-1]])
def test_copy_bytes_touches_nothing_else(strings: list[bytes]) -> None:
    _kept, addresses, lengths = addresses_of(strings)
    total = int(lengths.sum())
    guarded = np.full(total + 32, 0xAB, np.uint8)
    kernels.copy_bytes(addresses, lengths, guarded[16 : 16 + total])
    assert guarded[16 : 16 + total].tobytes() == naive.copy_bytes(strings)
    assert set(guarded[:16]) == {0xAB}
    assert set(guarded[16 + total :]) == {0xAB}


def test_text_words() -> None:
    _kept, addresses, lengths = addresses_of(STRINGS)
    words = np.empty(len(STRINGS), np.uint64)
    assert text_words(addresses, lengths, words) == sum(len(s) > 7 for s in STRINGS)
    assert words.tolist() == [naive.text_word(s) for s in STRINGS]
    short = [naive.text_word(s) for s in STRINGS if len(s) <= 7]
    assert len(set(short)) == len(short)


def test_verify_text_decides_by_bytes_alone() -> None:
    """Every pair is proposed, as if all words were equal."""
    _kept, addresses, lengths = addresses_of(STRINGS)
    _other, others, other_lengths = addresses_of(STRINGS[::-1])
    n = len(STRINGS)
    positions = np.repeat(np.arange(n, dtype=np.int32), n)
    rows = np.tile(np.arange(n, dtype=np.int32), n)
    kept = verify_text(positions, rows, n * n, addresses, lengths, others, other_lengths)
    found = list(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True))
    backwards = STRINGS[::-1]
    assert found == [
        (i, j) for i in range(n) for j in range(n) if naive.is_same_text(STRINGS[i], backwards[j])
    ]


def test_verify_words() -> None:
    probe, stored = np.array([1, 2, 3], np.uint64), np.array([3, 2, 1, 2], np.uint64)
    positions = np.repeat(np.arange(3, dtype=np.int32), 4)
    rows = np.tile(np.arange(4, dtype=np.int32), 3)
    kept = verify_words(positions, rows, 12, probe, stored)
    found = set(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True))
    assert found == {(0, 2), (1, 1), (1, 3), (2, 0)}


def test_mix_words() -> None:
    rng = random.Random(1)
    into = [0, 2**64 - 1, *(rng.getrandbits(64) for _ in range(20))]
    words = [2**64 - 1, 0, *(rng.getrandbits(64) for _ in range(20))]
    mixed = np.array(into, np.uint64)
    mix_words(mixed, np.array(words, np.uint64))
    assert mixed.tolist() == [naive.mix_word(a, b) for a, b in zip(into, words, strict=True)]


@pytest.mark.parametrize("capacity", [1, 2, 3, 100])
@pytest.mark.parametrize("limit", [0, 4, 100])
@pytest.mark.parametrize("seed", range(5))
def test_expand_ranges_in_pieces(capacity: int, limit: int, seed: int) -> None:
    rng = random.Random(seed)
    sequence = [rng.randrange(8) for _ in range(rng.choice((0, 1, 7)))]
    n = rng.choice((0, 1, 4))
    starts = [rng.randint(0, len(sequence)) for _ in range(n)]
    stops = [rng.randint(0, len(sequence)) for _ in range(n)]  # some ranges are empty
    found = []
    cursor = np.zeros(2, np.int64)
    positions, rows = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    for _ in range(200):
        if cursor[0] >= n:
            break
        written = expand_ranges(
            np.array(starts, np.int64),
            np.array(stops, np.int64),
            np.array(sequence, np.int32),
            limit,
            cursor,
            positions,
            rows,
        )
        found += list(zip(positions[:written].tolist(), rows[:written].tolist(), strict=True))
    assert cursor[0] >= n
    assert found == naive.expand_ranges(starts, stops, sequence, limit)


@pytest.mark.parametrize(
    "values",
    [[], [0], [-1], [2**63 - 1] * 3, [-(2**63)] * 3, [2**63 - 1, -(2**63), 2**32, -(2**32) - 1]],
)
def test_sums_do_not_overflow(values: list[int]) -> None:
    high, low = sum_parts(np.array(values, np.int64))
    assert (high << 32) + low == sum(values)


HIGHEST, LOWEST = 2**63 - 1, -(2**63)


@pytest.mark.parametrize(
    ("totals", "values"),
    [
        ([], []),
        ([1, -2, 0], [5, -7, 0]),
        ([HIGHEST, LOWEST], [LOWEST, HIGHEST]),
        ([HIGHEST - 1, LOWEST + 1], [1, -1]),
        ([0, HIGHEST], [0, 1]),
        ([0, LOWEST, 3], [0, -1, 3]),
    ],
)
def test_rows_are_added_and_overflow_is_noticed(totals: list[int], values: list[int]) -> None:
    added = np.array(totals, np.int64)
    expected = naive.add_rows(totals, values)
    fits = add_rows(added, np.array(values, np.int64))
    assert fits == (expected is not None)
    if expected is not None:
        assert added.tolist() == expected


def may_be_there(words: list[int], bloom: np.ndarray) -> list[int]:
    positions = np.empty(len(words) + 1, np.int32)
    passed = np.empty(len(words) + 1, np.uint64)
    n = may_contain(np.array(words, np.uint64), bloom, positions, passed)
    assert passed[:n].tolist() == [words[i] for i in positions[:n]]
    assert positions[:n].tolist() == sorted(set(positions[:n].tolist()))
    return positions[:n].tolist()


@pytest.mark.parametrize("n_words", [2, 8, 64])
@pytest.mark.parametrize("n_keys", [0, 1, 40])
def test_a_filter_lets_every_entered_word_through(n_words: int, n_keys: int) -> None:
    rng = random.Random(n_keys)
    words = [0, 2**64 - 1, *(rng.getrandbits(64) for _ in range(40))][:n_keys]
    bloom = np.zeros(n_words, np.uint64)
    add_words(np.array(words, np.uint64), bloom)
    assert bloom.tolist() == naive.bloom_of(words, n_words)
    assert may_be_there(words, bloom) == list(range(n_keys))
    others = [rng.getrandbits(64) for _ in range(200)]
    if n_keys == 0:
        assert may_be_there(others, bloom) == []
    if n_words == 64:
        assert len(may_be_there(others, bloom)) < 40


def test_patterns_of_a_filter_differ_and_have_four_bits() -> None:
    assert len(set(PATTERNS.tolist())) == 1024
    assert {int(pattern).bit_count() for pattern in PATTERNS} == {4}


@pytest.mark.parametrize("n", [0, 1, 500])
def test_rows_whose_word_is_there(n: int) -> None:
    rng = np.random.default_rng(n)
    codes = rng.integers(-1, 12, n).astype(np.int32)
    is_there = np.append(rng.random(9) < 0.4, False)
    positions = np.empty(n + 1, dtype=np.int32)
    kept = kernels.among_words(codes, is_there, positions)
    expected = [i for i, code in enumerate(codes.tolist()) if 0 <= code < 9 and is_there[code]]
    assert positions[:kept].tolist() == expected
