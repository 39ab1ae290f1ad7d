"""Constants that a query writes as expressions, such as `DATE '1994-01-01' + INTERVAL 1 YEAR`.

They are worked out once, where they would be for every batch. Parts that call user functions, or that
fail, stay as they are: whoever evaluates them reports it, if a row ever gets there.
"""

from __future__ import annotations

import pyarrow as pa

from eddies.core.evaluate import evaluate
from eddies.core.expr import Call, Cast, Column, Expr, Literal, columns_of
from eddies.core.functions import FUNCTIONS
from eddies.errors import EddiesError

__all__ = ["with_constants"]


def with_constants(expr: Expr) -> Expr:
    """`expr` with literals in place of parts that read no column."""
    match expr:
        case Cast(arg=arg, type=type_, lenient=lenient):
            inner: Expr = Cast(with_constants(arg), type_, lenient)
        case Call(function=function, args=args):
            inner = Call(function, tuple(with_constants(arg) for arg in args))
            if function not in FUNCTIONS:
                return inner
        case _:
            return expr
    return inner if any(columns_of(inner)) or _calls_user(inner) else _literal(inner)


def _calls_user(expr: Expr) -> bool:
    match expr:
        case Cast(arg=arg):
            return _calls_user(arg)
        case Call(function=function, args=args):
            return function not in FUNCTIONS or any(_calls_user(arg) for arg in args)
    return False


def _literal(expr: Expr) -> Expr:
    try:
        value = evaluate(expr, _no_column, 1, {})[0]
        found = Literal(value.as_py(), value.type)
        return found if pa.scalar(found.value, found.type).equals(value) else expr
    except (EddiesError, pa.ArrowException, ValueError, OverflowError):
        return expr  # it fails, or Python has no such value


def _no_column(column: Column) -> pa.Array:
    raise AssertionError(column)
