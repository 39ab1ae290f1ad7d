"""SteMs under a memory budget: some rows are on disk, and no answer changes.

Exactly once, with rows on disk. Without a budget one rule suffices (`exactly_once`): of the parts
of a result the one stored last, the driver, finds all others, because a probe matches exactly the rows
that arrived below its limit. The rule stays; what changes is *when* a tuple meets a row:

* A flush moves rows from memory to a *run* on disk. It happens at a safe point, when no tuple holds
  row ids. Runs of a relation are numbered; a row never comes back from disk into the SteM.
* A tuple that probes meets, at once, the rows in memory below its limit. Rows below its limit that are
  on disk at that moment lie in the runs 0 .. r-1, where r is how many flushes there were. So the tuple
  waits, with its limits and with r, as a *pending probe*, and is later matched with exactly the rows
  of runs below r that arrived below its limit.

Every row below the limit is at the moment of the probe either in memory or in a run below r, and it
cannot be both: so each pair of tuple and row is matched once, whenever runs are written, whenever
pending probes are answered, in whatever order, and however often a waiting tuple's driver was
followed by others. What a pending probe finds goes on from its signature like any other batch, may
wait again for another relation, and needs no other bookkeeping.

Partitions only save work. A relation is probed on different keys from different signatures, so no
partitioning localises all probes; `spill.runs` partitions by one key, and again by another when
that pays. Bloom filters over the keys of every relation keep most useless tuples from waiting: those
for which the relation they are about to probe, or another that they lack, has no row.

The budget covers rows, indexes, filters, waiting tuples and rows read back. When the last base
batch has been routed, *cleanup* answers everything that waits, relation by relation: rows of a few
partitions are read into memory, as many as fit, and the tuples waiting for them stream by. A
partition that does not fit is read in chunks, and its tuples stream by once for each: slower, never
wrong. SteMs that no waiting tuple lacks are dropped first. While sources are silent, waiting tuples
are answered in the same way, a piece at a time, whenever enough of them wait; at the end of an epoch
of a stream all of them are.

Known limitations: an expensive predicate may be evaluated again for a row that was flushed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move, legal_moves, may_skip_build
from eddies.core.exactly_once import StampRule, can_match
from eddies.core.graph import Graph
from eddies.core.lineage import Signature, bits
from eddies.core.module import Module, Step
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.policies.base import Candidate, RoutingPolicy
from eddies.core.route import RouteTable
from eddies.core.spill.answers import Answers
from eddies.core.spill.files import SpillDirectory
from eddies.core.spill.flush_policies import make_flush_policy
from eddies.core.spill.give_back import GiveBack
from eddies.core.spill.key_filter import FilterRoom
from eddies.core.spill.partitions import n_partitions_for
from eddies.core.spill.pending import Pending
from eddies.core.spill.probes import ResidentProbe
from eddies.core.spill.resident import Resident
from eddies.core.spill.runs import FlushedRows
from eddies.core.spill.stamps import StampTable
from eddies.core.spill.stem_groups import ProbeCounts, choose_partitions
from eddies.core.spill.tuples import TupleLayout
from eddies.core.spill.waiting_order import SteadyPolicy, WaitingOrder
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import BaseBatches, Resumed, StateMode, select_step

__all__ = ["SpillingStems", "batch_rows_within"]

_ROW_BYTES = 4096  # of the budget, for each row of a batch: batches take a few hundredths of it
_FEWEST_BATCH_ROWS = 1024
_PENDING_SHARE = 32  # of the budget: one part in so many for waiting tuples, ...
_WORK_SHARE = 5  # ... for writing and reading them and the batches on their way, ...
_WRITING_SHARE = 16  # ... (of which so much may be on its way to disk), ...
_FILTER_SHARE = 4  # ... for filters, ...
_PIECE_SHARE = 256  # ... and for a piece of a file
_CLEANUP_SHARE = 0.2  # of the budget that SteMs may keep when cleanup begins
_FEW = 0.1  # of a relation's rows, which are better on disk if all others are
_KNOWN_TUPLES = 100_000  # have probed rows in memory: then they are a sample that is large enough
_SHELF_SHARE = 16
_LEAST_SHARE = 0.1  # of what a merge in silence reads, the part that must be waiting tuples


def batch_rows_within(batch_rows: int, budget_bytes: int | None) -> int:
    """The size of batches that suits a budget."""
    if budget_bytes is None:
        return batch_rows
    return min(batch_rows, max(_FEWEST_BATCH_ROWS, budget_bytes // _ROW_BYTES))


class SpillingStems(StateMode):
    """Every relation has a SteM, in memory as far as the budget allows. See the module docstring."""

    stores_on_the_way = False
    spills = True

    def __init__(
        self,
        graph: Graph,
        stems: Sequence[SteM],
        stamps: StampRule,
        options: Options,
        expected_rows: Mapping[str, int],
    ) -> None:
        budget = options.memory_bytes
        assert budget is not None
        self._graph = graph
        self._stamps = stamps
        self._budget = budget
        self._flush_bytes = int(budget * options.flush_size)
        self._base = BaseBatches(graph, stems)
        self.directory = SpillDirectory(options.spill_dir, budget // _WRITING_SHARE)
        self._table = StampTable(len(graph.roles))
        self._give_back = GiveBack(budget, _SHELF_SHARE)
        self._pending = Pending(self.directory, budget // _PENDING_SHARE, self._give_back.if_urgent)
        n_partitions = n_partitions_for(budget)
        filter_room = FilterRoom(budget // _FILTER_SHARE)
        self.residents = [
            Resident(
                stem,
                FlushedRows(
                    graph,
                    relation,
                    self.directory,
                    n_partitions,
                    max(4096, budget // _PIECE_SHARE),
                    filter_room,
                    expected_rows.get(relation.name, 0),
                ),
            )
            for stem, relation in zip(stems, graph.relations, strict=True)
        ]
        self.order = WaitingOrder(graph, self.residents)
        self._is_steady = options.policy == "auto"
        self._flush_policy = make_flush_policy(options.flush)
        self._counts = [ProbeCounts(n_partitions) for _ in stems]
        self.modules: list[Module] = [*stems, _Waiting(self)]
        self._batch_rows = batch_rows_within(options.batch_rows, budget)
        self._answers = Answers(graph, self._table, self._batch_rows, self._give_back)
        self._has_ended = [False] * len(graph.relations)
        self._work: Iterator[Resumed] | None = None
        self._layouts: dict[Signature, TupleLayout] = {}
        self._is_last_to_come = False
        self.n_flushes = 0
        self.n_silent_merges = 0

    # What an eddy asks of every mode

    @property
    def n_pending(self) -> int:
        return self._pending.n_rows + (self._work is not None)

    def check(self, n_threads: int) -> None:
        pass

    def informed(self, policy: RoutingPolicy) -> RoutingPolicy:
        return SteadyPolicy(policy, self.order) if self._is_steady else policy

    def module_names(self) -> list[str]:
        return [f"stem:{role.name}" for role in self._graph.roles]

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        numbers = range(len(self._graph.relations))
        return [may_skip_build(self._graph, number, ended) for number in numbers]

    def take_in(self, relation: int, block: Block) -> Iterator[RoutedBatch]:
        before = self._lengths()
        self.residents[relation].build(block)
        after = self._lengths()
        for source_id in self._graph.relations[relation].roles:
            limits = self._stamps.limits(self._graph, source_id, before, after)
            if not can_match(limits, source_id):
                continue
            rows = self._base.wanted(source_id, block)
            batch = self._base.batch(source_id, block, limits, -1, rows)
            if batch.n_rows:
                yield batch

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        lengths = self._lengths()
        source_id = self._graph.relations[relation].roles[0]
        limits = self._stamps.limits(self._graph, source_id, lengths, lengths)
        if not can_match(limits, source_id):
            return None
        return self._base.batch(source_id, block, limits, -1)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return legal_moves(self._graph, signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if move.optional >= 0:
            return select_step(self._graph, move, signature, table)
        probe = ResidentProbe(
            self._graph,
            self.residents[self._graph.roles[move.target].relation],
            move.target,
            signature,
            table.route(move.after(signature)),
            self._layout(signature),
            self._pending,
            self._table,
            self._counts[self._graph.roles[move.target].relation],
            self.residents,
        )
        return probe, Candidate(move.target, probe.name, "probe", move.cross)

    def end(self, relation: int) -> None:
        self._has_ended[relation] = True

    def at_safe_point(self) -> None:
        if self.needs_safe_point:
            self._flush(self._allowed_bytes, self._flush_bytes)
        if self._is_last_to_come:
            self._flush_few(_KNOWN_TUPLES)

    def before_last(self, relation: int, n_to_come: int) -> None:
        self._is_last_to_come = True

    def resume(self) -> Resumed | None:
        if not (self.is_silent or self.is_settling or all(self._has_ended)):
            return None
        while True:
            if self._work is None:
                self._work = self._next_work()
                if self._work is None:
                    return None
            resumed = next(self._work, None)
            if resumed is not None:
                return resumed
            self._work = None

    def take_over(self) -> None:
        """Go on where another mode has kept rows in the same SteMs. All must have been routed."""
        for resident in self.residents:
            resident.adopt()

    # What it keeps

    @property
    def n_ever_waited(self) -> int:
        """Tuples that ever waited for rows on disk."""
        return self._pending.n_ever

    def _lengths(self) -> list[int]:
        return [resident.n_arrived for resident in self.residents]

    def _layout(self, signature: Signature) -> TupleLayout:
        layout = self._layouts.get(signature)
        if layout is None:
            layout = TupleLayout(self._graph, signature, self._base.stores)
            self._layouts[signature] = layout
        return layout

    @property
    def needs_safe_point(self) -> bool:
        return not self.has_room_for(0)

    def has_room_for(self, n_bytes: int) -> bool:
        """Whether rows leave so much of what they may take."""
        return self.n_bytes_ahead + n_bytes <= self._allowed_bytes

    @property
    def _allowed_bytes(self) -> int:
        """What rows and indexes may take: the budget less what else there is, but a quarter of it.

        What is known of files cannot be flushed, and is much where the budget is tiny.
        """
        share = _PENDING_SHARE if self.n_flushes == 0 else _WORK_SHARE
        files = sum(resident.flushed.n_bytes for resident in self.residents)
        others = self._budget // share + files + self._table.n_bytes + self._answers.n_bytes
        return max(self._budget // 4, self._budget - others)

    @property
    def n_bytes_ahead(self) -> int:
        """Memory that rows take, with the indexes that the next probes may make."""
        return sum(resident.n_bytes_ahead for resident in self.residents)

    @property
    def n_waiting_bytes(self) -> int:
        """Memory of tuples that wait, and of the limits they keep."""
        return self._pending.n_bytes + self._table.n_bytes

    def _flush(self, allowed: int, at_least: int) -> None:
        """Write partitions to disk until rows take at most `allowed` bytes, and by one flush at least
        `at_least` fewer than now.
        """
        allowed = min(allowed, max(0, self.n_bytes_ahead - at_least))
        if self.n_flushes == 0:
            for resident in self.residents:
                resident.begin_filters()
        while (excess := self.n_bytes_ahead - allowed) > 0:
            victims = choose_partitions(self.residents, self._counts, self._flush_policy, excess)
            if not victims:
                break
            for number, resident in enumerate(self.residents):
                gone = np.zeros(resident.flushed.n_partitions, dtype=np.bool_)
                gone[[victim.group for victim in victims if victim.operator == number]] = True
                if gone.any():
                    resident.flush(gone)
                    self.n_flushes += 1
        self._give_back()

    def _flush_few(self, least_tuples: int) -> None:
        """Write what is left in memory of relations that are on disk but for a few rows, if at least
        so many tuples have probed it. All of them would probe these rows, and nearly all wait for the
        others all the same; but the first ones show how many matches there are (`waiting_order`).
        """
        for number, resident in enumerate(self.residents):
            is_little = 0 < resident.n_rows < _FEW * resident.n_arrived
            if is_little and self.order.n_observed(number) >= least_tuples:
                resident.flush(np.ones(resident.flushed.n_partitions, dtype=np.bool_))
                self.n_flushes += 1

    # Cleanup

    def _next_work(self) -> Iterator[Resumed] | None:
        """The relation whose waiting tuples should be answered next, if any should."""
        waiting: dict[int, int] = {}
        for place, (n_rows, _) in self._pending.places().items():
            relation = self._graph.roles[place.target].relation
            waiting[relation] = waiting.get(relation, 0) + n_rows
        if not waiting:
            return None
        if all(self._has_ended):
            self._drop_unneeded()
        elif not self.is_settling:
            return self._silent_work(waiting)
        self._make_room()
        if all(self._has_ended):
            self._flush_few(0)
        return self._answer(self._first(waiting))

    def _first(self, waiting: dict[int, int]) -> int:
        """The relation to be answered first: where most tuples wait, or, if all wait in one order, the
        first in it, so that what it finds goes along with those who wait for the next.
        """
        if self._is_steady:
            return min(waiting, key=self.order.rank_of)
        return max(waiting, key=lambda relation: waiting[relation])

    def _silent_work(self, waiting: dict[int, int]) -> Iterator[Resumed] | None:
        """Sources are silent: answer where least must be read for each waiting tuple, unless it is
        much; more tuples will come and be answered by the same reading.
        """

        def share(relation: int) -> float:
            n_read = self.residents[relation].flushed.n_rows
            return waiting[relation] / (n_read + waiting[relation])

        best = max(waiting, key=share)
        if share(best) < _LEAST_SHARE:
            return None
        self.n_silent_merges += 1
        return self._answer(best)

    def _drop_unneeded(self) -> None:
        """Drop SteMs that no waiting tuple lacks: no more rows will come. And filters that have been
        asked for all keys of the tuples that wait: only keys which these have yet to find are news.
        """
        lacking = 0
        asked_again: set[tuple[int, str]] = set()
        for place in self._pending.places():
            spanned = place.signature.sources
            lacking |= self._graph.all_sources & ~spanned
            for key_class in self._graph.classes:
                if not key_class.mask & spanned:
                    asked_again |= {
                        (self._graph.roles[source].relation, name)
                        for source, name in key_class.column_by_source.items()
                    }
        needed = {self._graph.roles[source].relation for source in bits(lacking)}
        for number, resident in enumerate(self.residents):
            if number not in needed:
                resident.drop()
            for name, key_filter in resident.flushed.filters.items():
                if (number, name) not in asked_again:
                    key_filter.give_up()

    def _make_room(self) -> None:
        """Flush what takes the room of cleanup."""
        allowed = int(self._budget * _CLEANUP_SHARE)
        if self.n_bytes_ahead > allowed:
            self._flush(allowed, 0)
        self._give_back()

    def _room_bytes(self) -> int:
        """Memory for rows read back."""
        taken = self.n_bytes_ahead + 2 * (self._budget // _WORK_SHARE)
        return max(self._budget // 8, min(self._budget // 4, self._budget - taken))

    def _answer(self, relation: int) -> Iterator[Resumed]:
        """Everything that the tuples waiting for `relation` now find on disk."""
        flushed = self.residents[relation].flushed
        room = self._room_bytes()
        places = [
            p for p in self._pending.places() if self._graph.roles[p.target].relation == relation
        ]
        for column in dict.fromkeys(place.column for place in places):
            waiting = [self._pending.take(place) for place in places if place.column == column]
            for signature, found in self._answers.of(flushed, column, waiting, room):
                yield Resumed(signature, found)
            for group in waiting:
                group.close()

    def abandon(self) -> None:
        self._work = None
        self._answers.close()
        self.directory.remove()


class _Waiting:
    """What waits and what is known of the rows on disk, as a module: its memory, and its end."""

    name = "spill"

    def __init__(self, mode: SpillingStems) -> None:
        self._mode = mode

    @property
    def n_bytes(self) -> int:
        flushed = sum(resident.flushed.n_bytes for resident in self._mode.residents)
        return flushed + self._mode.n_waiting_bytes

    def release(self) -> None:
        self._mode.abandon()
