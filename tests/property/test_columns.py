"""Columns and keys of any type and value: what goes in comes out, equal keys have equal words."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from eddies.core.state.columns import column_of, empty_column
from eddies.core.state.keys import key_words, verify_keys
from tests.support import naive


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1]))


def decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**digits - 1
    context = decimal.Context(prec=40)
    return st.one_of(st.integers(-most, most), st.integers(-3, 3)).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, context)
    )


VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    **{getattr(pa, f"int{bits}")(): whole(bits, True) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): whole(bits, False) for bits in (8, 16, 32, 64)},
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1800, 1, 1), datetime.datetime(2200, 1, 1)),
    pa.decimal128(9, 2): decimals(9, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 4): decimals(38, 4),
}
TYPES = st.sampled_from(list(VALUES))


@st.composite
def arrays(draw: st.DrawFn, type_: pa.DataType, n: int) -> pa.Array:
    """`n` values, many of them equal, some NULL, as a slice that does not start at the beginning."""
    pool = draw(st.lists(VALUES[type_], min_size=1, max_size=5))
    values = draw(st.lists(st.sampled_from([None, *pool]), min_size=n + 3, max_size=n + 3))
    start = draw(st.integers(0, 3))
    return pa.array(values, type_).slice(start, n)


def plain(array: pa.Array) -> list[object]:
    return [repr(v) if isinstance(v, float) else v for v in array.to_pylist()]


@settings(max_examples=250, deadline=None)
@given(TYPES, st.data())
def test_rows_come_back_as_they_went_in(type_: pa.DataType, data: st.DataObject) -> None:
    pieces = [
        data.draw(arrays(type_, n)) for n in data.draw(st.lists(st.integers(0, 9), max_size=5))
    ]
    column = empty_column(type_)
    room = data.draw(st.sampled_from([0, 64]))
    for piece in pieces:
        column.append(column_of(piece), room)
    expected = pa.concat_arrays([pa.array([], type_), *pieces])
    taken = column.take(None)
    taken.validate(full=True)
    assert plain(taken) == plain(expected)
    if len(expected):
        ids = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=12))
        taken = column.take(np.array(ids, np.int32))
        taken.validate(full=True)
        assert plain(taken) == plain(expected.take(pa.array(ids, pa.int32())))


@settings(max_examples=300, deadline=None)
@given(st.lists(TYPES, min_size=1, max_size=3), st.data())
def test_keys_match_exactly_when_sql_says_so(types: list[pa.DataType], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    stored = [data.draw(arrays(type_, n)) for type_ in types]
    # The other side: the same rows, others, and again the same ones.
    probes = [
        pa.concat_arrays([array, data.draw(arrays(array.type, 2)), array.slice(0, 1)])
        for array in stored
    ]
    sides = [[(column_of(array), None) for array in arrays_] for arrays_ in (probes, stored)]
    (words, valid), (stored_words, stored_valid) = (key_words(side) for side in sides)
    keys = [
        list(zip(*(a.to_pylist() for a in arrays_), strict=True)) for arrays_ in (probes, stored)
    ]
    pairs = [
        (i, j)
        for i in range(len(words))
        for j in range(n)
        if (valid is None or valid[i]) and (stored_valid is None or stored_valid[j])
        if words[i] == stored_words[j]
    ]
    expected = [
        (i, j)
        for i in range(len(words))
        for j in range(n)
        if naive.equal_keys(keys[0][i], keys[1][j])
    ]
    assert set(expected) <= set(pairs), "equal keys must have equal words"
    positions = np.array([i for i, _ in pairs], np.int32)
    rows = np.array([j for _, j in pairs], np.int32)
    kept = verify_keys(positions, rows, len(pairs), sides[0], [c for c, _ in sides[1]])
    assert list(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True)) == expected
