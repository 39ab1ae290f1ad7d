"""What a batch can be routed to.

A *module* has state and outlives batches: a SteM, an expensive selection. A *step* is a
module as seen from one signature, compiled once: which index to look into, which predicates to check
on the way. The route table holds steps; the eddy runs them and never asks what kind they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from eddies.core.batch import RoutedBatch
from eddies.core.state.scratch import Scratch

__all__ = ["Module", "Outcome", "Step"]

Outcome = tuple[RoutedBatch | None, Iterator[RoutedBatch] | None]
"""What comes back: a batch if any row did, and, if there is more to come, where to ask for it."""


class Module(Protocol):
    """Something with state that batches are routed to."""

    name: str

    @property
    def n_bytes(self) -> int:
        """Memory the module's state holds."""
        ...

    def release(self) -> None:
        """Drop the state; nothing may be routed to the module afterwards."""
        ...


class Step(Protocol):
    """A module as seen from one signature."""

    name: str

    @property
    def most_matches(self) -> float:
        """More tuples cannot come of one, if state is up to date; infinite if nobody knows."""
        ...

    def prepare(self, scratch: Scratch) -> int:
        """Bring state up to date before the clock starts; returns the rows that were indexed."""
        ...

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        """Process a batch of at least one row. A batch that comes back has at least one row."""
        ...
