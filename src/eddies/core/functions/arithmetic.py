"""The four operations, remainder, sign changes, and the larger or smaller of several values.

Integers are checked: overflow and division by zero are refused. Floats follow IEEE 754 except that
dividing by zero is refused, as Spark does in ANSI mode. Decimals: see `decimals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from eddies.core.expr import Expr
from eddies.core.functions import decimals
from eddies.core.functions.signature import (
    Function,
    Kernel,
    Rule,
    Types,
    Value,
    arrays,
    is_number,
    is_orderable,
    same,
)

__all__ = ["FUNCTIONS"]


def _is_float(type_: pa.DataType) -> bool:
    return bool(kinds.is_float32(type_) or kinds.is_float64(type_))


def _is_binary_number(type_: pa.DataType) -> bool:
    return bool(kinds.is_integer(type_)) or _is_float(type_)


def _two_numbers(
    accepts: Callable[[pa.DataType], bool],
    decimal_type: Callable[[pa.DataType, pa.DataType], pa.DataType],
    returns: pa.DataType | None = None,
) -> Rule:
    """Rule: two equal types that `accepts`, giving `returns` (None: that type); or two decimals."""

    def rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
        if len(types) != 2:
            return None
        left, right = types
        if kinds.is_decimal128(left) and kinds.is_decimal128(right):
            return decimal_type(left, right)
        return (returns or left) if left == right and accepts(left) else None

    return rule


def _either(
    binary: Callable[[Value, Value], Value], decimal: Callable[[Value, Value], Value]
) -> Kernel:
    """`decimal` for decimals, `binary` for the rest."""

    def kernel(left: Value, right: Value) -> Value:
        return (decimal if kinds.is_decimal(left.type) else binary)(left, right)

    return kernel


def _remainder(left: Value, right: Value) -> Value:
    if not kinds.is_integer(left.type):
        return pc.remainder_checked(left, right)
    # Unchecked, so that the lowest integer modulo -1 is 0; zero is refused all the same.
    return pc.remainder(left, right)


def _int_divide(left: Value, right: Value) -> Value:
    return pc.divide_checked(left.cast(pa.int64()), right.cast(pa.int64()))


def _negate(value: Value) -> Value:
    return pc.negate_checked(value)


def _abs(value: Value) -> Value:
    return pc.abs_checked(value)


def _extreme(largest: bool) -> Kernel:
    kernel = pc.max_element_wise if largest else pc.min_element_wise

    def of(*values: Value) -> Value:
        type_ = values[0].type
        if kinds.is_boolean(type_):
            numbers = [value.cast(pa.int8()) for value in values]
            return kernel(*numbers, skip_nulls=True).cast(pa.bool_())
        if _is_float(type_):
            return _extreme_float(values, largest)
        if kinds.is_timestamp(type_):  # Arrow does not compare those with a zone here
            numbers = [value.cast(pa.int64()) for value in values]
            return kernel(*numbers, skip_nulls=True).cast(type_)
        return kernel(*values, skip_nulls=True)

    return of


def _extreme_float(values: Sequence[Value], largest: bool) -> Value:
    """NaN is the greatest float, and of equal values (0.0 and -0.0) the first is taken."""
    columns, constant = arrays(values)
    best = columns[0].to_numpy(zero_copy_only=False).copy()
    known = columns[0].is_valid().to_numpy(zero_copy_only=False).copy()
    for column in columns[1:]:
        other = column.to_numpy(zero_copy_only=False)
        here = column.is_valid().to_numpy(zero_copy_only=False)
        if largest:
            better = (other > best) | (np.isnan(other) & ~np.isnan(best))
        else:
            better = (other < best) | (np.isnan(best) & ~np.isnan(other))
        taken = here & (better | ~known)
        best[taken] = other[taken]
        known |= here
    result = pa.array(best, columns[0].type, mask=~known)
    return result[0] if constant else result


_PAIR = "two numbers of one type (decimals may differ in precision and scale)"
_MANY = "two or more values of one type that has an order"


def _int64(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return pa.int64()


FUNCTIONS = (
    Function(
        "add",
        _PAIR,
        _two_numbers(_is_binary_number, decimals.add_type),
        _either(pc.add_checked, decimals.add),
    ),
    Function(
        "subtract",
        _PAIR,
        _two_numbers(_is_binary_number, decimals.add_type),
        _either(pc.subtract_checked, decimals.subtract),
    ),
    Function(
        "multiply",
        _PAIR,
        _two_numbers(_is_binary_number, decimals.multiply_type),
        _either(pc.multiply_checked, decimals.multiply),
    ),
    Function(
        "divide",
        "two floats of one type, or two decimals (cast integers to double)",
        _two_numbers(_is_float, decimals.divide_type),
        _either(pc.divide_checked, decimals.divide),
    ),
    Function(
        "int_divide",
        "two integers of one type, or two decimals",
        _two_numbers(kinds.is_integer, _int64, pa.int64()),
        _either(_int_divide, decimals.int_divide),
    ),
    Function(
        "modulo",
        _PAIR,
        _two_numbers(_is_binary_number, decimals.modulo_type),
        _either(_remainder, decimals.modulo),
    ),
    Function("negate", "one number", same(is_number, 1, 1), _negate),
    Function("abs", "one number", same(is_number, 1, 1), _abs),
    Function("greatest", _MANY, same(is_orderable, 2), _extreme(largest=True)),
    Function("least", _MANY, same(is_orderable, 2), _extreme(largest=False)),
)
