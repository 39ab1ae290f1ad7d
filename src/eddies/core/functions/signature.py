"""What a function is: a name, a rule for the type of its result, and a kernel.

A *value* is an Arrow array (one entry per row) or an Arrow scalar (the same for all rows). Kernels
take and return values, and keep scalars scalar: a constant is spread over the rows only at the very
end, or where Arrow has no kernel that takes one (`spread`).

A kernel that meets a value it cannot compute raises `Refusal`; `eddies.core.evaluate` adds the
text of the expression and raises `EvaluationError`. A lazy function receives `Argument`s instead
of values and asks each for its value on the rows that need it, so that `if(b <> 0, a / b, 0)` does
not divide by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.expr import Expr, Literal
from eddies.errors import TypeMismatchError

__all__ = [
    "Argument",
    "Function",
    "Kernel",
    "Mask",
    "Refusal",
    "Rule",
    "TypeTest",
    "Value",
    "arrays",
    "fixed",
    "is_number",
    "is_orderable",
    "is_text",
    "is_timestamp",
    "literal_of",
    "mapped",
    "same",
    "spread",
    "truth",
]

Value = Any  # a pyarrow Array or Scalar; pyarrow has no types
Mask = npt.NDArray[np.bool_]
Types = Sequence[pa.DataType]
Rule = Callable[[Types, Sequence[Expr]], pa.DataType | None]
Kernel = Callable[..., Value]
TypeTest = Callable[[pa.DataType], bool]


class Refusal(Exception):
    """A kernel cannot compute a value. The text says why and, where cheap, for which value."""


class Argument(Protocol):
    """An argument of a lazy function, not evaluated yet."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    def everywhere(self) -> Value:
        """The value on all rows."""

    def where(self, rows: Callable[[], Mask]) -> Value:
        """A value that is right on the rows `rows()` marks and arbitrary elsewhere.

        `rows` is called only if the argument fails on some row, or is too costly to try.
        """


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of the registry.

    `result(types, args)` is the type of a call, or None when it does not take arguments of these
    types. `kernel` takes one value per argument (`Argument`s when `lazy`). `accepts` is what an
    error message shows.
    """

    name: str
    accepts: str
    result: Rule
    kernel: Kernel
    lazy: bool = False


def is_number(type_: pa.DataType) -> bool:
    """int8..int64, float32, float64 or decimal128."""
    return bool(
        kinds.is_signed_integer(type_)
        or kinds.is_float32(type_)
        or kinds.is_float64(type_)
        or kinds.is_decimal128(type_)
    )


def is_timestamp(type_: pa.DataType) -> bool:
    """Spark's TIMESTAMP (UTC) or TIMESTAMP_NTZ."""
    return bool(kinds.is_timestamp(type_)) and type_.unit == "us" and type_.tz in (None, "UTC")


def is_text(type_: pa.DataType) -> bool:
    """string; large_string and string_view are tolerated where Arrow's kernels take them."""
    return bool(kinds.is_string(type_) or kinds.is_large_string(type_))


def is_orderable(type_: pa.DataType) -> bool:
    """Types with a total order: everything a comparison takes."""
    return bool(
        is_number(type_)
        or is_text(type_)
        or is_timestamp(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_boolean(type_)
        or kinds.is_date32(type_)
        or (kinds.is_duration(type_) and type_.unit == "us")
    )


def same(test: TypeTest, n_least: int = 1, n_most: int | None = None) -> Rule:
    """Rule: `n_least` to `n_most` arguments (None: any number) of one type, the result's."""

    def rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
        fits = len(types) >= n_least and (n_most is None or len(types) <= n_most)
        return types[0] if fits and test(types[0]) and len(set(types)) == 1 else None

    return rule


def fixed(returns: pa.DataType, *tests: TypeTest, n_optional: int = 0) -> Rule:
    """Rule: one test per argument, the last `n_optional` arguments may be absent."""

    def rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
        if not len(tests) - n_optional <= len(types) <= len(tests):
            return None
        return returns if all(map(lambda test, type_: test(type_), tests, types)) else None

    return rule


def literal_of(arg: Expr, what: str) -> object:
    """The value of a literal argument; anything else is a `TypeMismatchError` naming `what`."""
    if not isinstance(arg, Literal):
        raise TypeMismatchError(f"{what} must be a literal, known when the query is planned")
    return arg.value


def mapped(change: Callable[[pa.Array], pa.Array], value: Value) -> Value:
    """`change` applied to an array, or to a scalar through an array of one row."""
    if isinstance(value, pa.Scalar):
        return change(pa.repeat(value, 1))[0]
    return change(value)


def arrays(values: Sequence[Value]) -> tuple[list[pa.Array], bool]:
    """All values as arrays of one length, and whether all were scalars (then the length is 1)."""
    lengths = [len(value) for value in values if not isinstance(value, pa.Scalar)]
    n_rows = lengths[0] if lengths else 1
    spread_out = [
        pa.repeat(value, n_rows) if isinstance(value, pa.Scalar) else value for value in values
    ]
    return spread_out, not lengths


def spread(kernel: Callable[..., pa.Array]) -> Kernel:
    """A kernel over arrays made into one over values."""

    def over_values(*values: Value) -> Value:
        as_arrays, constant = arrays(values)
        result = kernel(*as_arrays)
        return result[0] if constant else result

    return over_values


def _bits(buffer: pa.Buffer, offset: int, n_rows: int) -> Mask:
    first = offset // 8
    packed = np.frombuffer(buffer, np.uint8, count=(offset + n_rows + 7) // 8 - first, offset=first)
    unpacked = np.unpackbits(packed, bitorder="little")
    return unpacked[offset - 8 * first : offset - 8 * first + n_rows].view(np.bool_)


def truth(value: Value, n_rows: int) -> Mask:
    """bool[n_rows]: where a boolean value is true; NULL is not."""
    if isinstance(value, pa.Scalar):
        return np.full(n_rows, value.as_py() is True)
    validity, bits = value.buffers()
    if n_rows == 0 or bits is None:
        return np.zeros(n_rows, np.bool_)
    mask = _bits(bits, value.offset, n_rows)
    if value.null_count and validity is not None:
        mask = mask & _bits(validity, value.offset, n_rows)
    return mask


def valid(value: pa.Array) -> Mask:
    """bool[len(value)]: where an array is not NULL."""
    return truth(pc.is_valid(value), len(value))
