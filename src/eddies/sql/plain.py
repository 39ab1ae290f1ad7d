"""Which SELECTs are plain: nothing but FROM, joins, WHERE and row-by-row items.

A plain SELECT in FROM (or in WITH) can be merged into the query around it, because each of its rows
depends on nothing but one combination of rows of its FROM.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

__all__ = ["is_known_scalar", "is_plain", "nondeterministic"]

_ROW_BY_ROW = {
    "kind",
    "hint",
    "expressions",
    "from_",
    "joins",
    "where",
    "with_",
    "operation_modifiers",
}
_WHOLE_TABLE = (exp.AggFunc, exp.Window, exp.UDTF, exp.Explode, exp.Inline, exp.Stack, exp.Aliases)
_SCALAR = ("btrim", "isnotnull", "isnull", "weekday")  # known here though not to the parser
_NONDETERMINISTIC = {
    "input_file_name",
    "monotonically_increasing_id",
    "rand",
    "randn",
    "random",
    "randstr",
    "shuffle",
    "spark_partition_id",
    "uniform",
    "uuid",
}


def is_plain(query: exp.Expr, functions: Collection[str] = ()) -> bool:
    """Whether `query` is a plain SELECT.

    Functions the parser does not know may aggregate: only those in `functions` (lower case) are
    trusted.
    """
    if not isinstance(query, exp.Select) or query.args.get("with_"):
        return False
    if any(value and key not in _ROW_BY_ROW for key, value in query.args.items()):
        return False
    for item in query.expressions:
        for node in item.walk():
            if isinstance(node, (*_WHOLE_TABLE, exp.Query)) or nondeterministic(node):
                return False
            if isinstance(node, exp.Anonymous) and not is_known_scalar(node, functions):
                return False
    return True


def is_known_scalar(node: exp.Anonymous, functions: Collection[str]) -> bool:
    """Whether a call that the parser has no class for is known to be row-by-row."""
    return node.name.lower() in (*functions, *_SCALAR)


def nondeterministic(node: exp.Expr) -> bool:
    """Whether `node` itself calls a function whose value differs from call to call."""
    if isinstance(node, exp.Rand | exp.Randn | exp.Uuid):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in _NONDETERMINISTIC
