"""LEFT JOINs at the end of a FROM clause, as questions that an eddy can ask inside a block.

    FROM a JOIN b ON a.k = b.k LEFT JOIN c ON c.j = a.j AND c.y > 3

The block of a and b looks rows of c up, of which only those with `y > 3` count, and pads what has no
match with NULLs (`eddies.core.modules.pad`). Conditions on the left side hold before or after, so they
stay with the block. One that reads c must not be applied before rows are padded: then all stays above.
"""

from __future__ import annotations

from sqlglot import exp

from eddies.sql.ask import Question
from eddies.sql.join_tree import Group, Leaf, Outer, has_subquery, relations

__all__ = ["padding_of"]


def padding_of(group: Group) -> tuple[list[Question], Group] | None:
    """The tables that `group` LEFT JOINs to another group, and that group; None if it does more."""
    found: list[Question] = []
    inner = group
    while not inner.conjuncts and len(inner.items) == 1 and isinstance(inner.items[0], Outer):
        outer = inner.items[0]
        right = outer.right
        item = right.items[0].item if isinstance(right.items[0], Leaf) else None
        if outer.kind != "LEFT" or len(right.items) != 1 or not isinstance(item, exp.Table):
            break
        conditions = (*outer.on, *right.conjuncts)
        found.append(Question(item, conditions, negated=False, null_aware=False, padded=True))
        inner = outer.left
    names = inner.names()
    if not found or inner.nullable or not all(isinstance(item, Leaf) for item in inner.items):
        return None
    if any(map(has_subquery, inner.conjuncts)):
        return None
    for question in found:
        if any(has_subquery(part) for part in question.conditions):
            return None
        read = {name for part in question.conditions for name in relations(part)}
        if not read <= names | {question.item.alias}:
            return None
    return found[::-1], inner
