"""Blocks whose only cell gives the answer itself.

A cell that is alone and reads everything itself has all rows of every group. If the text above is
nothing but those groups, selected, sorted and cut off (`eddies.sql.answer`), its task does that, too:
then there is nothing for Spark to plan, compile and run above the eddy, which takes it as long as
many a small join.

The task holds all groups at once, where merging in Spark would spill. How many there are nobody knows
before, but not more than rows of the tables that have the keys: so it must not be possible that there
are many more groups than the cell would hold anyway, be it in parts or as rows of a table.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from eddies.core.expr import Column, columns_of
from eddies.core.graph import Graph, make_graph
from eddies.core.options import Options
from eddies.spark.block import BlockPlan
from eddies.spark.gathering import most_values
from eddies.sql import Block

__all__ = ["answered"]

_MANY_GROUPS = 4_000_000  # with a key and a sum half a gigabyte


def answered(planned: BlockPlan, block: Block, options: Options) -> BlockPlan:
    """`planned` with the answer of `block`, if its only cell can give it."""
    aggregation = planned.query.aggregation
    if aggregation is None or block.answer is None or not _has_whole_groups(planned):
        return planned
    if options.partial or planned.prefer is not None:  # then groups come out as they are so far
        return planned
    if aggregation.groups:
        n_rows = sum(size.rows for size in planned.sizes.values())
        if options.memory is not None or _most_groups(planned) > max(_MANY_GROUPS, n_rows):
            return planned
    query = replace(planned.query, aggregation=replace(aggregation, partial=False))
    return replace(planned, query=query, graph=make_graph(query), answer=block.answer)


def _has_whole_groups(planned: BlockPlan) -> bool:
    """Whether one cell has all rows of the join, and puts out all groups at the end."""
    deliveries = planned.cells.deliveries.values()
    is_alone = planned.cells.n_cells == 1 and all(d.how == "direct" for d in deliveries)
    return is_alone and not planned.is_streaming and not planned.is_gathered


def _most_groups(planned: BlockPlan) -> float:
    """As many groups as there can be: of each table that is needed to have all keys, as many as it has
    rows or different keys, whichever is less.
    """
    graph, aggregation = planned.graph, planned.query.aggregation
    assert aggregation is not None
    keys = dict.fromkeys(c for group in aggregation.groups for c in columns_of(group.expr))
    found: dict[int, list[str]] = {}  # by source: the keys that are taken from it
    left = [(key, _places(graph, key)) for key in keys]
    for _, places in sorted(left, key=lambda item: len(item[1])):
        known = next((source for source in places if source in found), None)
        source = min(places, key=lambda s: _rows(planned, s)) if known is None else known
        found.setdefault(source, []).append(places[source])
    return prod(_most_of(planned, source, names) for source, names in found.items())


def _places(graph: Graph, key: Column) -> dict[int, str]:
    """The columns that are equal to a key in every result, by source."""
    own = graph.query.source_id(key.source)
    for key_class in graph.classes:
        if key_class.column_by_source.get(own) == key.name:
            return dict(key_class.column_by_source)
    return {own: key.name}


def _rows(planned: BlockPlan, source: int) -> float:
    size = planned.sizes[planned.graph.relation_of(source).name]
    return float("inf") if size.n_rows is None else size.n_rows


def _most_of(planned: BlockPlan, source: int, names: list[str]) -> float:
    splits = planned.splits.get(planned.graph.relation_of(source).name, ())
    return min(_rows(planned, source) + 1, prod(most_values(splits, name) for name in names))
