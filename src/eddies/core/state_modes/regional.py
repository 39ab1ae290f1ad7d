"""policy="content" or "cumulative-window" over STAIRs and joins: each part of the data its own order.

Rows of a source with several joins are sent, row by row, to the join that suits the part of the data
they belong to (`stairs.regions`), and stay there, as in an EddyJoin. So R rows meet in S.a only those S
rows for which that is the better way, and the others are found through T. With "content" parts are told
by stored columns and by arrival; with "cumulative-window" by arrival alone, which is the paper's
windowed policy (section 5.4).

Parts are learned anew every few batches. Rows that then turn out to wait in the wrong STAIR (the first
ones, mostly) are promoted to the right one, at a safe point: initial mistakes are undone. With
state="joins" they stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.clock import Clock
from eddies.core.constraints import Move
from eddies.core.events import EventSink, Migrated
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge
from eddies.core.lineage import Signature
from eddies.core.module import Outcome, Step
from eddies.core.modules.eddy_join import JoinStep
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.policies.base import Candidate
from eddies.core.route import RouteTable
from eddies.core.stairs.plan import World
from eddies.core.stairs.regions import ARRIVAL, Leaf, Regions, choices, describe, learn
from eddies.core.stairs.statistics import matches
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch
from eddies.core.state_modes.joins import JoinsMode

__all__ = ["RegionalMode"]

_SAMPLE_ROWS = 512  # of which half are among the latest
_GROWTH = 1.06  # of the rows seen between two lessons
_LATEST = 2048
_HELD_ROWS = 4096  # sampled of the other side of a join
_FEWEST_MOVED = 64
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
        self._undoes = options.state == "stairs"
        self._clock = clock
        self._events = events
        self._scratch = Scratch(min(options.batch_rows, 65_536))
        self._rng = np.random.default_rng(options.seed)
        self._by_content = options.policy == "content"
        self._choosers: dict[int, _Chooser] = {}
        self._next_lesson = 0
        self._next_move = 0
        for role in graph.roles:
            joins = [e for e in self.tree.edges if role.source_id in (e.left, e.right)]
            if len(joins) > 1:
                store = stems[role.relation].store
                names = _ordered_columns(graph, role.source_id) if self._by_content else []
                self._choosers[role.source_id] = _Chooser(role.source_id, joins, store, names)

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
        self._next_lesson = int(n_seen * _GROWTH) + 1
        for chooser in self._choosers.values():
            is_new = self._learn(chooser)
            if not (self._undoes and is_new and n_seen >= self._next_move):
                continue
            if self._move_misplaced(chooser):
                self._next_move = int(n_seen * _PATIENCE)

    def _learn(self, chooser: _Chooser) -> bool:
        """Learn the parts anew; whether they changed."""
        n_rows = self._taken[chooser.source]
        if not n_rows:
            return False
        latest = self._rng.integers(max(0, n_rows - _LATEST), n_rows, _SAMPLE_ROWS // 2)
        anywhere = self._rng.integers(0, n_rows, _SAMPLE_ROWS // 2)
        rows = np.unique(np.concatenate([latest, anywhere])).astype(np.int32)
        costs = np.stack([self._expected(chooser, edge, rows) for edge in chooser.joins], axis=1)
        regions = learn(chooser.features(rows), costs, chooser.regions)
        is_new = regions != chooser.regions
        chooser.regions = regions
        return is_new

    def _expected(self, chooser: _Chooser, edge: JoinEdge, rows: Ids) -> npt.NDArray[np.float64]:
        """For each row the tuples that come of it joined with everything beyond `edge`, now."""
        other = edge.other(chooser.source)
        n_held = self._taken[other]
        if not n_held:
            return np.zeros(rows.shape[0])
        held_rows = np.arange(n_held, dtype=np.int32)
        if n_held > _HELD_ROWS:
            held_rows = self._rng.integers(0, n_held, _HELD_ROWS, dtype=np.int32)
        held = self.statistics.words_of(edge, other, held_rows)
        words = self.statistics.words_of(edge, chooser.source, rows)
        if words.shape[0] != rows.shape[0]:
            return np.ones(rows.shape[0])  # NULLs or rows not wanted: no lesson from this join
        found = matches(words, held) * (n_held / max(1, held.shape[0]))
        self.statistics.refresh()
        beyond = self._sides[id(self.stairs.dual(self.stairs.stair(chooser.source, edge.number)))]
        world = World([float(n) for n in self._taken], self.statistics.selectivity, self.tree)
        further = world.size(beyond) / max(1.0, float(n_held))
        expected: npt.NDArray[np.float64] = found * max(1.0, further)
        return expected

    def _move_misplaced(self, chooser: _Chooser) -> bool:
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
        if n_moved and self._events is not None:
            now = self._clock.now_ns()
            names = [self.joins[edge.number].name for edge in chooser.joins]
            text = f"{self._graph.roles[chooser.source].name}: {describe(chooser.regions, names)}"
            n_handled = self.stairs.n_handled + self.stairs.n_stored - before
            self._events.emit(Migrated(now, text, n_moved, n_made, n_handled, now - started))
        return n_moved > 0


class _Chooser:
    """The parts of one source, and which join each part goes to."""

    def __init__(
        self, source: int, joins: Sequence[JoinEdge], store: RowStore, columns: Sequence[str]
    ) -> None:
        self.source = source
        self.joins = list(joins)
        self.regions: Regions = Leaf(0)
        self._store = store
        self._columns = list(columns)

    def features(self, rows: Ids) -> dict[str, npt.NDArray[np.int64]]:
        """What can be asked about rows: their arrival number and stored columns."""
        found = {ARRIVAL: rows.astype(np.int64)}
        for name in self._columns:
            found[name] = self._store.column(name).words(rows).view(np.int64)
        return found

    def choose(self, rows: Ids) -> npt.NDArray[np.int64]:
        """For each stored row the number of its join among `joins`."""
        if isinstance(self.regions, Leaf):
            return np.full(rows.shape[0], self.regions.choice, dtype=np.int64)
        return choices(self.regions, self.features(rows), rows.shape[0])


class _ByRegion:
    """The step that sends each row of a base batch to the join of its part."""

    most_matches = inf

    def __init__(self, name: str, chooser: _Chooser, steps: Sequence[JoinStep]) -> None:
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
        if rows is None or not is_stored:
            wanted = np.zeros(batch.n_rows, dtype=np.int64)  # unstored: nothing waits anywhere
        else:
            wanted = self._chooser.choose(rows)
        for number, step in enumerate(self._steps):
            positions = np.flatnonzero(wanted == number).astype(np.int32)
            if positions.shape[0] == 0:
                continue
            first, more = step.run(batch.picked(batch.route, positions), scratch)
            if first is not None:
                yield first
            if more is not None:
                yield from more


def _ordered_columns(graph: Graph, source: int) -> list[str]:
    """Stored columns of integers and dates: those a part can be told by."""
    stored = graph.relation_of(source).stored
    return [
        field.name
        for field in stored
        if pa.types.is_signed_integer(field.type) or pa.types.is_date32(field.type)
    ]
