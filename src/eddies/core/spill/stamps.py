"""Limits of drivers by number, so that tuples of many drivers can wait in one file.

A tuple that waits keeps what its driver may match (`exactly_once`). Written beside every tuple, that
would be a number for each source; instead it is one number, the driver's *stamp*, under which this
table knows the limits. Drivers with equal limits share a stamp: all of a relation that is not stored.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["StampTable"]

Stamps = npt.NDArray[np.int32]


class StampTable:
    """Limits by stamp. Safe to use from several threads: entries are only added."""

    def __init__(self, n_sources: int) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._limits = np.empty((64, n_sources), dtype=np.int32)
        self._lock = threading.Lock()

    @property
    def n_bytes(self) -> int:
        return int(self._limits.nbytes) + 120 * len(self._numbers)

    def stamp(self, limits: tuple[int, ...]) -> int:
        """The stamp of `limits`."""
        number = self._numbers.get(limits)
        if number is None:
            with self._lock:
                number = self._numbers.get(limits)
                if number is None:
                    number = self._add(limits)
        return number

    def _add(self, limits: tuple[int, ...]) -> int:
        number = len(self._numbers)
        if number == self._limits.shape[0]:
            grown = np.empty((2 * number, self._limits.shape[1]), dtype=np.int32)
            grown[:number] = self._limits
            self._limits = grown
        self._limits[number] = limits
        self._numbers[limits] = number
        return number

    def limits(self, stamp: int) -> tuple[int, ...]:
        """The limits of one stamp."""
        return tuple(int(limit) for limit in self._limits[stamp])

    def highest(self, stamps: Stamps) -> tuple[int, ...]:
        """For each source the highest limit of any of `stamps` (at least one)."""
        return tuple(int(limit) for limit in self._limits[np.unique(stamps)].max(axis=0))

    def limits_of(self, stamps: Stamps, source: int) -> Stamps:
        """The limits of `source` for each of `stamps`."""
        limits: Stamps = self._limits[stamps, source]
        return limits
