"""CASE, IF, COALESCE, NULLIF. A branch counts only on the rows that reach it.

A branch is first tried on all rows, which is one vectorised call and nearly always right. If it
fails there, or calls a user function, it is evaluated again on the rows that reach it and on no
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.core.functions.comparison import equal
from eddies.core.functions.signature import (
    Argument,
    Function,
    Mask,
    Types,
    Value,
    is_orderable,
    same,
    truth,
)

__all__ = ["FUNCTIONS"]


def _case_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) < 3 or len(types) % 2 == 0:
        return None
    conditions, values = types[:-1:2], [*types[1::2], types[-1]]
    fits = all(map(kinds.is_boolean, conditions)) and len(set(values)) == 1
    return values[0] if fits else None


def _if_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    return _case_rule(types, args) if len(types) == 3 else None


def _same(rows: Mask) -> Mask:
    return rows


def _case(*args: Argument) -> Value:
    n_rows = args[0].n_rows
    left_over: Mask = np.ones(n_rows, np.bool_)
    chosen: list[tuple[Mask, Value]] = []
    for condition, branch in zip(args[:-1:2], args[1::2], strict=True):
        reached = left_over
        holds = reached & truth(condition.where(partial(_same, reached)), n_rows)
        chosen.append((holds, branch.where(partial(_same, holds))))
        left_over = reached & ~holds
    result = args[-1].where(lambda: left_over)
    # The conditions exclude each other, so the order of putting the branches in does not matter.
    for holds, value in chosen:
        result = pc.if_else(pa.array(holds), value, result)
    return result


def _coalesce(*args: Argument) -> Value:
    result = args[0].everywhere()
    for arg in args[1:]:
        if result.is_valid if isinstance(result, pa.Scalar) else result.null_count == 0:
            return result
        missing = truth(pc.is_null(result), arg.n_rows)
        result = pc.coalesce(result, arg.where(partial(_same, missing)))
    return result


def _nullif_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    return same(is_orderable, 2, 2)(types, args)


def _nullif(value: Value, unwanted: Value) -> Value:
    matches = pc.coalesce(equal(value, unwanted), pa.scalar(False))
    return pc.if_else(matches, pa.scalar(None, value.type), value)


def _anything(type_: pa.DataType) -> bool:
    return True


FUNCTIONS = (
    Function(
        "case",
        "(condition, value, condition, value, ..., else) with values of one type",
        _case_rule,
        _case,
        lazy=True,
    ),
    Function("if", "(condition, value, value) with values of one type", _if_rule, _case, lazy=True),
    Function("coalesce", "values of one type", same(_anything), _coalesce, lazy=True),
    Function("nullif", "two values of one type that has an order", _nullif_rule, _nullif),
)
