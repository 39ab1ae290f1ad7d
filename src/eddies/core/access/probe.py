"""Probing a source whose rows may have to be asked for: probe, bounce, ask (SteMs, section 3.3).

The SteM is the cache of the look-ups: a batch probes it first. Rows that an EOT covers have found all
their matches. The others are *bounced*: they become prior probers, which may go nowhere but to an index
of the same source (*ProbeCompletion*). There they ask, unless somebody has asked already, and are let
go: they are stored in their own SteMs, which are the *rendezvous buffers* in which the rows that come
back will find them.

A batch whose driver was not stored cannot be found by anybody, so its bounced rows wait until an EOT
covers them, and only then probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from eddies.core.access.binding import Option
from eddies.core.access.constants import constant_column
from eddies.core.batch import Ids, RoutedBatch
from eddies.core.lineage import Signature
from eddies.core.module import Outcome
from eddies.core.modules.stem import Probe
from eddies.core.route import Route
from eddies.core.state.columns import Column
from eddies.core.state.keys import KeySide
from eddies.core.state.scratch import Scratch

__all__ = ["AccessProbe", "Asker", "LetGo", "key_side"]


class Asker(Protocol):
    """Who has rows looked up; the state mode."""

    def uncovered(self, target: int, options: Sequence[Option], sides: Sequence[KeySide]) -> Ids:
        """Positions of the rows that may still lack matches in the SteM of `target`."""
        ...

    def ask(
        self,
        target: int,
        options: Sequence[Option],
        sides: Sequence[KeySide],
        positions: Ids,
        *,
        preferred: bool = False,
    ) -> None:
        """Have the rows for the keys at `positions` looked up, before others if `preferred`."""
        ...

    def preferred(self, batch: RoutedBatch, sources: int, positions: Ids) -> Ids:
        """Those of `positions` with rows that the user prefers to see."""
        ...

    def let_wait(
        self,
        batch: RoutedBatch,
        signature: Signature,
        target: int,
        options: Sequence[Option],
        sides: Sequence[KeySide],
    ) -> None:
        """Keep a batch nobody else can find, until its keys are covered."""
        ...


def key_side(option: Option, batch: RoutedBatch, sources: int) -> KeySide:
    """The values of the option's bind columns, row by row of the batch."""
    side: list[tuple[Column, Ids | None]] = []
    for bind in option.binds:
        if bind.constant is not None:
            column = constant_column(bind.constant.value, bind.type, batch.n_rows)
            side.append((column, None))
            continue
        source = next(s for s in sorted(bind.column_by_source) if sources >> s & 1)
        place = batch.origin.places[source]
        side.append((place.column(bind.column_by_source[source]), batch.ids[source]))
    return side


class AccessProbe:
    """The step that adds a source which indexes reach; `options` are those the signature can bind.

    `goes_on` is None under ProbeCompletion. Otherwise, against the rule, it is where bounced rows go
    on: only to show that the rule is needed.
    """

    def __init__(
        self,
        probe: Probe,
        asker: Asker,
        target: int,
        signature: Signature,
        options: tuple[Option, ...],
        goes_on: Route | None,
    ) -> None:
        self.name = probe.name
        self._probe = probe
        self._asker = asker
        self._target = target
        self._signature = signature
        self._options = options
        self._goes_on = goes_on

    @property
    def most_matches(self) -> float:
        """Without those that look-ups will bring."""
        return self._probe.most_matches

    def prepare(self, scratch: Scratch) -> int:
        return self._probe.prepare(scratch)

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        sides = [key_side(o, batch, self._signature.sources) for o in self._options]
        uncovered = self._asker.uncovered(self._target, self._options, sides)
        if uncovered.shape[0] == 0:
            return self._probe.run(batch, scratch)
        preferred = self._asker.preferred(batch, self._signature.sources, uncovered)
        if preferred.shape[0]:
            self._asker.ask(self._target, self._options, sides, preferred, preferred=True)
        if preferred.shape[0] < uncovered.shape[0]:
            others = np.setdiff1d(uncovered, preferred, assume_unique=True)
            self._asker.ask(self._target, self._options, sides, others)
        if batch.origin.first_row < 0:
            bounced = batch.picked(batch.route, uncovered)
            sources = self._signature.sources
            bounced_sides = [key_side(o, bounced, sources) for o in self._options]
            self._asker.let_wait(
                bounced, self._signature, self._target, self._options, bounced_sides
            )
            is_covered = np.ones(batch.n_rows, dtype=np.bool_)
            is_covered[uncovered] = False
            if not is_covered.any():
                return None, None
            return self._probe.run(batch.kept(batch.route, is_covered), scratch)
        if self._goes_on is None:
            return self._probe.run(batch, scratch)
        found, more = self._probe.run(batch, scratch)
        return found, _followed(more, batch.picked(self._goes_on, uncovered))


def _followed(more: Iterator[RoutedBatch] | None, last: RoutedBatch) -> Iterator[RoutedBatch]:
    if more is not None:
        yield from more
    yield last


class LetGo:
    """Where rows go that have nowhere to go: bounced rows, when ProbeCompletion is switched off."""

    name = "let go"
    most_matches = 0.0

    def prepare(self, scratch: Scratch) -> int:
        return 0

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        return None, None
