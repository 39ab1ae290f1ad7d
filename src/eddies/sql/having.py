"""HAVING as a condition on the groups that a block gives out.

Merging comes after the block, and HAVING after merging: a part of a group says nothing about the
group. But where one cell sees all rows of a group, what the cell gives out is the group, merging
changes nothing, and groups that HAVING refuses need not leave the cell:

    HAVING CAST(SUM(b.__sum_1) AS DECIMAL(25, 2)) > 300   ->   CAST(b.__sum_1 AS ...) > 300

for the sum of one number is that number, and so are the least and the greatest. Only the host knows
which cells see whole groups (`eddies.spark.block`), so the condition is told beside the query. The
text above keeps its HAVING: it has less to do, and nothing depends on groups being left out.
"""

from __future__ import annotations

from sqlglot import exp

from eddies.core.expr import Call, Expr
from eddies.core.query import Aggregation
from eddies.sql.lower import Lowering
from eddies.sql.normalise import conjuncts
from eddies.sql.settings import Settings
from eddies.sql.typed import CannotLower

__all__ = ["condition_on_groups", "of_one_row"]


def condition_on_groups(
    select: exp.Select, block: str, aggregation: Aggregation, settings: Settings
) -> Expr | None:
    """What of HAVING of `select`, over partial rows of `block`, can be asked of whole groups as they
    leave it; None if nothing can.
    """
    having = select.args.get("having")
    if having is None or not aggregation.groups:
        return None
    columns = {group.name: group.type for group in aggregation.groups}
    columns |= {aggregate.name: aggregate.type for aggregate in aggregation.aggregates}
    lowering = Lowering({block: columns}, (), settings)
    found: list[Expr] = []
    for part in conjuncts(having.this.copy()):
        try:
            found.append(lowering.predicate(part.transform(of_one_row, copy=False)))
        except CannotLower:
            continue
    return found[0] if len(found) == 1 else Call("and", tuple(found)) if found else None


def of_one_row(node: exp.Expr) -> exp.Expr:
    """The sum, the least or the greatest of one number."""
    merges = isinstance(node, exp.Sum | exp.Min | exp.Max) and not node.expressions
    return node.this if merges and isinstance(node.this, exp.Column) else node
