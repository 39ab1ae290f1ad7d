"""Parts that carry their rows with them, for rows that no task can or should fetch by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

__all__ = ["CarriedRows", "carried"]


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """Rows as an Arrow IPC stream."""

    is_patient: ClassVar[bool] = True
    n_rows: int
    payload: bytes

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Part.read`."""
        for batch in pa.ipc.open_stream(self.payload):
            yield batch.select(list(columns))


def carried(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> CarriedRows:
    """Batches of one schema as a part. Only the rows themselves are written, not what they are a
    slice of.
    """
    n_rows = 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            n_rows += batch.num_rows
            writer.write_batch(batch)
    return CarriedRows(n_rows, sink.getvalue().to_pybytes())
