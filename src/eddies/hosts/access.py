"""The local host for sources with access methods: mirrors, indexes, sources without a scan.

    run = AccessRun(query, {"orders": orders, "users": users})       # eddies.read sources
    for batch in run: ...

One thread runs the eddy. Every scan of a source that lies elsewhere is read by a thread of its own,
every look-up runs on another, and the eddy takes what is there: a source that is slow keeps nobody
waiting. When nothing is there, the host sleeps until something comes, something is overdue, or nothing
has come for so long that the query fails (`stall_timeout_s`).

In virtual time, scans are `Simulated` sources and look-ups are `VirtualLookups`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import pyarrow as pa

from eddies.core.access import Access, LookupExecutor
from eddies.core.clock import Clock, RealClock
from eddies.core.eddy import Eddy
from eddies.core.events import EventSink
from eddies.core.expr import Expr
from eddies.core.options import Options
from eddies.core.partial import PartialAnswer
from eddies.core.policies.base import RoutingPolicy
from eddies.core.query import Query
from eddies.errors import OptionError, SourceError
from eddies.hosts.lookups import ThreadLookups
from eddies.hosts.scans import Racer, ScanRace, ThreadedScan
from eddies.sources.arrivals import Arrivals, arrivals_of
from eddies.sources.reachable import AccessSource, access_of, access_source
from eddies.sources.simulated import NEVER_NS
from eddies.sources.source import Source, is_source

__all__ = ["AccessRun", "MirrorWarning", "has_access_methods"]

DEFAULT_STALL_TIMEOUT_S = 300.0
DEFAULT_PARTIAL_AFTER_S = 2.0


def has_access_methods(table: object) -> TypeGuard[Source]:
    """Whether a table is a source that only this host can read as it is meant."""
    return isinstance(table, AccessSource) or bool(getattr(table, "indexes", ()))


class MirrorWarning(UserWarning):
    """Mirrors of a source hold different rows under the same key."""


class AccessRun:
    """One query under way, to be iterated once. `eddy` may be inspected at any time.

    While one source delivers nothing for `partial_after_s`, `on_partial` gets what is known without it
    (see `eddies.core.partial`): batches with NULL for its columns and its name in the column `missing`.

    `access` and `scans` are for simulations: access methods by relation, and for each of their scans
    the arrivals, instead of sources.
    """

    def __init__(
        self,
        query: Query,
        tables: Mapping[str, object],
        options: Options | None = None,
        *,
        clock: Clock | None = None,
        events: EventSink | None = None,
        policy: RoutingPolicy | None = None,
        lookups: LookupExecutor | None = None,
        access: Mapping[str, Access] | None = None,
        scans: Mapping[str, Mapping[str, Arrivals]] | None = None,
        expected_rows: Mapping[str, int] | None = None,
        stall_timeout_s: float = DEFAULT_STALL_TIMEOUT_S,
        on_partial: Callable[[pa.RecordBatch], None] | None = None,
        partial_after_s: float = DEFAULT_PARTIAL_AFTER_S,
        **settings: Any,
    ) -> None:
        self._clock = clock or RealClock()
        self._query = query
        self._options = options or Options()
        self._stall_timeout_ns = int(stall_timeout_s * 1e9)
        self._is_read = False
        self.on_wait: Callable[[], None] | None = None  # called when there is nothing else to do
        if on_partial is not None and not self._options.partial:
            raise OptionError("on_partial needs Options(partial=True): rows must be stored")
        self._on_partial = on_partial
        self._partial_after_ns = int(partial_after_s * 1e9)
        self._partials: dict[str, PartialAnswer] = {}
        self._lookups = lookups or ThreadLookups(self._clock)
        self._access: dict[str, Access] = dict(access or {})
        self._races: dict[str, ScanRace] = {}
        expected = dict(expected_rows or {})
        for name in dict.fromkeys(source.table for source in query.sources):
            if scans is not None and name in scans:
                racers = [Racer(scan, arrivals) for scan, arrivals in scans[name].items()]
            elif access is not None and name in access:
                racers = []
            else:
                racers = self._open(name, tables)
            self._races[name] = ScanRace(name, racers, self._clock)
            n_rows = racers[0].arrivals.n_rows if racers else None
            if n_rows is not None:
                expected.setdefault(name, n_rows)
        self.eddy = Eddy(
            query,
            self._options,
            clock=self._clock,
            events=events,
            policy=policy,
            access=self._access,
            lookups=self._lookups,
            expected_rows=expected,
            **settings,
        )
        self.schema = self.eddy.output.schema

    # Sources

    def _open(self, name: str, tables: Mapping[str, object]) -> list[Racer]:
        if name not in tables:
            known = ", ".join(sorted(tables)) or "none"
            raise SourceError(f"the query reads {name!r}, but the tables given are: {known}")
        table = tables[name]
        if not is_source(table):
            self._access[name] = Access(("scan",))
            return [Racer("scan", arrivals_of(name, table, self._options.batch_rows))]
        self._access[name], scans = access_of(access_source(table))
        return [Racer(scan, self._threaded(name, source)) for scan, source in scans.items()]

    def _threaded(self, name: str, source: Source) -> ThreadedScan:
        roles = [role for role in self._query.sources if role.table == name]
        columns = list(dict.fromkeys(c for role in roles for c in role.schema.names))
        where: tuple[Expr, ...] = ()
        if len(roles) == 1:
            where = self._selections(roles[0].name)
        batch_rows = self._options.batch_rows

        def read() -> Iterator[pa.RecordBatch]:
            for split in source.splits(where):
                yield from split.read(columns, where, batch_rows)

        schema = pa.schema([source.schema.field(column) for column in columns])
        return ThreadedScan(schema, source.n_rows, read, self._poke)

    def _selections(self, role: str) -> tuple[Expr, ...]:
        from eddies.core.expr import sources_of

        cheap = (s.expr for s in self._query.selections if not s.expensive)
        return tuple(expr for expr in cheap if sources_of(expr) == {role})

    def _poke(self) -> None:
        if isinstance(self._lookups, ThreadLookups):
            self._lookups.poke()

    # The loop

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._is_read:
            raise SourceError("a run is read once: its rows are gone; start another")
        self._is_read = True
        try:
            yield from self._batches()
        finally:
            for race in self._races.values():
                race.finish()
            for partial in self._partials.values():
                partial.close()
            self.eddy.close()

    def table(self) -> pa.Table:
        """The whole answer; instead of iterating."""
        return pa.Table.from_batches(list(self), schema=self.schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self._started_ns = self._moved_ns = self._clock.now_ns()
        open_ = {name: race for name, race in self._races.items() if race.racers}
        for race in open_.values():
            race.start()
        while True:
            while (rows := self.eddy.poll()) is not None:
                yield rows
            if self.eddy.is_done:
                self._warn_of_differences()
                return
            answered = self.eddy.answered()
            for name in answered:
                self.eddy.end(name)
                self._races[name].finish()
                open_.pop(name, None)
            if self.eddy.is_hopeless and not self._options.partial:
                for name, race in open_.items():  # there can be no result: nothing more is read
                    self.eddy.end(name)
                    race.finish()
                answered += open_
                open_.clear()
            if answered:
                continue
            n_deliveries = sum(self._deliver(race) for race in list(open_.values()))
            for name, race in list(open_.items()):
                if not race.racers:
                    del open_[name]
            if n_deliveries:
                self._moved_ns = self._clock.now_ns()
            else:
                if self.on_wait is not None:
                    self.on_wait()
                if self._on_partial is not None:
                    self._tell_partial(open_)
                self._wait(open_)

    def _warn_of_differences(self) -> None:
        """Mirrors that disagree are a matter for people, also if nobody listens to events."""
        assert self.eddy.access is not None
        counts = zip(self.eddy.graph.relations, self.eddy.access.n_differing, strict=True)
        for relation, n_rows in counts:
            if n_rows:
                warnings.warn(
                    f"{n_rows} rows of {relation.name!r} came from one mirror with other values than "
                    "from another, under the same key; those that came first count",
                    MirrorWarning,
                    stacklevel=2,
                )

    def _tell_partial(self, open_: Mapping[str, ScanRace]) -> None:
        """What is known without a source that has been silent for long, if there is just one."""
        assert self._on_partial is not None
        silent = [name for name, race in open_.items() if self._is_silent(race)]
        if len(silent) != 1:
            return
        (name,) = silent
        if name not in self._partials:
            self._partials[name] = PartialAnswer(self.eddy, name)
        while (rows := self._partials[name].poll()) is not None:
            self._on_partial(rows)

    def _is_silent(self, race: ScanRace) -> bool:
        last_ns = max(racer.last_ns for racer in race.racers)
        return self._clock.now_ns() - last_ns >= self._partial_after_ns

    def _deliver(self, race: ScanRace) -> bool:
        """Push what one scan of a relation has, or its end; False if there is nothing yet."""
        now_ns = self._clock.now_ns() - self._started_ns
        for racer in race.reading():
            try:
                due_ns = racer.arrivals.due_ns()
                if due_ns is not None and due_ns > now_ns:
                    continue
                batch = None if due_ns is None else racer.arrivals.take()
            except SourceError as error:
                race.lose(racer)
                self._lose(race, racer, str(error))
                return True
            if batch is None:
                self.eddy.end(race.relation)
                race.finish()
                return True
            self.eddy.push_by(race.relation, racer.name, batch)
            race.took(racer, batch.num_rows)
            return True
        return False

    def _lose(self, race: ScanRace, racer: Racer, reason: str) -> None:
        """Errors name the source; mirrors and indexes take over where there are any."""
        self.eddy.lose_scan(race.relation, racer.name, reason)

    def _wait(self, open_: Mapping[str, ScanRace]) -> None:
        now_ns = self._clock.now_ns()
        moments = []
        for race in open_.values():
            moments += [
                self._started_ns + due_ns
                for racer in race.reading()
                if (due_ns := racer.arrivals.due_ns()) is not None and due_ns < NEVER_NS
            ]
            patience_ns = race.patience_ends_ns()
            if patience_ns is not None:
                moments.append(max(patience_ns, now_ns))
        dispatcher = self.eddy.access.lookups.dispatcher if self.eddy.access else None
        n_before = dispatcher.n_pending if dispatcher else 0
        if n_before and dispatcher is not None:
            moment_ns = dispatcher.next_moment_ns()
            moments += [] if moment_ns is None else [moment_ns]
        else:
            if self._on_partial is not None:
                moments += self._silences(open_, now_ns)
            stalled_ns = self._moved_ns + self._stall_timeout_ns
            if now_ns >= stalled_ns:
                self._give_up(open_)
            moments.append(stalled_ns)
        if n_before:
            self._moved_ns = now_ns  # look-ups have timeouts of their own
        self._lookups.wait(min(moments))

    def _silences(self, open_: Mapping[str, ScanRace], now_ns: int) -> list[int]:
        """When sources that have not been silent for long will have been."""
        ends = [
            max(racer.last_ns for racer in race.racers) + self._partial_after_ns
            for race in open_.values()
        ]
        return [moment for moment in ends if moment > now_ns]

    def _give_up(self, open_: Mapping[str, ScanRace]) -> None:
        late = ", ".join(sorted(open_))
        raise SourceError(
            f"nothing came from {late} for {self._stall_timeout_ns / 1e9:g} s; the answer is "
            "incomplete. Repair the source, add a mirror, or allow a longer stall_timeout_s"
        )
