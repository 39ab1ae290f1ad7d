"""Time, passed in. The engine never asks the operating system what time it is.

`RealClock` measures. `VirtualClock` moves only when someone advances it: simulated sources and
modules with a declared cost do, so that an experiment of an hour takes a second and gives the same
figures every time.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "RealClock", "VirtualClock"]


class Clock(Protocol):
    """Nanoseconds since some fixed moment; never goes back."""

    def now_ns(self) -> int: ...

    def worked_ns(self) -> int:
        """Nanoseconds that this thread has computed: time does not pass while others have the
        processor or the interpreter, or while the thread sleeps.
        """
        ...

    def sleep_until_ns(self, moment_ns: int) -> None:
        """Return when `now_ns()` is at least `moment_ns`."""
        ...


class RealClock:
    """The monotonic clock of the machine."""

    now_ns = staticmethod(time.perf_counter_ns)
    worked_ns = staticmethod(time.thread_time_ns)

    def sleep_until_ns(self, moment_ns: int) -> None:
        remaining_ns = moment_ns - self.now_ns()
        if remaining_ns > 0:
            time.sleep(remaining_ns / 1e9)


class VirtualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def worked_ns(self) -> int:
        """The same as `now_ns`: whatever passes was declared as work."""
        return self._now_ns

    def advance_ns(self, elapsed_ns: int) -> None:
        """Let `elapsed_ns` pass."""
        if elapsed_ns < 0:
            raise ValueError(f"a clock cannot go back by {-elapsed_ns} ns")
        self._now_ns += elapsed_ns

    def sleep_until_ns(self, moment_ns: int) -> None:
        self._now_ns = max(self._now_ns, moment_ns)
