"""Constants as columns, where the other part of a key comes from rows."""

from __future__ import annotations

import pyarrow as pa

from eddies.core.state.columns import Column, column_of

__all__ = ["constant_column"]


def constant_column(value: object, type_: pa.DataType, n_rows: int) -> Column:
    """A column that holds `value` in every row."""
    return column_of(pa.repeat(pa.scalar(value, type_), n_rows))
