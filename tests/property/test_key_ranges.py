"""Cells that divide a key by ranges: every result once, and row groups read by one cell."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from eddies.core.expr import Cast, Column
from eddies.core.graph import Graph, make_graph
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Source
from eddies.hosts import local
from eddies.sources import read
from eddies.sources.source import Split
from eddies.spark.cells import CellPlan, RelationSize, plan_cells, separate_roles
from eddies.spark.key_ranges import RangeFilter, _layouts, _plan, plan_ranges, spans_of
from eddies.spark.reading import Reading
from eddies.sql import plan
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.random_queries import make_case

N_CASES = 40
CHUNKS = 3


def splits_of(table: pa.Table, path: Path, n_rows: int = 3) -> tuple[Split, ...]:
    parquet.write_table(table, path, row_group_size=n_rows)
    return tuple(read.parquet(str(path)).splits())


def reading(
    plan: CellPlan, graph: Graph, name: str, splits: tuple[Split, ...], forgets: bool = False
) -> Reading:
    relation = next(r for r in graph.relations if r.name == name)
    ranged = None
    for on in plan.deliveries[name].hashed:
        spans = spans_of(splits, on.column)
        if forgets:
            spans = (None, *spans[1:])
        share = plan.shares[on.dimension]
        ranged = RangeFilter(on.column, share, on.dimension, on.borders, spans)
    return Reading(name, tuple(relation.read.names), (), splits, 1, (), ranged)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_result_comes_out_of_one_range(chunk: int, tmp_path: Path) -> None:
    oracle = Oracle()
    n_ranged = n_results = 0
    for seed in range(700_000 + chunk * N_CASES, 700_000 + (chunk + 1) * N_CASES):
        case, expected = oracle.bounded(make_case(seed, functions=False))
        rng = random.Random(f"ranges {seed}")
        used = {s.table for s in case.query.sources}
        sizes = {
            name: RelationSize(table.num_rows, 24, "direct")
            for name, table in case.tables.items()
            if name in used
        }
        query = separate_roles(case.query, sizes)
        tables = {
            own.table: case.tables[old.table]
            for own, old in zip(query.sources, case.query.sources, strict=True)
        }
        graph = make_graph(query)
        own_sizes = {name: RelationSize(t.num_rows, 24, "direct") for name, t in tables.items()}
        splits = {}
        for number, (name, table) in enumerate(tables.items()):
            path = tmp_path / f"{seed}-{number}.parquet"
            splits[name] = splits_of(table, path, rng.choice((1, 2, 5)))
        layouts = list(_layouts(graph, splits))
        if not layouts:
            continue
        layout = rng.choice(layouts)
        keys = sorted({k for spans in layout.spans.values() for s in spans if s for k in s})
        if not keys:
            continue
        borders = tuple(sorted(rng.sample(keys, rng.randint(1, min(4, len(keys))))))
        share = rng.randint(2, 3)
        last = max(own_sizes, key=lambda name: own_sizes[name].rows)
        plan = _plan(graph, own_sizes, layout, borders, share, 2, last)
        outputs = []
        for cell in range(plan.n_cells):
            delivered = {}
            for relation in graph.relations:
                name = relation.name
                one = reading(plan, graph, name, splits[name], rng.random() < 0.3)
                batches = list(one.batches(plan.coordinates(cell)))
                schema = batches[0].schema if batches else relation.read
                delivered[name] = pa.Table.from_batches(batches, schema)
            outputs.append(local.run(query, delivered, Options(seed=cell)).table())
        assert_same_bag(pa.concat_tables(outputs), expected, (seed, plan, case.sql))
        n_ranged += 1
        n_results += expected.num_rows
    assert n_ranged > N_CASES / 5
    assert n_results > 0


def orders_and_lines() -> Query:
    orders = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    lines = pa.schema([("order_id", pa.int32()), ("price", pa.int64())])
    key = Equality(Column("o", "id"), Cast(Column("l", "order_id"), pa.int64()), pa.int64())
    return Query(
        sources=(Source("o", "orders", orders), Source("l", "lines", lines)),
        equalities=(key,),
        output=(Output("price", Column("l", "price"), pa.int64()),),
    )


def lying_in_order(tmp_path: Path, *, shuffled: bool) -> dict[str, tuple[Split, ...]]:
    n_orders = 4000
    ids = np.arange(n_orders) - 500
    if shuffled:
        np.random.default_rng(1).shuffle(ids)
    lines = np.repeat(ids, 4)
    orders = pa.table(
        {"id": pa.array(ids, pa.int64()), "day": pa.array(ids % 90, pa.int32()).cast(pa.date32())}
    )
    table = pa.table(
        {"order_id": pa.array(lines, pa.int32()), "price": pa.array(lines, pa.int64())}
    )
    return {
        "orders": splits_of(orders, tmp_path / "orders.parquet", 100),
        "lines": splits_of(table, tmp_path / "lines.parquet", 150),
    }


SIZES = {
    "orders": RelationSize(4_000_000, 12, "direct"),
    "lines": RelationSize(16_000_000, 12, "direct"),
}


def test_tables_in_the_order_of_a_key_are_read_once(tmp_path: Path) -> None:
    graph = make_graph(orders_and_lines())
    splits = lying_in_order(tmp_path, shuffled=False)
    plan = plan_ranges(graph, SIZES, splits, 2, None, plan_cells(graph, SIZES, 2))
    assert plan.n_cells == 2
    assert plan.deliveries["orders"].describe() == "ranges of id, direct"
    assert plan.deliveries["lines"].describe() == "ranges of order_id, direct"
    n_seen = 0
    for name, parts in splits.items():
        one = reading(plan, graph, name, parts).ranged
        assert one is not None
        n_read = [sum(one.meets(i, cell) for i in range(len(parts))) for cell in range(2)]
        assert max(n_read) < 0.6 * len(parts)
        n_seen += len(one.borders)
    assert n_seen >= 2 * 3  # several ranges for each cell
    found = [
        price
        for cell in range(2)
        for batch in reading(plan, graph, "lines", splits["lines"]).batches(plan.coordinates(cell))
        for price in batch["price"].to_pylist()
    ]
    assert sorted(found) == sorted(k - 500 for k in range(4000) for _ in range(4))


def test_tables_in_no_order_are_divided_as_before(tmp_path: Path) -> None:
    graph = make_graph(orders_and_lines())
    other = plan_cells(graph, SIZES, 2)
    splits = lying_in_order(tmp_path, shuffled=True)
    assert plan_ranges(graph, SIZES, splits, 2, None, other) is other


def test_one_cell_needs_no_ranges(tmp_path: Path) -> None:
    graph = make_graph(orders_and_lines())
    other = plan_cells(graph, SIZES, 1)
    splits = lying_in_order(tmp_path, shuffled=False)
    assert plan_ranges(graph, SIZES, splits, 1, None, other) is other
    assert plan_ranges(graph, SIZES, splits, 2, 1, other) is other


def test_rows_of_one_key_stay_together() -> None:
    ranged = RangeFilter("k", 2, 1, (5, 9), ((0, 4), (5, 5), (4, 5), (9, 20), None))
    assert [ranged.is_inside(i) for i in range(5)] == [True, True, False, True, False]
    assert [[ranged.meets(i, c) for i in range(5)] for c in (0, 1)] == [
        [True, False, True, True, True],
        [False, True, True, False, True],
    ]
    batch = pa.record_batch({"k": pa.array([4, 5, None, 8, 9, -3], pa.int32())})
    assert ranged.kept(batch, 0)["k"].to_pylist() == [4, 9, -3]
    assert ranged.kept(batch, 1)["k"].to_pylist() == [5, 8]


def test_what_is_only_asked_for_matches_divides_nothing(tmp_path: Path) -> None:
    text = (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM lines a WHERE a.order_id = o.id) "
        "AND NOT EXISTS (SELECT 1 FROM old b WHERE b.order_id = o.id)"
    )
    schema = pa.schema([("order_id", pa.int64())])
    schemas = {"orders": pa.schema([("id", pa.int64())]), "lines": schema, "old": schema}
    (block,) = plan(text, schemas, (), host="spark", direct=list(schemas), may_ask=True).blocks
    graph = make_graph(block.query)
    assert graph.asked
    ids = pa.table({"order_id": pa.array(range(400), pa.int64())})
    splits = {
        "orders": splits_of(ids.rename_columns(["id"]), tmp_path / "orders.parquet", 1000),
        "lines": splits_of(ids, tmp_path / "lines.parquet", 10),
        "old": splits_of(ids, tmp_path / "old.parquet", 10),
    }
    assert not list(_layouts(graph, splits))
    parted = splits_of(ids.rename_columns(["id"]), tmp_path / "parted.parquet", 10)
    for layout in _layouts(graph, splits | {"orders": parted}):
        assert "orders" in layout.columns
