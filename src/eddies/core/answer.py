"""What SELECT makes of whole groups: HAVING, the items, ORDER BY and LIMIT.

Where one eddy sees all rows of every group, nobody has to merge groups, so whoever runs the eddy can
finish the query: leave out the groups that HAVING refuses, sort the others, cut them off, and compute
the items of those that are left. Groups are few beside the rows they come from, so all of them are
held at once.

Order is SQL's: NULL comes where it is told to, NaN is the largest number, and zero has no sign.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.evaluate import evaluate, keep
from eddies.core.expr import Column, Expr
from eddies.core.query import Output, UserFunction
from eddies.errors import EvaluationError

__all__ = ["Answer", "SortKey"]

_NO_FUNCTIONS: Mapping[str, UserFunction] = {}


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of ORDER BY."""

    expr: Expr
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What is asked of whole groups; expressions read their columns, without functions of users."""

    columns: tuple[Output, ...]
    having: Expr | None = None
    order: tuple[SortKey, ...] = ()
    offset: int = 0
    limit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def of(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        """The answer, from all groups."""
        if self.having is not None:
            with _named("HAVING"):
                mask = keep(self.having, _columns(groups), groups.num_rows, _NO_FUNCTIONS)
            groups = groups if mask is None else groups.filter(pa.array(mask))
        if self.order:
            groups = groups.take(self._sorted(groups).slice(self.offset, self.limit))
        else:
            groups = groups.slice(self.offset, self.limit)
        arrays = []
        for column in self.columns:
            with _named(f"the item {column.name!r}"):
                arrays.append(_values(column.expr, groups))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _sorted(self, groups: pa.RecordBatch) -> pa.Array:
        """The places of the groups in their order."""
        columns: list[pa.Array] = []
        directions: list[str] = []

        def add(values: pa.Array, is_descending: bool) -> None:
            columns.append(values)
            directions.append("descending" if is_descending else "ascending")

        for key in self.order:
            with _named("ORDER BY"):
                values = _values(key.expr, groups)
            if values.null_count:
                add(pc.is_null(values), key.nulls_first)
            if pa.types.is_floating(values.type):
                add(pc.is_nan(values), key.is_descending)
            add(values, key.is_descending)
        names = [str(number) for number in range(len(columns))]
        keys = list(zip(names, directions, strict=True))
        return pc.sort_indices(pa.table(columns, names=names), sort_keys=keys)


@contextlib.contextmanager
def _named(part: str) -> Iterator[None]:
    """Errors say which part of the text it was: expressions over groups are not written as it is."""
    try:
        yield
    except EvaluationError as error:
        error.add_note(f"while {part} was computed from whole groups")
        raise


def _values(expr: Expr, groups: pa.RecordBatch) -> pa.Array:
    return evaluate(expr, _columns(groups), groups.num_rows, _NO_FUNCTIONS)


def _columns(groups: pa.RecordBatch) -> Callable[[Column], pa.Array]:
    def column(named: Column) -> pa.Array:
        return groups.column(named.name)

    return column
