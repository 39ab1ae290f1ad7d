"""Legal moves: what a signature may do next, and why nothing goes on for ever."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.constraints import Move, is_result, legal_moves, may_skip_build
from eddies.core.expr import Call, Literal
from eddies.core.graph import Graph, make_graph
from eddies.core.lineage import Signature, bits
from eddies.core.query import Filter, Selection
from tests.support.random_queries import make_case
from tests.support.small import col, make_query

TABLES = {name: pa.table({"x": pa.array([], pa.int64())}) for name in "abc"}


def graph_of(on: list[str], **settings: object) -> Graph:
    return make_graph(make_query(TABLES, on, **settings))  # type: ignore[arg-type]


def targets(graph: Graph, sources: int, done: int = 0) -> list[Move]:
    return list(legal_moves(graph, Signature(sources, done)))


def test_connected_sources_come_first() -> None:
    graph = graph_of(["a.x = b.x"])
    assert targets(graph, 0b001) == [Move(target=1)]
    assert targets(graph, 0b011) == [Move(target=2, cross=True)]
    assert targets(graph, 0b100) == [Move(target=0, cross=True), Move(target=1, cross=True)]


def test_equality_is_transitive() -> None:
    graph = graph_of(["a.x = b.x", "b.x = c.x"])
    assert targets(graph, 0b001) == [Move(target=1), Move(target=2)]


def test_a_filter_connects_when_all_its_other_sources_are_there() -> None:
    three = Call("gt", (Call("add", (col("a.x"), col("b.x"))), col("c.x")))
    graph = graph_of([], filters=(Filter(three),))
    assert all(move.cross for move in targets(graph, 0b001))
    assert targets(graph, 0b011) == [Move(target=2)]


def test_an_optional_predicate_is_open_once_its_sources_are_spanned_and_only_once() -> None:
    costly = Selection(Call("gt", (col("b.x"), Literal(1, pa.int64()))), expensive=True)
    graph = graph_of(["a.x = b.x", "b.x = c.x"], selections=(costly,))
    assert Move(optional=0) not in targets(graph, 0b001)
    assert Move(optional=0) in targets(graph, 0b010)
    assert Move(optional=0) not in targets(graph, 0b010, done=1)
    assert targets(graph, 0b111) == [Move(optional=0)]
    assert not is_result(graph, Signature(0b111, 0))
    assert is_result(graph, Signature(0b111, 1))


@pytest.mark.parametrize("seed", range(60))
def test_every_legal_way_ends_in_a_result_after_a_bounded_number_of_moves(seed: int) -> None:
    """*Progress*: each move adds one bit; only results have no move left."""
    graph = make_graph(make_case(seed).query)
    open_, seen = [Signature(1 << i) for i in range(len(graph.roles))], set()
    while open_:
        signature = open_.pop()
        if signature in seen or len(seen) > 3000:
            continue
        seen.add(signature)
        moves = legal_moves(graph, signature)
        assert bool(moves) != is_result(graph, signature)
        assert len(set(moves)) == len(moves)
        for move in moves:
            after = move.after(signature)
            assert after.sources & signature.sources == signature.sources
            assert after.done & signature.done == signature.done
            added = len(bits(after.sources)) + len(bits(after.done))
            assert added == len(bits(signature.sources)) + len(bits(signature.done)) + 1
            open_.append(after)


def test_build_may_be_skipped_only_by_the_last_relation_in_one_role() -> None:
    graph = graph_of(["a.x = b.x"])
    assert may_skip_build(graph, 0, [False, True, True])
    assert may_skip_build(graph, 0, [True, True, True])
    assert not may_skip_build(graph, 0, [False, False, True])
    both = make_graph(make_query({"t": TABLES["a"]}, ["p.x = q.x"], {"p": "t", "q": "t"}))
    assert not may_skip_build(both, 0, [False])
