"""Values and comparisons as PostgreSQL writes them."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence

import pyarrow as pa

from eddies.core.expr import Literal
from eddies.errors import SourceError

__all__ = ["comparison", "literal", "quoted", "row_literal"]

_SIGNS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def quoted(name: str) -> str:
    """A name as an identifier, its own quotation marks doubled."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: object, type_: str) -> str:
    """A value, cast to the PostgreSQL type named, so that indexes on the column are used.

    >>> literal("it's", "text")
    "'it''s'::text"
    """
    if value is None:
        return f"NULL::{type_}"
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | decimal.Decimal):
        text = str(value)
    elif isinstance(value, float):
        text = _float_text(value)
    elif isinstance(value, bytes):
        text = "\\x" + value.hex()
    elif isinstance(value, datetime.date | datetime.datetime):
        text = value.isoformat(" ") if isinstance(value, datetime.datetime) else value.isoformat()
    elif isinstance(value, str):
        if "\0" in value:
            raise SourceError("PostgreSQL text cannot hold the character NUL")
        text = value.replace("'", "''")
    else:
        raise SourceError(f"{value!r} cannot be sent to PostgreSQL as {type_}")
    return f"'{text}'::{type_}"


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def row_literal(values: Sequence[object], types: Sequence[str]) -> str:
    """A row of values."""
    texts = (literal(value, type_) for value, type_ in zip(values, types, strict=True))
    return f"({', '.join(texts)})"


def comparison(function: str, column: str, right: Literal, type_: str) -> str | None:
    """`column <sign> value` if PostgreSQL decides it as the engine does, else None.

    Order of text depends on collations, and of floating point on NaN, so those are left alone.
    """
    if function not in _SIGNS or right.value is None:
        return None
    kind = right.type
    is_plain = pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind)
    if is_plain or (function == "eq" and pa.types.is_string(kind) and type_ in ("text", "varchar")):
        return f"{quoted(column)} {_SIGNS[function]} {literal(right.value, type_)}"
    return None
