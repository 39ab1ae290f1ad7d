"""Counts and sums of integers over all rows: what an aggregation without groups mostly asks for.

Results come in pieces, often of a few hundred rows. To reduce each of them to a partial table costs a
tenth of a millisecond, as much as the join that made it; to add to a few numbers costs the addition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.kernels.jit import BRIEF_ROWS
from eddies.core.kernels.sums import sum_parts, sum_parts_brief
from eddies.core.query import Aggregate

__all__ = ["LOW_BITS", "Totals"]

LOW_BITS = 32  # of a sum are kept apart, so that neither part overflows
_INT64 = pa.int64()

Integers = npt.NDArray[np.int64]


class Totals:
    """Running totals of `aggregates`. `can_add` says whether it is made for their arguments."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._is_sum = [aggregate.function == "sum" for aggregate in aggregates]
        self._n_valid = [0] * len(aggregates)
        self._sums = [0] * len(aggregates)

    @staticmethod
    def can_add(aggregates: Sequence[Aggregate], arguments: Sequence[pa.Array | None]) -> bool:
        """Whether all `aggregates`, of `arguments` (None: of rows), are counts or sums of integers."""
        return all(
            aggregate.function in ("count_star", "count")
            or (
                aggregate.function == "sum"
                and argument is not None
                and pa.types.is_signed_integer(argument.type)
            )
            for aggregate, argument in zip(aggregates, arguments, strict=True)
        )

    def add(self, n_rows: int, arguments: Sequence[pa.Array | None]) -> None:
        """Take in the arguments of so many rows."""
        for i, argument in enumerate(arguments):
            n_nulls = 0 if argument is None else argument.null_count
            self._n_valid[i] += n_rows - n_nulls
            if argument is None or not self._is_sum[i]:
                continue
            values = argument.drop_null() if n_nulls else argument
            values = values if values.type == _INT64 else values.cast(_INT64)
            first, n = values.offset, len(values)
            self._add_sum(i, np.frombuffer(values.buffers()[1], np.int64, first + n)[first:])

    def add_integers(self, n_rows: int, arguments: Sequence[Integers | None]) -> None:
        """`add` for arguments that are numbers already, none of them NULL."""
        for i, argument in enumerate(arguments):
            self._n_valid[i] += n_rows
            if argument is not None:
                self._add_sum(i, argument)

    def _add_sum(self, i: int, values: Integers) -> None:
        high, low = (sum_parts_brief if values.shape[0] <= BRIEF_ROWS else sum_parts)(values)
        self._sums[i] += (high << LOW_BITS) + low

    def columns(self) -> dict[str, pa.Array]:
        """The totals as partial columns of one group: a sum as two parts, NULL if there is no value."""
        found = {}
        for i, n_valid in enumerate(self._n_valid):
            if not self._is_sum[i]:
                found[f"a{i}"] = pa.array([n_valid], _INT64)
                continue
            total = self._sums[i]
            parts = (total >> LOW_BITS, total & (1 << LOW_BITS) - 1) if n_valid else (None, None)
            found[f"a{i}_high"] = pa.array(parts[:1], _INT64)
            found[f"a{i}_low"] = pa.array(parts[1:], _INT64)
        return found
