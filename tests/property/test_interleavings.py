"""Any rows, any cuts, any order of push, poll and end: the bag of a nested loop, each time."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.policies import POLICIES
from tests.support import naive
from tests.support.bag import bag_of, compare
from tests.support.small import make_query

KEY = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.lists(st.tuples(KEY, KEY), max_size=7)
# Roles by the relation they read: no self-join, a self-join, and one beside another relation.
ROLES = st.sampled_from([("t", "u", "w"), ("t", "u"), ("t", "t"), ("t", "t", "t"), ("t", "u", "t")])
JOINS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.integers(0, 2), st.sampled_from("xy")),
    max_size=3,
)
Join = tuple[int, str, int, str]


def table_of(rows: list[tuple[int | None, int | None]]) -> pa.Table:
    x, y = ([row[i] for row in rows] for i in (0, 1))
    columns = {"x": pa.array(x, pa.int64()), "y": pa.array(y, pa.int64())}
    return pa.table(columns | {"id": pa.array(range(len(rows)), pa.int64())})


def nested_loop(roles: tuple[str, ...], tables: dict[str, pa.Table], joins: list[Join]) -> Counter:
    lists = [tables[name].to_pylist() for name in roles]
    found: Counter[tuple[object, ...]] = Counter()
    for rows in itertools.product(*lists):
        if all(naive.equal_keys((rows[i][a],), (rows[j][b],)) for i, a, j, b in joins):
            found[tuple(row["id"] for row in rows)] += 1
    return found


@settings(max_examples=400, deadline=None)
@given(ROLES, st.lists(ROWS, min_size=3, max_size=3), JOINS, st.data())
def test_any_order_same_bag(
    roles: tuple[str, ...],
    rows: list[list[tuple[int | None, int | None]]],
    joins: list[Join],
    data: st.DataObject,
) -> None:
    names = list(dict.fromkeys(roles))
    tables = {name: table_of(rows[i]) for i, name in enumerate(names)}
    n = len(roles)
    joins = [(i % n, a, j % n, b) for i, a, j, b in joins if i % n != j % n]
    query = make_query(
        tables,
        [f"r{i}.{a} = r{j}.{b}" for i, a, j, b in joins],
        {f"r{i}": name for i, name in enumerate(roles)},
        [f"r{i}.id" for i in range(n)],
    )
    policy = data.draw(st.sampled_from(sorted(set(POLICIES) - {"static"})))
    options = Options(
        policy=policy,
        batch_rows=data.draw(st.sampled_from([1, 2, 1009])),
        reoptimize_every=data.draw(st.sampled_from([1, 3, 1000])),
        seed=data.draw(st.integers(0, 99)),
    )
    eddy = Eddy(query, options)
    found: Counter[tuple[object, ...]] = Counter()
    position = dict.fromkeys(names, 0)
    while position:
        move = data.draw(st.sampled_from([*position, "poll"]))
        if move == "poll":
            batch = eddy.poll()
            found += Counter() if batch is None else bag_of(batch)
            continue
        left = tables[move].num_rows - position[move]
        if left == 0:
            eddy.end(move)
            del position[move]
            continue
        n_rows = data.draw(st.integers(1, left))
        for batch in tables[move].slice(position[move], n_rows).to_batches():
            eddy.push(move, batch)
        position[move] += n_rows
    while (batch := eddy.poll()) is not None:
        found += bag_of(batch)
    assert eddy.is_done
    difference = compare(found, nested_loop(roles, tables, joins))
    assert not difference, difference
