"""Rows without partners are dropped on the way in, and rows with partners never are."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.expr import Column
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Source

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64())])


def chain(*names: str, type_: pa.DataType | None = None) -> Query:
    """`a.j = b.k AND b.j = c.k ...`."""
    schema = SCHEMA if type_ is None else pa.schema([("k", type_), ("j", type_)])
    return Query(
        sources=tuple(Source(name, name, schema) for name in names),
        equalities=tuple(
            Equality(Column(left, "j"), Column(right, "k"), schema.field("k").type)
            for left, right in pairwise(names)
        ),
        output=tuple(
            Output(f"{name}_k", Column(name, "k"), schema.field("k").type) for name in names
        ),
    )


def rows(pairs: list[tuple[object, object]], type_: pa.DataType | None = None) -> pa.RecordBatch:
    type_ = type_ or pa.int64()
    return pa.record_batch(
        {
            "k": pa.array([k for k, _ in pairs], type_),
            "j": pa.array([j for _, j in pairs], type_),
        }
    )


def drained(eddy: Eddy) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    while (batch := eddy.poll()) is not None:
        found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return sorted(found)


def test_nothing_is_dropped_before_a_partner_has_ended() -> None:
    eddy = Eddy(chain("a", "b"))
    eddy.push("a", rows([(1, 1)]))
    assert eddy.partner_filter("b", {"a": 1, "b": 10}) is None


def test_rows_without_partners_and_null_keys_are_dropped() -> None:
    eddy = Eddy(chain("a", "b"))
    eddy.push("a", rows([(1, n) for n in range(100)]))
    eddy.end("a")
    kept = eddy.partner_filter("b", {"a": 100, "b": 10_000})
    assert kept is not None
    given = rows([(n, n) for n in range(10_000)] + [(None, 1)] * 100)
    left = kept(given).column("k").to_pylist()
    assert set(range(100)) <= set(left)
    assert None not in left
    assert len(left) < 1500  # a Bloom filter lets some misses through


def test_a_filter_that_drops_little_is_given_up() -> None:
    eddy = Eddy(chain("a", "b"))
    eddy.push("a", rows([(1, n) for n in range(1000)]))
    eddy.end("a")
    kept = eddy.partner_filter("b", {"a": 1000, "b": 100_000})
    assert kept is not None
    everybody = rows([(n % 1000, n) for n in range(50_000)])
    assert kept(everybody).num_rows == 50_000
    nobody = rows([(n + 10_000, n) for n in range(1000)])
    assert kept(nobody).num_rows == 1000


def test_what_is_left_of_a_relation_thins_out_the_next() -> None:
    eddy = Eddy(chain("a", "b", "c"))
    eddy.push("a", rows([(0, 7)]))
    eddy.end("a")
    expected = {"a": 1, "b": 1000, "c": 1000}
    assert eddy.rows_to_come("b", expected) < eddy.rows_to_come("c", expected)
    kept = eddy.partner_filter("b", expected)
    assert kept is not None
    eddy.push("b", kept(rows([(n, n) for n in range(1000)])))
    eddy.end("b")
    n_likely, n_fewest = eddy.rows_to_come("c", expected)
    assert n_likely == n_fewest < 100


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.float64()])
@pytest.mark.parametrize("seed", range(5))
def test_any_order_same_bag_with_partners_dropped(type_: pa.DataType, seed: int) -> None:
    rng = random.Random(seed)
    make = {"string": str, "double": float}.get(str(type_), int)

    def value() -> object:
        return None if rng.random() < 0.1 else make(rng.randrange(40))

    names = ["a", "b", "c", "d"]
    tables = {n: [(value(), value()) for _ in range(rng.randrange(5, 60))] for n in names}
    expected = {n: rng.choice([10_000, len(tables[n])]) for n in names}
    found = []
    for is_filtered in (False, True):
        eddy = Eddy(chain(*names, type_=type_), Options(batch_rows=16))
        order = rng.sample(names, len(names))
        for name in order:
            batch = rows(tables[name], type_)
            kept = eddy.partner_filter(name, expected, order[-1]) if is_filtered else None
            eddy.push(name, batch if kept is None else kept(batch))
            eddy.end(name)
        found.append(drained(eddy))
    assert found[0] == found[1]


def test_a_large_partner_that_has_all_its_rows_is_not_asked() -> None:
    eddy = Eddy(chain("a", "b"))
    eddy.push("a", rows([(1, n) for n in range(1000)]))
    eddy.end("a")
    assert eddy.partner_filter("b", {"a": 1000, "b": 2000}) is None
    assert eddy.partner_filter("b", {"a": 4000, "b": 2000}) is not None


def test_a_large_partner_is_asked_through_the_index_that_probes_will_need() -> None:
    """Of b's keys none are in c, which nobody knows before: no row of b is stored, though c has all
    its rows, and no false one passes.
    """
    eddy = Eddy(chain("a", "b", "c"))
    expected = {"a": 20_000, "b": 20_000, "c": 20_000}
    eddy.push("c", rows([(2 * n, n) for n in range(20_000)]))
    eddy.end("c")
    kept = eddy.partner_filter("b", expected, last="a")
    assert kept is not None
    assert kept(rows([(n, 2 * n + 1) for n in range(20_000)])).num_rows == 0
    assert kept(rows([(1, 4), (1, 5), (1, None), (2, 6)])).column("j").to_pylist() == [4, 6]
    assert eddy.partner_filter("b", expected, last="b") is None  # not stored: it looks up by itself


def test_a_large_partner_on_the_other_side_is_not_asked() -> None:
    eddy = Eddy(chain("a", "b", "c"))
    eddy.push("b", rows([(n, n) for n in range(1000)]))
    eddy.end("b")
    expected = dict.fromkeys("abc", 1000)
    assert eddy.partner_filter("c", expected, last="a") is None
    assert eddy.partner_filter("c", expected) is None
