"""What a cell does about windows: late rows, rows that no window reaches any more, and the watermark.

All rows that a cell reads from its log come through here (`Eviction.read`), in the order of the log. So
the `moment` between two epochs is a function of the log, whoever reads it, and however often. See
`eddies.streaming.windows` for what windows mean.

The eddy forgets dead rows at the end of an epoch (`evict`), when they are a good part of all: what is
left must be indexed anew, and so each row is indexed a bounded number of times. Time windows say by
themselves that dead rows match nothing, so it does not matter when they go. With a row window it does,
and they go at the end of every epoch.

State that cannot forget (rows on disk, rows that may come twice) is given up and made anew from the log
(`wants_rebuild`), when at least half of what it holds is dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.progress import Progress
from eddies.streaming.log import EpochLog, OpenSegment, Segment
from eddies.streaming.positions import Arrived, Content, Positions
from eddies.streaming.sieve import Contents, WindowSieve
from eddies.streaming.times import marked_time
from eddies.streaming.watermark import Moment, Seen
from eddies.streaming.windows import RowWindow

if TYPE_CHECKING:
    from eddies.streaming.cell import CellSpec

__all__ = ["Eviction"]

_LEAST_SHARE = 0.25  # of a relation's rows that must be dead before it forgets them


class Eviction:
    """The windows of one cell. Without windows, it lets everything through.

    `read` every segment once, in order, then `evict`. `forget` when the eddy is made anew.
    """

    def __init__(self, spec: CellSpec, log: EpochLog) -> None:
        self._log = log
        self._windows = spec.windows
        self._positions = Positions(spec.query, spec.relations, spec.windows)
        self._streams = [n for n in dict.fromkeys(spec.relations) if n not in spec.statics]
        by_rows = any(isinstance(window, RowWindow) for window in spec.windows.values())
        self._least = 0.0 if by_rows else _LEAST_SHARE
        self.query = self._positions.stored_query()
        self.forget()

    def forget(self) -> None:
        """Begin at the beginning of the log."""
        self.moment = Moment(None, {name: Seen() for name in self._streams})
        self._contents: Contents = {}
        self._n_passed = dict.fromkeys(self._streams, 0)  # rows that went to the eddy
        self._n_evicted = dict.fromkeys(self._streams, 0)  # ... and were forgotten there
        self._horizons: dict[str, int] = {}  # at which it was last asked to
        self._taken_in: list[tuple[str, int | None, int]] = []  # relation, last position, rows
        self._left_out: Moment | None = None

    def leave_out(self, moment: Moment) -> None:
        """Rows that are dead at `moment` need not go to the eddy. No epoch before it may be run."""
        self._left_out = moment

    # Reading the log

    def read(
        self, segment: Segment, opened: OpenSegment
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """What came in the epochs of `segment`: the number of a relation with rows, or with None when
        the relation has ended. Late rows are left out.
        """
        if not self._windows:
            yield from opened.arrivals()
            return
        content = Content(self.moment)
        if opened.moment is not None:
            content = Content(None, Moment.from_bytes(opened.moment))
        seen = dict(self.moment.seen)
        for number, arrived in self._positions.arrived(opened, content):
            if isinstance(arrived, str):
                if arrived in seen:
                    seen[arrived] = replace(seen[arrived], has_ended=True)
                yield number, None
                continue
            if arrived.name in seen:
                arrived = self._entered(arrived, content, seen)
            if arrived.batch.num_rows:
                yield number, self._positions.for_eddy(arrived)
        if content.before is not None:
            content.after = content.before.after(seen, self._windows)
        self.moment = content.after
        self._contents[segment.first, segment.last] = content

    def _entered(self, arrived: Arrived, content: Content, seen: dict[str, Seen]) -> Arrived:
        """The rows of a streaming relation that go to the eddy; the others are counted."""
        name, n_rows = arrived.name, arrived.batch.num_rows
        told = marked_time(arrived.batch)
        latest = arrived.last if told is None else told
        content.add(name, arrived.batch.nbytes, arrived.last)
        arrived = self._positions.without_late(arrived, content)
        seen[name] = seen[name].arrived(n_rows, n_rows - arrived.batch.num_rows, latest)
        if self._left_out is not None:
            arrived = self._positions.without_dead(arrived, self._left_out)
        self._n_passed[name] += arrived.batch.num_rows
        self._taken_in.append((name, arrived.last, arrived.batch.num_rows))
        return arrived

    # Forgetting

    def evict(self, eddy: Eddy) -> None:
        """Between epochs: have the eddy forget rows that are dead at this moment."""
        if not eddy.forgets:
            return  # see `wants_rebuild`
        self._taken_in.clear()
        for name, window in self._windows.items():
            horizon = self.moment.horizon(name, window)
            if horizon is not None and horizon != self._horizons.get(name):
                self._horizons[name] = horizon
                column = self._positions.column(name)
                self._n_evicted[name] += eddy.evict(name, column, horizon, self._least)

    @property
    def wants_rebuild(self) -> bool:
        """Whether an eddy that cannot forget has much to forget."""
        n_dead = n_rows = 0
        for name, last, n in self._taken_in:
            n_rows += n
            n_dead += n if self._positions.is_dead(name, last, self.moment) else 0
        return n_dead > 0 and 2 * n_dead >= n_rows

    def sieve(self, at: Moment) -> WindowSieve | None:
        """What may be left out of the log when no epoch that began before `at` will run again."""
        if not self._windows:
            return None
        return WindowSieve(self._log, self._positions, self._contents, at)

    def progress(self, progress: Progress) -> Progress:
        """The eddy's own progress, with what did not come to it or is there no more."""
        if not self._windows:
            return progress
        sources = []
        for source in progress.sources:
            seen = self.moment.seen.get(source.name)
            if seen is not None:
                n_kept = self._n_passed[source.name] - self._n_evicted[source.name]
                n_evicted = seen.n_rows - seen.n_late - n_kept
                source = replace(
                    source, n_arrived=seen.n_rows, n_late=seen.n_late, n_evicted=n_evicted
                )
            sources.append(source)
        return replace(progress, sources=tuple(sources))
