"""The rows of one file as they are delivered: its own columns, and those that its folders name.

Formats differ in how stored columns are read (`csv_files`, `json_files`, `arrow_files`); what is made
of them is the same for all: types that Spark would give, a constant for each partition column, and
batches no larger than asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from eddies.errors import SourceError
from eddies.sources.delivered import convert, without_columns
from eddies.sources.partitions import partition_values
from eddies.sources.paths import DataFile

__all__ = ["file_rows"]


def file_rows(
    file: DataFile,
    schema: pa.Schema,
    columns: Sequence[str],
    batch_rows: int,
    read: Callable[[list[str]], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Batches with exactly `columns` of `schema`, of at most `batch_rows` rows. `read` gives the rows
    with the stored columns it is given the names of; without any, whichever, for rows still count.
    """
    constants = partition_values(file, schema)

    def column(name: str, piece: pa.RecordBatch) -> pa.Array:
        if name in constants:
            return pa.repeat(constants[name], piece.num_rows)
        try:
            return convert(piece.column(name), schema.field(name).type)
        except pa.ArrowInvalid as error:
            raise SourceError(f"{file.path}, column {name!r}: {error}") from error

    for batch in read([name for name in columns if name not in constants]):
        for start in range(0, batch.num_rows, batch_rows):
            piece = batch.slice(start, batch_rows)
            if columns:
                arrays = [column(name, piece) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
            else:
                yield without_columns(piece.num_rows)
