"""Scalar expressions: what predicates, join keys and projections are made of.

Four node kinds, all frozen facts: a `Column` of a source, a typed `Literal`, a `Cast`, and a `Call`
of a named function. There is no implicit coercion in here: whoever builds an expression (the SQL
front end) inserts every `Cast`, so that the argument types of a `Call` are exactly those its function
accepts. `eddies.core.evaluate` computes expressions on Arrow arrays and knows the functions by name.

Truth is three-valued, as in SQL: comparisons with NULL give NULL, `and`/`or` are Kleene's, and a
predicate keeps a row only when it is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Call", "Cast", "Column", "Expr", "Literal", "columns_of", "conjuncts", "sources_of"]


@dataclass(frozen=True, slots=True)
class Column:
    """Column `name` of source `source` (an alias in FROM, not a table)."""

    source: str
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `value` is a Python value that `pyarrow.scalar(value, type)` accepts, or None."""

    value: object
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Cast:
    """`arg` converted to `type`; with `lenient` a value that does not fit becomes NULL (TRY_CAST)."""

    arg: Expr
    type: pa.DataType
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Function `function` applied to `args`; user functions are named in `Query.functions`."""

    function: str
    args: tuple[Expr, ...]


Expr = Column | Literal | Cast | Call


def columns_of(expr: Expr) -> Iterator[Column]:
    """Every column occurrence in `expr`, left to right, repeats included."""
    match expr:
        case Column():
            yield expr
        case Cast(arg=arg):
            yield from columns_of(arg)
        case Call(args=args):
            for arg in args:
                yield from columns_of(arg)
        case Literal():
            return


def sources_of(expr: Expr) -> frozenset[str]:
    """Names of the sources `expr` reads."""
    return frozenset(column.source for column in columns_of(expr))


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """The parts of a conjunction, left to right: `a and (b and c)` gives a, b, c."""
    if isinstance(expr, Call) and expr.function == "and":
        for arg in expr.args:
            yield from conjuncts(arg)
    else:
        yield expr
