"""What the engine tells the world. Facts only; who listens decides what to do with them.

With no sink installed the cost is one check a batch. Trace files, dashboards and tests are all
readers of the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eddies.core.lineage import Signature

__all__ = [
    "Built",
    "Event",
    "EventSink",
    "Finished",
    "Indexed",
    "LookupFailed",
    "LookupIssued",
    "LookupReturned",
    "Migrated",
    "MirrorDiffers",
    "Reoptimized",
    "Routed",
    "ScanFailed",
    "SourceEnded",
]


@dataclass(frozen=True, slots=True)
class Built:
    """A base batch came in: `n_rows` after entry selections, of `n_arrived`."""

    at_ns: int
    source: str
    n_arrived: int
    n_rows: int
    stored: bool


@dataclass(frozen=True, slots=True)
class Indexed:
    """`n_rows` stored rows were entered into an index because a probe needed it."""

    at_ns: int
    module: str
    n_rows: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class Routed:
    """A batch went to a module and `n_out` rows came back (so far, when the probe is paused)."""

    at_ns: int
    signature: Signature
    module: str
    n_in: int
    n_out: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class Reoptimized:
    """A safe point: all decisions were renewed, which took `elapsed_ns`."""

    at_ns: int
    n_driver_rows: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """A relation delivered its last row."""

    at_ns: int
    source: str
    n_rows: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete."""

    at_ns: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class LookupIssued:
    """An index of `source` was asked for `n_keys` keys."""

    at_ns: int
    source: str
    index: str
    n_keys: int


@dataclass(frozen=True, slots=True)
class LookupReturned:
    """An index gave `n_rows` rows for `n_keys` keys, `elapsed_ns` after it was asked."""

    at_ns: int
    source: str
    index: str
    n_keys: int
    n_rows: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """An index did not answer, or not in time; its keys are asked for again elsewhere or later."""

    at_ns: int
    source: str
    index: str
    n_keys: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScanFailed:
    """One of several scans of a relation failed; the others go on."""

    at_ns: int
    source: str
    scan: str
    reason: str


@dataclass(frozen=True, slots=True)
class MirrorDiffers:
    """`n_rows` rows came by `access` with the key of a stored row but other values; dropped.

    `example` shows one of them.
    """

    at_ns: int
    source: str
    access: str
    n_rows: int
    example: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """STAIRs were rewritten to hold `forms`, such as "S.a=S⋈T" (what is not named holds rows).

    `n_moved` tuples were promoted, `n_made` joined tuples came of them; in all, `n_handled` tuples were
    stored, looked up or produced, in stages, the last of them `elapsed_ns` after the first began.
    """

    at_ns: int
    forms: str
    n_moved: int
    n_made: int
    n_handled: int
    elapsed_ns: int


Event = (
    Built
    | Indexed
    | Routed
    | Reoptimized
    | SourceEnded
    | Finished
    | LookupIssued
    | LookupReturned
    | LookupFailed
    | ScanFailed
    | MirrorDiffers
    | Migrated
)


class EventSink(Protocol):
    """Receives events, on the thread where they happen and before that thread goes on.

    With `Options(threads=...)` above one, they come from several threads, each in its own order and
    possibly at the same time: a sink must be safe for that. What it raises fails the query.
    """

    def emit(self, event: Event) -> None: ...
