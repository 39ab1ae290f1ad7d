"""The local host: one eddy in this process, without Spark. For tests, figures and small data.

    for batch in run(query, {"fact": fact, "dim": dim}): ...
    table = sql("SELECT ... FROM fact, dim WHERE ...", {"fact": fact, "dim": dim})

Sources are pyarrow tables, readers, iterables of batches, sources of `eddies.read` or plain paths (of
which only the columns and row groups are read that the query needs), or `eddies.sources` arrivals that
can be late or slow. When everything is there at once, small sources are read first and the largest, or
one of unknown size, last: then it is never stored, and results come as it streams by. With
`interleave=True`, or when sources take their time, batches are pushed as they arrive, one source
after the other.

While nothing is due, the eddy works off what it has; when it has nothing either, the host sleeps on
the injected clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from eddies.core.clock import Clock, RealClock
from eddies.core.eddy import Eddy
from eddies.core.events import EventSink
from eddies.core.options import Options
from eddies.core.policies.base import RoutingPolicy
from eddies.core.query import Query, UserFunction
from eddies.core.regret import RegretLog
from eddies.core.state.columns import normal_type
from eddies.errors import SourceError, UnsupportedError
from eddies.hosts.access import AccessRun, has_access_methods
from eddies.sources import Arrivals, Source, arrivals_of
from eddies.sources.arrivals import SplitArrivals
from eddies.sources.simulated import NEVER_NS
from eddies.sources.wanted import wanted_of

__all__ = ["LocalRun", "explain", "run", "sql"]

DEFAULT_STALL_TIMEOUT_S = 300.0
_BATCHES_AHEAD = 64  # for each of several threads: as many may be under way at once
_BATCHES_AHEAD_WITHIN_BUDGET = 2  # the same where memory is bounded
_UNREAD = pa.schema([])  # stands for the columns of a table that the query does not read
_LONG_NS = 20_000_000  # spent on reading, after which threads get what there is


class LocalRun:
    """One query under way, to be iterated once: result batches. `eddy` may be inspected at any time."""

    def __init__(
        self,
        query: Query,
        tables: Mapping[str, object],
        options: Options | None = None,
        *,
        clock: Clock | None = None,
        events: EventSink | None = None,
        policy: RoutingPolicy | None = None,
        regret: RegretLog | None = None,
        interleave: bool = False,
        stall_timeout_s: float = DEFAULT_STALL_TIMEOUT_S,
    ) -> None:
        options = options or Options()
        if query.parts:
            raise UnsupportedError("this host runs one query; for several, push rows to an Eddy")
        self._clock = clock or RealClock()
        self._stall_timeout_ns = int(stall_timeout_s * 1e9)
        self._interleave = interleave
        self._started_ns = 0
        self._is_read = False
        ahead = _BATCHES_AHEAD if options.memory is None else _BATCHES_AHEAD_WITHIN_BUDGET
        self._n_ahead = 1 if options.threads == 1 else ahead * options.threads
        names = list(dict.fromkeys(source.table for source in query.sources))
        for name in names:
            if name not in tables:
                known = ", ".join(sorted(tables)) or "none"
                raise SourceError(f"the query reads {name!r}, but the tables given are: {known}")
        self._arrivals: dict[str, Arrivals] = {
            name: arrivals_of(name, tables[name], options.batch_rows) for name in names
        }
        sizes = {name: arrivals.n_rows for name, arrivals in self._arrivals.items()}
        self.eddy = Eddy(
            query,
            options,
            clock=self._clock,
            events=events,
            policy=policy,
            regret=regret,
            expected_rows={name: n for name, n in sizes.items() if n is not None},
        )
        self.schema = self.eddy.output.schema
        for relation in self.eddy.graph.relations:
            arrivals = self._arrivals[relation.name]
            if isinstance(arrivals, SplitArrivals):
                arrivals.narrow(*wanted_of(self.eddy.graph, relation))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._is_read:
            raise SourceError("a run is read once: its rows are gone; start another with run()")
        self._is_read = True
        return self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        finally:
            self.eddy.close()

    def table(self) -> pa.Table:
        """The whole answer; instead of iterating."""
        return pa.Table.from_batches(list(self), schema=self.schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        eddy = self.eddy
        self._started_ns = self._clock.now_ns()
        waiting = self._reading_order()
        while waiting:
            now_ns = self._now_ns()
            name = self._next_due(waiting, now_ns)
            if name is None:
                if waiting:
                    yield from self._use_silence(waiting)
                    self._sleep(waiting, self._now_ns())
                continue
            self._deliver(name, waiting)
            if self._n_ahead > 1:
                self._deliver_ahead(waiting)
            # Asking a live source what is next may take long: results first, unless threads would
            # run out of work meanwhile.
            while (rows := eddy.poll()) is not None:
                yield rows
                if self._n_ahead == 1 or not self._has_room():
                    continue
                if self._next_due(waiting, self._now_ns()) is not None:
                    break
        while (rows := eddy.poll()) is not None:
            yield rows

    def _use_silence(self, waiting: list[str]) -> Iterator[pa.RecordBatch]:
        """Nothing is due: let the eddy do what it keeps for such moments, until something is."""
        next_ns = min(self._arrivals[name].due_ns() or 0 for name in waiting)
        while self._now_ns() < next_ns and self.eddy.use_silence():
            while (rows := self.eddy.poll()) is not None:
                yield rows

    def _now_ns(self) -> int:
        """Since the query's start."""
        return self._clock.now_ns() - self._started_ns

    def _deliver_ahead(self, waiting: list[str]) -> None:
        """Give several threads something to share: push what else is due, up to a limit, and as long
        as sources deliver it quickly. Only of the last source: what must be stored is routed by one
        thread, and is best routed at once.
        """
        until_ns = self._now_ns() + _LONG_NS
        while len(waiting) == 1 and self._has_room() and (now_ns := self._now_ns()) < until_ns:
            name = self._next_due(waiting, now_ns)
            if name is None:
                return
            self._deliver(name, waiting)

    def _reading_order(self) -> list[str]:
        """Ends without rows at once; small relations first and those of unknown size last, unless
        arrivals are to be interleaved.
        """
        names = list(self._arrivals)
        for name in names:
            if self._arrivals[name].due_ns() is None:
                self.eddy.end(name)
        names = [name for name in names if self._arrivals[name].due_ns() is not None]
        if not self._interleave:
            sizes = {name: self._arrivals[name].n_rows for name in names}
            names.sort(key=lambda name: (sizes[name] is None, sizes[name] or 0))
        return names

    def _next_due(self, waiting: list[str], now_ns: int) -> str | None:
        """A source that has rows now; those found to have no more are ended."""
        for name in list(waiting):
            due_ns = self._arrivals[name].due_ns()
            if due_ns is None:
                self._end(name, waiting)
            elif due_ns <= now_ns:
                return name
        return None

    def _has_room(self) -> bool:
        """Whether to take more in. If not, what is under way goes on first: nobody reads ahead of
        whoever reads the results by more than this.
        """
        return self.eddy.n_in_flight < self._n_ahead

    def _deliver(self, name: str, waiting: list[str]) -> None:
        """Push what is due of a source, and its end if that is known to be the last of it."""
        arrivals = self._arrivals[name]
        self.eddy.push(name, arrivals.take())
        if self._interleave:
            waiting.append(waiting.pop(waiting.index(name)))
        if arrivals.n_rows is not None and arrivals.due_ns() is None:
            self._end(name, waiting)  # at once: then the next source may be the one not stored

    def _end(self, name: str, waiting: list[str]) -> None:
        waiting.remove(name)
        self.eddy.end(name)

    def _sleep(self, waiting: list[str], now_ns: int) -> None:
        due = {name: self._arrivals[name].due_ns() or 0 for name in waiting}
        next_ns = min(due.values())
        if next_ns - now_ns > self._stall_timeout_ns or next_ns >= NEVER_NS:
            self._clock.sleep_until_ns(self._started_ns + now_ns + self._stall_timeout_ns)
            late = ", ".join(sorted(due))
            raise SourceError(
                f"nothing came from {late} for {self._stall_timeout_ns / 1e9:g} s; the answer is "
                "incomplete. Repair the source or allow a longer stall_timeout_s"
            )
        self._clock.sleep_until_ns(self._started_ns + next_ns)


def run(
    query: Query, tables: Mapping[str, object], options: Options | None = None, **settings: object
) -> LocalRun | AccessRun:
    """Start `query` over `tables` (by relation name). See `LocalRun` for the settings, and
    `AccessRun` if some table has mirrors or indexes.
    """
    if any(has_access_methods(tables.get(source.table)) for source in query.sources):
        return AccessRun(query, tables, options, **settings)  # type: ignore[arg-type]
    return LocalRun(query, tables, options, **settings)  # type: ignore[arg-type]


def explain(text: str, tables: Mapping[str, object], functions: Iterable[UserFunction] = ()) -> str:
    """What the query is made of and which ways its rows may go; nothing is run."""
    from eddies.observe.explain import explain_query
    from eddies.sql import describe, plan

    schemas = dict.fromkeys(tables, _UNREAD)
    schemas |= {name: _normal(_schema(name, tables[name])) for name in _used(text, tables)}
    planned = plan(text, schemas, functions, aggregate=True)
    routes = [explain_query(block.query) for block in planned.blocks]
    return "\n\n".join([describe(planned), *routes])


def _used(text: str, tables: Mapping[str, object]) -> list[str]:
    """The tables that the text names; others are left alone."""
    from eddies.sql import named_tables

    named = named_tables(text)
    return [name for name in tables if name.lower() in named]


def _normal(schema: pa.Schema) -> pa.Schema:
    """The columns as the eddy keeps them: how a source encodes them is no matter of the query."""
    return pa.schema([field.with_type(normal_type(field.type)) for field in schema])


def _schema(name: str, source: object) -> pa.Schema:
    """Columns of a table, without taking a row out of a source that can be read only once."""
    if isinstance(source, Iterator) and not hasattr(source, "schema"):
        raise SourceError(
            f"source {name!r} is an iterator, whose columns are unknown until its rows are read; "
            "pass a pyarrow.Table or a RecordBatchReader instead"
        )
    return getattr(source, "schema", None) or arrivals_of(name, source, 1).schema


def sql(
    text: str,
    tables: Mapping[str, object],
    options: Options | None = None,
    *,
    functions: Iterable[UserFunction] = (),
    **settings: object,
) -> pa.Table:
    """The answer to an SQL text of one select-project-join block (and plain aggregates on it)."""
    from eddies.sql import plan
    from eddies.sql.preference import preference

    batch_rows = (options or Options()).batch_rows
    # Opened once, and only if read: asking an iterator for its columns takes its first batch.
    opened: dict[str, Arrivals | Source] = {
        name: source if has_access_methods(source) else arrivals_of(name, source, batch_rows)
        for name in _used(text, tables)
        for source in (tables[name],)
    }
    schemas = dict.fromkeys(tables, _UNREAD)
    schemas |= {name: _normal(arrivals.schema) for name, arrivals in opened.items()}
    planned = plan(text, schemas, functions, aggregate=True)
    if planned.above is not None or len(planned.blocks) != 1:
        raise UnsupportedError(
            "this query needs a layer above the eddy, which the local host does not have: "
            + "; ".join(planned.reasons)
            + ". Run it through Spark"
        )
    query = planned.blocks[0].query
    started = run(query, {**opened, **planned.constants}, options, **settings)
    if options is not None and options.prefer is not None:
        started.eddy.prefer(preference(options.prefer, query, schemas))
    return started.table()
