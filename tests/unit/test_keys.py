"""Join keys as words: equal keys have equal words, and what words cannot tell is verified."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.options import Options
from eddies.core.state.columns import column_of
from eddies.core.state.keys import is_exact, key_words, verify_keys
from tests.support import naive
from tests.support.bag import assert_same_bag
from tests.support.random_queries import KINDS
from tests.support.small import answer, make_query

STEP = -0x18FC812E5F4BD725  # folding this component loses what was folded before it


def columns_of(arrays: list[pa.Array]) -> list[tuple[object, None]]:
    return [(column_of(array), None) for array in arrays]


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_equal_where_values_are(kind: str) -> None:
    type_, pool = KINDS[kind]
    values = pa.array([*pool, None, *pool], type_)
    words, valid = key_words(columns_of([values]))  # type: ignore[arg-type]
    assert valid is not None
    assert valid.astype(bool).tolist() == [value is not None for value in values.to_pylist()]
    column = column_of(values)
    plain = values.to_pylist()
    for i, j in itertools.combinations(np.flatnonzero(valid).tolist(), 2):
        same = naive.equal_keys((plain[i],), (plain[j],))
        if same:
            assert words[i] == words[j], (plain[i], plain[j])
        elif column.exact:
            assert words[i] != words[j], (plain[i], plain[j])


@pytest.mark.parametrize(
    ("kinds", "exact"),
    [
        (("uint16", "uint16"), True),
        (("uint16", "date"), True),
        (("bool", "uint16", "date"), True),
        (("int32", "int32"), False),  # the other side may be wider
        (("bool", "int16", "int32"), False),
        (("int64", "int8"), False),
        (("float32", "int8"), False),
        (("short", "int8"), False),
        (("decimal", "bool"), False),
        (("wide",), False),
        (("decimal",), True),
        (("short",), False),
    ],
)
def test_which_keys_are_exact(kinds: tuple[str, ...], exact: bool) -> None:
    columns = [column_of(pa.array(KINDS[kind][1], KINDS[kind][0])) for kind in kinds]
    assert is_exact(columns) == exact


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, ("int8", "short", "wide"))))
def test_verify_keeps_exactly_the_equal_pairs(kinds: tuple[str, str]) -> None:
    """All pairs are proposed, as if every word collided."""
    pools = [KINDS[kind][1][:4] for kind in kinds]
    keys = list(itertools.product(*pools))
    arrays = [
        pa.array(list(part), KINDS[k][0])
        for part, k in zip(zip(*keys, strict=True), kinds, strict=True)
    ]
    n = len(keys)
    positions = np.repeat(np.arange(n, dtype=np.int32), n)
    rows = np.tile(np.arange(n, dtype=np.int32), n)
    side = columns_of(arrays)
    kept = verify_keys(positions, rows, n * n, side, [c for c, _ in side])  # type: ignore[arg-type]
    found = set(zip(positions[:kept].tolist(), rows[:kept].tolist(), strict=True))
    expected = {(i, j) for i in range(n) for j in range(n) if naive.equal_keys(keys[i], keys[j])}
    assert kept == len(found)
    assert found == expected


@pytest.mark.parametrize("state", ["stems", "joins"])
@pytest.mark.parametrize("on", [["a.k = b.k", "a.n = b.n"], ["a.n = b.n", "a.k = b.k"]])
def test_short_strings_in_a_composite_key_are_compared_by_their_bytes(
    state: str, on: list[str]
) -> None:
    """The word of (text, number) says nothing about the text when the number is `STEP`."""
    left = pa.table({"k": ["a", "b", "longer than seven"], "n": pa.array([STEP] * 3)})
    right = pa.table({"k": ["b", "c", "longer than eight"], "n": pa.array([STEP] * 3)})
    tables = {"a": left, "b": right}
    options = Options(state=state)  # type: ignore[arg-type]
    found = answer(make_query(tables, on), tables, options)
    assert_same_bag(found.select(["a_k", "b_k"]), pa.table({"a_k": ["b"], "b_k": ["b"]}))


def test_packed_components_do_not_run_into_each_other() -> None:
    left = pa.table({"x": pa.array([-1, 0, 1], pa.int8()), "y": pa.array([0, -1, 255], pa.int16())})
    tables = {"a": left, "b": left}
    found = answer(make_query(tables, ["a.x = b.x", "a.y = b.y"]), tables)
    assert found.num_rows == 3


def test_wide_decimals_with_equal_low_words_differ() -> None:
    type_ = pa.decimal128(38, 0)
    values = [Decimal(1), Decimal(1 + 2**64), Decimal(1 - 2**64), None]
    tables = {
        "a": pa.table({"x": pa.array(values, type_)}),
        "b": pa.table({"x": pa.array(values, type_)}),
    }
    found = answer(make_query(tables, ["a.x = b.x"]), tables)
    assert_same_bag(found, pa.table({"a_x": pa.array(values[:3]), "b_x": pa.array(values[:3])}))
