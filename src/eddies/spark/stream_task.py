"""What a Spark task does in an epoch of a streaming query: log its rows, then let the keeper join them.

See `eddies.streaming`. Spark names the epoch and the query in properties of the task. Everything the
task hands to Spark is a function of the rows of the epoch and of the log before it, so an epoch that is
run again gives the same rows, and a sink that knows the epoch writes them once.

What is read again must be the same: a cell that gets rows in a first attempt at an epoch and none in
the next, because somebody changed the source in between, keeps what the first has logged.

Before a task writes anything, it makes sure that the log is that of its query (`PlanFile`): whoever
starts again must find cells divided as they were, and another query's log must stay as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from eddies.errors import StateError
from eddies.spark.cells import CellPlan
from eddies.streaming.attach import run_epoch
from eddies.streaming.guardian import Guardian
from eddies.streaming.log import Blob, EpochLog, serialised
from eddies.streaming.messages import Request, cell_folder
from eddies.streaming.plan_file import PlanFile

__all__ = ["SHARED", "StreamTask"]

SHARED = pa.schema([("rows", pa.binary())])  # each an Arrow stream that says whose rows it has
_checked: set[tuple[str, str]] = set()  # folders and queries whose plan this worker has looked at


@dataclass(frozen=True, slots=True)
class StreamTask:
    """The function that `mapInArrow` runs on the packed rows of an epoch. `spec` is a pickled
    `CellSpec`; `folder` is where the block's state lies; `names` are the columns that Spark gets, None
    if these are results of several queries: then it gets them packed, `SHARED`.
    """

    block: str
    spec: bytes
    cells: CellPlan
    plan: PlanFile
    folder: str
    names: tuple[str, ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in a Spark task"
        epoch = context.getLocalProperty("streaming.sql.batchId")
        query_id = context.getLocalProperty("sql.streaming.queryId")
        if epoch is None or query_id is None:
            raise StateError(
                "this DataFrame streams, and runs only under writeStream; here it ran as a batch"
            )
        self._check(query_id)
        by_cell: dict[int, list[Blob]] = {}
        for batch in batches:
            cells, relations, payloads = batch.columns
            for i, cell in enumerate(cells.to_pylist()):
                blob = (relations[i].as_py(), payloads[i].as_buffer())
                by_cell.setdefault(cell, []).append(blob)
        guardian = Guardian.mine()
        for cell, blobs in by_cell.items():
            EpochLog(cell_folder(self.folder, cell)).write(int(epoch), blobs)
            request = Request(
                self.spec,
                cell,
                self.cells.coordinates(cell),
                self.folder,
                int(epoch),
                query_id,
                guardian,
            )
            for rows in run_epoch(self.block, request):
                if self.names is None:
                    yield _packed(rows)
                    continue
                unnamed = tuple(rows.schema.names) != self.names
                yield rows.rename_columns(self.names) if unnamed else rows

    def _check(self, query_id: str) -> None:
        if (self.folder, query_id) not in _checked:
            replace(self.plan, query_id=query_id).write(self.folder)
            _checked.add((self.folder, query_id))


def _packed(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([memoryview(serialised(rows))], pa.binary())], schema=SHARED
    )
