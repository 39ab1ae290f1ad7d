"""How fast a scan runs, and so how long it will be until it brings a row somebody looks for."""

from __future__ import annotations

from eddies.core.clock import Clock

__all__ = ["ScanPace"]


class ScanPace:
    """Counts arrivals of one relation. `expected_rows` is 0 if nobody knows."""

    def __init__(self, clock: Clock, expected_rows: int) -> None:
        self._clock = clock
        self._expected_rows = expected_rows
        self._n_rows = 0
        self._first_ns = -1

    def start(self) -> None:
        """The query begins."""
        if self._first_ns < 0:
            self._first_ns = self._clock.now_ns()

    def arrived(self, n_rows: int) -> None:
        """Rows came."""
        self.start()
        self._n_rows += n_rows

    def wait_ns(self) -> float | None:
        """Expected time until a row that has not come arrives; None if nothing has come yet.

        Rows come in any order, so it is half of what the rest takes. If nobody knows how much there
        is, the rest is believed to be as much as has come.
        """
        elapsed_ns = self._clock.now_ns() - self._first_ns
        if self._n_rows == 0 or elapsed_ns <= 0:
            return None
        rest = self._n_rows
        if self._expected_rows:
            rest = max(0, self._expected_rows - self._n_rows)
        return rest * elapsed_ns / self._n_rows / 2
