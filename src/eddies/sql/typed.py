"""What lowering passes around: a typed expression, and the way to say "this runs above"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Expr, Literal

__all__ = ["CannotLower", "Lowers", "Typed"]


class CannotLower(Exception):
    """The evaluator has no such expression; it runs above. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression and the type of its values."""

    expr: Expr
    type: pa.DataType

    @property
    def value(self) -> object:
        """The value when it is a constant, else None."""
        return self.expr.value if isinstance(self.expr, Literal) else None


class Lowers(Protocol):
    """What a function rule may ask for: operands lowered, cast, or brought to one type."""

    def lower(self, node: exp.Expr) -> Typed:
        """`node` as a typed expression, or `CannotLower`."""
        ...

    def cast(self, typed: Typed, target: pa.DataType) -> Expr:
        """`typed` as a value of `target`, or `CannotLower`."""
        ...

    def alike(self, nodes: Sequence[exp.Expr], where: str) -> tuple[list[Expr], pa.DataType]:
        """`nodes` brought to their common type."""
        ...

    def compare(self, function: str, left: exp.Expr, right: exp.Expr) -> Expr:
        """`left` compared with `right` after both are brought to their common type."""
        ...
