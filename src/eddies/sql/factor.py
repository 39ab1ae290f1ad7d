"""Rule: what every branch of an OR demands is demanded once, outside.

`(a = b AND x) OR (a = b AND y)` becomes `a = b AND (x OR y)`: the join condition of TPC-H Q19 is
only visible after this. Equal in three-valued logic, where AND distributes over OR too.
"""

from __future__ import annotations

from sqlglot import exp

__all__ = ["factor_common"]


def factor_common(node: exp.Expr) -> exp.Expr:
    """`node` with the common conjuncts of every OR pulled out."""
    if isinstance(node, exp.Paren):
        return factor_common(node.this)
    if isinstance(node, exp.And):
        return exp.and_(*(factor_common(part) for part in node.flatten()), copy=False)
    if not isinstance(node, exp.Or):
        return node
    branches = [_parts(factor_common(branch)) for branch in node.flatten()]
    shared = [part for part in branches[0] if all(part in other for other in branches[1:])]
    if not shared:
        return node
    rests = [[part for part in branch if part not in shared] for branch in branches]
    if not all(rests):
        return exp.and_(*shared, copy=False)  # one branch asks for nothing more
    either = exp.or_(*(exp.and_(*rest, copy=False) for rest in rests), copy=False)
    return exp.and_(*shared, either, copy=False)


def _parts(branch: exp.Expr) -> list[exp.Expr]:
    return [part.unnest() for part in branch.flatten()] if isinstance(branch, exp.And) else [branch]
