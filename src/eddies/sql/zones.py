"""Which expressions depend on the session's time zone.

The evaluator computes with instants as UTC does. Spark shows and takes apart a TIMESTAMP in the
zone of its session: the hour of an instant, the day it falls on, the text of it and the instant
that a text or a date stands for are different things in different zones. In a session that is not
in UTC such expressions run above. Comparing instants, or choosing among them, needs no zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from eddies.core.evaluate import type_of
from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.query import UserFunction

__all__ = ["needs_zone"]

_ZONE_FREE = {
    *("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq", "in_list", "is_null", "is_not_null"),
    *("case", "if", "coalesce", "nullif", "greatest", "least"),
}


def needs_zone(
    expr: Expr,
    column_type: Callable[[Column], pa.DataType],
    functions: Mapping[str, UserFunction],
) -> bool:
    """Whether the value of `expr` itself (not of its parts) depends on the session's zone."""
    match expr:
        case Literal(value=value, type=type):
            return value is not None and _is_instant(type)
        case Cast(arg=arg, type=type):
            return _is_instant(type) != _is_instant(type_of(arg, column_type, functions))
        case Call(function=name, args=args) if name not in _ZONE_FREE:
            return any(_is_instant(type_of(arg, column_type, functions)) for arg in args)
    return False


def _is_instant(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type)) and type.tz is not None
