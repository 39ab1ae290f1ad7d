"""Mirrors as one stream: the first is read, and when it fails or falls silent, the next.

An offset holds the place in every mirror and which of them is being read. A mirror whose turn comes
begins at its own start (or where it was left), so rows come again that another has delivered; whoever
builds them drops them, by `key` or as whole rows. What lies between two offsets is what lies between
the places in each mirror: an epoch that is run again reads the same mirrors.

The stream ends when one mirror does. When all have failed since the last row, the stream fails and
names what each said. Members must not fail after `latest` has promised rows: their parts carry the
rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from eddies.errors import EddiesError, SourceError
from eddies.sources.delivered import convert
from eddies.sources.streams.base import Offset, Part, Stream, offset_at

__all__ = ["MirroredStream"]

_SILENCE_S = 20.0  # of a mirror, after which another is tried
_LONGEST_GAP_S = 1.0


class MirroredStream:
    """`members` hold the same rows. `schema` and `key` are those of the first."""

    is_mirrored: ClassVar[bool] = True
    is_patient: ClassVar[bool] = True

    def __init__(
        self,
        label: str,
        members: Sequence[Stream],
        key: tuple[str, ...] = (),
        silence_s: float = _SILENCE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.key = key
        self.schema: pa.Schema = members[0].schema
        self._members = tuple(members)
        self._silence_s = silence_s
        self._now_s = now_s
        self._failures: dict[int, str] = {}  # since something came, by member
        self._active = -1
        self._silent_s = 0.0
        self._asked_s = now_s()

    def __reduce__(self) -> tuple[object, ...]:
        return MirroredStream, (self.label, self._members, self.key, self._silence_s, self._now_s)

    @property
    def n_mirrors(self) -> int:
        """How many there are. Their parts say which one they are of (`mirror`)."""
        return len(self._members)

    @property
    def n_rows(self) -> int | None:
        known = [member.n_rows for member in self._members if member.n_rows is not None]
        return known[0] if known else None

    def narrowed(self, columns: Sequence[str]) -> MirroredStream:
        members = [member.narrowed(columns) for member in self._members]
        return MirroredStream(self.label, members, self.key, self._silence_s, self._now_s)

    def start(self) -> Offset:
        return self._offset(0, [member.start() for member in self._members])

    def _offset(self, active: int, places: list[Offset]) -> Offset:
        members = zip(self._members, places, strict=True)
        is_end = any(member.is_end(place) for member, place in members)
        rows = sum(place["rows"] for place in places)
        return offset_at(rows, is_end=is_end, active=active, at=places)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        if offset["end"]:
            return offset
        active, places = offset["active"], list(offset["at"])
        self._listen(active)
        try:
            place = self._members[active].latest(places[active], most_rows)
        except EddiesError as error:
            self._failures[active] = str(error)
            if len(self._failures) == len(self._members):
                said = "; ".join(self._failures.values())
                self._failures = {}
                raise SourceError(f"every mirror of {self.label} failed: {said}") from error
            return self._offset(self._next(active), places)
        if place != places[active]:
            self._failures = {}
            self._silent_s = 0.0
            places[active] = place
            return self._offset(active, places)
        if self._silent_s > self._silence_s and self._next(active) != active:
            return self._offset(self._next(active), places)
        return offset

    def _listen(self, active: int) -> None:
        """Count for how long a mirror has been silent while it was asked."""
        now_s = self._now_s()
        if active != self._active:
            self._active, self._silent_s = active, 0.0
        else:  # an epoch that takes long is not the mirror's silence
            self._silent_s += min(now_s - self._asked_s, _LONGEST_GAP_S)
        self._asked_s = now_s

    def _next(self, active: int) -> int:
        """Whose turn it is after `active`: a member that has not failed, if there is one."""
        others = [(active + i) % len(self._members) for i in range(1, len(self._members) + 1)]
        return next((other for other in others if other not in self._failures), active)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        found: list[Part] = []
        places = zip(self._members, start["at"], end["at"], strict=True)
        for number, (member, first, last) in enumerate(places):
            if first != last:
                parts = member.parts(first, last)
                found += [_MemberPart(part, self.schema, number) for part in parts]
        return found


@dataclass(frozen=True, slots=True)
class _MemberPart:
    """A part of a mirror, in the types of the first: mirrors may differ in the width of texts."""

    part: Part
    schema: pa.Schema
    mirror: int

    @property
    def n_rows(self) -> int:
        return self.part.n_rows

    @property
    def is_patient(self) -> bool:
        return self.part.is_patient

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Part.read`."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for batch in self.part.read(columns):
            if not columns:
                yield batch
                continue
            arrays = [
                convert(array, field.type)
                for array, field in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
