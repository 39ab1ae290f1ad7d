"""Kernels for few rows: the same answers as the ones they stand for, without letting the lock go."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eddies.core.kernels.gather import copy_brief, copy_rows, gather, gather_brief
from eddies.core.kernels.jit import BRIEF_ROWS, JIT_DISABLED
from eddies.core.kernels.lines import rows_of, rows_of_brief
from eddies.core.kernels.remainders import probe_remainders, probe_remainders_brief
from eddies.core.kernels.slots import word_range, word_range_brief
from eddies.core.kernels.sums import add_rows, add_rows_brief, sum_parts, sum_parts_brief
from eddies.core.state.remainder_table import RemainderTable, domain_of
from eddies.core.state.scratch import Scratch
from eddies.core.state.slot_table import range_of

PAIRS = [
    (copy_rows, copy_brief),
    (gather, gather_brief),
    (rows_of, rows_of_brief),
    (add_rows, add_rows_brief),
    (sum_parts, sum_parts_brief),
    (word_range, word_range_brief),
    (probe_remainders, probe_remainders_brief),
]


@pytest.mark.skipif(JIT_DISABLED, reason="without the JIT there is one function")
@pytest.mark.parametrize(("usual", "brief"), PAIRS)
def test_only_the_usual_kernel_lets_the_lock_go(usual: Any, brief: Any) -> None:
    assert usual.targetoptions["nogil"]
    assert not brief.targetoptions.get("nogil")
    assert usual.nopython_signatures == brief.nopython_signatures


@pytest.mark.parametrize("n_rows", [0, 1, 50])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int32])
def test_rows_by_id(n_rows: int, dtype: type) -> None:
    values = np.arange(100).astype(dtype)
    ids = np.array([random.Random(n_rows).randrange(100) for _ in range(n_rows)], np.int32)
    out = np.empty(n_rows, dtype)
    gather_brief(values, ids, out)
    assert (out == values[ids]).all()
    copied = np.empty(n_rows, np.int32)
    for copy in (copy_rows, copy_brief):
        copied[:] = -1
        copy(ids, copied)
        assert (copied == ids).all()


def test_links_and_sums() -> None:
    links = np.array([1, -1, 7, -9], np.int32)
    rows_of_brief(links, 3)
    assert links.tolist() == [0, 0, 6, -9]
    values = np.array([3, -5, 2**62], np.int64)
    assert sum_parts_brief(values) == sum_parts(values)
    assert word_range_brief(values.view(np.uint64)) == (-5, 2**62)
    totals = np.array([1, 2, 3], np.int64)
    assert add_rows_brief(totals, values)
    assert totals.tolist() == [4, -3, 2**62 + 3]
    assert not add_rows_brief(totals, values), "the last sum is beyond 64 bits"


@pytest.mark.parametrize("asked", [1, 1000, BRIEF_ROWS + 1])
def test_a_table_answers_few_and_many_alike(asked: int) -> None:
    n_keys = 40 if JIT_DISABLED else 5000
    rng = random.Random(asked)
    keys = np.array(rng.sample(range(10**9), n_keys), np.uint64)
    bounds = range_of(keys)
    assert bounds is not None
    spread = domain_of(bounds, n_keys)
    assert spread is not None
    table, scratch = RemainderTable(spread, n_keys), Scratch(1 << 13)
    chain = np.zeros(n_keys, np.int32)
    table.insert(keys, np.arange(n_keys, dtype=np.int32), chain, scratch)
    words = np.array([int(rng.choice(keys)) + rng.randrange(2) for _ in range(asked)], np.uint64)
    row_by_key = {int(key): row for row, key in enumerate(keys)}
    expected = {(j, row_by_key[w] + 1) for j, w in enumerate(words.tolist()) if w in row_by_key}
    found = table.probe(words, scratch)
    pairs = zip(scratch.positions[:found].tolist(), scratch.rows[:found].tolist(), strict=True)
    assert set(pairs) == expected
    assert _n_found_by(probe_remainders_brief, table, words, scratch) == found
    table.release()


def _n_found_by(
    probe: Callable[..., int], table: RemainderTable, words: np.ndarray, scratch: Scratch
) -> int:
    rest = np.empty(0, np.uint64) if table._rest is None else table._rest.words
    out = (scratch.homes, scratch.positions, scratch.rows)
    return probe(words, table._halves, table._spread, rest, *out)
