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
    parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
    found = [part.unnest() for part in parts]
    return [part for part in found if not (isinstance(part, exp.Boolean) and part.this)]
