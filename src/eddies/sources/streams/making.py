"""Which stream reads which source.

* Arrow tables: rows of a table that the planning process holds.
* Parquet and Arrow files: ranges of splits that tasks read.
* CSV and JSON: ranges of lines that tasks read; compressed files through the planning process.
* PostgreSQL: ranges of keys that tasks read. HTTP: pages through the planning process.
* Simulated sources: any of these on a schedule.
* Mirrors: any of these, with rows that have been fetched before they are promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.csv_files import CsvSplit
from eddies.sources.http import HttpSource
from eddies.sources.inline import InlineSource
from eddies.sources.json_files import JsonSplit
from eddies.sources.postgres import PostgresSource
from eddies.sources.reachable import AccessSource
from eddies.sources.source import Source, is_source
from eddies.sources.streams.ahead import AheadStream
from eddies.sources.streams.base import Stream
from eddies.sources.streams.held import HeldStream
from eddies.sources.streams.http import HttpStream
from eddies.sources.streams.lines import LineStream
from eddies.sources.streams.mirrored import MirroredStream
from eddies.sources.streams.patient import PatientStream
from eddies.sources.streams.postgres import PostgresStream
from eddies.sources.streams.scheduled import SimulatedStream
from eddies.sources.streams.simulated import SimulatedSource
from eddies.sources.streams.splits import SplitStream
from eddies.sources.streams.tables import TableStream

__all__ = ["stream_of"]


def stream_of(
    source: object, columns: Sequence[str] | None = None, where: tuple[Expr, ...] = ()
) -> Stream:
    """The stream that reads a source of `eddies.read`, or an Arrow table.

    Only `columns` will be asked for (None: any), and rows that do not fulfil `where` may be left out.
    """
    return _Making(None if columns is None else tuple(columns), where).stream(source)


@dataclass(frozen=True, slots=True)
class _Making:
    """What is wanted of a stream. With `keeps_rows`, parts must carry their rows; without `is_eager`,
    nothing is fetched before it is asked for.
    """

    columns: tuple[str, ...] | None
    where: tuple[Expr, ...]
    keeps_rows: bool = False
    is_eager: bool = True

    def stream(self, source: object) -> Stream:
        if isinstance(source, pa.Table):
            return TableStream(source, self.columns)
        if isinstance(source, InlineSource):
            names = source.schema.names
            batches = [batch for split in source.splits() for batch in split.read(names)]
            table = pa.Table.from_batches(batches, source.schema)
            return TableStream(table, self.columns, source.label)
        if isinstance(source, SimulatedSource):
            inner = replace(self, is_eager=False).stream(source.source)
            return PatientStream(SimulatedStream(inner, source.schedule))
        if isinstance(source, AccessSource):
            return self._of_scans(source)
        if not is_source(source):
            raise SourceError(
                f"expected a source of eddies.read or an Arrow table, not a {type(source).__name__}"
            )
        if not source.is_direct:
            raise SourceError(
                f"{source.label} can only be read by Spark: give spark.readStream's DataFrame of it"
            )
        return self._of_server(source) or self._of_splits(source)

    def _of_scans(self, source: AccessSource) -> Stream:
        if not source.scans:
            raise SourceError(
                f"{source.label} has no scan, so it cannot be read as a stream: it can only be looked "
                "up. Give the source a scan"
            )
        if len(source.scans) == 1:
            return self.stream(source.scans[0])
        names = source.schema.names if self.columns is None else self.columns
        making = replace(self, columns=tuple(names), keeps_rows=True)
        members = [making.stream(scan) for scan in source.scans]
        return MirroredStream(source.label, members, source.key)

    def _of_server(self, source: Source) -> Stream | None:
        if isinstance(source, HttpSource):
            return self._ahead(HttpStream(source, self.columns), keeps_rows=True)
        if isinstance(source, PostgresSource):
            return self._ahead(PostgresStream(source, self.where))
        return None

    def _of_splits(self, source: Source) -> Stream:
        splits = source.splits(self.where)
        if not all(getattr(split, "is_repeatable", True) for split in splits):
            raise SourceError(
                f"{source.label} need not give the same rows in the same order twice, so that a "
                "streaming query could not resume: give an Arrow table of it, or files"
            )
        if all(split.n_rows is not None for split in splits):
            stream = SplitStream(source.label, source.schema, splits, self.where)
            return self._ahead(stream) if self.keeps_rows else stream
        lines = [split for split in splits if isinstance(split, CsvSplit | JsonSplit)]
        if len(lines) == len(splits) and all(split.part.stop is not None for split in lines):
            return self._ahead(LineStream(source.label, source.schema, lines, self.where))
        held = HeldStream(source.label, source.schema, splits, self.columns, self.where)
        return self._ahead(held, keeps_rows=True)

    def _ahead(self, stream: Stream, keeps_rows: bool = False) -> Stream:
        return AheadStream(
            stream,
            self.columns,
            keeps_rows=keeps_rows or self.keeps_rows,
            is_eager=self.is_eager,
        )
