"""What of a SELECT a block can compute besides the join: items, group keys, aggregate arguments.

Only whole expressions are taken, never a part of one: a part may sit behind a CASE or an IF that
keeps it from being evaluated on rows where it fails. For the same reason nothing is taken when
conditions above still remove rows, or from an aggregate with a FILTER.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from eddies.sql.block import Draft
from eddies.sql.join_tree import has_subquery

__all__ = ["aggregates_in", "capture_expressions", "is_grouped", "why_above"]

_WORDS = {
    "distinct": "DISTINCT",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "qualify": "QUALIFY",
    "laterals": "LATERAL VIEW",
}
_CLAUSES = ("having", "order", "sort", "cluster", "distribute", "qualify")


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregate calls of `node` itself: not those of subqueries, nor window functions."""
    if isinstance(node, exp.Query | exp.Window):
        return
    if isinstance(node, exp.AggFunc):
        yield node
        return
    for part in node.iter_expressions():
        yield from aggregates_in(part)


def is_grouped(select: exp.Select) -> bool:
    """Whether `select` gives one row per group. Functions unknown to the parser may aggregate."""
    if select.args.get("group") or select.args.get("having"):
        return True
    for item in select.expressions:
        if any(True for _ in aggregates_in(item)) or item.find(exp.Anonymous):
            return True
    return False


def why_above(select: exp.Select) -> Iterator[str]:
    """What of `select` no block computes, in words."""
    if is_grouped(select):
        yield "aggregation runs above"
    for key, word in _WORDS.items():
        if select.args.get(key):
            yield f"{word} runs above"
    if any(item.find(exp.Window) for item in select.expressions):
        yield "window functions run above"


def capture_expressions(select: exp.Select, draft: Draft) -> None:
    """Replace what `draft` can compute in the clauses of `select` by the block's columns."""
    if not is_grouped(select):
        for item in select.expressions:
            _capture_whole(item, draft, item.alias)
        order = select.args.get("order")
        for key in order.expressions if order is not None else ():
            _capture_whole(key, draft, "sort_key")
        return
    _capture_keys(select, draft)
    clauses = [select.args[name] for name in _CLAUSES if select.args.get(name)]
    for clause in (*select.expressions, *clauses):
        for aggregate in list(aggregates_in(clause)):
            if isinstance(aggregate.parent, exp.Filter):
                continue
            _capture_whole(aggregate, draft, "argument")


def _capture_whole(holder: exp.Expr, draft: Draft, wanted: str) -> None:
    """Replace the operand of `holder` (alias, sort key or aggregate) when it is computable."""
    value = holder.this
    if not isinstance(value, exp.Expr) or isinstance(value, exp.Column) or has_subquery(value):
        return
    if (output := draft.capture(value, wanted)) is not None:
        holder.set("this", output)


def _capture_keys(select: exp.Select, draft: Draft) -> None:
    group = select.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return
    for position, key in enumerate(group.expressions):
        if isinstance(key, exp.Column) or has_subquery(key):
            continue
        output = draft.capture(key, f"key_{position + 1}")
        if output is None:
            continue
        clauses = [select.args[name] for name in _CLAUSES if select.args.get(name)]
        for clause in (*select.expressions, *clauses, group):
            clause.transform(_replacing(key.unnest().copy(), output), copy=False)


class _replacing:
    """A transformation: nodes equal to `old`, parentheses aside, become `new`."""

    def __init__(self, old: exp.Expr, new: exp.Column) -> None:
        self._old = old
        self._new = new

    def __call__(self, node: exp.Expr) -> exp.Expr:
        return self._new.copy() if node.unnest() == self._old else node
