"""EXISTS, NOT EXISTS, IN and NOT IN over one table, as questions that an eddy can ask it.

    EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.x <> a.x AND b.y > 3)

A row of a stays if b, of which only rows with `y > 3` count, has a row with the same k and another x.
`a.k IN (SELECT b.k FROM b WHERE ...)` is the same question, and `NOT IN` the opposite one, with SQL's
view of NULL (`eddies.core.query.Exists`). The subquery must be a plain SELECT from one table, and equal
to the rows around it in at least one column.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlglot import exp

from eddies.sql.join_tree import has_subquery
from eddies.sql.normalise import conjuncts
from eddies.sql.plain import is_plain, nondeterministic
from eddies.sql.references import outer_references

__all__ = ["Question", "question_of"]


@dataclass(frozen=True, slots=True)
class Question:
    """Whether the table `item` has a row that fulfils all `conditions`; `null_aware`: NOT IN; `padded`:
    LEFT JOIN, and the question is which rows.
    """

    item: exp.Table
    conditions: tuple[exp.Expr, ...]
    negated: bool
    null_aware: bool
    padded: bool = False


def question_of(condition: exp.Expr, functions: Collection[str] = ()) -> Question | None:
    """`condition` as a question, None if it is none. `functions` are the user's own, lower case."""
    negated = isinstance(condition, exp.Not)
    inner = condition.this.unnest() if negated else condition
    sought: exp.Expr | None = None
    if isinstance(inner, exp.Exists):
        select = inner.this.unnest()
    elif isinstance(inner, exp.In) and isinstance(inner.args.get("query"), exp.Expr):
        select, sought = inner.args["query"].unnest(), inner.this
        if has_subquery(sought):
            return None
    else:
        return None
    if not is_plain(_without_items(select, sought), functions) or select.args.get("joins"):
        return None
    item = select.args["from_"].this if select.args.get("from_") is not None else None
    where = select.args.get("where")
    conditions = conjuncts(where.this) if where is not None else []
    if not isinstance(item, exp.Table) or any(has_subquery(part) for part in conditions):
        return None
    if any(nondeterministic(node) for node in select.walk()):
        return None
    if sought is not None:
        if len(select.expressions) != 1 or (negated and outer_references(select)):
            return None
        value = select.expressions[0].unalias()
        conditions.append(exp.EQ(this=sought.copy(), expression=value.copy()))
    return Question(item, tuple(conditions), negated, negated and sought is not None)


def _without_items(select: exp.Expr, sought: exp.Expr | None) -> exp.Expr:
    """`select` as far as it matters: EXISTS does not look at the items, and nobody at DISTINCT."""
    if not isinstance(select, exp.Select):
        return select
    select = select.copy()
    select.set("distinct", None)
    if sought is None and all(_is_row_by_row(item) for item in select.expressions):
        select.set("expressions", [exp.alias_(exp.Literal.number(1), "one")])
    return select


def _is_row_by_row(item: exp.Expr) -> bool:
    """Whether an item gives one value for each row, whatever it is: a column, a star, a constant."""
    value = item.unalias()
    return isinstance(value, exp.Column | exp.Star | exp.Literal | exp.Null | exp.Boolean)
