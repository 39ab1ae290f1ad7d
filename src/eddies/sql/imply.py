"""Rule: an OR over several sources implies a condition on each source that every branch restricts.

From `(n1 = 'FRANCE' AND n2 = 'GERMANY') OR (n1 = 'GERMANY' AND n2 = 'FRANCE')` follow
`n1 = 'FRANCE' OR n1 = 'GERMANY'` and the same of n2: conditions on single sources, applied as rows
enter. They are added to the original, never put in its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

__all__ = ["implied"]


def implied(node: exp.Expr) -> Iterator[exp.Expr]:
    """Conditions on one source that hold whenever the disjunction `node` is true."""
    if not isinstance(node, exp.Or):
        return
    branches = [list(_parts(branch)) for branch in node.flatten()]
    if len(_sources(node)) < 2:
        return
    for source in sorted(_sources(node)):
        own = [[part for part in branch if _sources(part) == {source}] for branch in branches]
        if all(own):
            restrictions = (exp.and_(*parts, copy=True) for parts in own)
            yield exp.or_(*restrictions, copy=False)


def _parts(branch: exp.Expr) -> Iterator[exp.Expr]:
    branch = branch.unnest()
    if isinstance(branch, exp.And):
        for part in branch.flatten():
            yield from _parts(part)
    else:
        yield branch


def _sources(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column)}
