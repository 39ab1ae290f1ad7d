"""Which parts of a source cannot hold a row that passes: decided from ranges, before reading.

A predicate over columns of which only ranges are known has several possible truths. `Pruner` computes
the set of truths that some row might give, from the leaves up: a comparison of two intervals may be
true, false, or NULL; `and`, `or` and `not` combine sets as Kleene's logic combines values. A part of a
source is left out only if "true" is not among the truths of some predicate.

Everything unknown (a function, a cast that is not monotone, a column without statistics) may give any
truth. So an answer can only err towards reading too much: *never lose a row that might pass*.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from itertools import product

import pyarrow as pa

from eddies.core.expr import Call, Column, Expr, Literal, columns_of
from eddies.sources.monotone import Ranges, values_of
from eddies.sources.ranges import ANYTHING, NAN, Ordinal, Range, ordinal

__all__ = ["Pruner"]

TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL

Truths = Callable[[Ranges], int]
Values = Callable[[Ranges], Range]

_NOT = {TRUE: FALSE, FALSE: TRUE, NULL: NULL}


class Pruner:
    """Predicates that every wanted row fulfils, ready to be asked about ranges."""

    def __init__(self, where: Iterable[Expr], schema: pa.Schema) -> None:
        where = tuple(where)
        self._predicates = [_truths(expr, schema) for expr in where]
        self.columns = frozenset(column.name for expr in where for column in columns_of(expr))

    def may_pass(self, ranges: Ranges) -> bool:
        """Whether rows in these ranges might pass; a column not listed may hold anything."""
        return all(predicate(ranges) & TRUE for predicate in self._predicates)


def _anything(ranges: Ranges) -> int:
    return ANY


def _truths(expr: Expr, schema: pa.Schema) -> Truths:
    """The truths that `expr` may have."""
    match expr:
        case Literal(value=value):
            truth = NULL if value is None else TRUE if value else FALSE
            return lambda ranges: truth
        case Column(name=name):
            return lambda ranges: _truths_of_range(ranges.get(name, ANYTHING))
        case Call(function="and" | "or" as function, args=args):
            return _connective(function, [_truths(arg, schema) for arg in args])
        case Call(function="not", args=(arg,)):
            inner = _truths(arg, schema)
            return lambda ranges: _mapped(inner(ranges), _NOT.__getitem__)
        case Call(function="is_null" | "is_not_null" as function, args=(arg,)):
            return _null_test(values_of(arg, schema), when_null=function == "is_null")
        case Call(function="is_nan", args=(arg,)):
            return _nan_test(values_of(arg, schema))
        case Call(function="in_list", args=(arg, *members)):
            return _membership(values_of(arg, schema), members)
        case Call(function="starts_with", args=(arg, Literal(value=str(prefix)))):
            return _prefix_test(values_of(arg, schema), prefix)
        case Call(function=function, args=(left, right)) if function in _COMPARISONS:
            compare, one, other = (
                _COMPARISONS[function],
                values_of(left, schema),
                values_of(right, schema),
            )
            return lambda ranges: compare(one(ranges), other(ranges))
        case Call(function="like", args=(arg, Literal(value=str(pattern)))):
            prefix = _plain_start(pattern)
            return _may_fail(_prefix_test(values_of(arg, schema), prefix))
    return _anything


def _truths_of_range(range_: Range) -> int:
    """Of a boolean column."""
    truths = NULL if range_.may_be_null else 0
    for low, high in range_.pieces:
        truths |= (FALSE if low is None or not low else 0) | (TRUE if high is None or high else 0)
    return truths


def _mapped(truths: int, change: Callable[[int], int]) -> int:
    return sum(change(truth) for truth in (TRUE, FALSE, NULL) if truths & truth)


def _connective(function: str, parts: list[Truths]) -> Truths:
    decided, other = (FALSE, TRUE) if function == "and" else (TRUE, FALSE)

    def both(one: int, two: int) -> int:
        found = 0
        for a, b in product((TRUE, FALSE, NULL), repeat=2):
            if one & a and two & b:
                found |= decided if decided in (a, b) else NULL if NULL in (a, b) else other
        return found

    def truths(ranges: Ranges) -> int:
        found = other
        for part in parts:
            found = both(found, part(ranges))
        return found

    return truths


def _null_test(values: Values, when_null: bool) -> Truths:
    if_null, if_not = (TRUE, FALSE) if when_null else (FALSE, TRUE)

    def truths(ranges: Ranges) -> int:
        range_ = values(ranges)
        return (if_null if range_.may_be_null else 0) | (if_not if range_.pieces else 0)

    return truths


def _nan_test(values: Values) -> Truths:
    def truths(ranges: Ranges) -> int:
        range_ = values(ranges)
        found = FALSE if range_.may_be_null else 0
        for low, high in range_.pieces:
            found |= (TRUE if high is None or high == NAN else 0) | (0 if low == NAN else FALSE)
        return found

    return truths


def _membership(values: Values, members: list[Expr]) -> Truths:
    known: list[Ordinal] = []
    has_null = False
    for member in members:
        if not isinstance(member, Literal):
            return _anything
        scalar = pa.scalar(member.value, member.type)
        if not scalar.is_valid:
            has_null = True
            continue
        value = ordinal(scalar)
        if value is None:
            return _anything
        known.append(value)
    known.sort()

    def truths(ranges: Ranges) -> int:
        range_ = values(ranges)
        found = NULL if range_.may_be_null else 0
        for low, high in range_.pieces:
            position = 0 if low is None else bisect.bisect_left(known, low)
            if position < len(known) and (high is None or known[position] <= high):
                found |= TRUE
                if low is not None and low == high:
                    continue  # one value only, and it is a member
            found |= NULL if has_null else FALSE
        return found

    return truths


def _prefix_test(values: Values, prefix: str) -> Truths:
    start = prefix.encode()

    def truths(ranges: Ranges) -> int:
        range_ = values(ranges)
        found = NULL if range_.may_be_null else 0
        for low, high in range_.pieces:
            may_hold = (low is None or low[: len(start)] <= start) and (
                high is None or high >= start
            )
            must_hold = (
                low is not None
                and high is not None
                and low.startswith(start)
                and high.startswith(start)
            )
            found |= (TRUE if may_hold else 0) | (0 if must_hold else FALSE)
        return found

    return truths


def _may_fail(inner: Truths) -> Truths:
    """A pattern demands more than its plain start."""

    def truths(ranges: Ranges) -> int:
        found = inner(ranges)
        return found | FALSE if found & TRUE else found

    return truths


def _plain_start(pattern: str) -> str:
    """The characters of a LIKE pattern before its first sign with a meaning."""
    for position, sign in enumerate(pattern):
        if sign in "%_\\":
            return pattern[:position]
    return pattern


def _less(one: Range, other: Range) -> int:
    found = NULL if one.may_be_null or other.may_be_null else 0
    for (low, high), (other_low, other_high) in product(one.pieces, other.pieces):
        if low is None or other_high is None or low < other_high:
            found |= TRUE
        if high is None or other_low is None or high >= other_low:
            found |= FALSE
    return found


def _equal(one: Range, other: Range) -> int:
    found = NULL if one.may_be_null or other.may_be_null else 0
    return found | _equal_values(one, other)


def _equal_values(one: Range, other: Range) -> int:
    found = 0
    for (low, high), (other_low, other_high) in product(one.pieces, other.pieces):
        if (low is None or other_high is None or low <= other_high) and (
            high is None or other_low is None or high >= other_low
        ):
            found |= TRUE
        if low is None or not low == high == other_low == other_high:
            found |= FALSE
    return found


def _null_safe_equal(one: Range, other: Range) -> int:
    found = _equal_values(one, other)
    if one.may_be_null and other.may_be_null:
        found |= TRUE
    if (one.may_be_null and other.pieces) or (other.may_be_null and one.pieces):
        found |= FALSE
    return found


def _negated(truths: int) -> int:
    return _mapped(truths, _NOT.__getitem__)


_COMPARISONS: dict[str, Callable[[Range, Range], int]] = {
    "eq": _equal,
    "ne": lambda one, other: _negated(_equal(one, other)),
    "lt": _less,
    "ge": lambda one, other: _negated(_less(one, other)),
    "gt": lambda one, other: _less(other, one),
    "le": lambda one, other: _negated(_less(other, one)),
    "null_safe_eq": _null_safe_equal,
}
