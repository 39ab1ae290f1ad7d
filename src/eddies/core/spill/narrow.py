"""Fewer bytes for the same rows: integers are as narrow as they are, constants are not there at all.

What is written and read back costs more than to look how many bytes it needs (`state.narrow_column`).
And tuples that wait together mostly have the same driver, the same stamp and the same number of runs.
So rows on their way to disk and back are `NarrowRows`: their `Form` says which columns are narrower
integers, and which are one value. Columns with NULLs, floating-point numbers and text are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.state.columns import Column
from eddies.core.state.narrow_column import (
    is_integer,
    narrow_array,
    narrow_column,
)

__all__ = ["Form", "NarrowRows", "Value", "joined", "narrow_rows"]

Value: TypeAlias = "pa.Array | int"
"""A column: narrow, or the one number it has, as a signed one."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the columns of rows are written: the type of each, or the one value it has. `schema` is that
    of what is written.
    """

    columns: tuple[pa.DataType | int, ...]
    schema: pa.Schema = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NarrowRows:
    """Rows in fewer bytes: `written` has those columns that are not one value."""

    form: Form
    written: pa.RecordBatch
    n_rows: int

    @classmethod
    def of(cls, values: Sequence[Value], n_rows: int) -> Self:
        """The rows with these columns."""
        arrays = [value for value in values if not isinstance(value, int)]
        types = tuple(value if isinstance(value, int) else value.type for value in values)
        schema = pa.schema([(str(i), array.type) for i, array in enumerate(arrays)])
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return cls(Form(types, schema), rows, n_rows)

    @property
    def n_bytes(self) -> int:
        """Memory they take."""
        return int(self.written.nbytes)

    def values(self) -> list[Value]:
        """All columns."""
        arrays = iter(self.written.columns)
        return [one if isinstance(one, int) else next(arrays) for one in self.form.columns]

    def columns(self, types: Sequence[pa.DataType]) -> list[Column]:
        """The first columns, which have these types in full."""
        values = self.values()[: len(types)]
        return [
            narrow_column(type_, _array(value, type_, self.n_rows))
            for value, type_ in zip(values, types, strict=True)
        ]

    def numbers(self, column: int) -> npt.NDArray[np.int32] | int:
        """A column of numbers of at most 32 bits, or the one number it has."""
        value = self.values()[column]
        return value if isinstance(value, int) else np.asarray(value).astype(np.int32, copy=False)

    def widened(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows as Arrow, with the columns of `schema`."""
        columns = self.columns(schema.types)
        return pa.RecordBatch.from_arrays([column.take(None) for column in columns], schema=schema)

    def slice(self, first: int, n_rows: int) -> NarrowRows:
        """Some rows in a row."""
        n_rows = min(n_rows, self.n_rows - first)
        written = self.written.slice(first, n_rows) if self.form.schema.names else self.written
        return NarrowRows(self.form, written, n_rows)

    def take(self, order: npt.NDArray[np.int32]) -> NarrowRows:
        """The rows in another order."""
        rows = self.written
        if rows.num_columns:
            rows = pc.take(rows, pa.array(order), boundscheck=False)
        return NarrowRows(self.form, rows, order.shape[0])


def narrow_rows(batch: pa.RecordBatch) -> NarrowRows:
    """The rows of `batch`, in fewer bytes. There must be rows."""
    return NarrowRows.of(
        [_constant(narrow_array(a), a.type) for a in batch.columns], batch.num_rows
    )


def _constant(array: pa.Array, type_: pa.DataType) -> Value:
    if is_integer(type_) and not array.null_count:
        if array.type == type_:
            array = array.view(pa.from_numpy_dtype(f"i{type_.byte_width}"))
        values = np.asarray(array)
        if values[0] == values[-1] and (values == values[0]).all():
            return int(values[0])
    return array


def joined(rows: Sequence[NarrowRows], schema: pa.Schema) -> NarrowRows:
    """All of them in a row, with the columns of `schema`."""
    if len(rows) == 1:
        return rows[0]
    n_rows = sum(one.n_rows for one in rows)
    if all(one.form == rows[0].form for one in rows):
        written = [one.written for one in rows]
        whole = pa.concat_batches(written) if written[0].num_columns else written[0]
        return NarrowRows(rows[0].form, whole, n_rows)
    lengths = [one.n_rows for one in rows]
    columns = zip(*(one.values() for one in rows), strict=True)
    values = [
        _appended(values, lengths, type_)
        for values, type_ in zip(columns, schema.types, strict=True)
    ]
    return NarrowRows.of(values, n_rows)


def _appended(values: Sequence[Value], lengths: Sequence[int], type_: pa.DataType) -> Value:
    if isinstance(values[0], int) and all(value == values[0] for value in values):
        return values[0]
    arrays = [_array(value, type_, n) for value, n in zip(values, lengths, strict=True)]
    types = {array.type for array in arrays}
    if len(types) > 1:
        if type_ in types:
            arrays = [narrow_column(type_, array).take(None) for array in arrays]
        else:
            widest = max(types, key=lambda one: one.byte_width)
            arrays = [array.cast(widest) for array in arrays]
    return pa.concat_arrays(arrays)


def _array(value: Value, type_: pa.DataType, n_rows: int) -> pa.Array:
    """A column, if it is one value as often as there are rows."""
    if not isinstance(value, int):
        return value
    one = pa.array(np.array([value], dtype=f"i{type_.byte_width}")).view(type_)
    one = narrow_array(one)
    as_signed = one if one.type != type_ else one.view(pa.from_numpy_dtype(f"i{type_.byte_width}"))
    repeated = pa.array(np.repeat(np.asarray(as_signed), n_rows))
    return repeated if one.type != type_ else repeated.view(type_)
