"""What the values of a column are in Parquet's pages, and what they become in Arrow.

Only columns whose values need no more than being widened are listed here: flat ones, of whole numbers,
floats, dates, times, decimals and text. Everything else is left to Arrow's own reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyarrow import types as kinds

__all__ = ["Layout", "layout_of"]

_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MOST_DECIMAL_BYTES = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """How a column lies in pages. `dtype` is that of its values there; None for text.

    `type` is Arrow's (text, where Arrow's reader gives views of text), `is_optional` says whether there
    are levels that tell which rows are NULL.
    """

    type: pa.DataType
    dtype: np.dtype[np.generic] | None
    is_optional: bool


def layout_of(column: parquet.ColumnSchema, type_: pa.DataType) -> Layout | None:
    """The layout of a column that Arrow reads as `type_`; None if Arrow should read it."""
    if column.max_repetition_level or column.max_definition_level > 1 or "." in column.path:
        return None
    is_optional = column.max_definition_level == 1
    physical = column.physical_type
    if physical == "BYTE_ARRAY":
        text = _text(type_)
        return None if text is None else Layout(text, None, is_optional)
    dtype = _dtype(column, physical)
    if dtype is None or not _is_plain(column, physical, type_):
        return None
    return Layout(type_, dtype, is_optional)


def _text(type_: pa.DataType) -> pa.DataType | None:
    """Views of text are not kept by whoever reads them, and are read as text at once."""
    if kinds.is_string(type_) or kinds.is_string_view(type_):
        return pa.string()
    return pa.binary() if kinds.is_binary(type_) or kinds.is_binary_view(type_) else None


def _dtype(column: parquet.ColumnSchema, physical: str) -> np.dtype[np.generic] | None:
    match physical:
        case "INT32":
            return np.dtype(np.int32)
        case "INT64":
            return np.dtype(np.int64)
        case "FLOAT":
            return np.dtype(np.float32)
        case "DOUBLE":
            return np.dtype(np.float64)
        case "FIXED_LEN_BYTE_ARRAY" if 0 < column.length <= _MOST_DECIMAL_BYTES:
            return np.dtype(f"V{column.length}")
        case _:
            return None


def _is_plain(column: parquet.ColumnSchema, physical: str, type_: pa.DataType) -> bool:
    """Whether the numbers in pages are those of the Arrow array, but for their width."""
    if kinds.is_decimal128(type_):
        is_same = (column.precision, column.scale) == (type_.precision, type_.scale)
        return is_same and physical in ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")
    match physical:
        case "INT32":
            return bool(kinds.is_date32(type_)) or _is_whole(type_, 8, 16, 32)
        case "INT64":
            if kinds.is_timestamp(type_):
                unit = _UNITS.get(type_.unit)
                return unit is not None and f"timeUnit={unit}" in str(column.logical_type)
            return _is_whole(type_, 64)
        case "FLOAT":
            return bool(kinds.is_float32(type_))
        case "DOUBLE":
            return bool(kinds.is_float64(type_))
        case _:
            return False


def _is_whole(type_: pa.DataType, *widths: int) -> bool:
    return bool(kinds.is_integer(type_)) and type_.bit_width in widths
