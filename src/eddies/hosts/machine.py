"""The machine that `eddies.hosts.queued` simulates, as it is declared: sizes, rates and costs.

What an experiment of the original eddy's paper says about its hardware is said here: how many rows fit,
how fast a scan delivers, what a module takes for a row. All of it is in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from eddies.errors import OptionError

__all__ = ["Limits", "Moment", "Scan", "Service"]


@dataclass(frozen=True, slots=True)
class Moment:
    """What a declared cost may depend on: virtual time, and rows read from all scans so far."""

    now_ns: int
    n_read: int


@dataclass(frozen=True, slots=True)
class Service:
    """The declared cost of a module: per row in (may depend on the moment) and per row out."""

    in_ns: float | Callable[[Moment], float]
    out_ns: float = 0.0
    sleeps: bool = False

    def cost_ns(self, moment: Moment, n_in: int, n_out: int) -> float:
        """Service time of a batch that begins now."""
        in_ns = self.in_ns(moment) if callable(self.in_ns) else self.in_ns
        return in_ns * n_in + self.out_ns * n_out


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the machine in rows: all rows in the eddy, one queue, one batch."""

    buffer_rows: int
    queue_rows: int
    batch_rows: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.batch_rows <= min(self.queue_rows, self.buffer_rows):
            raise OptionError(
                f"batch_rows={self.batch_rows} must be at least 1 and fit into queue_rows="
                f"{self.queue_rows} and buffer_rows={self.buffer_rows}"
            )


@dataclass(frozen=True, slots=True)
class Scan:
    """A relation that is read: as fast as it is wanted, or at a rate, from `delay_s` on."""

    table: pa.Table
    rows_per_s: float | None = None
    delay_s: float = 0.0

    def due_ns(self, position: int) -> float:
        """When the row at `position` can be had."""
        read_s = position / self.rows_per_s if self.rows_per_s is not None else 0.0
        return (self.delay_s + read_s) * 1e9
