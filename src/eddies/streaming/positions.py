"""Positions: by what rows grow old in a window. A row's time, or its number where rows are counted.

A row is *dead* when its position is at most the horizon of its relation (`Moment.horizon`): it meets no
row that may still come. It stays dead, because horizons only move on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.expr import Column
from eddies.core.query import Query
from eddies.streaming.log import OpenSegment
from eddies.streaming.times import Times, times_of
from eddies.streaming.watermark import Moment
from eddies.streaming.windows import RowWindow, TimeWindow, Window

__all__ = ["Arrived", "Content", "Positions"]

_ARRIVAL = "__arrival"


@dataclass(slots=True)
class Content:
    """What a segment has of each relation (bytes, last position), and what was known around it.

    `before` is the moment at its beginning, None if its late rows have been left out.
    """

    before: Moment | None
    after: Moment = field(default_factory=Moment)
    n_bytes: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, n_bytes: int, last: int | None) -> None:
        """More rows of a relation."""
        self.n_bytes[name] = self.n_bytes.get(name, 0) + n_bytes
        if last is not None:
            self.last[name] = max(last, self.last.get(name, last))


@dataclass(frozen=True, slots=True)
class Arrived:
    """A batch of a relation with its positions; `valid` says which are not NULL (None: all)."""

    name: str
    batch: pa.RecordBatch
    positions: Times | None = None
    valid: npt.NDArray[np.bool_] | None = None

    @property
    def last(self) -> int | None:
        """The highest position."""
        if self.positions is None:
            return None
        positions = self.positions if self.valid is None else self.positions[self.valid]
        return int(positions.max()) if positions.shape[0] else None

    def kept(self, rows: npt.NDArray[np.bool_]) -> Arrived:
        """The rows that are set."""
        if rows.all():
            return self
        assert self.positions is not None
        return replace(
            self,
            batch=self.batch.filter(pa.array(rows)),
            positions=self.positions[rows],
            valid=None if self.valid is None else self.valid[rows],
        )


class Positions:
    """Finds the positions of rows. `relations` are the names behind the numbers in the log."""

    def __init__(
        self, query: Query, relations: tuple[str, ...], windows: Mapping[str, Window]
    ) -> None:
        self._query = query
        self._relations = relations
        self._windows = windows
        self._arrival = _ARRIVAL
        while any(self._arrival in source.schema.names for source in query.sources):
            self._arrival = f"_{self._arrival}"

    def column(self, name: str) -> str:
        """The column that holds the positions of a relation's rows in the eddy."""
        window = self._windows[name]
        return window.column if isinstance(window, TimeWindow) else self._arrival

    def stored_query(self) -> Query:
        """The query with the positions of rows among what is stored."""
        sources, stored = list(self._query.sources), list(self._query.stored)
        for i, source in enumerate(sources):
            if source.table not in self._windows:
                continue
            column = self.column(source.table)
            if column not in source.schema.names:
                schema = source.schema.append(pa.field(column, pa.int64()))
                sources[i] = replace(source, schema=schema)
            stored.append(Column(source.name, column))
        return replace(self._query, sources=tuple(sources), stored=tuple(stored))

    def for_eddy(self, arrived: Arrived) -> pa.RecordBatch:
        """The rows with their positions."""
        if isinstance(self._windows.get(arrived.name), RowWindow):
            return arrived.batch.append_column(self._arrival, pa.array(arrived.positions))
        return arrived.batch

    def arrived(self, opened: OpenSegment, content: Content) -> Iterator[tuple[int, Arrived | str]]:
        """The batches of a segment, or the name of a relation that has ended."""
        first = self._first_rows(opened, content)
        for number, batch in opened.arrivals():
            name = self._relations[number]
            window = self._windows.get(name)
            if batch is None:
                yield number, name
            elif isinstance(window, TimeWindow) and batch.num_rows:
                yield number, Arrived(name, batch, *times_of(batch.column(window.column)))
            elif isinstance(window, RowWindow):
                positions = np.arange(first[name], first[name] + batch.num_rows, dtype=np.int64)
                first[name] += batch.num_rows
                yield number, Arrived(name, batch, positions)
            else:
                yield number, Arrived(name, batch)

    def _first_rows(self, opened: OpenSegment, content: Content) -> dict[str, int]:
        """Where rows are counted: the number of the first of a segment."""
        by_rows = [name for name, w in self._windows.items() if isinstance(w, RowWindow)]
        if content.before is not None:
            return {name: content.before.seen[name].n_rows for name in by_rows}
        # Of a relation of which rows were left out, the last ones are there.
        first = {name: content.after.seen[name].n_rows for name in by_rows}
        for number, batch in opened.arrivals() if by_rows else ():
            if batch is not None and self._relations[number] in first:
                first[self._relations[number]] -= batch.num_rows
        return first

    # Late and dead

    def without_late(self, arrived: Arrived, content: Content) -> Arrived:
        """The rows that have come in time."""
        watermark = None if content.before is None else content.before.watermark
        is_timed = isinstance(self._windows.get(arrived.name), TimeWindow)
        if watermark is None or arrived.positions is None or not is_timed:
            return arrived
        in_time = arrived.positions >= watermark
        return arrived.kept(in_time if arrived.valid is None else in_time | ~arrived.valid)

    def without_dead(self, arrived: Arrived, at: Moment) -> Arrived:
        """The rows that are alive at a moment. Rows whose time is NULL never are."""
        if arrived.positions is None:
            return arrived
        horizon = at.horizon(arrived.name, self._windows[arrived.name])
        alive = np.ones(arrived.positions.shape[0], dtype=np.bool_)
        if horizon is not None:
            alive = arrived.positions > horizon
        return arrived.kept(alive if arrived.valid is None else alive & arrived.valid)

    def is_dead(self, name: str, last: int | None, at: Moment) -> bool:
        """Whether all rows of a relation up to a position are."""
        if name not in self._windows:
            return False
        horizon = at.horizon(name, self._windows[name])
        return last is None or (horizon is not None and last <= horizon)
