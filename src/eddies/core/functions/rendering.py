"""Expressions as readable, SQL-like text, for errors, explain output and events."""

from __future__ import annotations

from datetime import date, datetime

from eddies.core.expr import Call, Cast, Column, Expr, Literal

__all__ = ["render"]

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "int_divide": "DIV",
    "modulo": "%",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "null_safe_eq": "<=>",
    "and": "AND",
    "or": "OR",
    "xor": "XOR",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
}
_PRECEDENCE = {  # a higher number binds closer; functions and literals never need parentheses
    "or": 1,
    "xor": 2,
    "and": 3,
    "not": 4,
    "add": 6,
    "subtract": 6,
    "multiply": 7,
    "divide": 7,
    "int_divide": 7,
    "modulo": 7,
    "negate": 8,
}
_COMPARISON_PRECEDENCE = 5
_ATOM = 9
_LONG_LIST = 6  # an IN list longer than this is shortened
_SUFFIX = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}


def render(expr: Expr) -> str:
    """SQL-like text of `expr`.

    >>> import pyarrow as pa
    >>> two = Literal(2, pa.int64())
    >>> render(Call("multiply", (Call("add", (Column("t", "a"), two)), two)))
    '(t.a + 2) * 2'
    """
    match expr:
        case Column(source=source, name=name):
            return f"{source}.{name}"
        case Literal(value=value):
            return _render_value(value)
        case Cast(arg=arg, type=type_, lenient=lenient):
            return f"{'TRY_CAST' if lenient else 'CAST'}({render(arg)} AS {type_})"
        case Call():
            return _render_call(expr)


def _render_value(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            return f"TIMESTAMP '{value}'"
        case date():
            return f"DATE '{value}'"
        case _:
            return str(value)


def _level(expr: Expr) -> int:
    if not isinstance(expr, Call):
        return _ATOM
    if expr.function in _PRECEDENCE:
        return _PRECEDENCE[expr.function]
    infix = expr.function in _INFIX or expr.function in _SUFFIX or expr.function == "in_list"
    return _COMPARISON_PRECEDENCE if infix else _ATOM


def _inside(expr: Expr, level: int) -> str:
    """`expr` as an operand of an operator that binds with `level`."""
    return render(expr) if _level(expr) >= level else f"({render(expr)})"


def _render_call(call: Call) -> str:
    level, args = _level(call), call.args
    match call.function, args:
        case ("not", (arg,)):
            return f"NOT {_inside(arg, level + 1)}"
        case ("negate", (arg,)):
            return f"-{_inside(arg, level + 1)}"
        case ("is_null" | "is_not_null", (arg,)):
            return f"{_inside(arg, level + 1)} {_SUFFIX[call.function]}"
        case ("in_list", (value, *members)):
            shown = [render(member) for member in members[:_LONG_LIST]]
            if len(members) > _LONG_LIST:
                shown.append(f"... {len(members)} in all")
            return f"{_inside(value, level + 1)} IN ({', '.join(shown)})"
        case ("case", (*branches, otherwise)) if branches and len(branches) % 2 == 0:
            return _render_case(branches, otherwise)
        case (name, (first, *rest)) if name in _INFIX and rest:
            symbol = "ESCAPE" if name in ("like", "ilike") else _INFIX[name]
            text = f"{_inside(first, level)} {_INFIX[name]} {_inside(rest[0], level + 1)}"
            return text + "".join(f" {symbol} {_inside(arg, level + 1)}" for arg in rest[1:])
    return f"{call.function}({', '.join(map(render, args))})"


def _render_case(branches: list[Expr], otherwise: Expr) -> str:
    pairs = zip(branches[::2], branches[1::2], strict=True)
    whens = " ".join(f"WHEN {render(when)} THEN {render(then)}" for when, then in pairs)
    return f"CASE {whens} ELSE {render(otherwise)} END"
