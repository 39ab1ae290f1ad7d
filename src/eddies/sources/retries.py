"""Trying again: a source that lies elsewhere may be away for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from eddies.errors import SourceError

__all__ = ["Patience"]

T = TypeVar("T")
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a source is given: attempts with pauses that double, and `timeout_s` in all."""

    retries: int = 8
    backoff_s: float = 0.1
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.retries < 0 or self.backoff_s < 0 or self.timeout_s <= 0:
            raise SourceError(
                "retries and backoff_s must be at least 0 and timeout_s above 0, not "
                f"{self.retries}, {self.backoff_s} and {self.timeout_s}"
            )

    def call(
        self, what: str, attempt: Callable[[], T], is_passing: Callable[[Exception], bool]
    ) -> T:
        """The result of `attempt`, tried again while what it raises `is_passing`.

        Raises `SourceError` saying what failed, how often, and how.
        """
        deadline = time.monotonic() + self.timeout_s
        pause_s = self.backoff_s
        for number in range(1, self.retries + 2):
            try:
                return attempt()
            except Exception as error:  # noqa: BLE001 - drivers raise anything
                if not is_passing(error):
                    raise SourceError(f"{what}: {_said(error)}") from None
                if number > self.retries or time.monotonic() + pause_s > deadline:
                    raise SourceError(
                        f"{what} failed {number} times, at last: {_said(error)}. Repair the source, "
                        "add a mirror, or allow more retries or a longer timeout_s"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("the loop returns or raises")


def _said(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return first or type(error).__name__
