"""policy="content" or "cumulative-window" over STAIRs and joins: each part of the data its own order.

Rows of a source with several joins are sent, row by row, to the join that suits the part of the data
they belong to (`stairs.regions`), and stay there, as in an EddyJoin. So R rows meet in S.a only those S
rows for which that is the better way, and the others are found through T. With "content" parts are told
by stored columns and by arrival; with "cumulative-window" by arrival alone, which is the paper's
windowed policy (section 5.4).

Parts are learned anew every few batches. Rows that then turn out to wait in the wrong STAIR (the first
ones, mostly) are promoted to the right one, at a safe point: initial mistakes are undone. With
state="joins" they stay where they are.

state="auto" comes here in mid-query (`take_over`), when parts of the data are seen to want different
orders, and leaves again when there are none any more (`is_undivided`).

Known limitation: no forms are kept; what a STAIR holds is what was routed to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.clock import Clock
from eddies.core.constraints import Move
from eddies.core.events import EventSink, Migrated
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.module import Outcome, Step
from eddies.core.modules.eddy_join import JoinStep
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.stairs.chooser import STUDY, Chooser, make_choosers
from eddies.core.stairs.regions import Regions, Split, choices, describe, learn
from eddies.core.stairs.tuples import Tuples
from eddies.core.state.rows import Block
from eddies.core.state.scratch import Scratch
from eddies.core.state_modes.joins import JoinsMode

__all__ = ["RegionalMode"]

_GROWTH, _MOST_GROWTH = 1.06, 1.5  # of the rows seen between two lessons
_FEWEST_MOVED = 64
_UNDIVIDED = 4  # lessons in a row without parts, until they are taken to be gone
_CLEARLY = 0.9  # of the tuples that the parts in force leave
_PATIENCE = 2.0  # of the rows seen between two moves: whoever moves often was wrong often


class RegionalMode(JoinsMode):
    """See the module docstring."""

    def __init__(
        self,
        graph: Graph,
        stems: Sequence[SteM],
        stamps: StampRule,
        options: Options,
        clock: Clock,
        events: EventSink | None = None,
    ) -> None:
        super().__init__(graph, stems, stamps)
        self.name = options.state
        self._undoes = options.state != "joins"
        self._clock = clock
        self._events = events
        self._scratch = Scratch(min(options.batch_rows, 65_536))
        self._rng = np.random.default_rng(options.seed)
        by_content = options.policy != "cumulative-window"
        stores = [stem.store for stem in stems]
        self._choosers = make_choosers(graph, self.tree, stores, by_content=by_content)
        self._next_lesson = 0
        self._next_move = 0
        self._growth = _GROWTH  # of the rows seen until the next lesson
        self._is_watched = False  # whether somebody calls `learn_soon`, so that lessons may be rare
        self._is_divided = False  # whether the last lesson found parts
        self._n_undivided = 0  # lessons in a row that found no parts

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        legal = super().moves(signature)
        source = signature.sources.bit_length() - 1
        if signature.sources != 1 << source or source not in self._choosers:
            return legal
        first = next(move for move in legal if move.join >= 0)
        return (first, *(move for move in legal if move.optional >= 0))

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        source = signature.sources.bit_length() - 1
        if move.optional >= 0 or signature.sources != 1 << source or source not in self._choosers:
            return super().step(move, signature, table)
        chooser = self._choosers[source]
        steps = [
            JoinStep(self._graph, self.tree, self.joins[edge.number], signature, table)
            for edge in chooser.joins
        ]
        number = len(self._graph.roles) + len(self._graph.optionals) + len(self.joins) + source
        step = _ByRegion(f"regions:{self._graph.roles[source].name}", chooser, steps)
        return step, Candidate(number, step.name, "probe")

    def at_safe_point(self) -> None:
        super().at_safe_point()
        n_seen = sum(self._taken)
        if n_seen < self._next_lesson:
            return
        self._is_divided = has_changed = False
        for chooser in self._choosers.values():
            is_better = self._learn(chooser)
            has_changed |= is_better
            if not (self._undoes and is_better and n_seen >= self._next_move):
                continue
            if self._move_misplaced(chooser):
                self._next_move = int(n_seen * _PATIENCE)
        self._n_undivided = 0 if self._is_divided else self._n_undivided + 1
        calm = _GROWTH if has_changed else min(_MOST_GROWTH, 2.0 * self._growth - 1.0)
        self._growth = calm if self._is_watched else _GROWTH
        self._next_lesson = int(n_seen * self._growth) + 1

    def _calm_until(self) -> float:
        return 0.0

    def learn_soon(self) -> None:
        """Data has changed its character: the next lesson is due."""
        self._next_lesson = 0

    @property
    def is_undivided(self) -> bool:
        """Whether no source has parts any more."""
        return self._n_undivided >= _UNDIVIDED

    def take_over(
        self, source: int, regions: Regions, kept: Mapping[int, Sequence[Tuples]]
    ) -> None:
        """Go on where others have kept the rows, all of which have been routed: every STAIR is a view
        of its SteM, and rows of `source` are taken apart. `kept` are the tuples over some sets of
        sources, so that they need not be found again.
        """
        for stair in self._all_stairs:
            self.stairs.demote_to_rows(stair)
        for role in self._graph.roles:
            n_rows = self._stems[role.relation].store.n_rows
            self._taken[role.source_id] = self._given_out[role.source_id] = n_rows
            self.stairs.history.routed[role.source_id] = n_rows
        self._close()
        self._choosers[source].regions = regions
        n_seen = sum(self._taken)
        self._is_watched = True
        self._next_lesson, self._next_move = int(n_seen * _GROWTH) + 1, int(n_seen * _PATIENCE)
        for chooser in self._choosers.values():
            if chooser.source != source:
                self._learn(chooser)
            self._take_apart(chooser, kept)

    def _take_apart(self, chooser: Chooser, kept: Mapping[int, Sequence[Tuples]]) -> None:
        """Turn the views of a source into what its rows would have left if they had always been sent
        to the joins of their parts: bare rows there, and what they meet there at the other joins.

        That is the state after promoting each row from all other STAIRs of its source to that of its
        join. Rows of one part meet nothing of another, so no two tuples agree.
        """
        started, before = self._clock.now_ns(), self.stairs.n_handled + self.stairs.n_stored
        source = chooser.source
        rows = self.stairs.rows(source, 0, self.stairs.history.routed[source])
        wanted = chooser.choose(rows.ids[source])
        own = [self.stairs.stair(source, edge.number) for edge in chooser.joins]
        parts = [rows.picked(np.flatnonzero(wanted == n).astype(np.int32)) for n in range(len(own))]
        made: list[Sequence[Tuples]] = []
        for number, (part, stair) in enumerate(zip(parts, own, strict=True)):
            known = kept.get(1 << source | 1 << stair.edge.other(source))
            if known is None:
                made.append(self.stairs.joined(part, stair, self._scratch) if part.n_rows else [])
            else:
                made.append(
                    [t.picked(_places(chooser.choose(t.ids[source]), number)) for t in known]
                )
        for number, stair in enumerate(own):
            if stair.is_open:
                found = [t for n, tuples in enumerate(made) if n != number for t in tuples]
                stair.hold([parts[number], *found])
        n_made = sum(t.n_rows for tuples in made for t in tuples)
        self._report(chooser, rows.n_rows, n_made, started, before)

    def _learn(self, chooser: Chooser) -> bool:
        """Learn the parts anew; whether they are clearly better than those in force, so that rows that
        wait elsewhere should move: for others that are as good they would move to and fro.
        """
        n_rows = self._taken[chooser.source]
        if not n_rows:
            return False
        rows = chooser.sample(n_rows, STUDY, self._rng)
        self.statistics.refresh()
        costs = chooser.matches(rows, self._taken, STUDY, self.statistics, self._rng)
        costs *= chooser.further(self.statistics, self._taken)
        features = chooser.features(rows)
        regions = learn(features, costs, chooser.regions)
        self._is_divided |= isinstance(regions, Split)
        now, other = (
            float(costs[np.arange(rows.shape[0]), choices(parts, features, rows.shape[0])].sum())
            for parts in (chooser.regions, regions)
        )
        chooser.regions = regions
        return other < _CLEARLY * now

    def _move_misplaced(self, chooser: Chooser) -> bool:
        """Promote rows that wait where they would not be sent any more; whether there were any."""
        started = self._clock.now_ns()
        n_moved = n_made = 0
        before = self.stairs.n_handled + self.stairs.n_stored
        for number, edge in enumerate(chooser.joins):
            stair = self.stairs.stair(chooser.source, edge.number)
            for signature in [s for s in stair.pools if s.sources == 1 << chooser.source]:
                pool = stair.pools.get(signature)
                if pool is None:
                    continue
                live = pool.live_rows()
                ids = pool.ids(chooser.source, live)
                wanted = chooser.choose(ids)
                for better in set(wanted.tolist()) - {number}:
                    rows = live[wanted == better]
                    to = self.stairs.stair(chooser.source, chooser.joins[better].number)
                    if rows.shape[0] < _FEWEST_MOVED:
                        continue
                    n_moved += rows.shape[0]
                    n_made += self.stairs.promote(stair, signature, to, self._scratch, rows)
                    break  # rows of the pool may have been renumbered
        if n_moved:
            self._report(chooser, n_moved, n_made, started, before)
        return n_moved > 0

    def _report(
        self, chooser: Chooser, n_moved: int, n_made: int, started_ns: int, before: int
    ) -> None:
        """Tell who listens that rows of a source were moved; so many tuples had been handled before."""
        if self._events is None:
            return
        now = self._clock.now_ns()
        names = [self.joins[edge.number].name for edge in chooser.joins]
        text = f"{self._graph.roles[chooser.source].name}: {describe(chooser.regions, names)}"
        n_handled = self.stairs.n_handled + self.stairs.n_stored - before
        self._events.emit(Migrated(now, text, n_moved, n_made, n_handled, now - started_ns))


class _ByRegion:
    """The step that sends each row of a base batch to the join of its part."""

    most_matches = inf

    def __init__(self, name: str, chooser: Chooser, steps: Sequence[JoinStep]) -> None:
        self.name = name
        self._chooser = chooser
        self._steps = steps

    def prepare(self, scratch: Scratch) -> int:
        return sum(step.prepare(scratch) for step in self._steps)

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        pieces = self._pieces(batch, scratch)
        first = next(pieces, None)
        return (None, None) if first is None else (first, pieces)

    def _pieces(self, batch: RoutedBatch, scratch: Scratch) -> Iterator[RoutedBatch]:
        rows = batch.ids[self._chooser.source]
        is_stored = batch.origin.places[batch.origin.driver] is batch.origin.home
        if is_stored:
            assert rows is not None, "tuples stored in joins have a row id for every source"
            wanted = self._chooser.choose(rows)
        else:
            block = batch.origin.places[batch.origin.driver]
            assert isinstance(block, Block)
            wanted = self._chooser.choose_unstored(block, rows)
        for number, step in enumerate(self._steps):
            positions = _places(wanted, number)
            if positions.shape[0] == 0:
                continue
            first, more = step.run(batch.picked(batch.route, positions), scratch)
            if first is not None:
                yield first
            if more is not None:
                yield from more


def _places(chosen: npt.NDArray[np.int64], number: int) -> Ids:
    """Where `number` was chosen."""
    return np.flatnonzero(chosen == number).astype(np.int32)
