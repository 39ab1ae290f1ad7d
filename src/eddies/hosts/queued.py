"""The original eddy's world, in virtual time: threads, bounded queues, one processor.

The paper's eddy (Avnur and Hellerstein 2000, sections 2 and 4) runs every module in a thread of its
own, fed by a bounded queue. That is where its naive policy gets its knowledge from: a module that
is slow has a full queue. This engine has one thread and no queues, so the paper's experiments need
the paper's machine. Here it is, simulated: the *pieces* are the engine's own (graph, constraints,
policies, SteMs, joins, selections, real rows); only *when* a piece runs and what it costs is
declared.

    scan ──► [ buffer: returned rows before new ones ] ──► queue ──► module ──┐
                          ▲                                                  │ survivors
                          └──────────────────────────────────────────────────┘

Rules:

* New rows enter only while fewer than `buffer_rows` rows are anywhere in the eddy. Returned rows
  are always taken back, or a module could wait for itself.
* A returned row is offered to modules before any new row (*priority*, section 4.1).
* A batch goes only to a module whose queue has room; a policy is shown exactly these modules. With
  `order`, a batch waits for the one module that is next in it: a static plan in the same machine.
* Busy modules share one processor evenly. A module that `sleeps` (an external index) waits
  elsewhere and uses no processor, one row after another.
* A batch's step runs for real when its service starts; what comes back is delivered when it ends.
* Time moves from event to event; at one moment, batches are offered one at a time, so a module that
  costs nothing never has a full queue.

Known limitations: routing costs no virtual time, and reading a source costs none either; a scan may
have a rate. One role a relation (no self-joins).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids, Origin, RoutedBatch
from eddies.core.clock import VirtualClock
from eddies.core.constraints import Move, is_result, legal_joins, legal_moves
from eddies.core.entry import Entry
from eddies.core.events import EventSink, Routed
from eddies.core.exactly_once import EarlierOnly
from eddies.core.graph import Graph, make_graph
from eddies.core.join_tree import JoinTree, make_join_tree
from eddies.core.lineage import Signature
from eddies.core.module import Step
from eddies.core.modules.eddy_join import EddyJoin, JoinStep
from eddies.core.modules.selection import Select
from eddies.core.modules.stem import Probe, SteM
from eddies.core.policies.base import Candidate, Fork, RoutingPolicy
from eddies.core.policies.static import StaticPolicy
from eddies.core.query import Query
from eddies.core.route import Route, RouteTable, already
from eddies.core.state.scratch import Scratch
from eddies.errors import OptionError, SourceError
from eddies.hosts.machine import Limits, Moment, Scan, Service

__all__ = ["QueuedRun"]


@dataclass(slots=True)
class _Reader:
    """A scan under way."""

    scan: Scan
    relation: int
    position: int = 0

    @property
    def is_done(self) -> bool:
        return bool(self.position >= self.scan.table.num_rows)


@dataclass(slots=True)
class _Task:
    batch: RoutedBatch
    fork: Fork
    choice: int
    step: Step


@dataclass(slots=True)
class _Server:
    """A module with its queue and its thread."""

    name: str
    service: Service
    queue: deque[_Task] = field(default_factory=deque)
    n_queued: int = 0
    task: _Task | None = None
    outcome: list[RoutedBatch] = field(default_factory=list)
    elapsed_ns: float = 0.0  # service time of the task
    left_ns: float = 0.0  # processor time it still needs, or (if it sleeps) the moment it wakes
    n_in: int = 0
    n_out: int = 0
    busy_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class _Way:
    """A signature's full fork, and narrow forks by which of its candidates have room."""

    fork: Fork
    steps: tuple[Step, ...]
    servers: tuple[_Server, ...]
    narrow: dict[int, tuple[Fork, tuple[int, ...]]]


class QueuedRun:
    """One query on the simulated machine. Call `run` once, then read the results.

    `services` gives the declared cost of every module by name: "stem:T", "join:R-S",
    "select:...". `indexes` are relations that are not read but looked up: their SteMs are complete
    from the start, and they drive nothing.
    """

    def __init__(
        self,
        query: Query,
        scans: Mapping[str, Scan],
        services: Mapping[str, Service],
        limits: Limits,
        policy: RoutingPolicy | None = None,
        *,
        order: tuple[str, ...] = (),
        indexes: Mapping[str, pa.Table] | None = None,
        state_in_joins: bool = False,
        build_ns: float = 0.0,
        reoptimize_every: int = 1000,
        events: EventSink | None = None,
    ) -> None:
        if (policy is None) == (not order):
            raise OptionError("give either a policy or an order (a static plan), not both")
        self.graph: Graph = make_graph(query)
        if len(self.graph.relations) < len(self.graph.roles):
            raise OptionError("the queued host runs queries with one role a relation")
        self.clock = VirtualClock()
        self._limits = limits
        self._policy = policy
        self._static = StaticPolicy(order) if order else None
        self._events = events
        self._build_ns = build_ns
        self._reoptimize_every = reoptimize_every
        self._n_since_reoptimized = 0
        self._indexes = indexes or {}
        self._stems = [SteM(relation) for relation in self.graph.relations]
        self._stores = [stem.store for stem in self._stems]
        self._source_ids = {role.name: role.source_id for role in self.graph.roles}
        self._index_mask = 0
        self._readers = self._open(scans)
        self._tree: JoinTree | None = None
        self.joins: list[EddyJoin] = []
        if state_in_joins:
            self._tree = self._scanned_tree()
            self.joins = [EddyJoin(self.graph, edge, self._stores) for edge in self._tree.edges]
        self._servers = {name: _Server(name, service) for name, service in services.items()}
        self._table = RouteTable(self._expand)
        self._ways: dict[Signature, _Way] = {}
        self._waiting: dict[Signature, deque[RoutedBatch]] = {}
        self._scratch = Scratch(max(limits.batch_rows, 64))
        self._turn = 0
        self.n_read = 0
        self.n_in_flight = 0
        self._results: list[npt.NDArray[np.int32]] = []

    # Set-up

    def _open(self, scans: Mapping[str, Scan]) -> list[_Reader]:
        """Load what is complete from the start; the rest is built as it is read."""
        readers = []
        for number, relation in enumerate(self.graph.relations):
            if relation.name in self._indexes:
                self._index_mask |= 1 << relation.roles[0]
                self._load(number, self._indexes[relation.name])
            elif relation.name in scans:
                readers.append(_Reader(scans[relation.name], number))
            else:
                raise SourceError(
                    f"the query reads {relation.name!r}: give a scan or an index for it"
                )
        return readers

    def _load(self, relation: int, table: pa.Table) -> None:
        entry = Entry(self.graph, self.graph.relations[relation])
        for batch in table.combine_chunks().to_batches():
            self._stems[relation].build(entry.admit(batch))

    def _scanned_tree(self) -> JoinTree:
        """Joins between scanned sources; a join with an index is a probe of that index."""
        tree = make_join_tree(self.graph)
        scanned = [
            edge for edge in tree.edges if not (1 << edge.left | 1 << edge.right) & self._index_mask
        ]
        assert [edge.number for edge in scanned] == list(range(len(scanned))), "indexes come last"
        return JoinTree(tuple(scanned), tree.checks)

    def _moves(self, signature: Signature) -> tuple[Move, ...]:
        moves = legal_moves(self.graph, signature)
        if self._tree is None:
            return moves
        looked_up = [m for m in moves if m.target >= 0 and self._index_mask >> m.target & 1]
        # A missing neighbour that is scanned is reached through a join, by `legal_joins`.
        return (*legal_joins(self.graph, self._tree, signature), *looked_up)

    def _expand(
        self, route: Route, table: RouteTable
    ) -> tuple[Fork | None, list[Callable[[], Step]]]:
        signature = route.signature
        if is_result(self.graph, signature):
            return None, []
        moves = self._moves(signature)
        pairs = [self._step(move, signature, table) for move in moves]
        candidates = tuple(candidate for _, candidate in pairs)
        leads_to = tuple(move.after(signature) for move in moves)
        fork = Fork(table.n_forks, signature, candidates, leads_to)
        table.n_forks += 1
        return fork, [already(step) for step, _ in pairs]

    def _step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        n_sources = len(self.graph.roles)
        if move.optional >= 0:
            select = Select(self.graph, move.optional, table.route(move.after(signature)))
            return select, Candidate(n_sources + move.optional, select.name, "select")
        if move.join >= 0:
            assert self._tree is not None
            join = JoinStep(self.graph, self._tree, self.joins[move.join], signature, table)
            number = n_sources + len(self.graph.optionals) + move.join
            return join, Candidate(number, join.name, "probe")
        stem = self._stems[self.graph.roles[move.target].relation]
        probe = Probe(self.graph, stem, move.target, signature, table.route(move.after(signature)))
        return probe, Candidate(move.target, probe.name, "probe", move.cross)

    def _way(self, route: Route) -> _Way | None:
        """Where batches of a route may go; None for results."""
        way = self._ways.get(route.signature)
        if way is not None:
            return way
        if not route.is_expanded:
            self._table.expand(route)
        if route.fork is None:
            return None
        for candidate in route.fork.candidates:
            if candidate.name not in self._servers:
                raise OptionError(
                    f"services declares no cost for module {candidate.name!r}; it names "
                    f"{', '.join(sorted(self._servers))}"
                )
        servers = tuple(self._servers[candidate.name] for candidate in route.fork.candidates)
        way = self._ways[route.signature] = _Way(
            route.fork, tuple(w.step for w in route.ways), servers, {}
        )
        return way

    # The machine

    def run(self) -> QueuedRun:
        """Run to the end; returns itself."""
        self._prebuild()
        while True:
            while self._finish_due() or self._offer_one() or self._read_one():
                pass
            if not self._advance():
                break
        assert self.n_in_flight == 0, "termination: nothing is in flight at the end"
        return self

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds so far."""
        return self.clock.now_ns() / 1e9

    @property
    def busy_s(self) -> dict[str, float]:
        """Service time given by each module, in virtual seconds."""
        return {name: server.busy_ns / 1e9 for name, server in self._servers.items()}

    @property
    def n_in(self) -> dict[str, int]:
        """Rows that each module took."""
        return {name: server.n_in for name, server in self._servers.items()}

    def results(self) -> npt.NDArray[np.int32]:
        """The answer: one line of row ids (in the order of the sources) a result, sorted."""
        if not self._results:
            return np.empty((0, len(self.graph.roles)), dtype=np.int32)
        rows = np.concatenate(self._results)
        return rows[np.lexsort(rows.T[::-1])]

    def _prebuild(self) -> None:
        """Store relations whose rows no other batch will probe by stamp: single scans and joins."""
        if len(self._readers) == 1 or self._tree is not None:
            for reader in self._readers:
                self._load(reader.relation, reader.scan.table)
            for number, optional in enumerate(self.graph.optionals):
                self._answer_ahead(number, optional.mask)

    def _answer_ahead(self, number: int, mask: int) -> None:
        """Let a predicate over one source remember its answers, so that small batches are quick."""
        source = mask.bit_length() - 1
        store = self._stores[self.graph.roles[source].relation]
        if mask.bit_count() == 1 and store.n_rows:
            batch = self._driver(source, np.arange(store.n_rows, dtype=np.int32), ())
            Select(self.graph, number, batch.route).run(batch, self._scratch)

    def _read_one(self) -> bool:
        """Let one batch in, from the scans in turn; False if none is due or there is no room."""
        if self.n_in_flight + self._limits.batch_rows > self._limits.buffer_rows:
            return False
        now_ns = self.clock.now_ns()
        for _ in range(len(self._readers)):
            reader = self._readers[self._turn]
            self._turn = (self._turn + 1) % len(self._readers)
            if not reader.is_done and reader.scan.due_ns(reader.position) <= now_ns:
                self._admit(reader)
                return True
        return False

    def _admit(self, reader: _Reader) -> None:
        start = reader.position
        n_rows = min(self._limits.batch_rows, reader.scan.table.num_rows - start)
        reader.position += n_rows
        self.n_read += n_rows
        source = self.graph.relations[reader.relation].roles[0]
        before = [store.n_rows for store in self._stores]
        if before[reader.relation] < reader.position:
            self._load(reader.relation, reader.scan.table.slice(start, n_rows))
        after = [store.n_rows for store in self._stores]
        limits = EarlierOnly().limits(self.graph, source, before, after)
        batch = self._driver(source, np.arange(start, start + n_rows, dtype=np.int32), limits)
        self.n_in_flight += n_rows
        self._wait(batch)
        if self._policy is not None:
            self._n_since_reoptimized += n_rows
            if self._n_since_reoptimized >= self._reoptimize_every:
                self._policy.reoptimize()
                self._n_since_reoptimized = 0

    def _driver(self, source: int, rows: Ids, limits: tuple[int, ...]) -> RoutedBatch:
        places = [self._stores[role.relation] for role in self.graph.roles]
        home = places[source]
        origin = Origin(source, places, limits, -1, home, self._source_ids)
        ids: list[Ids | None] = [None] * len(self.graph.roles)
        ids[source] = rows
        return RoutedBatch(self._table.route(Signature(1 << source)), origin, ids, rows.shape[0])

    def _wait(self, batch: RoutedBatch) -> None:
        signature = batch.route.signature
        waiting = self._waiting.get(signature)
        if waiting is None:
            # Every returned batch has a larger signature than every new one (*Progress*), so
            # "returned rows first" is an order of signatures.
            self._waiting[signature] = deque((batch,))
            order = sorted(self._waiting, key=_depth, reverse=True)
            self._waiting = {s: self._waiting[s] for s in order}
        else:
            waiting.append(batch)

    def _offer_one(self) -> bool:
        """Send the first batch that some module has room for; False if none moves."""
        for waiting in self._waiting.values():
            if not waiting:
                continue
            batch = waiting[0]
            way = self._way(batch.route)
            assert way is not None, "results do not wait"
            choice = self._choose(way, batch.n_rows)
            if choice is not None:
                waiting.popleft()
                fork, i, full = choice
                server = way.servers[full]
                server.queue.append(_Task(batch, fork, i, way.steps[full]))
                server.n_queued += batch.n_rows
                if server.task is None:
                    self._start(server)
                return True
        return False

    def _choose(self, way: _Way, n_rows: int) -> tuple[Fork, int, int] | None:
        """The fork shown, the choice in it, and its number in the full fork."""
        room = self._limits.queue_rows - n_rows
        if self._static is not None:
            full = self._static.choose(way.fork).choice
            return (way.fork, full, full) if way.servers[full].n_queued <= room else None
        mask = 0
        for i, server in enumerate(way.servers):
            if server.n_queued <= room:
                mask |= 1 << i
        if not mask:
            return None
        fork, places = self._narrow(way, mask)
        assert self._policy is not None
        choice = 0 if len(places) == 1 else self._policy.choose(fork).choice
        return fork, choice, places[choice]

    def _narrow(self, way: _Way, mask: int) -> tuple[Fork, tuple[int, ...]]:
        found = way.narrow.get(mask)
        if found is None:
            places = tuple(i for i in range(len(way.servers)) if mask >> i & 1)
            fork = Fork(
                self._table.n_forks,
                way.fork.signature,
                tuple(way.fork.candidates[i] for i in places),
                tuple(way.fork.leads_to[i] for i in places),
            )
            self._table.n_forks += 1
            found = way.narrow[mask] = (fork, places)
        return found

    def _start(self, server: _Server) -> None:
        """Begin the next task of an idle module."""
        task = server.queue.popleft()
        batch, step = task.batch, task.step
        n_in = batch.n_rows
        server.n_queued -= n_in
        step.prepare(self._scratch)
        first, more = step.run(batch, self._scratch)
        outcome = [] if first is None else [first]
        outcome.extend(more or ())
        n_out = sum(out.n_rows for out in outcome)
        moment = Moment(self.clock.now_ns(), self.n_read)
        cost_ns = server.service.cost_ns(moment, n_in, n_out)
        if _depth(batch.route.signature) == 1:
            cost_ns += self._build_ns * n_in
        server.task, server.outcome, server.elapsed_ns = task, outcome, cost_ns
        server.left_ns = moment.now_ns + cost_ns if server.service.sleeps else cost_ns
        server.n_in += n_in
        server.n_out += n_out
        server.busy_ns += cost_ns
        if self._events is not None:
            signature = batch.route.signature
            self._events.emit(
                Routed(moment.now_ns, signature, server.name, n_in, n_out, int(cost_ns))
            )

    def _finish_due(self) -> bool:
        """Deliver what a module has finished by now; False if none has."""
        now_ns = self.clock.now_ns()
        for server in self._servers.values():
            due_ns = now_ns if server.service.sleeps else 0
            if server.task is not None and server.left_ns <= due_ns + 0.5:
                self._finish(server)
                return True
        return False

    def _finish(self, server: _Server) -> None:
        task, outcome = server.task, server.outcome
        assert task is not None
        server.task, server.outcome = None, []
        n_out = sum(out.n_rows for out in outcome)
        if self._policy is not None:
            elapsed_ns = int(server.elapsed_ns)
            self._policy.observe(task.fork, task.choice, task.batch.n_rows, n_out, elapsed_ns)
        self.n_in_flight -= task.batch.n_rows
        for out in outcome:
            self._take_back(out)
        if server.queue:
            self._start(server)

    def _take_back(self, batch: RoutedBatch) -> None:
        if self._way(batch.route) is None:
            self._results.append(np.stack([np.asarray(ids) for ids in batch.ids], axis=1))
            return
        self.n_in_flight += batch.n_rows
        size = self._limits.batch_rows
        while batch.n_rows > size:
            piece, batch = batch.split(size)
            self._wait(piece)
        self._wait(batch)

    def _advance(self) -> bool:
        """Move to the next event; False if there is none: the query has ended."""
        now_ns = self.clock.now_ns()
        sharing = [
            server
            for server in self._servers.values()
            if server.task is not None and not server.service.sleeps
        ]
        moments: list[float] = [
            server.left_ns
            for server in self._servers.values()
            if server.task is not None and server.service.sleeps
        ]
        if sharing:
            moments.append(now_ns + min(server.left_ns for server in sharing) * len(sharing))
        if self.n_in_flight + self._limits.batch_rows <= self._limits.buffer_rows:
            moments += [r.scan.due_ns(r.position) for r in self._readers if not r.is_done]
        if not moments:
            return False
        elapsed_ns = max(1, round(min(moments) - now_ns))
        for server in sharing:
            server.left_ns -= elapsed_ns / len(sharing)
        self.clock.advance_ns(elapsed_ns)
        return True


def _depth(signature: Signature) -> int:
    """Sources spanned and predicates passed: 1 for a new row."""
    return signature.sources.bit_count() + signature.done.bit_count()
