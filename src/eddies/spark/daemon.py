"""The process that Spark forks Python workers from, with the eddy in its memory already.

Spark starts one daemon an executor and forks a worker for each task that finds none idle. A forked
worker has what its parent had: importing the engine and loading its compiled kernels here, once, makes
every worker ready at once, also those that replace a killed one. `eddies.session()` asks for this
daemon (`spark.python.daemon.module`); other sessions work as well, with slower first tasks.

A worker whose reader has gone, because Spark has enough rows or ends, leaves without a word: Spark's
own daemon would print where it was.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

__all__ = ["main", "preload"]


def preload() -> None:
    """Import what tasks use, and run a tiny join so that kernels are compiled or loaded."""
    import pyarrow as pa
    import pyarrow.parquet

    from eddies.core.expr import Column
    from eddies.core.query import Aggregate, Aggregation, Equality, Output, Query, Source
    from eddies.hosts import local

    schema = pa.schema([("k", pa.int64()), ("t", pa.string())])
    left, right = Column("l", "k"), Column("r", "k")
    query = Query(
        sources=(Source("l", "l", schema), Source("r", "r", schema)),
        equalities=(Equality(left, right, pa.int64()),),
        aggregation=Aggregation(
            (Output("t", Column("r", "t"), pa.string()),),
            (Aggregate("n", "count_star", None, pa.int64()),),
        ),
    )
    rows = pa.table({"k": pa.array([1, 2], pa.int64()), "t": ["a", "b"]}, schema=schema)
    local.run(query, {"l": rows, "r": rows}).table()
    gc.freeze()  # forked workers share these pages until something writes to them


_worker = daemon.worker
_UNREAD = 1  # any code but 0 ends the process


def _leaving(sock: socket.socket, authenticated: bool) -> int:
    """Spark's worker, which leaves if nobody reads what it writes any more."""
    try:
        code: int = _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return _UNREAD
    return code


def main() -> None:
    """Preload, then be Spark's own daemon."""
    preload()
    daemon.worker = _leaving
    daemon.manager()


if __name__ == "__main__":
    main()
