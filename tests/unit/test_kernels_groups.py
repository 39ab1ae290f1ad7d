"""The kernels of grouping against dictionaries."""

from __future__ import annotations

import numpy as np
import pytest

from eddies.core.kernels import grouping
from tests.support.naive import groups_of, totals_of

NO_NULLS = np.empty(0, np.uint8)
WORDS = [
    [],
    [7],
    [0, 0, 0],
    [5, 0, 5, 2**64 - 1, 0, 9],
    [word * 1024 for word in range(40)] * 2,
    [word % 13 for word in range(200)],
]


def assigned(words: list[int], n_slots: int = 256) -> tuple[list[int], list[int]]:
    groups = np.full(len(words), -1, np.int32)
    first_rows = np.full(len(words), -1, np.int32)
    progress = np.zeros(3, np.int64)
    array = np.array(words, np.uint64)
    table = np.zeros(2 * n_slots, np.uint64)
    grouping.assign_groups(array, table, progress, n_slots // 2, groups, first_rows)
    assert progress[0] == len(words)
    return groups.tolist(), first_rows[: progress[1]].tolist()


@pytest.mark.parametrize("words", WORDS, ids=len)
def test_groups_are_numbered_as_they_appear(words: list[int]) -> None:
    assert assigned(words) == groups_of(words)


def test_assignment_stops_before_a_group_too_many_and_goes_on() -> None:
    words = np.array([1, 2, 1, 3, 2, 4], np.uint64)
    groups, first_rows = np.full(6, -1, np.int32), np.full(6, -1, np.int32)
    progress, small = np.zeros(3, np.int64), np.zeros(8, np.uint64)
    grouping.assign_groups(words, small, progress, 2, groups, first_rows)
    assert progress.tolist() == [3, 2, 0]
    large = np.zeros(32, np.uint64)
    grouping.enter_groups(words[first_rows[:2]], large)
    grouping.assign_groups(words, large, progress, 8, groups, first_rows)
    assert (groups.tolist(), first_rows[:4].tolist()) == groups_of(words.tolist())


GROUPS = np.array([0, 1, 0, 2, 1, 0, 3], np.int32)
VALID = np.array([1, 1, 0, 0, 1, 1, 1], np.uint8)
NUMBERS = [-(2**63), 5, 7, 2**63 - 1, -6, -1, 0]


@pytest.mark.parametrize("valid", [NO_NULLS, VALID], ids=["whole", "nulls"])
def test_sums(valid: np.ndarray) -> None:
    expected = totals_of(GROUPS.tolist(), NUMBERS, valid.tolist(), 4, sum)
    halves, seen = np.zeros(8, np.int64), np.zeros(4, np.uint8)
    grouping.sum_integers(GROUPS, np.array(NUMBERS, np.int64), valid, halves, seen)
    found = [int(halves[2 * g]) * 2**32 + int(halves[2 * g + 1]) for g in range(4)]
    assert [value if seen[g] else None for g, value in enumerate(found)] == expected

    totals, seen = np.zeros(4), np.zeros(4, np.uint8)
    grouping.sum_floats(GROUPS, np.array(NUMBERS, np.float64), valid, totals, seen)
    floats = totals_of(GROUPS.tolist(), [float(n) for n in NUMBERS], valid.tolist(), 4, sum)
    assert [float(total) if seen[g] else None for g, total in enumerate(totals)] == floats


@pytest.mark.parametrize("valid", [NO_NULLS, VALID], ids=["whole", "nulls"])
def test_sums_of_decimals_beyond_128_bits(valid: np.ndarray) -> None:
    numbers = [2**127 - 1, -(2**127), 2**127 - 1, 0, -(2**127), 2**127 - 5, -1]
    pairs = np.array([w % 2**64 for n in numbers for w in (n, n >> 64)], np.uint64)
    totals, seen = np.zeros(16, np.uint64), np.zeros(4, np.uint8)
    grouping.sum_decimals(GROUPS, pairs, valid, totals, seen)
    found = []
    for group in range(4):
        low, middle, high = (int(word) for word in totals[4 * group : 4 * group + 3])
        total = low + (middle << 64) + (high << 128)
        found.append((total - 2**192 if high >= 2**63 else total) if seen[group] else None)
    assert found == totals_of(GROUPS.tolist(), numbers, valid.tolist(), 4, sum)


@pytest.mark.parametrize("valid", [NO_NULLS, VALID], ids=["whole", "nulls"])
def test_extremes_and_counts(valid: np.ndarray) -> None:
    values = np.array(NUMBERS, np.int64)
    for kernel, choose in ((grouping.keep_least, min), (grouping.keep_greatest, max)):
        best, seen = np.zeros(4, np.int64), np.zeros(4, np.uint8)
        kernel(GROUPS, values, valid, best, seen)
        found = [int(value) if seen[g] else None for g, value in enumerate(best)]
        assert found == totals_of(GROUPS.tolist(), NUMBERS, valid.tolist(), 4, choose)
    counts = np.zeros(4, np.int64)
    grouping.count_rows(GROUPS, counts)
    assert counts.tolist() == [3, 2, 1, 1]
    counts[:] = 0
    grouping.count_valid(GROUPS, VALID, counts)
    assert counts.tolist() == [2, 2, 0, 1]


def test_words_of_groups_are_compared() -> None:
    groups, group_words = np.array([0, 1, 0], np.int32), np.array([5, 6], np.uint64)
    assert grouping.same_words(groups, np.array([5, 6, 5], np.uint64), group_words)
    assert not grouping.same_words(groups, np.array([5, 6, 6], np.uint64), group_words)


@pytest.mark.parametrize(
    ("text", "same"), [(b"long enough", True), (b"long enougH", False), (b"longer still", False)]
)
def test_only_hashed_text_is_compared(text: bytes, same: bool) -> None:
    keys = np.frombuffer(b"shortlong enough", np.uint8)
    content = np.frombuffer(b"other" + text, np.uint8)
    base, key_base = content.ctypes.data, keys.ctypes.data
    found = grouping.same_text(
        np.array([0, 1], np.int32),
        np.array([5 << 56, 0xFF << 56], np.uint64),
        np.array([base, base + 5], np.int64),
        np.array([5, len(text)], np.int32),
        np.array([key_base, key_base + 5], np.int64),
        np.array([5, 11], np.int32),
    )
    assert found == same
