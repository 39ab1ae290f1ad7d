"""`a.x + b.y + c.z` over integers, without Arrow.

Results often come in pieces of a few hundred rows. To hand them to Arrow costs a twentieth of a
millisecond for every column and every addition, whatever the rows: more than the join that made them.
A chain of additions of 64-bit columns is therefore added up where the rows lie.

It gives the same numbers as `evaluate`, or None: where a value is NULL, a column is kept in another
form, or a sum is beyond its type. Then `evaluate` has the word, and the error.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import RoutedBatch
from eddies.core.expr import Call, Column, Expr
from eddies.core.kernels.jit import BRIEF_ROWS
from eddies.core.kernels.sums import add_rows, add_rows_brief
from eddies.core.state.columns import FixedColumn

__all__ = ["IntegerChain", "integers"]

_INT64 = pa.int64()


class IntegerChain:
    """One or more columns that are added from left to right."""

    __slots__ = ("columns",)

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns

    @classmethod
    def of(cls, expr: Expr) -> Self | None:
        """The chain that `expr` is; None if it is something else. Types are looked at later."""
        added: list[Column] = []
        while isinstance(expr, Call) and expr.function == "add" and len(expr.args) == 2:
            expr, last = expr.args
            if not isinstance(last, Column):
                return None
            added.append(last)
        if not isinstance(expr, Column):
            return None
        return cls((expr, *reversed(added)))

    def values(self, batch: RoutedBatch) -> npt.NDArray[np.int64] | None:
        """The sum for each row of `batch`; None if it has to be computed in another way."""
        totals: npt.NDArray[np.int64] | None = None
        add = add_rows_brief if batch.n_rows <= BRIEF_ROWS else add_rows
        for column in self.columns:
            values = integers(batch, column)
            if values is None:
                return None
            if totals is None:
                totals = values
            else:
                if not totals.flags.owndata:
                    totals = totals.copy()
                if not add(totals, values):
                    return None
        return totals


def integers(batch: RoutedBatch, column: Column) -> npt.NDArray[np.int64] | None:
    """The values of a column for the rows of `batch`, if none of them can be NULL."""
    source_id = batch.origin.source_ids[column.source]
    stored = batch.origin.places[source_id].column(column.name)
    if not isinstance(stored, FixedColumn) or stored.type != _INT64:
        return None
    ids = batch.ids[source_id]
    if stored.valid(ids) is not None:
        return None
    return stored.words(ids).view(np.int64)
