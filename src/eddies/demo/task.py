"""What every Spark task of the demo does: an eddy between its part of the sales and the result.

`mapInArrow` calls the function made by `eddy_task` with the batches of one partition. The
dimensions travel with the function, as Arrow tables. Results are handed on as soon as the eddy has
some, so Spark works on the first of them while most of the sales are still to come.

A `Reporter` listens to the eddy's events and writes what it counts to a file of its own, one line
for each batch of sales. Spark has no way back to the driver for such news, and these files must be
on a disk that the driver can read: the demo runs Spark inside one machine.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.events import Event, Routed
from eddies.core.options import Options
from eddies.demo.star import star_query

__all__ = ["Reporter", "Task", "eddy_task"]

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Reporter:
    """Counts where one eddy sends its rows. Use as a context manager; `write` once per batch."""

    def __init__(self, path: Path, sales_mask: int) -> None:
        self._file = path.open("w", buffering=1)  # line by line: the screen reads while we write
        self._sales_mask = sales_mask
        self._first_probes: Counter[str] = Counter()
        self._n_probes = 0

    def emit(self, event: Event) -> None:
        """Count a routed batch; rows that are still nothing but sales make their first probe."""
        if isinstance(event, Routed):
            self._n_probes += event.n_in
            if event.signature.sources == self._sales_mask:
                self._first_probes[event.module.rpartition(":")[2]] += event.n_in

    def write(self, position: float, n_sales: int, n_results: int) -> None:
        """Report what happened since the last call; `position` is the part of the input before."""
        line = {
            "at": time.time(),
            "position": position,
            "n_sales": n_sales,
            "n_results": n_results,
            "n_probes": self._n_probes,
            "first_probes": self._first_probes,
        }
        self._file.write(json.dumps(line) + "\n")
        self._first_probes.clear()
        self._n_probes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


def eddy_task(
    dimension_by_name: Mapping[str, pa.Table],
    options: Options,
    partition_rows: int,
    trace_folder: Path,
) -> Task:
    """The function for `mapInArrow`. `partition_rows` is what a task will get, for the report."""

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        query = star_query()
        path = trace_folder / f"{context.partitionId()}.jsonl"
        with Reporter(path, 1 << query.source_id("sales")) as reporter:
            eddy = Eddy(query, options, events=reporter)
            for name, table in dimension_by_name.items():
                for batch in table.to_batches():
                    eddy.push(name, batch)
                eddy.end(name)
            n_before = 0
            for batch in batches:
                eddy.push("sales", batch)
                n_results = 0
                while (results := eddy.poll()) is not None:
                    n_results += results.num_rows
                    yield results
                reporter.write(n_before / partition_rows, batch.num_rows, n_results)
                n_before += batch.num_rows
            eddy.end("sales")
            while (results := eddy.poll()) is not None:
                yield results
            assert eddy.is_done

    return join
