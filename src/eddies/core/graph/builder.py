"""Names and types of a query's columns, and derived columns as they come up while it is worked out."""

from __future__ import annotations

import pyarrow as pa

from eddies.core.evaluate import type_of
from eddies.core.expr import Call, Cast, Column, Expr, Literal, columns_of
from eddies.core.query import Query
from eddies.core.state.columns import normal_type
from eddies.errors import UnknownNameError

__all__ = ["Builder"]


class Builder:
    """Collects derived columns while the query is worked through."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.functions = {function.name: function for function in query.functions}
        self.ids = {source.name: i for i, source in enumerate(query.sources)}
        self.derived: dict[tuple[str, Expr], str] = {}
        self.derived_for: dict[str, set[int]] = {}
        self._derived_prefix = self._unused("__derived_")
        self._flag_prefix = self._unused("__role_")

    def _unused(self, prefix: str) -> str:
        """`prefix`, made longer until no column of any source begins with it."""
        names = [name for source in self.query.sources for name in source.schema.names]
        while any(name.startswith(prefix) for name in names):
            prefix = f"_{prefix}"
        return prefix

    def flag(self, source_id: int) -> str:
        """The name of the column that says which rows of a relation a role wants."""
        return f"{self._flag_prefix}{source_id}"

    def mask_of(self, expr: Expr) -> int:
        mask = 0
        for column in columns_of(expr):
            if column.source not in self.ids:
                raise UnknownNameError(f"the query has no source named {column.source!r}")
            mask |= 1 << self.ids[column.source]
        return mask

    def type_of(self, expr: Expr) -> pa.DataType:
        return type_of(expr, self.column_type, self.functions)

    def column_type(self, column: Column) -> pa.DataType:
        source = self.query.sources[self.ids[column.source]]
        position = source.schema.get_field_index(column.name)
        if position < 0:
            raise UnknownNameError(
                f"source {source.name!r} has no column {column.name!r}; "
                f"it has {', '.join(source.schema.names)}"
            )
        return normal_type(source.schema.field(position).type)

    def stored_column(self, expr: Expr) -> tuple[int, str]:
        """The source of `expr` and the stored column that holds its value, derived if need be."""
        source_id = self.mask_of(expr).bit_length() - 1
        if isinstance(expr, Column):
            return source_id, expr.name
        table = self.query.sources[source_id].table
        key = (table, _in_table(expr, table))
        name = self.derived.setdefault(key, f"{self._derived_prefix}{len(self.derived)}")
        self.derived_for.setdefault(name, set()).add(source_id)
        return source_id, name


def _in_table(expr: Expr, table: str) -> Expr:
    """`expr` with its columns named by table instead of role, so that roles share derived columns."""
    match expr:
        case Column(name=name):
            return Column(table, name)
        case Cast(arg=arg, type=type_, lenient=lenient):
            return Cast(_in_table(arg, table), type_, lenient)
        case Call(function=function, args=args):
            return Call(function, tuple(_in_table(arg, table) for arg in args))
        case Literal():
            return expr
