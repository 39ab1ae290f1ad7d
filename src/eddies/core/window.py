"""How far back the rows of one source are joined, as it is written in `Options(window=...)`.

    "10 minutes"                          a time window; the time column is the watermarked one
    ("sold_at", "30 seconds")             a time window over the column sold_at
    ("sold_at", "30 seconds", "5 seconds")   ... whose rows come at most 5 seconds out of order
    ("number", 1000)                      a window over a column of integers
    "1000 rows"                           a row window

What a window means is said in `eddies.streaming.windows`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from eddies.errors import OptionError

__all__ = ["Duration", "GivenWindow", "WindowText", "parse_windows"]

Duration = str | int | timedelta
WindowText = Duration | tuple[str, Duration] | tuple[str, Duration, Duration]
Unit = Literal["microseconds", "steps", "rows"]

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_EXAMPLES = (
    'for example "10 minutes", ("sold_at", "30 seconds"), ("sold_at", "30 seconds", "5 seconds"), '
    '("number", 1000) or "1000 rows"'
)
_LONGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class GivenWindow:
    """A window as it was asked for. `steps` are those of a column of integers.

    `delay` is how much a row may be older than one that came before it, in the same unit; None: nobody
    has said.
    """

    length: int
    unit: Unit
    column: str | None = None
    delay: int | None = None


def parse_windows(given: object) -> dict[str, GivenWindow]:
    """The windows by name of their source; raises `OptionError` if one makes no sense."""
    if not isinstance(given, Mapping):
        raise OptionError(f"window must be a mapping from source names to windows, {_EXAMPLES}")
    found = {}
    for name, text in given.items():
        if not isinstance(name, str):
            raise OptionError(f"window names a source by {name!r}; write its name as text")
        found[name] = _window(name, text)
    return found


def _window(name: str, text: object) -> GivenWindow:
    column, delay = None, None
    length: object = text
    if isinstance(text, tuple | list):
        if not 2 <= len(text) <= 3 or not isinstance(text[0], str):
            raise OptionError(
                f"window of {name!r} must be a length, or (column, length) or (column, length, "
                f"delay), not {text!r}; {_EXAMPLES}"
            )
        column, length = text[0], text[1]
        delay = text[2] if len(text) == 3 else None
    n, unit = _measured(name, length, "length")
    if n < 1:
        raise OptionError(f"window of {name!r} must be longer than nothing, not {length!r}")
    if unit == "rows" and column is not None:
        raise OptionError(
            f"window of {name!r}: {length!r} counts rows, whatever is in column {column!r}; write "
            f"{length!r} alone, or a length of time"
        )
    n_delay = None
    if delay is not None:
        n_delay, delay_unit = _measured(name, delay, "delay")
        if delay_unit != unit:
            raise OptionError(
                f"window of {name!r}: its length {length!r} and its delay {delay!r} must both be "
                "times, or both be numbers"
            )
    if unit == "steps" and column is None:
        raise OptionError(
            f"window of {name!r}: the number {length!r} needs a column of integers, as in "
            f'("number", {length!r}); or write for example "{length} rows" or "{length} seconds"'
        )
    return GivenWindow(n, unit, column, n_delay)


def _measured(name: str, given: object, what: str) -> tuple[int, Unit]:
    n, unit = -1, "microseconds"
    if isinstance(given, timedelta):
        n = given // timedelta(microseconds=1)
    elif isinstance(given, int) and not isinstance(given, bool):
        n, unit = given, "steps"
    elif isinstance(given, str):
        n, unit = _measured_text(given)
    if not 0 <= n < _LONGEST:
        raise OptionError(
            f"window of {name!r}: {given!r} is not a {what}; {_EXAMPLES}. Units are "
            f"{', '.join(f'{unit}s' for unit in _MICROSECONDS)} and rows"
        )
    return n, unit  # type: ignore[return-value]


def _measured_text(text: str) -> tuple[int, str]:
    """A number and its unit; a negative number if the text is neither."""
    lower = text.strip().lower()
    if lower.isdecimal():
        return int(lower), "steps"
    rows = re.fullmatch(r"([0-9]+)\s*rows?", lower)
    if rows:
        return int(rows[1]), "rows"
    parts = list(_PART.finditer(lower))
    units = [part[2].removesuffix("s") for part in parts]
    rest = _PART.sub("", lower).strip()
    if not parts or rest or not all(unit in _MICROSECONDS for unit in units):
        return -1, "microseconds"
    total = sum(
        float(part[1]) * _MICROSECONDS[unit] for part, unit in zip(parts, units, strict=True)
    )
    return round(total), "microseconds"
