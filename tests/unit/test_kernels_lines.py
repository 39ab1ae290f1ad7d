"""The hash index kernels against their twin: growth, collisions, overflow, wrap-around, chains."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eddies.core.kernels.jit import JIT_DISABLED
from eddies.core.kernels.lines import (
    AHEAD,
    ENTRIES,
    WORDS_PER_LINE,
    expand,
    insert,
    probe,
    rehash,
    rows_of,
    skip_newer,
)
from tests.support import naive

SMALL = 40 if JIT_DISABLED else 2000


def make_table(n_lines: int) -> np.ndarray:
    """Zeroed lines that start on a cache line."""
    padded = np.zeros(n_lines * WORDS_PER_LINE + WORDS_PER_LINE, dtype=np.uint64)
    skip = (-padded.ctypes.data % 64) // 8
    return padded[skip : skip + n_lines * WORDS_PER_LINE]


class Lines:
    """A table with its chains and scratch: what the kernels need, and nothing else."""

    def __init__(self, n_lines: int, n_rows: int) -> None:
        self.table = make_table(n_lines)
        self.chain = np.full(max(n_rows, 1), -7, dtype=np.int32)
        self.twin = naive.Index()
        self.n_rows = 0

    def insert(self, words: list[int]) -> None:
        rows = range(self.n_rows, self.n_rows + len(words))
        before = self.twin.n_duplicates
        self.twin.insert(words, rows)
        n = insert(
            np.array(words, dtype=np.uint64),
            np.array(rows, dtype=np.int32),
            self.table,
            self.chain,
            np.empty(len(words) + AHEAD, dtype=np.uint32),
        )
        assert n == self.twin.n_duplicates - before
        self.n_rows += len(words)

    def grow(self, n_lines: int) -> None:
        larger = make_table(n_lines)
        rehash(self.table, larger, np.zeros(n_lines, dtype=np.uint8))
        self.table = larger

    def newest(self, words: list[int]) -> tuple[np.ndarray, np.ndarray, int]:
        n = len(words)
        positions = np.empty(2 * n + 2, dtype=np.int32)
        rows = np.empty(2 * n + 2, dtype=np.int32)
        homes = np.empty(n + AHEAD, dtype=np.uint32)
        leftovers = np.empty(n + 1, dtype=np.int32)
        found = probe(
            np.array(words, dtype=np.uint64), self.table, homes, leftovers, positions, rows
        )
        return positions, rows, found

    def check(self, words: list[int]) -> None:
        positions, rows, found = self.newest(words)
        matches = pairs(positions, rows, found)
        assert sorted(matches) == sorted(self.twin.newest(words))
        limit = self.n_rows // 2
        kept = skip_newer(positions, rows, found, limit, self.chain)
        assert sorted(pairs(positions, rows, kept)) == sorted(self.twin.newest(words, limit))


def pairs(positions: np.ndarray, links: np.ndarray, n: int) -> list[tuple[int, int]]:
    rows = links[:n].copy()
    rows_of(rows, n)
    return list(zip(positions[:n].tolist(), rows.tolist(), strict=True))


def words_at_home(line: int, n_lines: int, count: int) -> list[int]:
    """Different words that all want to live in one line."""
    found: list[int] = []
    word = 0
    while len(found) < count:
        if naive.home_line(word, n_lines) == line:
            found.append(word)
        word += 1
    return found


def test_empty_table_and_empty_batches() -> None:
    lines = Lines(16, 4)
    lines.insert([])
    lines.check([])
    lines.check([0, 1, 2**64 - 1])


def test_one_row() -> None:
    lines = Lines(16, 1)
    lines.insert([7])
    lines.check([7, 8, 7])


@pytest.mark.parametrize("first", [0, 1])
def test_the_word_zero_is_a_word_like_others(first: int) -> None:
    """Empty entries hold the word zero, too; only their row tells them apart."""
    lines = Lines(16, 8)
    lines.check([0])
    lines.insert([first, 0, 5, 0])
    lines.check([0, 5, first, 3])


def test_extreme_words() -> None:
    lines = Lines(16, 8)
    lines.insert([2**64 - 1, 2**63, 0, 2**64 - 1])
    lines.check([2**63, 2**64 - 1, 1, 0])


@pytest.mark.parametrize("line", [0, 6, 7])
@pytest.mark.parametrize("count", [ENTRIES, ENTRIES + 1, 3 * ENTRIES])
def test_overflow_goes_on_in_later_lines_and_around_the_end(line: int, count: int) -> None:
    """All words of one home line; for the last line, overflow wraps around to the first."""
    words = words_at_home(line, 8, count + 4)
    lines = Lines(8, count)
    lines.insert(words[:count])
    lines.check(words)


def test_overflow_into_a_line_that_has_words_of_its_own() -> None:
    mine, neighbours = words_at_home(7, 8, 8), words_at_home(0, 8, 8)
    lines = Lines(8, 16)
    lines.insert([*neighbours[:3], *mine[:6], *neighbours[3:5]])
    lines.check([*mine, *neighbours])
    lines.grow(16)
    lines.check([*mine, *neighbours])


def test_overflow_of_the_word_zero() -> None:
    """Zero overflows into a line with empty entries: equal to them, and yet it must be found."""
    home = naive.home_line(0, 8)
    others = [word for word in words_at_home(home, 8, ENTRIES + 2) if word != 0]
    lines = Lines(8, 8)
    lines.insert(others[:ENTRIES])
    lines.check([0])
    lines.insert([0])
    lines.check([0, *others])


def test_duplicates_in_one_batch_and_over_batches() -> None:
    lines = Lines(16, 12)
    lines.insert([1, 1, 2, 1])
    lines.insert([2, 1, 3])
    lines.insert([3, 3, 3, 1, 2])
    lines.check([1, 2, 3, 4])


@pytest.mark.parametrize("seed", range(4))
def test_growth_keeps_every_entry_and_every_chain(seed: int) -> None:
    rng = random.Random(seed)
    n = SMALL
    lines = Lines(2, n + 64)
    n_lines = 2
    while lines.n_rows < n:
        words = [
            rng.choice((rng.randrange(50), rng.getrandbits(64))) for _ in range(rng.randint(1, 64))
        ]
        n_keys = len(lines.twin.rows_by_word) + len(words)
        while n_keys > n_lines * ENTRIES / 2:
            n_lines *= 2
            lines.grow(n_lines)
        lines.insert(words)
    lines.check([*lines.twin.rows_by_word, *range(100)])


def test_skew() -> None:
    """One word has almost all rows."""
    lines = Lines(16, SMALL)
    lines.insert([3] * (SMALL - 3) + [4, 5, 6])
    lines.check([3, 4, 5, 6, 7] * 3)


@pytest.mark.parametrize("room", [1, 2, 3, 7, 64])
def test_expand_pauses_where_the_room_ends_and_goes_on(room: int) -> None:
    """Chains of different lengths, followed in rounds into a buffer with little room."""
    lines = Lines(16, 64)
    lines.insert([1, 2, 1, 3, 1, 1, 2, 1, 1])
    words = [1, 2, 3, 1]
    positions, rows, found = lines.newest(words)
    seen = pairs(positions, rows, found)
    pending = positions[:found].copy(), rows[:found].copy()
    for _ in range(100):
        n = len(pending[0])
        if n == 0:
            break
        size = 2 * n + room
        positions, rows = np.empty(size, np.int32), np.empty(size, np.int32)
        positions[:n], rows[:n] = pending
        marked = np.empty(size, np.int32)
        start, stop = expand(positions, rows, 0, n, lines.chain, marked)
        there = pairs(positions, rows, stop)
        assert there[:n] == pairs(*pending, n)
        seen += there[n:]
        pending = positions[start:stop].copy(), rows[start:stop].copy()
    assert len(pending[0]) == 0
    assert sorted(seen) == sorted(lines.twin.probe(words))


def test_expand_does_not_start_a_round_that_might_not_fit() -> None:
    lines = Lines(16, 8)
    lines.insert([1, 1])
    positions, links = np.array([0], np.int32), np.array([-2], np.int32)
    assert expand(positions, links, 0, 1, lines.chain, np.empty(1, np.int32)) == (0, 1)


def test_skip_newer_below_every_row() -> None:
    lines = Lines(16, 8)
    lines.insert([1, 1, 2])
    positions, rows, found = lines.newest([1, 2])
    assert skip_newer(positions, rows, found, 0, lines.chain) == 0
