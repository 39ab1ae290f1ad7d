"""Times of rows as numbers, and how cells learn of times that rows of other cells have.

Rows of a stream go to different cells, but all cells should agree on how far it has come: a cell that
gets no rows of a stream would never forget those of the others. So whoever packs rows for the cells
tells every cell the latest time among them: a *mark*, a batch without rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Times", "latest_mark", "marked_time", "times_of"]

Times = npt.NDArray[np.int64]
_LATEST = b"latest"


def times_of(array: pa.Array) -> tuple[Times, npt.NDArray[np.bool_] | None]:
    """Times in the unit of their type (microseconds of a timestamp, days of a date, integers as they
    are), and which are not NULL (None: all).
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    elif pa.types.is_date(array.type):
        array = array.cast(pa.date32()).cast(pa.int32())
    valid = None
    if array.null_count:
        valid = np.asarray(array.is_valid())
        array = pc.fill_null(array.cast(pa.int64()), 0)
    return np.asarray(array.cast(pa.int64())), valid


def latest_mark(time: int) -> pa.RecordBatch:
    """A batch without rows that tells a time."""
    return pa.RecordBatch.from_arrays([], schema=pa.schema([], metadata={_LATEST: str(time)}))


def marked_time(batch: pa.RecordBatch) -> int | None:
    """The time that a batch tells, if it is a mark."""
    if batch.num_columns or not batch.schema.metadata:
        return None
    return int(batch.schema.metadata[_LATEST])
