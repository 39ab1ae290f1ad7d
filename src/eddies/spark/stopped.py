"""Keepers learn when their streaming query has stopped.

A query that a user starts with `writeStream` also stops without us. While its session lives, keepers
would hold its rows until they have been idle for a while. So a thread of the driver looks, all the
time, which queries of a session are active, and dismisses the keepers of those that no longer are.
(A listener would be told, but is told of every epoch too, which costs more than to look.) A query that
comes and goes between two looks is never seen, so there is less time between them than a keeper needs
to start: whoever has keepers is seen.

Keepers on other hosts than the driver's leave when they have been idle, or with their executor.
"""

from __future__ import annotations

import threading
import time

from pyspark.sql import SparkSession

from eddies.streaming.attach import dismiss

__all__ = ["dismiss_when_stopped"]

_LOOK_EVERY_S = 0.25  # a look takes less than a millisecond
_LOCK = threading.Lock()
_watched: set[int] = set()


def dismiss_when_stopped(spark: SparkSession) -> None:
    """From now on, keepers of queries of this session leave when their query has stopped."""
    with _LOCK:
        if id(spark) in _watched:
            return
        _watched.add(id(spark))  # the thread keeps the session, so nothing else gets its number
    threading.Thread(target=_look, args=(spark,), name="eddies-stopped", daemon=True).start()


def _look(spark: SparkSession) -> None:
    known: set[str] = set()
    try:
        while True:
            active = {str(query.id) for query in spark.streams.active}
            for query_id in known - active:
                dismiss(query_id)
            known = active
            time.sleep(_LOOK_EVERY_S)
    except Exception:  # noqa: BLE001 - whatever Spark raises when the session has ended
        for query_id in known:
            dismiss(query_id)
    finally:
        with _LOCK:
            _watched.discard(id(spark))
