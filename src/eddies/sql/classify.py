"""Conjuncts by what the engine can do with them: `Selection`, `Equality` or `Filter`.

* Over one source: a selection.
* `l = r`, each side over one source, two different sources, a type that can be hashed: an equality.
* Everything else: a filter. `<=>` is one, because NULL keys are not in hash indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from eddies.core.expr import Call, Cast, Expr, sources_of
from eddies.core.query import Equality, Filter, Selection, UserFunction
from eddies.sql.types import is_hashable

__all__ = ["classify"]


def classify(
    conditions: Iterable[Expr],
    compared: Mapping[Expr, pa.DataType],
    functions: Iterable[UserFunction],
) -> tuple[tuple[Selection, ...], tuple[Equality, ...], tuple[Filter, ...]]:
    """`conditions` (each over at least one source) by kind; `compared` types the equalities.

    A condition with an expensive user function is an expensive module of its kind.
    """
    selections: dict[Selection, None] = {}
    equalities: dict[Equality, None] = {}
    filters: dict[Filter, None] = {}
    expensive_names = {function.name for function in functions if function.expensive}
    for condition in conditions:
        expensive = not expensive_names.isdisjoint(_called(condition))
        if len(sources_of(condition)) == 1:
            selections[Selection(condition, expensive)] = None
        elif (equality := _equality(condition, compared)) is not None:
            equalities[equality] = None
        else:
            filters[Filter(condition, expensive)] = None
    return tuple(selections), tuple(equalities), tuple(filters)


def _equality(condition: Expr, compared: Mapping[Expr, pa.DataType]) -> Equality | None:
    if not isinstance(condition, Call) or condition.function != "eq":
        return None
    left, right = condition.args
    sides = sources_of(left), sources_of(right)
    if any(len(side) != 1 for side in sides) or sides[0] == sides[1]:
        return None
    type = compared[condition]
    return Equality(left, right, type) if is_hashable(type) else None


def _called(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Call):
        yield expr.function
        for arg in expr.args:
            yield from _called(arg)
    elif isinstance(expr, Cast):
        yield from _called(expr.arg)
