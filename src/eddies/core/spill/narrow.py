"""Fewer bytes for the same rows: integers are written as narrow as they are, constants not at all.

Columns of 64-bit numbers mostly hold small ones: keys, counts, amounts. And tuples that wait together
mostly have the same driver, the same stamp and the same number of runs. What is written and read back
costs more than to look for that, so each batch gets a `Form`: which of its columns are narrower
integers, and which are one value. Values are compared as signed numbers of their width, bit by bit, so
that unsigned ones, dates and times come back as they were, too. Columns with NULLs, floating-point
numbers and text are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Form", "narrowed", "widened"]

_SIGNED = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}
_RANGES = [(width, np.iinfo(f"i{width}")) for width in (1, 2, 4)]


@dataclass(frozen=True, slots=True)
class Form:
    """How the columns of a batch are written: the type of each, or the one value it has. `schema` is
    that of what is written; in memory a row takes `saved_row_bytes` more.
    """

    columns: tuple[pa.DataType | int, ...]
    saved_row_bytes: int
    schema: pa.Schema = field(compare=False, repr=False)


def narrowed(batch: pa.RecordBatch) -> tuple[Form, pa.RecordBatch]:
    """The form of `batch`, and what is to be written of it. There must be rows."""
    columns: list[pa.DataType | int] = []
    arrays = []
    for array in batch.columns:
        written = _narrow(array)
        if isinstance(written, int):
            columns.append(written)
        else:
            columns.append(written.type)
            arrays.append(written)
    saved = sum(array.type.byte_width for array in batch.columns if _is_integer(array.type))
    saved -= sum(array.type.byte_width for array in arrays if _is_integer(array.type))
    schema = pa.schema([(str(i), array.type) for i, array in enumerate(arrays)])
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Form(tuple(columns), saved, schema), rows


def widened(rows: pa.RecordBatch, form: Form, schema: pa.Schema, n_rows: int) -> pa.RecordBatch:
    """The `n_rows` of which `rows` were written, with the columns of `schema`."""
    written = iter(rows.columns)
    arrays = []
    for column, type_ in zip(form.columns, schema.types, strict=True):
        if isinstance(column, int):
            arrays.append(pa.array(np.full(n_rows, column, f"i{type_.byte_width}")).view(type_))
        elif column == type_:
            arrays.append(next(written))
        else:
            values = np.asarray(next(written)).astype(f"i{type_.byte_width}")
            arrays.append(pa.array(values).view(type_))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _narrow(array: pa.Array) -> pa.Array | int:
    values = _integers(array)
    if values is None:
        return array
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low
    for width, limits in _RANGES:
        if width < values.itemsize and limits.min <= low and high <= limits.max:
            return pa.array(values.astype(f"i{width}"))
    return array


def _integers(array: pa.Array) -> npt.NDArray[np.signedinteger] | None:
    """The values as signed integers, if that is what they are."""
    if not _is_integer(array.type) or array.null_count:
        return None
    values: npt.NDArray[np.signedinteger] = np.asarray(array.view(_SIGNED[array.type.byte_width]))
    return values


def _is_integer(type_: pa.DataType) -> bool:
    is_moment = pa.types.is_temporal(type_) and not pa.types.is_interval(type_)
    return bool(pa.types.is_integer(type_) or is_moment)
