"""The watermark of a cell, and what it follows from. See `eddies.streaming.windows`.

A `Moment` is what a cell knows at the beginning of an epoch. It is a function of the log before that
epoch. Where the log has left rows out, the moment after them is written in their place (`to_bytes`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from eddies.errors import StateError
from eddies.streaming.windows import RowWindow, TimeWindow, Window

__all__ = ["Moment", "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What has come of one relation: rows in all, late ones among them, and the latest time."""

    n_rows: int = 0
    n_late: int = 0
    latest: int | None = None
    has_ended: bool = False

    def arrived(self, n_rows: int, n_late: int, latest: int | None) -> Seen:
        """The same after more rows."""
        known = [time for time in (self.latest, latest) if time is not None]
        return replace(
            self,
            n_rows=self.n_rows + n_rows,
            n_late=self.n_late + n_late,
            latest=max(known, default=None),
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """The watermark, None if there is none yet, and what has been seen of every streaming relation."""

    watermark: int | None = None
    seen: Mapping[str, Seen] = field(default_factory=dict)

    def after(self, seen: Mapping[str, Seen], windows: Mapping[str, Window]) -> Moment:
        """The moment after an epoch at whose end this was seen."""
        held_back = [n for n, s in seen.items() if n not in windows and not s.has_ended]
        if held_back:
            return Moment(self.watermark, dict(seen))
        marks: list[int | None] = []
        for name, window in windows.items():
            if isinstance(window, TimeWindow) and not seen[name].has_ended:
                latest = seen[name].latest
                marks.append(None if latest is None else latest - window.delay)
        watermark = self.watermark
        known = [mark for mark in marks if mark is not None]
        if known and len(known) == len(marks):
            watermark = min(known) if watermark is None else max(watermark, min(known))
        return Moment(watermark, dict(seen))

    def horizon(self, name: str, window: Window) -> int | None:
        """The position up to which rows of a relation can never join again, None if there is none.

        Positions are times, or the numbers of rows where rows are counted.
        """
        if isinstance(window, RowWindow):
            return self.seen[name].n_rows - window.n_rows - 1
        return None if self.watermark is None else self.watermark - window.length

    def to_bytes(self) -> bytes:
        """For a file."""
        seen = {name: asdict(known) for name, known in self.seen.items()}
        return json.dumps({"watermark": self.watermark, "seen": seen}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Moment:
        """What `to_bytes` made these of."""
        try:
            values = json.loads(content)
            seen = {name: Seen(**known) for name, known in values["seen"].items()}
            return cls(values["watermark"], seen)
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the epoch log has a note that cannot be read ({error}); restore it, or start again "
                "with an empty checkpoint"
            ) from error
