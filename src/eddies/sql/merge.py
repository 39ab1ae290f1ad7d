"""Aggregates in two steps: what each cell computes, and how the text above puts it together.

The eddies of a block's cells see disjoint parts of the join result. Each computes *partial* values
per group, and Spark merges them, so that the number of rows that leave the eddies is the number of
groups and not the size of the join:

    count -> the sum of counts (0 without any)    min, max -> the least or greatest of them
    sum   -> the sum of sums, as its own type     avg      -> sum of sums over sum of counts

A partial may be given out in several rows of the same group; merging does not mind.

The mean of decimals must be rounded half up *once*, to four more digits than its argument. A plain
division in Spark SQL rounds to some other number of digits first, so the quotient is made exact
before the division: with S the sum, C the count and u the unit of the last digit wanted, C u divides

    S + S mod C u - 2 S mod C u

For if S = k C u + r, that is k C u, and C u more if twice r has another C u in it (mod has the sign
of its left side, so negative sums need no other words). The mean is that over C: a whole number of
units, whatever digits the division keeps. Without values S is NULL, and so is the mean, before
anybody divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from eddies.core.query import AggregateFunction
from eddies.sql.block import Draft
from eddies.sql.coerce import MAX_DIGITS, arithmetic_result, sum_type
from eddies.sql.typed import CannotLower, Typed
from eddies.sql.types import is_integral

__all__ = ["Partials", "merged"]

Partials = Callable[[AggregateFunction, Typed | None, pa.DataType], exp.Column]
"""Asks the block for a partial aggregate (function, argument, type); the column that carries it."""

_COUNT_DIGITS = 15  # rows of one group that a mean of decimals can count
_MEAN_DIGITS = 4  # digits that a mean has more than its argument


def merged(node: exp.Expr, draft: Draft, partials: Partials) -> exp.Expr:
    """Aggregate call `node` in terms of partial aggregates; `CannotLower` when it has none."""
    if isinstance(node, exp.Count) and not node.expressions:
        if isinstance(node.this, exp.Star | exp.Literal):
            return _count(partials("count_star", None, pa.int64()))
        return _count(partials("count", _argument(node, draft), pa.int64()))
    if isinstance(node, exp.Sum):
        return _sum(_argument(node, draft), draft, partials)
    if isinstance(node, exp.Avg):
        return _mean(_argument(node, draft), draft, partials)
    if isinstance(node, exp.Min | exp.Max) and not node.expressions:
        argument = _argument(node, draft)
        if pa.types.is_nested(argument.type):
            raise CannotLower("min and max over this type run above")
        function: AggregateFunction = "min" if isinstance(node, exp.Min) else "max"
        return type(node)(this=partials(function, argument, argument.type))
    raise CannotLower(f"{node.sql('spark')} has no partial form")


def _argument(node: exp.Expr, draft: Draft) -> Typed:
    if isinstance(node.this, exp.Distinct):
        raise CannotLower("DISTINCT aggregates have no partial form")
    argument = draft.lowering.lower(node.this)
    if pa.types.is_null(argument.type):
        raise CannotLower("an aggregate of nothing but NULL runs above")
    return argument


def _count(partial: exp.Column) -> exp.Expr:
    return exp.Coalesce(this=exp.Sum(this=partial), expressions=[exp.Literal.number(0)])


def _sum(argument: Typed, draft: Draft, partials: Partials) -> exp.Expr:
    total = sum_type(argument.type)
    if total is None:
        raise CannotLower("sum over this type runs above")
    if not pa.types.is_decimal(argument.type):
        return exp.Sum(
            this=partials("sum", Typed(draft.lowering.cast(argument, total), total), total)
        )
    return _as_decimal(exp.Sum(this=partials("sum", argument, total)), total)


def _mean(argument: Typed, draft: Draft, partials: Partials) -> exp.Expr:
    if pa.types.is_decimal(argument.type):
        return _decimal_mean(argument, draft, partials)
    if not (is_integral(argument.type) or argument.type in (pa.float32(), pa.float64())):
        raise CannotLower("avg over this type runs above")
    number = Typed(draft.lowering.cast(argument, pa.float64()), pa.float64())
    total = partials("sum", number, pa.float64())
    count = partials("count", argument, pa.int64())
    return exp.Div(this=exp.Sum(this=total), expression=_unless_zero(exp.Sum(this=count)))


def _decimal_mean(argument: Typed, draft: Draft, partials: Partials) -> exp.Expr:
    precision, scale = argument.type.precision, argument.type.scale
    total = sum_type(argument.type)
    if total is None or not _mean_is_exact(total) or not draft.settings.gives_up_digits:
        raise CannotLower("the mean of decimals this wide runs above")
    wanted = pa.decimal128(precision + _MEAN_DIGITS, scale + _MEAN_DIGITS)
    s = _as_decimal(exp.Sum(this=partials("sum", argument, total)), total)
    counted = exp.Sum(this=partials("count", argument, pa.int64()))
    c = _as_decimal(counted, pa.decimal128(_COUNT_DIGITS, 0))
    unit = exp.Literal.number("0." + "0" * (wanted.scale - 1) + "1")
    divisor = exp.paren(_times(c, unit))
    whole = exp.Sub(
        this=exp.Add(this=s, expression=exp.Mod(this=s.copy(), expression=divisor)),
        expression=exp.Mod(
            this=exp.paren(_times(s.copy(), exp.Literal.number(2))), expression=divisor.copy()
        ),
    )
    return _as_decimal(exp.Div(this=exp.paren(whole), expression=c.copy()), wanted)


def _mean_is_exact(total: pa.DataType) -> bool:
    """Whether no step of the mean loses digits after the point to Spark's limit of 38."""
    scale = total.scale + _MEAN_DIGITS
    if scale > MAX_DIGITS:
        return False
    one, unit, count = (pa.decimal128(*t) for t in ((1, 0), (scale, scale), (_COUNT_DIGITS, 0)))
    divisor = _exact("multiply", count, unit)
    once = _exact("add", total, _exact("modulo", total, divisor))
    twice = _exact("modulo", _exact("multiply", total, one), divisor)
    mean = _exact("divide", _exact("subtract", once, twice), count)
    return mean is not None and mean.scale >= scale


def _exact(
    function: str, left: pa.DataType | None, right: pa.DataType | None
) -> pa.DataType | None:
    """The type of an arithmetic step; None if it would cut digits off its operands' scale."""
    if left is None or right is None:
        return None
    result = arithmetic_result(function, left, right)
    least = left.scale + right.scale if function == "multiply" else max(left.scale, right.scale)
    return result if result is not None and result.scale >= least else None


def _times(left: exp.Expr, right: exp.Expr) -> exp.Mul:
    return exp.Mul(this=left, expression=right)


def _unless_zero(count: exp.Expr) -> exp.Expr:
    return exp.Nullif(this=count, expression=exp.Literal.number(0))


def _as_decimal(node: exp.Expr, type: pa.DataType) -> exp.Cast:
    return exp.Cast(this=node, to=exp.DataType.build(f"decimal({type.precision},{type.scale})"))
