"""A condition as a list of conjuncts, after the rewrite rules, in the order they are listed."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from eddies.sql.factor import factor_common
from eddies.sql.fold import fold_constants
from eddies.sql.negation import push_negation

__all__ = ["RULES", "conjuncts"]

RULES: tuple[Callable[[exp.Expr], exp.Expr], ...] = (push_negation, fold_constants, factor_common)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """What must hold, one entry per conjunct; no entry for TRUE."""
    if condition is None:
        return []
    for rule in RULES:
        condition = rule(condition)
    return [part for part in _parts(condition) if not (isinstance(part, exp.Boolean) and part.this)]


def _parts(condition: exp.Expr) -> list[exp.Expr]:
    """The conjuncts of a condition, also of those in parentheses."""
    inner = condition.unnest()
    if not isinstance(inner, exp.And):
        return [inner]
    return [part for side in inner.flatten() for part in _parts(side)]
