"""Cells for several queries over the same relations (`eddies.core.sharing`).

A relation is delivered once, so it is divided in one way for all queries. Results of a query would be
found in every cell if none of its relations were divided. So the cells have one dimension, and it must
divide every query: either the rows of a relation that each query reads exactly once, or a key class of
each query, chosen so that as many rows as possible are hashed. A relation is hashed if all its roles
are in the class of their query by the same column; else it is replicated, which is always right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eddies.core.graph import Graph, KeyClass
from eddies.core.lineage import bits
from eddies.spark.cells import CellPlan, RelationSize, box

__all__ = ["plan_shared_cells"]

Hashed = dict[str, str]  # relations with the columns by which they are hashed


def plan_shared_cells(
    graph: Graph, sizes: Mapping[str, RelationSize], n_slots: int, n_cells: int | None = None
) -> CellPlan:
    """The cheapest division into `n_cells` cells (one for each slot if that is None); one cell if no
    division suits all queries.
    """
    names = [relation.name for relation in graph.relations]
    largest = max(names, key=lambda name: sizes[name].rows)
    n_wanted = n_cells or n_slots
    nothing: dict[str, dict[int, str]] = {name: {} for name in names}
    whole = box(names, sizes, nothing, (1, 1), None, largest, n_slots)
    divided = [
        box(names, sizes, nothing, (n_wanted, 1), split, largest, n_slots)
        for split in _splittable(graph)
        if n_wanted > 1
    ]
    for hashed in _hashings(graph, sizes) if n_wanted > 1 else ():
        hashable = {name: {0: hashed[name]} if name in hashed else {} for name in names}
        divided.append(box(names, sizes, hashable, (1, n_wanted), None, largest, n_slots))
    if not divided:
        return whole
    best = min(divided, key=lambda plan: plan.ns)
    return best if n_cells is not None or best.ns < whole.ns else whole


def _splittable(graph: Graph) -> Iterator[str]:
    """Relations that every query reads exactly once."""
    for relation in graph.relations:
        roles = sum(1 << role for role in relation.roles)
        if all((part.sources & roles).bit_count() == 1 for part in graph.parts if part.sources):
            yield relation.name


def _hashings(graph: Graph, sizes: Mapping[str, RelationSize]) -> Iterator[Hashed]:
    """Ways to hash that divide every query: one for each column to begin with."""
    parts = [part.sources for part in graph.parts if part.sources]
    classes = {part: [c for c in graph.classes if c.mask & part] for part in parts}
    for first in graph.classes:
        chosen = {part: first for part in parts if first.mask & part}
        for part in sorted(parts, key=lambda part: -_n_rows(graph, sizes, part)):
            if part not in chosen and classes[part]:
                chosen[part] = max(
                    classes[part],
                    key=lambda c: _agreement(graph, sizes, [*chosen.values(), c]),
                )
        hashed = _hashed(graph, list(chosen.values()))
        if all(_divides(graph, hashed, part) for part in parts):
            yield hashed


def _agreement(graph: Graph, sizes: Mapping[str, RelationSize], classes: list[KeyClass]) -> int:
    """How many rows are hashed if these classes are chosen, as far as their queries are concerned."""
    return sum(sizes[name].rows for name in _hashed(graph, classes, partly=True))


def _hashed(graph: Graph, classes: list[KeyClass], partly: bool = False) -> Hashed:
    """The relations whose roles are all in one of `classes`, by the same column. With `partly`, roles
    of queries that have no class yet do not count.
    """
    known = sum(part.sources for part in graph.parts if any(c.mask & part.sources for c in classes))
    found: Hashed = {}
    for relation in graph.relations:
        roles = [role for role in relation.roles if known >> role & 1 or not partly]
        columns = {
            next((c.column_by_source[r] for c in classes if r in c.column_by_source), None)
            for r in roles
        }
        column = columns.pop() if len(columns) == 1 else None
        if column is not None and column in relation.read.names:
            found[relation.name] = column
    return found


def _divides(graph: Graph, hashed: Hashed, part: int) -> bool:
    return any(graph.relation_of(role).name in hashed for role in bits(part))


def _n_rows(graph: Graph, sizes: Mapping[str, RelationSize], part: int) -> int:
    return sum(sizes[graph.relation_of(role).name].rows for role in bits(part))
