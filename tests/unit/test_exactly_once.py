"""The stamp rule by itself: of the parts of a result, exactly one may find all the others."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

from eddies.core.exactly_once import NO_LIMIT, EarlierOnly, NoRule
from eddies.core.graph import Graph, make_graph
from tests.support.small import make_query

TABLE = pa.table({"x": pa.array([], pa.int64())})


def graph_of(*tables: str) -> Graph:
    roles = {f"r{i}": table for i, table in enumerate(tables)}
    return make_graph(make_query(dict.fromkeys(tables, TABLE), roles=roles))


def test_a_driver_sees_what_was_stored_before_it() -> None:
    graph = graph_of("a", "b", "c")
    assert EarlierOnly().limits(graph, 1, [5, 7, 9], [5, 8, 9]) == (5, 7, 9)


def test_own_rows_are_seen_in_higher_roles_only() -> None:
    graph = graph_of("t", "t", "t")
    assert EarlierOnly().limits(graph, 0, [4], [6]) == (4, 6, 6)
    assert EarlierOnly().limits(graph, 1, [4], [6]) == (4, 4, 6)
    assert EarlierOnly().limits(graph, 2, [4], [6]) == (4, 4, 4)


def test_no_rule_sets_no_limit() -> None:
    assert NoRule().limits(graph_of("a", "b"), 0, [1, 1], [2, 1]) == (NO_LIMIT, NO_LIMIT)


@pytest.mark.parametrize(
    "tables", [("a", "b"), ("a", "b", "c"), ("t", "t"), ("t", "t", "t"), ("t", "u", "t", "u")]
)
def test_every_combination_of_rows_has_exactly_one_driver(tables: tuple[str, ...]) -> None:
    """By counting, over random batches: for all rows of all roles, one driver and no other."""
    graph = graph_of(*tables)
    rng = random.Random(1)
    n_relations = len(graph.relations)
    lengths = [0] * n_relations
    drivers = []  # (role, first row, stop row, limits)
    for _ in range(5):
        relation = rng.randrange(n_relations)
        before = list(lengths)
        lengths[relation] += rng.randint(1, 2)
        for role in graph.relations[relation].roles:
            limits = EarlierOnly().limits(graph, role, before, lengths)
            drivers.append((role, before[relation], lengths[relation], limits))
    ranges = [range(lengths[role.relation]) for role in graph.roles]
    for rows in itertools.product(*ranges):
        n_found = 0
        for role, first, stop, limits in drivers:
            if first <= rows[role] < stop:
                others = [i for i in range(len(rows)) if i != role]
                n_found += all(rows[i] < limits[i] for i in others)
        assert n_found == 1, rows
