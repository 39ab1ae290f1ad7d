"""Random windowed joins: tables with times, cut into epochs, and what DuckDB says of them.

The watermark of every epoch is worked out here by plain loops over all rows, so that a test can say
which rows are late, and which were forgotten when an epoch began.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from eddies.core.expr import Column
from eddies.core.query import Equality, Output, Query, Source
from eddies.streaming.log import Blob, end_mark, serialised
from eddies.streaming.windows import (
    RowWindow,
    TimeWindow,
    Window,
    WindowedTable,
    relation_windows,
    with_windows,
)

__all__ = ["Arrival", "WindowedCase", "make_windowed", "watermarks"]

_MINUTE = 60_000_000
_EPOCH = datetime.date(1970, 1, 1)
_TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "date": pa.date32(),
    "number": pa.int64(),
    "small": pa.int32(),
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows of one relation that come in one epoch; `is_end` says that they are the last."""

    relation: int
    rows: pa.RecordBatch
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class WindowedCase:
    """A query without its windows, the windows by source, and all arrivals by epoch."""

    kind: str
    query: Query
    windows: Mapping[str, Window]
    relations: tuple[str, ...]
    epochs: Sequence[Sequence[Arrival]]

    @property
    def by_relation(self) -> dict[str, Window]:
        return relation_windows(self.query, self.windows)

    @property
    def windowed_query(self) -> Query:
        tables = {s.table: WindowedTable(s.schema, True) for s in self.query.sources}
        return with_windows(self.query, self.windows, tables)

    def blobs(self, epoch: int) -> list[Blob]:
        found: list[Blob] = []
        for arrival in self.epochs[epoch]:
            if arrival.rows.num_rows:
                found.append((arrival.relation, serialised(arrival.rows)))
        return found + [end_mark(a.relation) for a in self.epochs[epoch] if a.is_end]

    def tables(self, *, without_late: bool = True) -> dict[str, pa.Table]:
        """All rows, each with its epoch and its number, times as numbers."""
        found = {}
        marks = watermarks(self)
        for number, name in enumerate(self.relations):
            rows: list[dict[str, object]] = []
            n_before = 0
            for epoch, arrivals in enumerate(self.epochs):
                for arrival in arrivals:
                    if arrival.relation == number:
                        for row in arrival.rows.to_pylist():
                            at = position(row["at"])
                            more = {"at": at, "epoch": epoch, "number": n_before}
                            n_before += 1
                            mark = marks[epoch]
                            is_timed = isinstance(self.by_relation.get(name), TimeWindow)
                            is_late = is_timed and None not in (at, mark) and at < mark
                            if not (is_late and without_late):
                                rows.append(row | more)
            names = ("id", "k", "j", "at", "epoch", "number")
            schema = pa.schema([(column, pa.int64()) for column in names])
            found[name] = pa.Table.from_pylist(rows, schema=schema)
        return found

    def halved(self) -> WindowedCase:
        """The first half of its epochs."""
        return replace(self, epochs=self.epochs[: len(self.epochs) // 2])

    def n_late(self) -> dict[str, int]:
        """Rows that come too late, by relation."""
        all_rows, in_time = self.tables(without_late=False), self.tables()
        return {name: all_rows[name].num_rows - in_time[name].num_rows for name in all_rows}

    def sql(self) -> str:
        """The query as a property of result rows; rows forgotten at the beginning of an epoch matter
        where rows are counted.
        """
        names = {source.name: source.table for source in self.query.sources}
        columns = ", ".join(f"{name}.id AS {name}" for name in names)
        froms = ", ".join(f"{table} AS {name}" for name, table in names.items())
        where = ["TRUE"]
        for equality in self.query.equalities:
            left, right = equality.left, equality.right
            assert isinstance(left, Column)
            assert isinstance(right, Column)
            where.append(f"{left.source}.{left.name} = {right.source}.{right.name}")
        timed = {n: w for n, w in self.windows.items() if isinstance(w, TimeWindow)}
        for name, window in timed.items():
            where.append(f"{name}.at IS NOT NULL")
            for other in timed:
                where.append(f"{name}.at > {other}.at - {window.length}")
        if len(timed) < len(self.windows):
            where += self._forgotten()
        return f"SELECT {columns} FROM {froms} WHERE {' AND '.join(where)}"

    def _forgotten(self) -> list[str]:
        """Rows of earlier epochs must still be there when the last part comes."""
        last = f"greatest({', '.join(f'{source.name}.epoch' for source in self.query.sources)})"
        counts: list[list[int]] = [[] for _ in self.relations]
        for arrivals in self.epochs:
            for number, known in enumerate(counts):
                n = sum(a.rows.num_rows for a in arrivals if a.relation == number)
                known.append(n + (known[-1] if known else 0))
        marks = watermarks(self)
        where = []
        for source in self.query.sources:
            window = self.by_relation.get(source.table)
            came_last = f"{source.name}.epoch = {last}"
            if isinstance(window, RowWindow):
                total = f"{counts[self.relations.index(source.table)]}[{last}]"
                there = f"{source.name}.number >= {total} - {window.n_rows}"
                where.append(f"({came_last} OR {there})")
            elif isinstance(window, TimeWindow):
                shown = ", ".join("NULL" if mark is None else str(mark) for mark in marks)
                mark_of = f"([{shown}]::BIGINT[])[{last} + 1]"
                there = f"{source.name}.at > {mark_of} - {window.length}"
                where.append(f"({came_last} OR {mark_of} IS NULL OR {there})")
        return where


def position(time: object) -> int | None:
    """A time as a number in the unit of its column."""
    if isinstance(time, datetime.datetime):
        return (time.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(
            microseconds=1
        )
    if isinstance(time, datetime.date):
        return (time - _EPOCH).days
    return time  # type: ignore[return-value]


def watermarks(case: WindowedCase) -> list[int | None]:
    """The watermark at the beginning of every epoch."""
    windows = case.by_relation
    latest: dict[str, int] = {}
    ended: set[str] = set()
    found: list[int | None] = []
    mark: int | None = None
    for arrivals in case.epochs:
        found.append(mark)
        for arrival in arrivals:
            name = case.relations[arrival.relation]
            for time in arrival.rows.column("at").to_pylist():
                at = position(time)
                if at is not None:
                    latest[name] = max(at, latest.get(name, at))
            if arrival.is_end:
                ended.add(name)
        is_open = [name for name in case.relations if name not in ended]
        timed = [name for name in is_open if isinstance(windows.get(name), TimeWindow)]
        if any(name not in windows for name in is_open) or not timed:
            continue
        if all(name in latest for name in timed):
            mark = min(latest[n] - w.delay for n, w in windows.items() if n in timed)  # type: ignore[union-attr]
    return found


def make_windowed(
    seed: int, *, late: bool, by_rows: bool = False, n_epochs: int | None = None
) -> WindowedCase:
    """A random case. Without `late`, delays are long enough for all rows to be in time."""
    rng = random.Random(f"windows {seed} {late} {by_rows}")
    kind = rng.choice(list(_TYPES))
    step = {"timestamp": _MINUTE, "local": _MINUTE}.get(kind, 1)
    n_sources = rng.randint(1 if by_rows else 2, 4)
    is_self_join = rng.random() < 0.2 and n_sources > 2
    tables = [f"t{i}" for i in range(n_sources - is_self_join)]
    of_source = [*tables, *(["t0"] if is_self_join else [])]
    schema = pa.schema(
        [("id", pa.int64()), ("k", pa.int64()), ("j", pa.int64()), ("at", _TYPES[kind])]
    )
    names = [f"a{i}" for i in range(n_sources)]
    equalities = [
        Equality(Column(names[rng.randrange(i)], key), Column(names[i], key), pa.int64())
        for i in range(1, n_sources)
        if rng.random() < 0.85
        for key in [rng.choice("kj")]
    ]
    query = Query(
        tuple(Source(name, table, schema) for name, table in zip(names, of_source, strict=True)),
        equalities=tuple(equalities),
        output=tuple(Output(name, Column(name, "id"), pa.int64()) for name in names),
    )
    without = rng.choice(tables) if rng.random() < 0.3 and len(tables) > 1 else None
    lengths = {table: step * rng.randint(1, 25) for table in tables}
    delays = {table: step * rng.randint(0, 2) for table in tables}
    windows: dict[str, Window] = {}
    for name, table in zip(names, of_source, strict=True):
        if table == without:
            continue
        length = lengths[table] if rng.random() < 0.7 else step * rng.randint(1, 25)
        windows[name] = TimeWindow("at", length, delays[table])
    if by_rows:
        counted = rng.sample(tables, rng.randint(1, len(tables)))
        n_kept = {table: rng.randint(1, 12) for table in counted}
        for name, table in zip(names, of_source, strict=True):
            if table in counted:
                windows[name] = RowWindow(n_kept[table])
    epochs = _epochs(rng, tables, schema, step, n_epochs or rng.randint(1, 45), without)
    case = WindowedCase(kind, query, windows, tuple(tables), epochs)
    while not late and any(case.n_late().values()):
        later: dict[str, Window] = {
            name: replace(window, delay=2 * window.delay + step)
            if isinstance(window, TimeWindow)
            else window
            for name, window in case.windows.items()
        }
        case = replace(case, windows=later)
    return case


def _epochs(
    rng: random.Random,
    tables: list[str],
    schema: pa.Schema,
    step: int,
    n_epochs: int,
    without: str | None,
) -> list[list[Arrival]]:
    """Times move on from epoch to epoch, and stray; some relations end early."""
    epochs: list[list[Arrival]] = []
    first = rng.choice((-20, 0, 10_000)) * step
    stray = rng.choice((0, 1, 6)) * step
    keys = rng.choice((3, 8, 20))
    ends = {
        table: rng.randrange(n_epochs) if table == without or rng.random() < 0.2 else n_epochs
        for table in tables
    }
    next_id = 0
    for epoch in range(n_epochs):
        arrivals = []
        for number, table in enumerate(tables):
            if epoch > ends[table]:
                continue
            for _ in range(rng.choice((0, 1, 1, 2))):
                rows = []
                for _ in range(rng.choice((0, 1, 3, 6))):
                    at = first + epoch * step + rng.randint(-stray, stray) + rng.randint(0, step)
                    rows.append(
                        {
                            "id": next_id,
                            "k": rng.randrange(keys) if rng.random() < 0.95 else None,
                            "j": rng.randrange(keys),
                            "at": at if rng.random() < 0.96 else None,
                        }
                    )
                    next_id += 1
                arrivals.append(Arrival(number, _batch(rows, schema)))
            if epoch == ends[table]:
                arrivals.append(Arrival(number, _batch([], schema), is_end=True))
        epochs.append(arrivals)
    return epochs


def _batch(rows: list[dict[str, int | None]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row[name] for row in rows], pa.int64()) for name in schema.names]
    at = columns[-1]
    if pa.types.is_date(schema.field("at").type):
        at = at.cast(pa.int32())
    columns[-1] = at.cast(schema.field("at").type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
