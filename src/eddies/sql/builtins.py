"""Named SQL functions: which core function computes them, on which argument types.

A `Signature` lists the argument types Spark casts to and the type of the result; functions that do
not fit one line have a small function of their own. Functions absent from the tables run above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Call, Expr, Literal
from eddies.sql.literals import literal
from eddies.sql.typed import CannotLower, Lowers, Typed
from eddies.sql.types import is_integral, is_numeric, is_text, sql_name

__all__ = ["ANONYMOUS", "BUILTINS", "Signature", "lower_builtin"]

BOOL, INT, LONG, DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float64()
TEXT, DATE = pa.string(), pa.date32()
MAX_ROUND_DIGITS = 18  # beyond this, rounding an integer or a float is left to Spark


@dataclass(frozen=True, slots=True)
class Signature:
    """Core `function` over `args` (the last `optional` of them may be missing) giving `result`."""

    function: str
    args: tuple[pa.DataType, ...]
    result: pa.DataType
    optional: int = 0


def lower_builtin(lowering: Lowers, signature: Signature, nodes: list[exp.Expr]) -> Typed:
    """A call of `signature` on `nodes`, cast as Spark casts."""
    least = len(signature.args) - signature.optional
    if not least <= len(nodes) <= len(signature.args):
        raise CannotLower(f"{signature.function} with {len(nodes)} arguments runs above")
    args = tuple(
        _argument(lowering, node, type, signature.function)
        for node, type in zip(nodes, signature.args, strict=False)
    )
    return Typed(Call(signature.function, args), signature.result)


def _argument(lowering: Lowers, node: exp.Expr, wanted: pa.DataType, function: str) -> Expr:
    typed = lowering.lower(node)
    widens = (
        typed.type == wanted
        or pa.types.is_null(typed.type)
        or (is_text(typed.type) and is_text(wanted))
        or (is_numeric(typed.type) and wanted == DOUBLE)
        or (is_integral(typed.type) and wanted == INT and typed.type != LONG)
        or (isinstance(typed.expr, Literal) and is_text(typed.type) and wanted == DATE)
    )
    if not widens:
        raise CannotLower(f"{function} over {sql_name(typed.type)} runs above")
    return lowering.cast(typed, wanted)


def _plain(signature: Signature, *names: str) -> Callable[[Lowers, Any], Typed]:
    def rule(lowering: Lowers, node: exp.Expr) -> Typed:
        extra = [key for key, value in node.args.items() if value and key not in (*names, *_FLAGS)]
        if extra:
            raise CannotLower(f"{node.sql('spark')} runs above")
        found = [node.args.get(name) for name in names]
        return lower_builtin(lowering, signature, [arg for arg in found if arg is not None])

    return rule


_FLAGS = (
    "safe",
    "coalesce",
    "ignore_nulls",
    "big_int",
    "flatten",
)  # set by the parser, no operands


def _date_part(name: str) -> Callable[[Lowers, Any], Typed]:
    def rule(lowering: Lowers, node: exp.Expr) -> Typed:
        return _part(lowering, name, node.this)

    return rule


def _part(lowering: Lowers, name: str, node: exp.Expr) -> Typed:
    """`name` of a date or timestamp; the parser wraps the operand in a conversion to date."""
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        node = node.this
    moment = lowering.lower(node)
    if is_text(moment.type):
        return Typed(Call(name, (lowering.cast(moment, DATE),)), INT)
    clock = name in ("hour", "minute", "second")
    if not (pa.types.is_timestamp(moment.type) or (pa.types.is_date32(moment.type) and not clock)):
        raise CannotLower(f"{name} over {sql_name(moment.type)} runs above")
    return Typed(Call(name, (moment.expr,)), INT)


_EXTRACTED = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "DAY": "day",
    "HOUR": "hour",
    "MINUTE": "minute",
    "WEEK": "weekofyear",
    "DOY": "dayofyear",
}


def _extract(lowering: Lowers, node: exp.Extract) -> Typed:
    name = _EXTRACTED.get(node.name.upper())
    if name is None:
        raise CannotLower(f"EXTRACT({node.name} ...) runs above")
    return _part(lowering, name, node.expression)


def _date(lowering: Lowers, node: exp.Expr) -> Expr:
    """An operand where Spark wants a date: a date, a timestamp, or a date written as text."""
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        node = node.this
    return lowering.cast(lowering.lower(node), DATE)


def _to_date(lowering: Lowers, node: exp.TsOrDsToDate) -> Typed:
    if node.args.get("format"):
        raise CannotLower("TO_DATE with a format runs above")
    return Typed(_date(lowering, node), DATE)


def _date_add(lowering: Lowers, node: exp.TsOrDsAdd) -> Typed:
    if node.args["unit"].name.upper() != "DAY":
        raise CannotLower("DATE_ADD in other units than days runs above")
    days = _argument(lowering, node.expression, INT, "date_add")
    return Typed(Call("date_add", (_date(lowering, node.this), days)), DATE)


def _add_months(lowering: Lowers, node: exp.AddMonths) -> Typed:
    months = _argument(lowering, node.expression, INT, "add_months")
    return Typed(Call("add_months", (_date(lowering, node.this), months)), DATE)


def _date_diff(lowering: Lowers, node: exp.DateDiff) -> Typed:
    if node.args.get("unit"):
        raise CannotLower("DATEDIFF with a unit runs above")
    args = (_date(lowering, node.this), _date(lowering, node.expression))
    return Typed(Call("datediff", args), INT)


def _trunc(lowering: Lowers, node: exp.DateTrunc) -> Typed:
    """TRUNC(date, unit): always a date."""
    unit = node.args["unit"].name.lower()
    if unit not in ("year", "yyyy", "yy", "quarter", "month", "mon", "mm", "week"):
        raise CannotLower(f"TRUNC to {unit} runs above")
    return Typed(Call("date_trunc", (Literal(unit, TEXT), _date(lowering, node.this))), DATE)


def _timestamp_trunc(lowering: Lowers, node: exp.TimestampTrunc) -> Typed:
    """DATE_TRUNC(unit, timestamp): a timestamp, also for a date."""
    moment = lowering.lower(node.this)
    if not pa.types.is_timestamp(moment.type) or not moment.type.tz:
        raise CannotLower(f"DATE_TRUNC over {sql_name(moment.type)} runs above")
    unit = Literal(node.args["unit"].name.lower(), TEXT)
    return Typed(Call("date_trunc", (unit, moment.expr)), moment.type)


def _like(lowering: Lowers, node: exp.Like | exp.ILike) -> Typed:
    return _pattern(lowering, node, None)


def _escaped(lowering: Lowers, node: exp.Escape) -> Typed:
    return _pattern(lowering, node.this, node.expression)


def _pattern(lowering: Lowers, node: exp.Expr, escape: exp.Expr | None) -> Typed:
    name = "ilike" if isinstance(node, exp.ILike) else "like"
    patterns = [literal(part) for part in (node.expression, escape) if part is not None]
    known = [part for part in patterns if part and isinstance(part.value, str)]
    if len(known) < len(patterns):
        raise CannotLower(f"{name.upper()} with a pattern that is no plain string runs above")
    call = Call(name, (_argument(lowering, node.this, TEXT, name), *known))
    return Typed(Call("not", (call,)) if node.args.get("negate") else call, BOOL)


def _rlike(lowering: Lowers, node: exp.RegexpLike) -> Typed:
    # Java's regular expressions and RE2's differ in corners; only plain ones mean the same in both.
    pattern = literal(node.expression)
    if pattern is None or not isinstance(pattern.value, str) or node.args.get("flag"):
        raise CannotLower("RLIKE with a pattern that is no plain string runs above")
    if not pattern.value.isascii() or any(mark in pattern.value for mark in "\\(?{&"):
        raise CannotLower("RLIKE with this pattern runs above")
    return Typed(Call("rlike", (_argument(lowering, node.this, TEXT, "rlike"), pattern)), BOOL)


def _variadic(name: str) -> Callable[[Lowers, Any], Typed]:
    def rule(lowering: Lowers, node: exp.Expr) -> Typed:
        nodes = [node.this, *node.expressions]
        args, type = lowering.alike(nodes, name.upper())
        if pa.types.is_nested(type) or pa.types.is_null(type):
            raise CannotLower(f"{name} over {sql_name(type)} runs above")
        return Typed(args[0] if len(args) == 1 else Call(name, tuple(args)), type)

    return rule


def _nullif(lowering: Lowers, node: exp.Nullif) -> Typed:
    first = lowering.lower(node.this)
    same = lowering.compare("eq", node.this, node.expression)
    return Typed(Call("if", (same, Literal(None, first.type), first.expr)), first.type)


def _nvl2(lowering: Lowers, node: exp.Nvl2) -> Typed:
    results, type = lowering.alike([node.args["true"], node.args["false"]], "NVL2")
    present = Call("is_not_null", (lowering.lower(node.this).expr,))
    return Typed(Call("if", (present, *results)), type)


def _texts(name: str) -> Callable[[Lowers, Any], Typed]:
    def rule(lowering: Lowers, node: exp.Expr) -> Typed:
        parts: Sequence[exp.Expr] = node.expressions
        if isinstance(node, exp.DPipe):
            parts = list(node.flatten())
        args = tuple(_argument(lowering, part, TEXT, name) for part in parts)
        return Typed(Call(name, args), TEXT)

    return rule


def _trim(lowering: Lowers, node: exp.Trim) -> Typed:
    position = str(node.args.get("position") or "").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "trim")
    text = _argument(lowering, node.this, TEXT, name)
    if node.expression is None:
        return Typed(Call(name, (text,)), TEXT)
    characters = literal(node.expression)
    if characters is None or not isinstance(characters.value, str):
        raise CannotLower("TRIM of characters that are no plain string runs above")
    return Typed(Call(name, (text, characters)), TEXT)


def _pad(lowering: Lowers, node: exp.Pad) -> Typed:
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    signature = Signature("lpad" if node.args["is_left"] else "rpad", (TEXT, INT, TEXT), TEXT)
    return lower_builtin(lowering, signature, [node.this, node.expression, fill])


def _position(lowering: Lowers, node: exp.StrPosition) -> Typed:
    nodes = [node.args["substr"], node.this, *filter(None, [node.args.get("position")])]
    return lower_builtin(lowering, Signature("locate", (TEXT, TEXT, INT), INT, 1), nodes)


def _absolute(lowering: Lowers, node: exp.Abs) -> Typed:
    number = lowering.lower(node.this)
    if not is_numeric(number.type):
        raise CannotLower(f"ABS over {sql_name(number.type)} runs above")
    return Typed(Call("abs", (number.expr,)), number.type)


def _whole(name: str) -> Callable[[Lowers, Any], Typed]:
    def rule(lowering: Lowers, node: exp.Expr) -> Typed:
        number = lowering.lower(node.this)
        if node.args.get("decimals") or not is_numeric(number.type):
            raise CannotLower(f"{node.sql('spark')} runs above")
        if not pa.types.is_decimal(number.type):
            return Typed(Call(name, (number.expr,)), LONG)
        precision, scale = number.type.precision, number.type.scale
        type = pa.decimal128(max(precision - scale + 1, 1), 0) if scale else number.type
        return Typed(Call(name, (number.expr,)), type)

    return rule


def _round(lowering: Lowers, node: exp.Round) -> Typed:
    number = lowering.lower(node.this)
    digits = lowering.lower(node.args.get("decimals") or exp.Literal.number(0))
    value = digits.value
    if not isinstance(value, int) or not 0 <= value <= MAX_ROUND_DIGITS:
        raise CannotLower("ROUND to a number of digits that is no small constant runs above")
    if not is_numeric(number.type) or node.args.get("truncate"):
        raise CannotLower(f"{node.sql('spark')} runs above")
    type = number.type
    if pa.types.is_decimal(type):
        whole, scale = type.precision - type.scale + 1, min(type.scale, value)
        type = pa.decimal128(min(whole + scale, 38), scale)
    return Typed(Call("round", (number.expr, Literal(value, INT))), type)


def _log(lowering: Lowers, node: exp.Log) -> Typed:
    if literal(node.this) != Literal(10, INT) or node.expression is None:
        raise CannotLower("LOG with this base runs above")
    return lower_builtin(lowering, Signature("log10", (DOUBLE,), DOUBLE), [node.expression])


def _is_nan(lowering: Lowers, node: exp.IsNan) -> Typed:
    number = lowering.lower(node.this)
    if not pa.types.is_floating(number.type):
        raise CannotLower("ISNAN over other types than floats runs above")
    return Typed(Call("is_nan", (number.expr,)), BOOL)


def _length(lowering: Lowers, node: exp.Length) -> Typed:
    if lowering.lower(node.this).type == pa.binary():
        return lower_builtin(lowering, Signature("length", (pa.binary(),), INT), [node.this])
    return lower_builtin(lowering, Signature("length", (TEXT,), INT), [node.this])


_ONE, _TWO = ("this",), ("this", "expression")

# A rule takes the node class it is listed under, which a dict type cannot say: hence Any.
BUILTINS: dict[type[exp.Expr], Callable[[Lowers, Any], Typed]] = {
    exp.Upper: _plain(Signature("upper", (TEXT,), TEXT), *_ONE),
    exp.Lower: _plain(Signature("lower", (TEXT,), TEXT), *_ONE),
    exp.Reverse: _plain(Signature("reverse", (TEXT,), TEXT), *_ONE),
    exp.Length: _length,
    exp.Substring: _plain(
        Signature("substring", (TEXT, INT, INT), TEXT, 1), "this", "start", "length"
    ),
    exp.Left: _plain(Signature("left", (TEXT, INT), TEXT), *_TWO),
    exp.Right: _plain(Signature("right", (TEXT, INT), TEXT), *_TWO),
    exp.Repeat: _plain(Signature("repeat", (TEXT, INT), TEXT), "this", "times"),
    exp.Replace: _plain(
        Signature("replace", (TEXT, TEXT, TEXT), TEXT), "this", "expression", "replacement"
    ),
    exp.StartsWith: _plain(Signature("starts_with", (TEXT, TEXT), BOOL), *_TWO),
    exp.EndsWith: _plain(Signature("ends_with", (TEXT, TEXT), BOOL), *_TWO),
    exp.Contains: _plain(Signature("contains", (TEXT, TEXT), BOOL), *_TWO),
    exp.SplitPart: _plain(
        Signature("split_part", (TEXT, TEXT, INT), TEXT), "this", "delimiter", "part_index"
    ),
    exp.Sign: _plain(Signature("sign", (DOUBLE,), DOUBLE), *_ONE),
    exp.Sqrt: _plain(Signature("sqrt", (DOUBLE,), DOUBLE), *_ONE),
    exp.Exp: _plain(Signature("exp", (DOUBLE,), DOUBLE), *_ONE),
    exp.Ln: _plain(Signature("ln", (DOUBLE,), DOUBLE), *_ONE),
    exp.Pow: _plain(Signature("power", (DOUBLE, DOUBLE), DOUBLE), *_TWO),
    exp.LastDay: _plain(Signature("last_day", (DATE,), DATE), *_ONE),
    exp.Concat: _texts("concat"),
    exp.DPipe: _texts("concat"),
    exp.ConcatWs: _texts("concat_ws"),
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.StrPosition: _position,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escaped,
    exp.RegexpLike: _rlike,
    exp.Coalesce: _variadic("coalesce"),
    exp.Greatest: _variadic("greatest"),
    exp.Least: _variadic("least"),
    exp.Nullif: _nullif,
    exp.Nvl2: _nvl2,
    exp.IsNan: _is_nan,
    exp.Abs: _absolute,
    exp.Floor: _whole("floor"),
    exp.Ceil: _whole("ceil"),
    exp.Round: _round,
    exp.Log: _log,
    exp.Extract: _extract,
    exp.Year: _date_part("year"),
    exp.Quarter: _date_part("quarter"),
    exp.Month: _date_part("month"),
    exp.Day: _date_part("day"),
    exp.DayOfMonth: _date_part("day"),
    exp.DayOfWeek: _date_part("dayofweek"),
    exp.DayOfYear: _date_part("dayofyear"),
    exp.WeekOfYear: _date_part("weekofyear"),
    exp.Hour: _date_part("hour"),
    exp.Minute: _date_part("minute"),
    exp.Second: _date_part("second"),
    exp.TsOrDsToDate: _to_date,
    exp.TsOrDsAdd: _date_add,
    exp.AddMonths: _add_months,
    exp.DateDiff: _date_diff,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _timestamp_trunc,
}

# Functions the parser has no class for.
ANONYMOUS: dict[str, Signature] = {
    "btrim": Signature("trim", (TEXT,), TEXT),
    "weekday": Signature("weekday", (DATE,), INT),
}
