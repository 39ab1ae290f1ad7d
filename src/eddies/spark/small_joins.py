"""A join that is not worth more than one cell.

The cells' partial aggregates are merged above, and what two cells put out has to be exchanged for
that: a second stage, which takes Spark longer than a small join takes altogether. The output of one
cell is one partition, over which Spark merges in the same task.

How much work a join is, its inputs do not tell: a million rows may meet in a billion pairs, and an
average of matches says nothing of a hub. One thing is certain, that there are no more tuples than the
Cartesian product of all sources has. So one cell does a join only if it costs less than merging saves
even in that case. Such joins are small: two tables of 500 rows, or 50 thousand rows with five others.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from eddies.core.graph import Graph
from eddies.spark.cells import CellPlan, RelationSize, plan_cells

__all__ = ["without_merge"]

# What a second stage adds to a query, measured on a warm local Spark: 60 to 120 ms.
_MERGE_NS = 50e6
# A tuple is made, probes, and is checked by some function of texts.
_TUPLE_NS = 100.0


def without_merge(graph: Graph, sizes: Mapping[str, RelationSize], cells: CellPlan) -> CellPlan:
    """One cell instead of `cells`, if its output would be merged and the work is surely little."""
    query = graph.query
    if cells.n_cells == 1 or query.aggregation is None or query.functions:
        return cells
    if any(delivery.how != "direct" for delivery in cells.deliveries.values()):
        return cells  # exchanged rows have a second stage anyway
    if any(size.n_rows is None or not size.is_divisible for size in sizes.values()):
        return cells
    one = plan_cells(graph, sizes, 1)
    return one if one.ns + _most_tuples(graph, sizes) * _TUPLE_NS <= cells.ns + _MERGE_NS else cells


def _most_tuples(graph: Graph, sizes: Mapping[str, RelationSize]) -> int:
    """Tuples that there can be in an eddy, results and all on the way to them, whatever the order."""
    n_rows = [max(sizes[graph.relations[role.relation].name].rows, 1) for role in graph.roles]
    return len(n_rows) * prod(n_rows)
