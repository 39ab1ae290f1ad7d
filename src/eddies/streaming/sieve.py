"""What a log may leave out when it puts segments together: dead rows and late rows.

It goes by the moment at the beginning of the epoch that ran last, because that epoch may run again.
Late rows are told by the watermark of their epoch, which is lost with the borders of epochs. So what is
put together has no late rows, and holds the moment at its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from eddies.streaming.log import EpochLog, OpenSegment, Segment
from eddies.streaming.positions import Content, Positions
from eddies.streaming.watermark import Moment

__all__ = ["Contents", "WindowSieve"]

Contents = dict[tuple[int, int], Content]  # by first and last epoch of a segment


class WindowSieve:
    """See the module docstring. `contents` are of the segments read so far, and are kept up to date."""

    def __init__(self, log: EpochLog, positions: Positions, contents: Contents, at: Moment) -> None:
        self._log = log
        self._positions = positions
        self._contents = contents
        self._at = at
        self._whole = Content(None)

    def live_bytes(self, segment: Segment) -> int | None:
        """About how many bytes of a segment are alive; None if nobody knows."""
        content = self._content(segment)
        if content is None:
            return None
        alive = sum(
            n_bytes
            for name, n_bytes in content.n_bytes.items()
            if not self._positions.is_dead(name, content.last.get(name), self._at)
        )
        return segment.n_bytes * alive // max(1, sum(content.n_bytes.values()))

    def moment(self, run: list[Segment]) -> bytes:
        """What must be known after these segments, which are put together next."""
        last = self._content(run[-1])
        assert last is not None, "a segment of which nothing is known is left as it is"
        self._whole = Content(None, last.after)
        return last.after.to_bytes()

    def sifted(
        self, segment: Segment, opened: OpenSegment
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """What is left of a segment; None: the relation has ended."""
        content = self._content(segment)
        assert content is not None, "a segment of which nothing is known is left as it is"
        if opened.moment is not None:  # somebody else has been here since
            content = Content(None, Moment.from_bytes(opened.moment))
        for number, arrived in self._positions.arrived(opened, content):
            if isinstance(arrived, str):
                yield number, None
                continue
            arrived = self._positions.without_late(arrived, content)
            arrived = self._positions.without_dead(arrived, self._at)
            if arrived.batch.num_rows:
                self._whole.add(arrived.name, arrived.batch.nbytes, arrived.last)
                yield number, arrived.batch

    def put_together(self, run: list[Segment], whole: Segment) -> None:
        """The log has `whole` in place of `run`."""
        for segment in run:
            self._contents.pop((segment.first, segment.last), None)
        self._contents[whole.first, whole.last] = self._whole

    def _content(self, segment: Segment) -> Content | None:
        """What is known of a segment. One that somebody else has put together says what there is to
        know by itself.
        """
        known = self._contents.get((segment.first, segment.last))
        if known is None:
            opened = self._log.read(segment)
            if opened.moment is None:
                return None
            known = Content(None, Moment.from_bytes(opened.moment))
            for _, arrived in self._positions.arrived(opened, known):
                if not isinstance(arrived, str):
                    known.add(arrived.name, arrived.batch.nbytes, arrived.last)
            self._contents[segment.first, segment.last] = known
        return known
