"""SteMs over access modules: scans that compete, and indexes that are asked while the query runs.

State is that of `StemsMode`, base rows by relation, plus two things beside the rows: the EOTs of what
was looked up (`access.eot`) and, where rows can come twice, which row is which (`access.identity`).
Rows that come back from a look-up are built and stamped like any others, and then drive.

What happens when:

* a batch that probes asks for what it may lack (`access.probe`); nothing is sent yet;
* at every safe point answers are built, EOTs after their rows (SteM-21), and keys that wait are sent;
* the rows that were built are given out by `resume`.

The end: a relation with scans is complete when one of them has ended, whatever its other access
methods do. The query ends when every scan it needs has ended and no key waits or is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from eddies.core.access.beside import Beside
from eddies.core.access.binding import Option
from eddies.core.access.choice import AccessPolicy
from eddies.core.access.identity import Identities
from eddies.core.access.informed import InformedPolicy, Owed
from eddies.core.access.lookups import Lookups
from eddies.core.access.method import Access
from eddies.core.access.preference import Preference
from eddies.core.access.probe import AccessProbe, LetGo
from eddies.core.access.rendezvous import GoesOn, WaitingRows
from eddies.core.access.requests import LookupExecutor
from eddies.core.access.scan_pace import ScanPace
from eddies.core.access.sufficiency import Sufficiency
from eddies.core.batch import Ids, RoutedBatch
from eddies.core.clock import Clock
from eddies.core.constraints import Move, may_skip_build
from eddies.core.entry import Entry
from eddies.core.events import EventSink, MirrorDiffers, ScanFailed
from eddies.core.exactly_once import NO_LIMIT, StampRule, can_match
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.module import Module, Step
from eddies.core.modules.stem import Probe, SteM
from eddies.core.policies.base import Candidate, RoutingPolicy
from eddies.core.route import RouteTable
from eddies.core.state.keys import KeySide
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import BaseBatches, Resumed, StateMode, select_step
from eddies.errors import OptionError, SourceError

__all__ = ["AccessMode"]


class AccessMode(StateMode):
    """See the module docstring. `access` is by relation number."""

    stores_on_the_way = True

    def __init__(
        self,
        graph: Graph,
        stems: Sequence[SteM],
        stamps: StampRule,
        access: Sequence[Access],
        executor: LookupExecutor,
        policy: AccessPolicy,
        clock: Clock,
        events: EventSink | None,
        expected_rows: Sequence[int],
        *,
        completes_probes: bool = True,
    ) -> None:
        self._graph = graph
        self._stems = stems
        self._stamps = stamps
        self._access = access
        self._clock = clock
        self._events = events
        self._completes_probes = completes_probes
        self._base = BaseBatches(graph, stems)
        self._entries = [Entry(graph, relation) for relation in graph.relations]
        self._pace = [ScanPace(clock, n_rows) for n_rows in expected_rows]
        self.lookups = Lookups(graph, access, stems, self._pace, executor, policy, clock, events)
        self._identities = [
            Identities(relation, methods.key, stem.store) if methods.may_repeat else None
            for relation, methods, stem in zip(graph.relations, access, stems, strict=True)
        ]
        self._live_scans = [list(methods.scans) for methods in access]
        self._skipping = [False] * len(access)  # relations whose rows are not stored any more
        self._preference: Preference | None = None
        self._owed: dict[int, Owed] = {}  # by source: what bounced rows will bring and cost
        self._via: dict[int, str] = {}
        self._ready: deque[Resumed] = deque()
        self._later: deque[Resumed] = deque()
        self._waiting = WaitingRows()
        self._sufficiency = Sufficiency(
            graph, self.lookups, self._pace, self._base.stores, self._stored_rows
        )
        self._has_news = False  # since scans were last looked at: answers, or a relation has ended
        self.answered: set[int] = set()  # relations whose scans need not be read to the end
        self.n_repeated = [0] * len(access)  # rows that came again and were dropped
        self.n_differing = [0] * len(access)
        self.modules: list[Module] = [*stems, Beside(self)]
        for pace in self._pace:
            pace.start()

    # What the eddy asks

    @property
    def n_pending(self) -> int:
        return (
            self.lookups.dispatcher.n_pending
            + self._waiting.n_rows
            + len(self._ready)
            + len(self._later)
        )

    def check(self, n_threads: int) -> None:
        if n_threads > 1:
            raise OptionError(
                f"threads={n_threads} with access methods: one thread builds what look-ups bring; "
                "use threads=1. Look-ups run beside it and beside each other anyway"
            )

    def module_names(self) -> list[str]:
        return [f"stem:{role.name}" for role in self._graph.roles]

    def without_scan(self) -> list[int]:
        """Relations that no scan will ever end."""
        return [number for number, methods in enumerate(self._access) if not methods.scans]

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        """BuildFirst: only what comes by one scan alone may go unstored, and only if it can ask for
        everything that has no scan, because nobody else could find it.
        """
        plan = self.lookups.plan
        self._skipping = [
            len(methods.scans) == 1
            and not methods.indexes
            and not plan.eager
            and may_skip_build(self._graph, number, ended)
            and plan.binds_all(self._graph.relations[number].roles[0])
            for number, methods in enumerate(self._access)
        ]
        return self._skipping

    def take_in(self, relation: int, block: Block) -> Iterator[RoutedBatch]:
        self._pace[relation].arrived(block.n_offered)
        yield from self._build(relation, block, self._via.get(relation, "scan"))

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        """A batch nobody can find: it may match whatever is there when it probes (SteM-39)."""
        source_id = self._graph.relations[relation].roles[0]
        return self._base.batch(source_id, block, (NO_LIMIT,) * len(self._graph.roles), -1)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        moves = self.lookups.plan.moves(signature)
        if signature.prior:
            prior = signature.prior
            moves = tuple(m for m in moves if m.optional >= 0 or not prior >> m.target & 1)
        return moves or (Move(),)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if move.optional >= 0:
            return select_step(self._graph, move, signature, table)
        if move.target < 0:
            return LetGo(), Candidate(-1, LetGo.name, "probe")
        target = move.target
        stem = self._stems[self._graph.roles[target].relation]
        probe = Probe(self._graph, stem, target, signature, table.route(move.after(signature)))
        candidate = Candidate(target, probe.name, "probe", move.cross)
        plan = self.lookups.plan
        options = tuple(o for o in plan.options[target] if o.is_bound(signature.sources))
        if not options or target in plan.eager:
            return probe, candidate
        goes_on = None
        if not self._completes_probes:
            prior = signature.prior | 1 << target
            goes_on = table.route(Signature(signature.sources, signature.done, prior))
        return AccessProbe(probe, self, target, signature, options, goes_on), candidate

    def end(self, relation: int) -> None:
        """One scan has ended: its EOT covers every probe (SteM-20)."""
        self._has_news = True
        if self._live_scans[relation]:
            self.lookups.complete(relation)
            self._go_on(self._waiting.complete(relation))

    def at_safe_point(self) -> None:
        self._build_answers()
        if self._has_news and not self.lookups.dispatcher.n_pending:
            self._has_news = False
            self.answered.update(self._sufficiency.check())
        self.lookups.pump()

    def resume(self) -> Resumed | None:
        if self._ready:
            return self._ready.popleft()
        return self._later.popleft() if self._later else None

    # Scans

    def arrives_by(self, relation: int, scan: str) -> None:
        """The rows taken in next come by this scan."""
        if scan not in self._access[relation].scans:
            known = ", ".join(self._access[relation].scans) or "none"
            name = self._graph.relations[relation].name
            raise SourceError(f"relation {name!r} has no scan {scan!r}; it has: {known}")
        self._via[relation] = scan

    def lose_scan(self, relation: int, scan: str, reason: str) -> bool:
        """A scan has failed; returns whether others of the relation are left. If none is, its rows
        are asked for from now on, or `SourceError` is raised.
        """
        name = self._graph.relations[relation].name
        if self._events is not None:
            self._events.emit(ScanFailed(self._clock.now_ns(), name, scan, reason))
        if scan in self._live_scans[relation]:
            self._live_scans[relation].remove(scan)
        if self._live_scans[relation] or self.lookups.is_complete[relation]:
            return True
        try:
            askers = self.lookups.lose_scans(relation)
        except SourceError as error:
            raise SourceError(f"{error} (scan {scan!r}: {reason})") from None
        for binder in askers:
            store = self._base.stores[self._graph.roles[binder].relation]
            self.lookups.ask_for(binder, store, self._stored_rows(binder))
        return False

    def _stored_rows(self, source_id: int) -> Ids:
        role = self._graph.roles[source_id]
        store = self._base.stores[role.relation]
        if role.flag is None:
            return np.arange(store.n_rows, dtype=np.int32)
        flags = store.column(role.flag).words(None, 0, store.n_rows)
        return np.flatnonzero(flags).astype(np.int32)

    # Building

    def _build(self, relation: int, block: Block, access: str) -> Iterator[RoutedBatch]:
        if self.lookups.is_complete[relation]:
            self.n_repeated[relation] += block.n_rows
            return  # everything is here; these are the same rows by another way
        block = self._without_repeats(relation, block, access)
        if block.n_rows == 0:
            return
        before = self._base.lengths()
        self._stems[relation].build(block)
        after = self._base.lengths()
        for source_id in self._graph.relations[relation].roles:
            limits = self._stamps.limits(self._graph, source_id, before, after)
            rows = self._base.wanted(source_id, block)
            self.lookups.ask_for(source_id, block, rows)
            if not self._may_match(limits, source_id):
                continue
            batch = self._base.batch(source_id, block, limits, before[relation], rows)
            if batch.n_rows:
                yield from self._preferred_first(batch)

    def _preferred_first(self, batch: RoutedBatch) -> Iterator[RoutedBatch]:
        """Rows that the user prefers now, the others when nothing else is to be done."""
        if self._preference is None or self._preference.source != batch.origin.driver:
            yield batch
            return
        mask = self._preference.holds(batch)
        if mask.all():
            yield batch
            return
        signature = Signature(1 << batch.origin.driver)
        self._later.append(Resumed(signature, batch.kept(batch.route, ~mask)))
        if mask.any():
            yield batch.kept(batch.route, mask)

    def _may_match(self, limits: Sequence[int], driver: int) -> bool:
        """Whether a driver can give results or must ask: not if a source it lacks has no row stored
        before it and will have none, or if there is nobody to ask.
        """
        if can_match(limits, driver):
            return True
        options = self.lookups.plan.options
        is_complete = self.lookups.is_complete
        if not any(options[r.source_id] and not is_complete[r.relation] for r in self._graph.roles):
            return False
        return not any(
            limit == 0
            and role.source_id != driver
            and (is_complete[role.relation] or self._skipping[role.relation])
            for role, limit in zip(self._graph.roles, limits, strict=True)
        )

    def _without_repeats(self, relation: int, block: Block, access: str) -> Block:
        identities = self._identities[relation]
        if identities is None or block.n_rows == 0:
            return block
        sorted_out = identities.sort_out(block, access)
        n_repeated = block.n_rows - sorted_out.new.shape[0]
        if n_repeated == 0:
            return block
        self.n_repeated[relation] += n_repeated
        if sorted_out.n_differing:
            self._report(relation, block, access, sorted_out.n_differing, sorted_out.example)
        arrays = {name: column.take(sorted_out.new) for name, column in block.columns().items()}
        return Block.from_arrow(arrays, sorted_out.new.shape[0], block.n_offered)

    def _report(self, relation: int, block: Block, access: str, n_rows: int, example: int) -> None:
        self.n_differing[relation] += n_rows
        if self._events is None:
            return
        row = np.array([example], dtype=np.int32)
        values = {name: column.take(row)[0].as_py() for name, column in block.columns().items()}
        name = self._graph.relations[relation].name
        now_ns = self._clock.now_ns()
        self._events.emit(MirrorDiffers(now_ns, name, access, n_rows, repr(values)))

    def _build_answers(self) -> None:
        for answers in self.lookups.answers():
            queue = answers.queue
            for rows in answers.batches:
                block = self._entries[queue.relation].admit(rows)
                for batch in self._build(queue.relation, block, f"index {queue.bind_set}"):
                    signature = Signature(1 << batch.origin.driver)
                    self._ready.append(Resumed(signature, batch))
            queue.eots.cover(answers.ids)
            self._has_news = True
            name = (queue.relation, queue.bind_set)
            self._go_on(self._waiting.covered(name, answers.ids.tolist()))

    def _go_on(self, gone: Iterable[GoesOn]) -> None:
        self._ready.extend(Resumed(signature, batch) for signature, batch in gone)

    # What `AccessProbe` asks

    def uncovered(self, target: int, options: Sequence[Option], sides: Sequence[KeySide]) -> Ids:
        return self.lookups.uncovered(target, options, sides)

    def ask(
        self,
        target: int,
        options: Sequence[Option],
        sides: Sequence[KeySide],
        positions: Ids,
        *,
        preferred: bool = False,
    ) -> None:
        busy_ns = self.lookups.ask(target, options, sides, positions, preferred=preferred)
        n_rows = positions.shape[0] * self.lookups.rows_per_key(options)
        rows_before, ns_before = self._owed.get(target, (0.0, 0.0))
        self._owed[target] = (rows_before + n_rows, ns_before + busy_ns)

    def informed(self, policy: RoutingPolicy) -> RoutingPolicy:
        """`policy`, told what look-ups cost."""
        return InformedPolicy(policy, lambda source: self._owed.pop(source, (0.0, 0.0)))

    def preferred(self, batch: RoutedBatch, sources: int, positions: Ids) -> Ids:
        if self._preference is None or not sources >> self._preference.source & 1:
            return positions[:0]
        return positions[self._preference.holds(batch)[positions]]

    def prefer(self, preference: Preference | None) -> None:
        """From now on, what these rows need is asked for first, also where it waits already."""
        self._preference = preference
        if preference is None:
            return
        for _, batch in self._waiting.batches(1 << preference.source):
            rows = np.flatnonzero(preference.holds(batch)).astype(np.int32)
            ids = batch.ids[preference.source]
            place = batch.origin.places[preference.source]
            self.lookups.promote(preference.source, place, rows if ids is None else ids[rows])
        store = self._base.stores[self._graph.roles[preference.source].relation]
        stored = self._stored_rows(preference.source)
        self.lookups.promote(preference.source, store, stored[preference.holds_in(store, stored)])

    def let_wait(
        self,
        batch: RoutedBatch,
        signature: Signature,
        target: int,
        options: Sequence[Option],
        sides: Sequence[KeySide],
    ) -> None:
        """Keep rows that nobody else can find until they are covered."""
        keys = self.lookups.key_ids(options, sides)
        self._waiting.add(batch, signature, self._graph.roles[target].relation, keys)

    def release(self) -> None:
        """Drop what is kept beside the rows."""
        self.lookups.release()
        for identities in self._identities:
            if identities is not None:
                identities.release()

    @property
    def n_bytes_beside(self) -> int:
        """Memory of keys and identities."""
        identities = sum(i.n_bytes for i in self._identities if i is not None)
        return self.lookups.n_bytes + identities
