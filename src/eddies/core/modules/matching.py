"""What matches a tuple where a whole source is asked: shared by semi-joins, anti-joins and LEFT JOIN.

Their probes differ from those of an inner join in where the terms come from: not from all predicates
between the batch and the source, but from one subquery or ON alone, which an `ExistsPlan` describes.
And they must know which rows of the batch a match belongs to, for rows without any count too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import keep
from eddies.core.expr import Expr
from eddies.core.graph import ExistsPlan, Graph
from eddies.core.modules.stem import KeyPart
from eddies.core.query import UserFunction
from eddies.core.route import Route

__all__ = ["key_parts_of", "passing", "wanted_of"]


def wanted_of(graph: Graph, number: int) -> ExistsPlan:
    """Which rows optional predicate `number` looks for; it must be one that asks a source."""
    plan = graph.optionals[number].exists
    assert plan is not None
    return plan


def key_parts_of(plan: ExistsPlan) -> list[KeyPart]:
    """The composite key by which a SteM is probed for these rows."""
    return [KeyPart(inner, source, outer) for source, outer, inner in plan.keys]


def passing(
    filters: Sequence[Expr],
    joined: RoutedBatch,
    positions: Ids,
    to: Route,
    functions: Mapping[str, UserFunction],
) -> tuple[RoutedBatch, Ids]:
    """The matches in `joined` that pass all filters, and the rows of the batch they belong to."""
    for predicate in filters:
        if joined.n_rows == 0:
            break
        kept = keep(predicate, joined.column, joined.n_rows, functions)
        if kept is not None:
            joined, positions = joined.kept(to, kept), positions[kept]
    return joined, positions
