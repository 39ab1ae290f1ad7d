"""An Arrow table as a stream. Parts carry its rows, so that tasks need not hold the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

from eddies.sources.delivered import delivered_schema
from eddies.sources.streams.base import Offset, Part, offset_at, same_source
from eddies.sources.streams.rows import carried

__all__ = ["TableStream"]


class TableStream:
    """The rows of `table` in their order; an offset is a row number."""

    is_mirrored: ClassVar[bool] = False
    is_patient: ClassVar[bool] = True
    key: tuple[str, ...] = ()

    def __init__(
        self,
        table: pa.Table,
        columns: Sequence[str] | None = None,
        label: str = "Arrow table",
    ) -> None:
        wanted = table if columns is None else table.select(list(columns))
        self.label = label
        self._table = _delivered(wanted)
        self.schema: pa.Schema = self._table.schema
        self._of = str(table.num_rows)

    def __reduce__(self) -> tuple[object, ...]:
        # As an IPC stream: a pickled slice would take all of what it is a slice of with it.
        payload = carried(self.schema, self._table.to_batches()).payload
        return _unpickled, (payload, self.label)

    @property
    def n_bytes(self) -> int:
        """What its rows take in memory."""
        return int(self._table.nbytes)

    def write(self, path: str) -> tuple[object, ...]:
        """Write the rows into a file. Returns what pickle needs to make the stream of the file."""
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
            writer.write_table(self._table)
        return _mapped, (path, self.label)

    @property
    def n_rows(self) -> int | None:
        return int(self._table.num_rows)

    def narrowed(self, columns: Sequence[str]) -> TableStream:
        return TableStream(self._table, columns, self.label)

    def start(self) -> Offset:
        return offset_at(0, of=self._of)

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        same_source(offset, self._of, self.label)
        if offset["end"]:
            return offset
        rows = min(offset["rows"] + most_rows, int(self._table.num_rows))
        return offset_at(rows, is_end=rows == self._table.num_rows, of=self._of)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        same_source(end, self._of, self.label)
        first, stop = start["rows"], end["rows"]
        if first == stop:
            return []
        return [carried(self.schema, self._table.slice(first, stop - first).to_batches())]


def _delivered(table: pa.Table) -> pa.Table:
    if delivered_schema(table.schema, "the Arrow table").equals(table.schema, check_metadata=True):
        return table
    from eddies.sources.inline import delivered_table  # brings half of the engine with it

    return delivered_table(table)


def _unpickled(payload: bytes, label: str) -> TableStream:
    return TableStream(pa.ipc.open_stream(payload).read_all(), label=label)


def _mapped(path: str, label: str) -> TableStream:
    return TableStream(pa.ipc.open_file(pa.memory_map(path)).read_all(), label=label)
