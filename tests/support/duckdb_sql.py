"""A core `Query` written as DuckDB SQL, so that DuckDB can say what a block must answer.

Plain rather than short: one entry per core function. Casts are written as they stand in the query;
where DuckDB has no function of that meaning, the entry spells it out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.query import Aggregate, Query

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "modulo": "%",
    "int_divide": "//",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "null_safe_eq": "IS NOT DISTINCT FROM",
    "and": "AND",
    "or": "OR",
}
_SAME_NAME = {
    *("abs", "round", "floor", "ceil", "sign", "sqrt", "exp", "ln", "log10", "power"),
    *("greatest", "least", "coalesce", "nullif", "upper", "lower", "reverse", "trim", "ltrim"),
    *("rtrim", "length", "substring", "left", "right", "lpad", "rpad", "repeat", "concat_ws"),
    *("replace", "starts_with", "ends_with", "contains", "instr", "year", "quarter", "month"),
    *("day", "dayofyear", "weekofyear", "hour", "minute", "second", "last_day", "date_trunc"),
}
_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}
_SPECIAL: dict[str, Callable[..., str]] = {
    "divide": lambda a, b: f"({a} / {b})",
    "negate": lambda a: f"(-{a})",
    "not": lambda a: f"(NOT {a})",
    "is_null": lambda a: f"({a} IS NULL)",
    "is_not_null": lambda a: f"({a} IS NOT NULL)",
    "is_nan": lambda a: f"coalesce(isnan({a}), false)",
    "in_list": lambda a, *values: f"({a} IN ({', '.join(values)}))",
    "if": lambda test, yes, no: f"(CASE WHEN {test} THEN {yes} ELSE {no} END)",
    "like": lambda a, pattern, escape="'\\'": f"({a} LIKE {pattern} ESCAPE {escape})",
    "ilike": lambda a, pattern, escape="'\\'": f"({a} ILIKE {pattern} ESCAPE {escape})",
    "rlike": lambda a, pattern: f"regexp_matches({a}, {pattern})",
    "concat": lambda *parts: f"({' || '.join(parts)})",
    "locate": lambda part, text: f"instr({text}, {part})",
    "dayofweek": lambda a: f"(dayofweek({a}) + 1)",
    "weekday": lambda a: f"(isodow({a}) - 1)",
    "date_add": lambda a, days: f"({a} + {days})",
    "date_sub": lambda a, days: f"({a} - {days})",
    "datediff": lambda a, b: f"datediff('day', {b}, {a})",
    "add_months": lambda a, months: f"CAST({a} + to_months({months}) AS DATE)",
    "to_date": lambda a: f"CAST({a} AS DATE)",
}


def query_sql(query: Query) -> str:
    """The whole block as one SELECT."""
    conditions = [expr_sql(selection.expr) for selection in query.selections]
    conditions += [f"{expr_sql(e.left)} = {expr_sql(e.right)}" for e in query.equalities]
    conditions += [expr_sql(condition.expr) for condition in query.filters]
    if query.never:
        conditions.append("FALSE")
    groups = []
    if query.aggregation is None:
        items = [f"{expr_sql(o.expr)} AS {quoted(o.name)}" for o in query.output]
    else:
        groups = [expr_sql(group.expr) for group in query.aggregation.groups]
        items = [f"{expr_sql(g.expr)} AS {quoted(g.name)}" for g in query.aggregation.groups]
        items += [f"{_aggregate(a)} AS {quoted(a.name)}" for a in query.aggregation.aggregates]
    sources = ", ".join(f"{quoted(s.table)} AS {quoted(s.name)}" for s in query.sources)
    text = f"SELECT {', '.join(items)} FROM {sources}"
    text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return text + (f" GROUP BY {', '.join(groups)}" if groups else "")


def quoted(name: str) -> str:
    """`name` as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def type_sql(type: pa.DataType) -> str:
    """`type` as DuckDB names it."""
    if pa.types.is_decimal(type):
        return f"DECIMAL({type.precision},{type.scale})"
    return _TYPES[type]


def expr_sql(expr: Expr) -> str:
    """`expr` as DuckDB SQL."""
    match expr:
        case Column(source=source, name=name):
            return f"{quoted(source)}.{quoted(name)}"
        case Literal(value=value, type=type):
            return _literal(value, type)
        case Cast(arg=arg, type=type, lenient=lenient):
            return f"{'TRY_CAST' if lenient else 'CAST'}({expr_sql(arg)} AS {type_sql(type)})"
        case Call(function="add_interval", args=(moment, *parts)):
            return _shifted(moment, parts)
        case Call(function="case", args=args):
            pairs = zip(args[:-1:2], args[1:-1:2], strict=True)
            whens = " ".join(f"WHEN {expr_sql(a)} THEN {expr_sql(b)}" for a, b in pairs)
            return f"(CASE {whens} ELSE {expr_sql(args[-1])} END)"
        case Call(function=name, args=args):
            texts = [expr_sql(arg) for arg in args]
            if name in _INFIX:
                return f"({f' {_INFIX[name]} '.join(texts)})"
            if name in _SAME_NAME:
                return f"{name}({', '.join(texts)})"
            return _SPECIAL[name](*texts)
    raise TypeError(expr)


def _shifted(moment: Expr, parts: list[Expr]) -> str:
    months, days, micros = (part.value for part in parts if isinstance(part, Literal))
    shifted = f"({expr_sql(moment)} + to_months({months}) + to_days({days}))"
    return f"CAST({shifted} AS DATE)" if not micros else f"({shifted} + to_microseconds({micros}))"


def _literal(value: object, type: pa.DataType) -> str:
    if value is None:
        return "NULL" if pa.types.is_null(type) else f"CAST(NULL AS {type_sql(type)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"CAST('{value.isoformat(sep=' ')}' AS {type_sql(type)})"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, int | float | Decimal):
        return f"CAST({value!s} AS {type_sql(type)})"
    raise TypeError(value)


def _aggregate(aggregate: Aggregate) -> str:
    if aggregate.arg is None:
        return "count(*)"
    return f"CAST({aggregate.function}({expr_sql(aggregate.arg)}) AS {type_sql(aggregate.type)})"
