"""Column types of a plain SELECT, known without asking Spark: columns of tables, simple aggregates of
them, and arithmetic on both. Asking takes Spark longer than running many a query, so what is plain is
answered here.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types as kinds
from sqlglot import exp

from eddies.core.expr import Literal
from eddies.core.state.columns import normal_type
from eddies.sql.coerce import arithmetic_result, operand_types
from eddies.sql.literals import literal
from eddies.sql.settings import DEFAULT, Settings
from eddies.sql.types import is_numeric

__all__ = ["known_columns"]

_SUM_DIGITS = 10  # by which Spark widens the sum of decimals
_MEAN_DIGITS = 4  # the same of their mean, which has as many more after the point
_MOST_DIGITS = 38
_ARITHMETIC = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide"}


def known_columns(
    query: exp.Expr,
    schemas: Mapping[str, pa.Schema],
    hidden: Mapping[str, object],
    settings: Settings = DEFAULT,
) -> pa.Schema | None:
    """The columns of `query`; None if they are not plain. Names in `hidden` are no base tables."""
    if not isinstance(query, exp.Select) or query.args.get("with_"):
        return None
    tables = _tables(query, schemas, hidden)
    if tables is None:
        return None
    fields = []
    for item in query.expressions:
        type_ = _type(item.this, tables) if isinstance(item, exp.Alias) else None
        if type_ is None or not (settings.gives_up_digits or _is_plain(item.this, type_)):
            return None
        fields.append(pa.field(item.alias, normal_type(type_)))
    return pa.schema(fields)


def _is_plain(item: exp.Expr, type_: pa.DataType) -> bool:
    """Whether an item is no arithmetic on decimals, whose digits depend on the session."""
    return not kinds.is_decimal(type_) or item.find(*_ARITHMETIC) is None


def _tables(
    query: exp.Select, schemas: Mapping[str, pa.Schema], hidden: Mapping[str, object]
) -> dict[str, pa.Schema] | None:
    """The base tables that a SELECT reads, by alias; None if it reads something else."""
    source = query.args.get("from_")
    joins = query.args.get("joins") or []
    items = [source.this] if source is not None else []
    items += [join.this for join in joins]
    by_name = {name.lower(): schema for name, schema in schemas.items()}
    outside = {name.lower() for name in hidden}
    found: dict[str, pa.Schema] = {}
    for item in items:
        if not isinstance(item, exp.Table) or item.db or item.name.lower() in outside:
            return None
        if item.name.lower() not in by_name:
            return None
        found[item.alias_or_name.lower()] = by_name[item.name.lower()]
    return found if len(found) == len(items) else None


def _type(node: exp.Expr, tables: Mapping[str, pa.Schema]) -> pa.DataType | None:
    match node:
        case exp.Column():
            return _column_type(node, tables)
        case exp.Min() | exp.Max() if not node.expressions:
            return _type(node.this, tables)
        case exp.Count():
            return pa.int64()
        case exp.Sum():
            return _sum_type(_type(node.this, tables))
        case exp.Avg():
            return _mean_type(_type(node.this, tables))
        case exp.Paren():
            return _type(node.this, tables)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _arithmetic_type(node, tables)
    return None


def _arithmetic_type(node: exp.Binary, tables: Mapping[str, pa.Schema]) -> pa.DataType | None:
    """Of two numbers, of which literals beside decimals count their own digits."""
    constants = [_number(side) for side in (node.left, node.right)]
    types = [
        _type(side, tables) if constant is None else constant.type
        for side, constant in zip((node.left, node.right), constants, strict=True)
    ]
    left, right = types
    if left is None or right is None or not (is_numeric(left) and is_numeric(right)):
        return None
    if left != right and pa.float32() in types:
        return None  # what they meet as depends on the session's ANSI mode
    of_left, of_right = (None if constant is None else constant.value for constant in constants)
    function = _ARITHMETIC[type(node)]
    operands = operand_types(function, left, right, (of_left, of_right))
    return None if operands is None else arithmetic_result(function, *operands)


def _number(node: exp.Expr) -> Literal | None:
    """A number that is written down."""
    constant = literal(node)
    return constant if constant is not None and is_numeric(constant.type) else None


def _mean_type(type_: pa.DataType | None) -> pa.DataType | None:
    if type_ is None:
        return None
    if kinds.is_signed_integer(type_) or type_ in (pa.float32(), pa.float64()):
        return pa.float64()
    if kinds.is_decimal128(type_) and type_.precision + _MEAN_DIGITS <= _MOST_DIGITS:
        return pa.decimal128(type_.precision + _MEAN_DIGITS, type_.scale + _MEAN_DIGITS)
    return None


def _column_type(node: exp.Column, tables: Mapping[str, pa.Schema]) -> pa.DataType | None:
    schema = tables.get(node.table.lower())
    if schema is None:
        return None
    fields = [field for field in schema if field.name.lower() == node.name.lower()]
    return fields[0].type if len(fields) == 1 else None


def _sum_type(type_: pa.DataType | None) -> pa.DataType | None:
    if type_ is None:
        return None
    if kinds.is_signed_integer(type_):
        return pa.int64()
    if kinds.is_floating(type_):
        return pa.float64()
    if kinds.is_decimal128(type_):
        return pa.decimal128(min(type_.precision + _SUM_DIGITS, _MOST_DIGITS), type_.scale)
    return None
