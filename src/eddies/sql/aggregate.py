"""Aggregation in the block: `SELECT groups, aggregates FROM ... GROUP BY groups`, no more.

Taken when the SELECT list is the group keys (all of them, in any order) followed by plain `count`,
`sum`, `min` or `max` calls. Anything else - avg, DISTINCT, FILTER, expressions over aggregates,
HAVING, ORDER BY - aggregates above.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Expr
from eddies.core.query import Aggregate, Aggregation, Output
from eddies.sql.block import Draft
from eddies.sql.coerce import sum_type
from eddies.sql.typed import CannotLower, Typed

__all__ = ["aggregation_of"]

_ALLOWED = {
    "kind",
    "hint",
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "operation_modifiers",
}
_KEPT_TYPE: dict[type[exp.Expr], str] = {exp.Min: "min", exp.Max: "max"}


def aggregation_of(select: exp.Select, draft: Draft) -> Aggregation | None:
    """The aggregation that answers `select` over the rows of `draft`, or None."""
    if any(value and key not in _ALLOWED for key, value in select.args.items()):
        return None
    group = select.args.get("group")
    if group is not None and any(v for k, v in group.args.items() if k != "expressions"):
        return None
    keys = [key.unnest() for key in group.expressions] if group is not None else []
    groups: list[Output] = []
    aggregates: list[Aggregate] = []
    try:
        for item in select.expressions:
            if item.this.unnest() in keys and not aggregates:
                typed = draft.lowering.lower(item.this)
                groups.append(Output(item.alias, typed.expr, typed.type))
            else:
                aggregates.append(_aggregate(item.alias, item.this.unnest(), draft))
        expected = {draft.lowering.lower(key).expr for key in keys}
    except CannotLower:
        return None
    found = [group.expr for group in groups]
    if not aggregates or len(found) != len(set(found)) or set(found) != expected:
        return None
    return Aggregation(tuple(groups), tuple(aggregates))


def _aggregate(name: str, node: exp.Expr, draft: Draft) -> Aggregate:
    if isinstance(node, exp.Count) and not node.expressions:
        if isinstance(node.this, exp.Star | exp.Literal):
            return Aggregate(name, "count_star", None, pa.int64())
        return Aggregate(name, "count", _argument(node, draft).expr, pa.int64())
    if isinstance(node, exp.Sum):
        argument = _argument(node, draft)
        total = sum_type(argument.type)
        if total is None:
            raise CannotLower("sum over this type runs above")
        wide: Expr = argument.expr
        if not pa.types.is_decimal(argument.type):
            wide = draft.lowering.cast(argument, total)
        return Aggregate(name, "sum", wide, total)
    if type(node) in _KEPT_TYPE and not node.expressions:
        argument = _argument(node, draft)
        if pa.types.is_nested(argument.type) or pa.types.is_null(argument.type):
            raise CannotLower("min and max over this type run above")
        function = "min" if isinstance(node, exp.Min) else "max"
        return Aggregate(name, "min" if function == "min" else "max", argument.expr, argument.type)
    raise CannotLower("not a plain aggregate")


def _argument(node: exp.Expr, draft: Draft) -> Typed:
    if isinstance(node.this, exp.Distinct):
        raise CannotLower("DISTINCT aggregates run above")
    return draft.lowering.lower(node.this)
