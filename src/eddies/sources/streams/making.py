"""Which stream reads which source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.inline import InlineSource
from eddies.sources.reachable import AccessSource
from eddies.sources.source import is_source
from eddies.sources.streams.base import Stream
from eddies.sources.streams.patient import PatientStream
from eddies.sources.streams.simulated import SimulatedSource, SimulatedStream
from eddies.sources.streams.splits import SplitStream
from eddies.sources.streams.tables import TableStream

__all__ = ["stream_of"]


def stream_of(
    source: object, columns: Sequence[str] | None = None, where: tuple[Expr, ...] = ()
) -> Stream:
    """The stream that reads a source of `eddies.read`, an Arrow table, or what is a stream already.

    Only `columns` will be asked for (None: any), and rows that do not fulfil `where` may be left out.
    """
    if isinstance(source, pa.Table):
        return TableStream(source, columns)
    if isinstance(source, InlineSource):
        batches = [batch for split in source.splits() for batch in split.read(source.schema.names)]
        table = pa.Table.from_batches(batches, source.schema)
        return TableStream(table, columns, source.label)
    if isinstance(source, SimulatedSource):
        inner = stream_of(source.source, columns, where)
        return PatientStream(SimulatedStream(inner, source.schedule))
    if isinstance(source, AccessSource) and len(source.scans) == 1:
        return stream_of(source.scans[0], columns, where)
    if not is_source(source):
        raise SourceError(
            f"expected a source of eddies.read or an Arrow table, not a {type(source).__name__}"
        )
    return SplitStream(source.label, source.schema, source.splits(where), where)
