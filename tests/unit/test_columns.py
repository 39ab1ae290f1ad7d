"""Columns give back what they were given: any type, any slice, any cut, after any growth."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.state.columns import (
    FixedColumn,
    OpaqueColumn,
    PairColumn,
    TextColumn,
    column_of,
    empty_column,
    normal_type,
)
from eddies.core.state.rows import MAX_ROWS, Block, RowStore
from eddies.errors import SourceError
from tests.support.bag import bag_of
from tests.support.random_queries import KINDS

MORE: dict[str, tuple[pa.DataType, list[object]]] = {
    "list": (pa.list_(pa.int32()), [[1], [], [2, None]]),
    "struct": (pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}]),
    "time32": (pa.time32("s"), [1, 2]),
    "time64": (pa.time64("us"), [1, 2]),
    "duration": (pa.duration("us"), [1, -2]),
    "date64": (pa.date64(), [86400000, 0]),
    "zoned": (pa.timestamp("us", "UTC"), [1, -1]),
    "half": (pa.float16(), [np.float16(1.5), np.float16(0)]),
    "null": (pa.null(), [None]),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0"]),
}
ALL = KINDS | MORE


def random_array(kind: str, n: int, rng: random.Random, nulls: float = 0.3) -> pa.Array:
    type_, pool = ALL[kind]
    return pa.array([None if rng.random() < nulls else rng.choice(pool) for _ in range(n)], type_)


def same(found: pa.Array, expected: pa.Array) -> bool:
    assert found.type == expected.type
    found.validate(full=True)
    left, right = pa.table({"x": found}), pa.table({"x": expected})
    if pa.types.is_nested(found.type):
        return left["x"].to_pylist() == right["x"].to_pylist()
    plain = [_marked(value) for value in found.to_pylist()]
    return plain == [_marked(value) for value in expected.to_pylist()] and bag_of(left) == bag_of(
        right
    )


def _marked(value: object) -> object:
    """NaN equal to itself, and zeros that keep their sign."""
    return repr(value) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("nulls", [0.0, 0.4, 1.0])
def test_take_gives_the_rows_back(kind: str, nulls: float) -> None:
    rng = random.Random(kind)
    whole = random_array(kind, 40, rng, nulls)
    for offset, n in ((0, 40), (0, 0), (40, 0), (7, 1), (3, 20), (9, 31)):
        array = whole.slice(offset, n)
        column = column_of(array)
        assert len(column) == n
        assert same(column.take(None), array)
        ids = [rng.randrange(n) for _ in range(15)] if n else []
        assert same(column.take(np.array(ids, np.int32)), array.take(pa.array(ids, pa.int32())))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("room", [0, 100])
def test_growing_by_appending_slices(kind: str, room: int) -> None:
    """NULLs may first come late; pieces may be empty, sliced, or share buffers."""
    rng = random.Random(kind)
    type_, _ = ALL[kind]
    column = empty_column(type_)
    pieces = []
    for turn in range(12):
        array = random_array(kind, 30, rng, 0.0 if turn < 5 else 0.3)
        piece = array.slice(rng.randrange(30), rng.choice((0, 1, 9)))
        if turn == 6:
            piece = pieces[0]
        column.append(column_of(piece), room)
        pieces.append(piece)
        assert same(column.take(None), pa.concat_arrays(pieces))
    n = len(column)
    ids = np.array([rng.randrange(n) for _ in range(40)], np.int32)
    assert same(column.take(ids), pa.concat_arrays(pieces).take(pa.array(ids)))
    assert column.n_bytes >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_validity_of_ids_and_of_ranges_agree(kind: str) -> None:
    rng = random.Random(kind)
    array = random_array(kind, 50, rng)
    for column in (column_of(array), column_of(array.slice(3, 40))):
        n = len(column)
        words, valid = column.words(None), column.valid(None)
        assert valid is not None
        ids = np.array([rng.randrange(n) for _ in range(30)], np.int32)
        good = valid[ids] != 0
        assert (column.words(ids)[good] == words[ids][good]).all()
        assert (column.valid(ids) == valid[ids]).all()
        part = column.words(None, 4, 20)
        assert (part[valid[4:20] != 0] == words[4:20][valid[4:20] != 0]).all()
        assert (column.valid(None, 4, 20) == valid[4:20]).all()


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (pa.int8(), FixedColumn),
        (pa.bool_(), FixedColumn),
        (pa.decimal128(38, 2), PairColumn),
        (pa.string(), TextColumn),
        (pa.binary(), TextColumn),
        (pa.list_(pa.int8()), OpaqueColumn),
        (pa.null(), OpaqueColumn),
    ],
)
def test_kind_of_column(type_: pa.DataType, kind: type) -> None:
    assert isinstance(empty_column(type_), kind)


@pytest.mark.parametrize(
    ("type_", "normal"),
    [
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.string_view(), pa.string()),
        (pa.decimal64(10, 2), pa.decimal128(10, 2)),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.int64(), pa.int64()),
    ],
)
def test_normal_types(type_: pa.DataType, normal: pa.DataType) -> None:
    assert normal_type(type_) == normal


def test_opaque_columns_are_no_keys() -> None:
    with pytest.raises(TypeError, match="cannot be a join key"):
        column_of(pa.array([[1]])).words(None)


def test_a_store_that_is_full_says_so() -> None:
    store = RowStore("t", pa.schema([]))
    store.n_rows = MAX_ROWS - 1
    store.append(Block({}, 1))
    with pytest.raises(SourceError, match=r"'t' has more than .* split the query"):
        store.append(Block({}, 1))


@pytest.mark.parametrize("type_", [pa.bool_(), pa.int32(), pa.decimal128(9, 2), pa.timestamp("us")])
def test_an_empty_array_without_buffers(type_: pa.DataType) -> None:
    column = column_of(pa.Array.from_buffers(type_, 0, [None, None]))
    assert len(column) == 0
    column.append(column_of(pa.nulls(2, type_)), 0)
    assert column.take(None).to_pylist() == [None, None]
