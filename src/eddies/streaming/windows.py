"""Windows: how far back the rows of a stream are joined, so that its state stays bounded.

    Options(window={"orders": "10 minutes", "items": ("sold_at", "30 seconds"), "ticks": "1000 rows"})

*Time windows* are a property of a result row and of nothing else. Let t be the latest time of those of
its parts that have a time window. The row is a result if for each of them, of source s with a window of
length W, the time of the part is later than t - W. So windows do not depend on the order in which rows
arrive, on epochs or on cells: the answer is that of the query with these comparisons added, and this is
how they get there (`with_windows`). A part whose time is NULL joins nothing.

*Watermark*: a time before which no row is expected any more. Each relation with a time has come as far
as the latest time seen in it, less its `delay`; the watermark is the least of these. It is fixed at the
beginning of an epoch, from the rows of the epochs before, so an epoch that is run again decides the
same. A relation that has ended does not hold it back. A stream that has no window holds it back until
it has ended: its rows may still join the oldest of the others.

*Late rows*, those with a time below the watermark of their epoch, are dropped and counted. Without late
rows the answer is complete; otherwise it is that of all other rows.

*Eviction*: a row of s with a time of at most watermark - W meets no row that may still come, so it is
forgotten: by the SteM at the end of an epoch, once such rows are many (`eddies.streaming.eviction`),
and by the log when its segments are put together.

*Row windows* keep, at the end of each epoch, the last n rows of the relation in the order in which the
log has them. Rows of an epoch join these and each other. So, other than with time windows, the answer
depends on where epochs end, and a query with a row window has one cell. A row window does not hold
the watermark back: rows with a time leave in time, whatever rows of the other may still come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from eddies.core.expr import Call, Cast, Column, Expr, Literal
from eddies.core.functions.signature import is_timestamp
from eddies.core.query import Filter, Query, Selection, Source
from eddies.core.window import GivenWindow
from eddies.errors import OptionError

__all__ = [
    "RowWindow",
    "TimeWindow",
    "Window",
    "WindowedTable",
    "check_names",
    "choose_windows",
    "relation_windows",
    "with_windows",
]

_MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Rows reach back `length` from the latest part of a result; they come at most `delay` late.

    Both are in the unit of `column`: microseconds of a timestamp, days of a date, steps of an integer.
    """

    column: str
    length: int
    delay: int = 0

    def describe(self) -> str:
        """For people."""
        return f"window over {self.column}"


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The last `n_rows` rows are kept from one epoch to the next."""

    n_rows: int

    def describe(self) -> str:
        """For people."""
        return f"window of {self.n_rows:,} rows"


Window = TimeWindow | RowWindow


@dataclass(frozen=True, slots=True)
class WindowedTable:
    """What must be known of a table to choose its window. `watermark` is the column that a streaming
    DataFrame's `withWatermark` names, and its delay in microseconds.
    """

    schema: pa.Schema
    is_streaming: bool
    watermark: tuple[str, int] | None = None


# Choosing


def check_names(given: Iterable[str], sources: Iterable[Source]) -> None:
    """Raise if a window is for something that no eddy joins."""
    sources = list(sources)
    known = {name.casefold() for source in sources for name in (source.name, source.table)}
    for name in given:
        if name.casefold() not in known:
            names = dict.fromkeys(n for source in sources for n in (source.name, source.table))
            raise OptionError(
                f"Options(window=...) names {name!r}, which no eddy of this query joins; it joins "
                f"{', '.join(names)}"
            )


def choose_windows(
    given: Mapping[str, GivenWindow], query: Query, tables: Mapping[str, WindowedTable]
) -> dict[str, Window]:
    """The windows of the sources of `query`, by source name. `tables` are those that it reads."""
    chosen: dict[str, Window] = {}
    kinds: dict[str, str] = {}
    for source in query.sources:
        name, window = _given_for(given, source)
        if window is None:
            continue
        table = tables[source.table]
        if not table.is_streaming:
            raise OptionError(
                f"Options(window=...) names {name!r}, which does not stream: all its rows are there "
                "from the beginning, and stay; leave its window out"
            )
        if window.unit == "rows":
            chosen[source.name] = RowWindow(window.length)
            continue
        column, delay = _time_column(name, window, table)
        kind, unit = _kind(name, column, table.schema.field(column).type, window)
        kinds[source.name] = kind
        chosen[source.name] = TimeWindow(
            column, _in_units(name, window.length, unit), -(-delay // unit)
        )
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise OptionError(
            f"the times of all windows are compared, so they must be of one type; here are {shown}. "
            "Cast the columns before they are read"
        )
    relation_windows(query, chosen)
    return chosen


def _given_for(given: Mapping[str, GivenWindow], source: Source) -> tuple[str, GivenWindow | None]:
    """The window of a source: by its alias, or else by its table."""
    folded = {name.casefold(): (name, window) for name, window in given.items()}
    for name in (source.name, source.table):
        if name.casefold() in folded:
            return folded[name.casefold()]
    return source.name, None


def _time_column(name: str, window: GivenWindow, table: WindowedTable) -> tuple[str, int]:
    """The time column of a source, and how late its rows may come, in the unit of the window."""
    watermarked, delay = table.watermark or (None, 0)
    column = window.column
    if column is None:
        column = watermarked
    if column is None:
        raise OptionError(
            f"the window of {name!r} needs a time column: write (column, length), or name one by "
            "withWatermark if it is a streaming DataFrame"
        )
    names = table.schema.names
    if column not in names:
        same = [known for known in names if known.casefold() == column.casefold()]
        if len(same) != 1:
            raise OptionError(
                f"the window of {name!r} is over column {column!r}; it has {', '.join(names)}"
            )
        column = same[0]
    if window.delay is not None:
        return column, window.delay
    return column, delay if column == watermarked else 0


def _kind(name: str, column: str, type_: pa.DataType, window: GivenWindow) -> tuple[str, int]:
    """What the column is, and how many microseconds (or steps) its unit has."""
    if pa.types.is_signed_integer(type_):
        if window.unit != "steps":
            raise OptionError(
                f"column {column!r} of {name!r} is an integer, whose unit is not known: give the "
                'length of its window as a number, as in ("number", 1000)'
            )
        return "integer", 1
    if not (is_timestamp(type_) or pa.types.is_date32(type_)):
        raise OptionError(
            f"the window of {name!r} is over column {column!r} of type {type_}; a time is a "
            "timestamp, a date or an integer"
        )
    if window.unit != "microseconds":
        raise OptionError(
            f"column {column!r} of {name!r} is a {type_}: give the length of its window as a time, "
            'as in "10 minutes"'
        )
    if pa.types.is_date32(type_):
        return "date", _MICROS_PER_DAY
    return f"timestamp {'with' if type_.tz else 'without'} time zone", 1


def _in_units(name: str, length: int, unit: int) -> int:
    units, rest = divmod(length, unit)
    if rest:
        raise OptionError(f"the window of {name!r} is over dates: give its length in whole days")
    return units


def relation_windows(query: Query, by_source: Mapping[str, Window]) -> dict[str, Window]:
    """The windows by relation. Roles of one relation share its rows, so all or none have a window;
    rows stay as long as the longest one needs them.
    """
    found: dict[str, Window] = {}
    for table in dict.fromkeys(source.table for source in query.sources):
        names = [source.name for source in query.sources if source.table == table]
        windows = [by_source[name] for name in names if name in by_source]
        if not windows:
            continue
        timed = [window for window in windows if isinstance(window, TimeWindow)]
        counted = [window for window in windows if isinstance(window, RowWindow)]
        if len(windows) < len(names) or len({w.column for w in timed} | set(counted)) > 1:
            raise OptionError(
                f"table {table!r} is read more than once, as {', '.join(names)}: give all of them "
                f"windows of the same kind over the same column, for example by the name of the "
                "table"
            )
        found[table] = windows[0]
        if timed:
            longest = max(window.length for window in timed)
            delay = max(window.delay for window in timed)
            found[table] = TimeWindow(timed[0].column, longest, delay)
    return found


# As a part of the query


def with_windows(
    query: Query, windows: Mapping[str, Window], tables: Mapping[str, WindowedTable]
) -> Query:
    """`query` with the comparisons that its time windows mean."""
    timed = {n: window for n, window in windows.items() if isinstance(window, TimeWindow)}
    table_of = {source.name: source.table for source in query.sources}
    types = {
        name: tables[table_of[name]].schema.field(window.column).type
        for name, window in timed.items()
    }
    sources = tuple(
        _with_column(source, timed[source.name].column, types[source.name])
        if source.name in timed
        else source
        for source in query.sources
    )
    columns = {name: Column(name, window.column) for name, window in timed.items()}
    selections = [Selection(Call("is_not_null", (column,))) for column in columns.values()]
    filters = [
        Filter(_is_after(columns[name], columns[other], window.length, types), connects=False)
        for name, window in timed.items()
        for other in timed
        if other != name
    ]
    return replace(
        query,
        sources=sources,
        selections=(*query.selections, *selections),
        filters=(*query.filters, *filters),
    )


def _with_column(source: Source, column: str, type_: pa.DataType) -> Source:
    if column in source.schema.names:
        return source
    return replace(source, schema=source.schema.append(pa.field(column, type_)))


def _is_after(time: Column, other: Column, length: int, types: Mapping[str, pa.DataType]) -> Expr:
    """`time > other - length`."""
    if pa.types.is_integer(types[time.source]):
        now, then = (_wide(column, types[column.source]) for column in (time, other))
        return Call("gt", (now, Call("subtract", (then, Literal(length, pa.int64())))))
    days, micros = 0, -length
    if pa.types.is_date32(types[time.source]):
        days, micros = -length, 0
    interval = (Literal(0, pa.int32()), Literal(days, pa.int32()), Literal(micros, pa.int64()))
    return Call("gt", (time, Call("add_interval", (other, *interval))))


def _wide(column: Column, type_: pa.DataType) -> Expr:
    return column if type_ == pa.int64() else Cast(column, pa.int64())
