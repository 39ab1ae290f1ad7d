"""Three-valued logic. The sides of `and` and `or` are taken left to right.

A side is not asked about rows that the sides before it have decided (false for `and`, true for
`or`), if asking would fail: `b <> 0 and a / b > 2` never divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.functions.signature import (
    Argument,
    Function,
    Kernel,
    Mask,
    Value,
    fixed,
    same,
    truth,
)

__all__ = ["FUNCTIONS"]


def _connective(combine: Callable[[Value, Value], Value], decided_by: bool) -> Kernel:
    def kernel(*args: Argument) -> Value:
        so_far = args[0].everywhere()
        for arg in args[1:]:
            if isinstance(so_far, pa.Scalar) and so_far.as_py() is decided_by:
                return so_far
            so_far = combine(so_far, arg.where(_undecided(so_far, arg.n_rows, decided_by)))
        return so_far

    return kernel


def _undecided(value: Value, n_rows: int, decided_by: bool) -> Callable[[], Mask]:
    def rows() -> Mask:
        return ~truth(value if decided_by else pc.invert(value), n_rows)

    return rows


_MANY = "two or more booleans"
_TWO = fixed(pa.bool_(), kinds.is_boolean, kinds.is_boolean)

FUNCTIONS = (
    Function("and", _MANY, same(kinds.is_boolean, 2), _connective(pc.and_kleene, False), lazy=True),
    Function("or", _MANY, same(kinds.is_boolean, 2), _connective(pc.or_kleene, True), lazy=True),
    Function("not", "a boolean", fixed(pa.bool_(), kinds.is_boolean), pc.invert),
    Function("xor", "two booleans", _TWO, pc.xor),
)
