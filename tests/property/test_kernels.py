"""Kernels against their twins on whatever Hypothesis thinks of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from eddies.core.kernels.gather import compact, copy_bytes, gather, offsets_of
from eddies.core.kernels.narrow import copy_narrow, gather_narrow
from eddies.core.kernels.ranges import expand_ranges
from eddies.core.kernels.words import text_words, verify_text
from eddies.core.state.columns import column_of
from tests.support import naive
from tests.unit.test_kernels_lines import Lines, words_at_home

# Few different words, many of them at home in one line, so that chains and overflow are the rule.
CROWDED = words_at_home(3, 4, 12) + words_at_home(0, 4, 6) + [0, 1, 2**64 - 1]
WORDS = st.lists(st.one_of(st.sampled_from(CROWDED), st.integers(0, 2**64 - 1)), max_size=10)
BYTES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\0", b"1234567", b"12345678", b"x" * 16, b"x" * 17]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=4), WORDS, st.booleans())
def test_the_hash_index(batches: list[list[int]], probes: list[int], grows: bool) -> None:
    lines = Lines(16, 64)
    for words in batches:
        lines.insert(words)
    if grows:
        lines.grow(64)
    lines.check([*probes, *CROWDED])


@settings(max_examples=150, deadline=None)
@given(st.lists(BYTES, max_size=8), st.lists(BYTES, max_size=8))
def test_texts_are_equal_when_their_bytes_are(left: list[bytes], right: list[bytes]) -> None:
    columns = [column_of(pa.array(side, pa.binary())) for side in (left, right)]
    (addresses, lengths), (others, other_lengths) = (c.places(None) for c in columns)  # type: ignore[attr-defined]
    words = np.empty(len(left), np.uint64)
    text_words(addresses, lengths, words)
    assert words.tolist() == [naive.text_word(text) for text in left]
    out = np.empty(int(lengths.sum()), np.uint8)
    copy_bytes(addresses, lengths, out)
    assert out.tobytes() == naive.copy_bytes(left)
    n = len(left) * len(right)
    positions = np.repeat(np.arange(len(left), dtype=np.int32), len(right))
    rows = np.tile(np.arange(len(right), dtype=np.int32), len(left))
    kept = verify_text(positions, rows, n, addresses, lengths, others, other_lengths)
    found = list(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True))
    assert found == [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=20), st.data())
def test_moving_rows(values: list[int], data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20))
    out = np.empty(len(ids), np.uint8)
    gather(np.array(values, np.uint8), np.array(ids, np.int32), out)
    assert out.tolist() == naive.gather(values, ids)
    offsets = np.empty(len(values) + 1, np.int32)
    assert offsets_of(np.array(values, np.int32), offsets) == sum(values)
    assert offsets.tolist() == naive.offsets_of(values)
    keep = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    positions, rows = np.arange(len(ids), dtype=np.int32), np.array(ids, np.int32)
    expected = naive.compact(keep, list(enumerate(ids)))
    kept = compact(np.array(keep, np.bool_), positions, rows, len(ids))
    assert list(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True)) == expected


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=9),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.integers(0, 10),
    st.integers(1, 12),
)
def test_ranges(
    sequence: list[int], ranges: list[tuple[int, int]], limit: int, capacity: int
) -> None:
    size = len(sequence)
    starts = [min(start, size) for start, _ in ranges]
    stops = [min(stop, size) for _, stop in ranges]
    cursor = np.zeros(2, np.int64)
    positions, rows = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    found: list[tuple[int, int]] = []
    while cursor[0] < len(ranges):
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
    assert found == naive.expand_ranges(starts, stops, sequence, limit)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_numbers_into_fewer_bits(data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([7, 8, 15, 16, 31, 32, 40, 63]))
    values = data.draw(st.lists(st.integers(-(2**n), 2**n - 1), max_size=20))
    array = np.array(values, np.int64)
    out = np.empty(len(values), np.int32)
    assert int(copy_narrow(array, out)).bit_length() == naive.n_bits(values)
    cut_off = [(value + 2**31) % 2**32 - 2**31 for value in values]
    assert out.tolist() == cut_off
    ids = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)) if values else []
    taken = np.empty(len(ids), np.int32)
    bits = int(gather_narrow(array, np.array(ids, np.int32), taken))
    assert bits.bit_length() == naive.n_bits([values[i] for i in ids])
    assert taken.tolist() == naive.gather(cut_off, ids)
