"""Comparisons, membership, and tests for NULL and NaN.

Text and bytes compare by bytes, decimals exactly whatever their scales. Floats are in Spark's
order: NaN equals NaN and is greater than everything else, -0.0 equals 0.0. Arrow compares floats
as IEEE 754 does, so each float comparison is corrected, and only where a NaN can be: against a
constant that is not NaN, `a > c` is `not a <= c` and costs one kernel more.
"""

from __future__ import annotations

import math
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
    Types,
    Value,
    fixed,
    is_orderable,
    literal_of,
)

__all__ = ["FUNCTIONS", "equal"]

Comparison = Callable[[Value, Value], Value]


def _pair_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) != 2:
        return None
    if all(map(kinds.is_decimal128, types)):
        return pa.bool_()
    ordered = is_orderable(types[0]) or kinds.is_unsigned_integer(types[0])
    return pa.bool_() if types[0] == types[1] and ordered else None


def _may_be_nan(value: Value) -> bool:
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return number is not None and math.isnan(number)
    # NULL slots may hold NaN bits: then the slower way is taken for nothing, never wrongly.
    _, data = value.buffers()
    if data is None or len(value) == 0:
        return False
    dtype = np.float32 if kinds.is_float32(value.type) else np.float64
    numbers = np.frombuffer(data, dtype)[value.offset : value.offset + len(value)]
    return bool(np.isnan(numbers).any())


def _float_equal(left: Value, right: Value) -> Value:
    same = pc.equal(left, right)
    if _may_be_nan(left) and _may_be_nan(right):
        return pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return same


def _float_less(left: Value, right: Value) -> Value:
    if not _may_be_nan(right):
        return pc.less(left, right)
    return pc.or_(pc.less(left, right), pc.and_not(pc.is_nan(right), pc.is_nan(left)))


def _float_less_equal(left: Value, right: Value) -> Value:
    if not _may_be_nan(right):
        return pc.less_equal(left, right)
    # Not Kleene's `or`: a NULL on either side makes both terms, and so the result, NULL.
    return pc.or_(pc.less_equal(left, right), pc.is_nan(right))


def _comparison(plain: Comparison, floats: Comparison) -> Comparison:
    def compare(left: Value, right: Value) -> Value:
        if kinds.is_floating(left.type):
            return floats(left, right)
        if kinds.is_decimal(left.type):
            left, right = decimals.common(left, right)
        return plain(left, right)

    return compare


equal = _comparison(pc.equal, _float_equal)
_not_equal = _comparison(pc.not_equal, lambda a, b: pc.invert(_float_equal(a, b)))
_less = _comparison(pc.less, _float_less)
_less_equal = _comparison(pc.less_equal, _float_less_equal)
_greater = _comparison(pc.greater, lambda a, b: _float_less(b, a))
_greater_equal = _comparison(pc.greater_equal, lambda a, b: _float_less_equal(b, a))


def _null_safe_equal(left: Value, right: Value) -> Value:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.coalesce(equal(left, right), both_null)


def _in_list_rule(types: Types, args: Sequence[Expr]) -> pa.DataType | None:
    if len(types) < 2 or len(set(types)) != 1 or not is_orderable(types[0]):
        return None
    for arg in args[1:]:
        literal_of(arg, "a member of an IN list")
    return pa.bool_()


def _in_list(value: Value, *members: pa.Scalar) -> Value:
    known = [member.as_py() for member in members if member.is_valid]
    if kinds.is_floating(value.type):
        # Adding 0.0 turns -0.0 into 0.0; Arrow's hash tables hold them apart, but all NaN together.
        value, known = pc.add(value, pa.scalar(0.0, value.type)), [item + 0.0 for item in known]
    found = pc.is_in(value, value_set=pa.array(known, value.type))
    unknown = pc.is_null(value)
    if len(known) < len(members):
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _is_nan(value: Value) -> Value:
    return pc.coalesce(pc.is_nan(value), pa.scalar(False))


def _anything(type_: pa.DataType) -> bool:
    return True


def _compare(name: str, kernel: Kernel) -> Function:
    return Function(name, "two values of one type that has an order", _pair_rule, kernel)


FUNCTIONS = (
    _compare("eq", equal),
    _compare("ne", _not_equal),
    _compare("lt", _less),
    _compare("le", _less_equal),
    _compare("gt", _greater),
    _compare("ge", _greater_equal),
    _compare("null_safe_eq", _null_safe_equal),
    Function("in_list", "a value and literals of its type", _in_list_rule, _in_list),
    Function("is_null", "any value", fixed(pa.bool_(), _anything), pc.is_null),
    Function("is_not_null", "any value", fixed(pa.bool_(), _anything), pc.is_valid),
    Function("is_nan", "a float", fixed(pa.bool_(), kinds.is_floating), _is_nan),
)
