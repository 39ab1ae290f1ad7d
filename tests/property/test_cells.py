"""Cells divide a join: every result comes out of exactly one cell, however rows are delivered."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from eddies.core.expr import Expr
from eddies.core.graph import Graph, make_graph
from eddies.core.options import Options
from eddies.core.query import Query
from eddies.core.state.columns import column_of
from eddies.hosts import local
from eddies.sources.inline import InlineSource
from eddies.spark.cells import (
    CellPlan,
    RelationSize,
    _boxes,
    _divides,
    box,
    hashable_columns,
    plan_cells,
    separate_roles,
)
from eddies.spark.exchange import Blobs, make_pack
from eddies.spark.heavy_keys import heavy_keys
from eddies.spark.reading import HashFilter, Reading
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.random_queries import make_case

N_CASES = 60
CHUNKS = 4


def reading(plan: CellPlan, graph: Graph, name: str, table: pa.Table) -> Reading:
    relation = next(r for r in graph.relations if r.name == name)
    delivery = plan.deliveries[name]
    pieces = [table.slice(i, 3) for i in range(0, table.num_rows, 3)]
    return Reading(
        name,
        tuple(relation.read.names),
        (),
        tuple(split for piece in pieces for split in InlineSource(piece).splits()),
        plan.shares[0] if delivery.is_split else 1,
        tuple(HashFilter(h.column, plan.shares[h.dimension], h.dimension) for h in delivery.hashed),
    )


def exchanged(
    plan: CellPlan, graph: Graph, order: list[str], tables: dict[str, pa.Table]
) -> dict[int, dict[str, list[pa.RecordBatch]]]:
    """Everything packed, shuffled, and taken apart again."""
    packed: list[pa.RecordBatch] = []
    for name in order:
        relation = next(r for r in graph.relations if r.name == name)
        columns = InlineSource(tables[name]).splits()
        batches = [b for s in columns for b in s.read(relation.read.names, (), 4)]
        pack = make_pack(order.index(name), plan.deliveries[name], plan)
        packed += pack(iter(batches))
    random.Random(1).shuffle(packed)
    return {
        cell: {name: list(read()) for name, read in blobs.arrivals().items()}
        for cell, blobs in Blobs.by_cell(iter(packed), order)
    }


def random_plan(rng: random.Random, graph: Graph, sizes: dict[str, RelationSize]) -> CellPlan:
    """Any box, not only a good one: shares at random, the row split at random."""
    best = plan_cells(graph, sizes, 4, rng.choice((None, 1, 2, 3, 4, 8)))
    if rng.random() < 0.3:
        return best
    n_cells = rng.choice((2, 3, 4, 6))
    divisible = {number for columns in hashable_columns(graph).values() for number in columns}
    boxes = list(_boxes(1 + len(graph.classes), n_cells, True))
    shares = rng.choice([s for s in boxes if _divides(s, divisible)])
    split = rng.choice([r.name for r in graph.relations if len(r.roles) == 1] or [None])
    if split is None:
        shares = (1, *shares[1:])
    names = [r.name for r in graph.relations]
    return box(
        names, sizes, hashable_columns(graph), shares, split if shares[0] > 1 else None, names[0], 2
    )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_result_comes_out_of_one_cell(chunk: int) -> None:
    oracle = Oracle()
    n_divided = 0
    for seed in range(900_000 + chunk * N_CASES, 900_000 + (chunk + 1) * N_CASES):
        case, expected = oracle.bounded(make_case(seed, functions=False))
        rng = random.Random(f"cells {seed}")
        by_table = {
            name: RelationSize(table.num_rows, 24, rng.choice(("direct", "exchange")))
            for name, table in case.tables.items()
            if name in {s.table for s in case.query.sources}
        }
        query = separate_roles(case.query, by_table)
        own = {
            s.table: case.tables[old.table]
            for s, old in zip(query.sources, case.query.sources, strict=True)
        }
        sizes = {
            s.table: by_table[old.table]
            for s, old in zip(query.sources, case.query.sources, strict=True)
        }
        graph = make_graph(query)
        plan = random_plan(rng, graph, sizes)
        n_divided += plan.n_cells > 1
        outputs = list(cell_outputs(query, graph, plan, own, sizes, rng))
        found = pa.concat_tables(outputs)
        assert_same_bag(found, expected, (seed, plan, case.sql))
    assert n_divided > N_CASES / 3


def cell_outputs(
    query: Query,
    graph: Graph,
    plan: CellPlan,
    tables: dict[str, pa.Table],
    sizes: dict[str, RelationSize],
    rng: random.Random,
) -> Iterator[pa.Table]:
    order = plan.order(sizes)
    packed = exchanged(plan, graph, order, tables)
    schemas = {r.name: r.read for r in graph.relations}
    is_read = {name: rng.random() < 0.5 for name in order}
    heavy: dict[int, npt.NDArray[np.uint64]] = {}
    if rng.random() < 0.5:
        is_read = dict.fromkeys(order, True)
        last = reading(plan, graph, order[-1], tables[order[-1]])
        heavy = {one.dimension: some_words(tables[order[-1]], one, rng) for one in last.filters}
    for cell in range(plan.n_cells):
        delivered = {}
        for name in order:
            if is_read[name]:
                batches = list(
                    reading(plan, graph, name, tables[name]).batches(
                        plan.coordinates(cell), heavy, is_last=name == order[-1]
                    )
                )
            else:
                batches = packed.get(cell, {}).get(name, [])
            schema = batches[0].schema if batches else schemas[name]
            delivered[name] = pa.Table.from_batches(batches, schema)
        yield local.run(query, delivered, Options(seed=cell)).table()


def some_words(table: pa.Table, one: HashFilter, rng: random.Random) -> npt.NDArray[np.uint64]:
    """Keys that are to count as heavy, whether they are or not."""
    column = column_of(table.column(one.column).combine_chunks())
    words = np.unique(column.words(None))
    return words[[rng.random() < 0.5 for _ in words]]


def test_a_heavy_key_is_everybodys_work() -> None:
    rng = np.random.default_rng(3)
    n_rows = 40_000
    keys = np.where(rng.random(n_rows) < 0.8, 7, rng.integers(0, 1000, n_rows))
    facts = pa.table({"k": pa.array(keys, pa.int64()), "x": np.arange(n_rows)})
    others = pa.table({"k": pa.array(np.arange(1000), pa.int64())})
    filters = (HashFilter("k", 4, 1),)
    splits = [s for i in range(4) for s in InlineSource(facts.slice(i * 10_000, 10_000)).splits()]
    last = Reading("facts", ("k", "x"), (), tuple(splits), 1, filters)
    small = Reading("others", ("k",), (), tuple(InlineSource(others).splits()), 1, filters)
    heavy = heavy_keys(last)
    assert list(heavy) == [1]
    assert len(heavy[1]) == 1
    sizes, seen = [], []
    for cell in range(4):
        mine = list(last.batches((0, cell), heavy, is_last=True))
        sizes.append(sum(batch.num_rows for batch in mine))
        seen += [x for batch in mine for x in batch["x"].to_pylist()]
        theirs = [k for b in small.batches((0, cell), heavy) for k in b["k"].to_pylist()]
        assert 7 in theirs
        assert {k for batch in mine for k in batch["k"].to_pylist()} <= set(theirs)
    assert sorted(seen) == list(range(n_rows))
    assert max(sizes) < 1.2 * n_rows / 4


class InPieces:
    """A split that is read in several batches, as a large row group is."""

    n_bytes = None

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.n_rows = table.num_rows

    def read(
        self, columns: Sequence[str], where: tuple[Expr, ...] = (), batch_rows: int = 3
    ) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(columns)).to_batches(max_chunksize=3)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 5, 8])
def test_borders_of_a_row_split_may_lie_anywhere_in_a_split(n_cells: int) -> None:
    table = pa.table({"id": range(31)})
    splits = tuple(InPieces(table.slice(start, 13)) for start in (0, 13, 26))
    whole = Reading("t", ("id",), (), splits, n_cells, ())
    found = [b.column(0).to_pylist() for c in range(n_cells) for b in whole.batches((c,))]
    assert [value for part in found for value in part] == list(range(31))


def test_a_star_splits_the_facts_and_replicates_the_rest() -> None:
    sizes = {
        "fact": RelationSize(10_000_000, 32, "direct"),
        "a": RelationSize(1000, 16, "direct"),
        "b": RelationSize(1000, 16, "direct"),
    }
    plan = plan_cells(star(), sizes, 4)
    assert plan.n_cells == 4
    assert plan.deliveries["fact"].is_split
    assert not any(plan.deliveries[name].hashed for name in "ab")
    assert plan.order(sizes)[-1] == "fact"


def test_two_large_exchanged_relations_are_hashed() -> None:
    sizes = {
        "fact": RelationSize(100_000_000, 32, "exchange"),
        "a": RelationSize(90_000_000, 16, "exchange"),
        "b": RelationSize(10, 16, "exchange"),
    }
    plan = plan_cells(star(), sizes, 16)
    assert [h.column for h in plan.deliveries["fact"].hashed] == ["x"]
    assert [h.column for h in plan.deliveries["a"].hashed] == ["k"]
    assert not plan.deliveries["b"].hashed


def star() -> Graph:
    from eddies.core.expr import Column
    from eddies.core.query import Equality, Output, Source

    int64 = pa.int64()
    key = pa.schema([("k", int64)])
    sources = (
        Source("fact", "fact", pa.schema([("x", int64), ("y", int64)])),
        Source("a", "a", key),
        Source("b", "b", key),
    )
    equalities = (
        Equality(Column("fact", "x"), Column("a", "k"), int64),
        Equality(Column("fact", "y"), Column("b", "k"), int64),
    )
    query = Query(sources, equalities=equalities, output=(Output("k", Column("a", "k"), int64),))
    return make_graph(replace(query))


def test_a_class_that_divides_nothing_gets_no_share() -> None:
    """Keys that are expressions are not hashed; cells along them would repeat every result."""
    from eddies.core.expr import Call, Column
    from eddies.core.query import Equality, Output, Source

    text = pa.schema([("s", pa.string())])
    sides = [Call("upper", (Column(name, "s"),)) for name in "ab"]
    sources = (Source("a", "t", text), Source("b", "t", text))  # one relation in two roles
    equality = Equality(sides[0], sides[1], pa.string())
    output = (Output("s", Column("a", "s"), pa.string()),)
    graph = make_graph(Query(sources, equalities=(equality,), output=output))
    plan = plan_cells(graph, {"t": RelationSize(1000, 8, "direct")}, 4, 4)
    assert plan.n_cells == 1
