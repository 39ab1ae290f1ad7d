"""A source that misbehaves on command: slow, bursty, late, stalled or failing.

For tests, for the papers' experiments and for trying out how a query behaves on bad days. Moments are
those of the host's clock, so under a virtual clock nothing really waits.

    Simulated(table, rows_per_s=1000, delay_s=10)              # starts late, then steady
    Simulated(table, burst_rows=500, pauses_s=[1, 0.2, 3])     # bursts with pauses between them
    Simulated(table, stall_after=1000, stall_s=30)             # one long gap (None: for ever)
    Simulated(table, fail_after=1000)                          # raises SourceError there
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat

import pyarrow as pa

from eddies.errors import SourceError

__all__ = ["NEVER_NS", "Simulated"]

NEVER_NS = 2**62  # due "for ever": a stall without end


class Simulated:
    """Rows of `table` on a schedule. Rows come in batches of `batch_rows`, each due when its last row
    would have arrived.
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        name: str = "simulated",
        batch_rows: int = 1000,
        rows_per_s: float | None = None,
        delay_s: float = 0.0,
        burst_rows: int | None = None,
        pauses_s: Iterable[float] = (),
        stall_after: int | None = None,
        stall_s: float | None = None,
        fail_after: int | None = None,
    ) -> None:
        self._name = name
        self._check("batch_rows", batch_rows, least=1)
        self._check("burst_rows", burst_rows, least=1)
        self._check("delay_s", delay_s)
        self._check("stall_after", stall_after)
        self._check("stall_s", stall_s)
        self._check("fail_after", fail_after)
        if rows_per_s is not None and not rows_per_s > 0:
            raise SourceError(f"rows_per_s of source {name!r} must be above 0, not {rows_per_s}")
        self.schema = table.schema
        self._table = table
        self._batch_rows = batch_rows
        self._ns_per_row = 0.0 if rows_per_s is None else 1e9 / rows_per_s
        self._burst_rows = burst_rows
        self._pauses = chain(pauses_s, repeat(0.0))
        self._stall_after = stall_after
        self._stall_s = stall_s
        self._fail_after = fail_after
        self._position = 0
        self._moment_ns = delay_s * 1e9
        self._due_ns = self._next_due()

    def _check(self, parameter: str, value: float | None, least: int = 0) -> None:
        if value is not None and not value >= least:
            raise SourceError(
                f"{parameter} of source {self._name!r} must be at least {least}, not {value}"
            )

    @property
    def n_rows(self) -> int | None:
        return int(self._table.num_rows)

    def _next_rows(self) -> int:
        """Size of the next batch: never across a pause, a stall or a failure."""
        ends = [self._position + self._batch_rows, self._table.num_rows]
        if self._burst_rows is not None:
            ends.append((self._position // self._burst_rows + 1) * self._burst_rows)
        for mark in (self._stall_after, self._fail_after):
            if mark is not None and mark > self._position:
                ends.append(mark)
        return int(min(ends)) - self._position

    def _next_due(self) -> int | None:
        if self._fail_after is not None and self._position >= self._fail_after:
            return int(self._moment_ns)
        if self._position >= self._table.num_rows:
            return None
        if self._position == self._stall_after:
            if self._stall_s is None:
                return NEVER_NS
            self._moment_ns += self._stall_s * 1e9
            self._stall_after = None
        if (
            self._burst_rows is not None
            and self._position
            and self._position % self._burst_rows == 0
        ):
            pause_s = next(self._pauses)
            self._check("pauses_s", pause_s)
            self._moment_ns += pause_s * 1e9
        return int(self._moment_ns + self._next_rows() * self._ns_per_row)

    def due_ns(self) -> int | None:
        return self._due_ns

    def take(self) -> pa.RecordBatch:
        if self._fail_after is not None and self._position >= self._fail_after:
            raise SourceError(f"source {self._name!r} failed after {self._position} rows, as asked")
        n_rows = self._next_rows()
        rows = self._table.slice(self._position, n_rows).combine_chunks().to_batches()
        batch = rows[0] if rows else pa.RecordBatch.from_pylist([], schema=self.schema)
        self._moment_ns += n_rows * self._ns_per_row
        self._position += n_rows
        self._due_ns = self._next_due()
        return batch
