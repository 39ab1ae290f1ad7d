"""The compact hash index against its twin: full lines, words outside of the domain, growth."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from eddies.core.kernels.jit import JIT_DISABLED
from eddies.core.kernels.lines import AHEAD, enter_links, insert
from eddies.core.kernels.remainders import (
    REMAINDERS,
    enter_numbers,
    entries_of,
    insert_left,
    insert_remainders,
    probe_remainders,
    split_remainders,
)
from tests.support import naive
from tests.unit.test_kernels_lines import make_table, pairs

SMALL = 40 if JIT_DISABLED else 3000
ALL = 2**64 - 1


class Remainders:
    """A table with its chains; what is left over goes to a dictionary."""

    def __init__(self, n_lines: int, n_rows: int, base: int = 0, bits: int | None = None) -> None:
        self.table = make_table(n_lines + 1).view(np.uint32)
        self.bits = bits or 32 + n_lines.bit_length() - 1
        self.spread = np.array([base, 2**self.bits - 1], dtype=np.uint64)
        self.base = base
        self.chain = np.full(max(n_rows, 1), -7, dtype=np.int32)
        self.twin = naive.Index()
        self.n_rows = 0
        self.rest = naive.Index()

    @property
    def n_lines(self) -> int:
        return self.table.shape[0] // 16 - 1

    def insert(self, words: list[int]) -> None:
        rows = range(self.n_rows, self.n_rows + len(words))
        before = self.twin.n_duplicates
        self.twin.insert(words, rows)
        homes = np.empty(2 * (len(words) + AHEAD), dtype=np.uint32)
        n_duplicates, n_left = insert_remainders(
            np.array(words, dtype=np.uint64),
            np.array(rows, dtype=np.int32),
            self.table,
            self.spread,
            self.chain,
            homes,
        )
        left = homes[:n_left].tolist()
        rest_before = self.rest.n_duplicates
        self.rest.insert([words[j] for j in left], [rows[j] for j in left])
        n_duplicates += self.rest.n_duplicates - rest_before
        assert n_duplicates == self.twin.n_duplicates - before
        self.n_rows += len(words)

    def check(self, words: list[int]) -> None:
        n = len(words)
        positions, links = (np.empty(n + 1, dtype=np.int32) for _ in range(2))
        homes = np.empty(2 * (n + AHEAD), dtype=np.uint32)
        asked = np.array(words, dtype=np.uint64)
        found = probe_remainders(
            asked, self.table, self.spread, self._rest_lines(), homes, positions, links
        )
        assert sorted(pairs(positions, links, found)) == sorted(self.twin.newest(words))

    def _rest_lines(self) -> npt.NDArray[np.uint64]:
        """What was left over, as ordinary lines."""
        left = list(self.rest.rows_by_word)
        if not left:
            return np.empty(0, dtype=np.uint64)
        n_lines = 1 << max(1, len(left).bit_length())
        lines = make_table(n_lines)
        numbers = np.array([(word - self.base) & ALL for word in left], dtype=np.uint64)
        links = np.array([self._link(word) for word in left], dtype=np.int32)
        enter_links(numbers, links, lines, np.zeros(n_lines, dtype=np.uint8))
        return lines

    def grow(self, n_lines: int) -> None:
        larger = make_table(n_lines + 1).view(np.uint32)
        n_used = np.zeros(n_lines, dtype=np.uint8)
        most = REMAINDERS * self.n_lines
        numbers, links = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.int32)
        n_left = split_remainders(self.table, larger, self.spread, n_used, numbers, links)
        self.table = larger
        known = self.rest.rows_by_word
        self.rest = naive.Index()
        for number in numbers[:n_left].tolist():
            word = (number + self.base) & ALL
            self.rest.insert([word] * len(self.twin.rows_by_word[word]), self._rows(word))
        heads = [(word - self.base) & ALL for word in known]
        numbers = np.array(heads, dtype=np.uint64)
        links = np.array([self._link(word) for word in known], dtype=np.int32)
        n_left = enter_numbers(numbers, links, larger, self.spread, n_used)
        for number in numbers[:n_left].tolist():
            word = (number + self.base) & ALL
            self.rest.insert([word] * len(self.twin.rows_by_word[word]), self._rows(word))

    def _rows(self, word: int) -> list[int]:
        return sorted(self.twin.rows_by_word[word])

    def _link(self, word: int) -> int:
        rows = self._rows(word)
        return rows[-1] + 1 if len(rows) == 1 else -(rows[-1] + 1)

    def words(self) -> set[int]:
        most = REMAINDERS * self.n_lines
        numbers, links = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.int32)
        n = entries_of(self.table, self.spread, numbers, links)
        assert (links[:n] != 0).all()
        return {(number + self.base) & ALL for number in numbers[:n].tolist()}


def test_empty_table_and_empty_batches() -> None:
    table = Remainders(4, 4)
    table.insert([])
    table.check([])
    table.check([0, 1, ALL])


def test_the_number_zero_is_a_number_like_others() -> None:
    """Empty entries hold the remainder zero, too; only their link tells them apart."""
    table = Remainders(4, 4)
    table.check([0])
    table.insert([5, 0, 0])
    table.check([0, 5, 1])
    assert table.words() == {0, 5}


@pytest.mark.parametrize("base", [0, 17, 2**63 - 5, ALL - 100])
def test_words_outside_of_the_domain_are_not_there(base: int) -> None:
    table = Remainders(4, 8, base)
    inside = [base, (base + 1) & ALL, (base + 2**34 - 1) & ALL]
    table.insert(inside)
    table.check([*inside, (base - 1) & ALL, (base + 2**34) & ALL, (base + 2**63) & ALL])
    assert table.words() == set(inside)


@pytest.mark.parametrize("n_lines", [2, 3, 5, 8])
def test_full_lines_leave_keys_over_which_are_still_told_apart(n_lines: int) -> None:
    rng = random.Random(n_lines)
    words = [rng.randrange(2**33) for _ in range(10 * n_lines)]
    table = Remainders(n_lines, 4 * len(words))
    for _ in range(2):
        table.insert(words)
    assert table.rest.rows_by_word, "nothing was left over"
    table.check([*words, *(word ^ 1 for word in words)])
    assert table.words() | set(table.rest.rows_by_word) == set(words)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(4, 8, 16), (5, 7, 14, 112), (64, 80)])
def test_growth_keeps_every_entry_and_every_chain(seed: int, sizes: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    first, *later = sizes
    table = Remainders(first, SMALL * len(sizes), base=rng.getrandbits(64), bits=34)
    stored: list[int] = []
    for n_lines in [None, *later]:
        if n_lines is not None:
            table.grow(n_lines)
        words = [
            (table.base + rng.choice((rng.randrange(40), rng.getrandbits(34)))) & ALL
            for _ in range(min(SMALL, 6 * first))
        ]
        table.insert(words)
        stored += words
        table.check([*stored, *(rng.getrandbits(64) for _ in range(50))])
        assert table.words() | set(table.rest.rows_by_word) == set(stored)


@pytest.mark.parametrize("stride", [1, 3, 2**7, 2**16, 2**25, 1_000_003])
def test_regular_keys_fill_lines_evenly(stride: int) -> None:
    """Each of them would be left over by the thousand if its low or high bits chose the line."""
    n = 200 if JIT_DISABLED else 4000
    table = Remainders(1024 if n > 1000 else 64, n)
    table.insert([i * stride % 2**38 for i in range(n)])
    assert len(table.rest.rows_by_word) <= 0.05 * n


@pytest.mark.parametrize("n_left", [0, 1, 60])
def test_what_is_left_over_is_entered_like_any_rows(n_left: int) -> None:
    rng = random.Random(n_left)
    words = np.array([rng.randrange(40, 80) for _ in range(200)], dtype=np.uint64)
    rows = np.arange(100, 300, dtype=np.int32)
    left = np.array(sorted(rng.sample(range(200), n_left)), dtype=np.uint32)
    chosen = left.astype(np.int64)
    homes = np.empty(n_left + AHEAD, dtype=np.uint32)
    lines, chain = make_table(32), np.zeros(300, dtype=np.int32)
    expected, expected_chain = make_table(32), np.zeros(300, dtype=np.int32)
    n_chained = insert(words[chosen] - np.uint64(7), rows[chosen], expected, expected_chain, homes)
    assert insert_left(words, rows, left, lines, np.uint64(7), chain) == n_chained
    assert (lines == expected).all()
    assert (chain == expected_chain).all()
