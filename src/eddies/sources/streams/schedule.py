"""When the rows of a simulated source can be had.

Row n (from 1) is due, in seconds after the beginning, at

    delay_s + n / rows_per_s + the pauses before its burst + the stall if it comes after that

A pause follows every `burst_rows` rows. Pauses are drawn from a Pareto distribution, as in the papers'
experiments with bursty sources: most are short, a few are very long. They follow from the seed alone,
in the order of the bursts, so any process can tell when a row is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eddies.errors import SourceError

__all__ = ["Schedule"]

_DRAWS_AT_ONCE = 4096
_NEVER_S = float("inf")


@dataclass(frozen=True, slots=True)
class Schedule:
    """See the module docstring. `pause_s` is the mean of the pauses; `pause_shape` is Pareto's, above
    1 (the nearer to 1, the longer the longest pauses). `stall_s` None: for ever. After `fail_after`
    rows the source fails `fail_times` times (None: for ever).
    """

    rows_per_s: float | None = None
    delay_s: float = 0.0
    burst_rows: int | None = None
    pause_s: float | None = None
    pause_shape: float = 1.5
    stall_after: int | None = None
    stall_s: float | None = None
    fail_after: int | None = None
    fail_times: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows_per_s is not None and not self.rows_per_s > 0:
            raise SourceError(f"rows_per_s must be above 0, not {self.rows_per_s}")
        if not self.pause_shape > 1:
            raise SourceError(f"pause_shape must be above 1, not {self.pause_shape}")
        if self.burst_rows is not None and self.burst_rows < 1:
            raise SourceError(f"burst_rows must be at least 1, not {self.burst_rows}")
        for name in ("delay_s", "pause_s", "stall_after", "stall_s", "fail_after", "fail_times"):
            given = getattr(self, name)
            if given is not None and not given >= 0:
                raise SourceError(f"{name} must be at least 0, not {given}")
        for name, other in (("burst_rows", "pause_s"), ("pause_s", "burst_rows")):
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise SourceError(f"{name} needs {other}: bursts are what lies between pauses")
        for name, other in (("stall_s", "stall_after"), ("fail_times", "fail_after")):
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise SourceError(f"{name} needs {other}: after how many rows")

    def due_s(self, n: int) -> float:
        """When row n (from 1) is due. Never falls from one row to the next."""
        due = self.delay_s
        if n < 1:
            return due
        if self.rows_per_s is not None:
            due += n / self.rows_per_s
        if self.burst_rows is not None and self.pause_s is not None:
            due += self._pauses_before_s((n - 1) // self.burst_rows)
        if self.stall_after is not None and n > self.stall_after:
            due += _NEVER_S if self.stall_s is None else self.stall_s
        return due

    def n_due(self, elapsed_s: float, first: int, most_rows: int) -> int:
        """How many of the `most_rows` rows after the first `first` are due."""
        low, high = 0, most_rows
        while low < high:
            middle = (low + high + 1) // 2
            if self.due_s(first + middle) <= elapsed_s:
                low = middle
            else:
                high = middle - 1
        return low

    def _pauses_before_s(self, burst: int) -> float:
        """The sum of the first `burst` pauses."""
        mean_s = self.pause_s or 0.0
        shortest_s = mean_s * (self.pause_shape - 1) / self.pause_shape
        return shortest_s * _draws(self.seed, self.pause_shape).sum_of_first(burst)


class _Draws:
    """Draws from a Pareto distribution whose least value is 1, made as they are needed."""

    def __init__(self, seed: int, shape: float) -> None:
        self._seed = seed
        self._shape = shape
        self._sums = np.zeros(1)

    def sum_of_first(self, n: int) -> float:
        while n >= self._sums.shape[0]:
            block = self._sums.shape[0] // _DRAWS_AT_ONCE
            generator = np.random.default_rng([self._seed, block])
            draws = 1.0 + generator.pareto(self._shape, _DRAWS_AT_ONCE)
            self._sums = np.append(self._sums, self._sums[-1] + np.cumsum(draws))
        return float(self._sums[n])


@lru_cache(maxsize=64)
def _draws(seed: int, shape: float) -> _Draws:
    return _Draws(seed, shape)
