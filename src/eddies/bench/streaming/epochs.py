"""Epochs of an online query over four generated sources: how long they take, and what they take in.

Spark tells of every epoch when it began and how long it took, from asking the sources how far they can
be read to the commit. Results are taken out while the query runs and compared, when it has ended, with
what the rows read so far must give.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any  # what JSON has

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import eddies
from eddies.bench.streaming.generated import (
    QUERY,
    SOURCES,
    Answer,
    GeneratedSource,
    expected,
    found_in,
)
from eddies.core.options import Options

__all__ = ["Epoch", "EpochRun", "SETTINGS", "median_s", "run_epochs", "rows_a_second"]

SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": 2,
    # Everything that Spark tells of epochs is read at the end.
    "spark.sql.streaming.numRecentProgressUpdates": 100_000,
}
WARM_UP_S = 5.0  # in which Java compiles, workers are forked and keepers begin


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as Spark tells of it. `began_s` is since the first epoch began; `parts_s` are the parts
    of its time by Spark's names for them.
    """

    number: int
    began_s: float
    took_s: float
    n_rows: int
    parts_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochRun:
    """What a run gave. `n_stored` are the rows that keepers hold at the end."""

    epochs: tuple[Epoch, ...]
    n_read: int
    n_stored: int
    found: Answer
    right: Answer

    @property
    def is_right(self) -> bool:
        """Whether all results came, each once."""
        return self.found == self.right


def run_epochs(
    spark: SparkSession,
    seconds: float,
    rows_per_s: float | None,
    n_rows: int,
    on_look: Callable[[str], None] = lambda text: None,
) -> EpochRun:
    """Join four sources of `n_rows` each, which arrive at `rows_per_s` each (None: as fast as they are
    read), until they end or `seconds` are over.
    """
    sources = {}
    for name in SOURCES:
        source = GeneratedSource(name, n_rows)
        sources[name] = (
            source if rows_per_s is None else eddies.read.simulated(source, rows_per_s=rows_per_s)
        )
    with (
        tempfile.TemporaryDirectory(prefix="eddies-bench-streaming-") as folder,
        eddies.online(QUERY, sources, spark=spark, options=Options(checkpoint=folder)) as query,
    ):
        (running,) = spark.streams.active
        found = Answer(0, 0)
        began_s = looked_s = time.monotonic()
        for batch in query:
            found += found_in(batch)
            now_s = time.monotonic()
            if now_s - looked_s > 1:
                looked_s = now_s
                on_look(_said(now_s - began_s, running, found))
            if now_s - began_s > seconds and not query.is_complete:
                query.stop()
        epochs = epochs_of(running)
        progress = query.progress()
        n_read = committed_rows(Path(folder))
        n_stored = sum(source.n_stored for source in progress.sources)
        return EpochRun(epochs, sum(n_read.values()), n_stored, found, expected(n_read))


def _said(seconds: float, running: StreamingQuery, found: Answer) -> str:
    last = running.lastProgress
    if last is None:
        return f"{seconds:.0f} s"
    took_s = last["durationMs"]["triggerExecution"] / 1000
    return (
        f"{seconds:.0f} s, epoch {last['batchId']} took {took_s:.2f} s for "
        f"{last['numInputRows']:,} blobs, {found.n_rows:,} results"
    )


def committed_rows(checkpoint: Path) -> dict[str, int]:
    """How many rows of every source were read in epochs that were committed."""
    epoch = max(
        int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()
    )
    n_rows: dict[str, int] = {}
    for line in (checkpoint / "offsets" / str(epoch)).read_text().splitlines():
        if line.startswith("{") and "streams" in (told := json.loads(line)):
            n_rows |= {name: offset["rows"] for name, offset in told["streams"].items()}
    return n_rows


def epochs_of(query: StreamingQuery) -> tuple[Epoch, ...]:
    """All epochs that Spark has told of, in order."""
    epochs = []
    first: datetime | None = None
    for told in query.recentProgress:
        parts_s = {name: ms / 1000 for name, ms in told["durationMs"].items()}
        took_s = parts_s.pop("triggerExecution", 0.0)
        if "addBatch" not in parts_s:
            continue  # nothing was new
        began = datetime.fromisoformat(told["timestamp"].replace("Z", "+00:00"))
        first = first or began
        began_s = (began - first).total_seconds()
        epochs.append(Epoch(told["batchId"], began_s, took_s, _n_rows(told), parts_s))
    return tuple(epochs)


def _n_rows(told: Mapping[str, Any]) -> int:
    """Rows of an epoch. Spark itself counts blobs; the offsets of our streams count rows."""
    n_rows = 0
    for source in told["sources"]:
        ends = [source[name] for name in ("startOffset", "endOffset")]
        start, end = (json.loads(text) if isinstance(text, str) else text for text in ends)
        before = {} if start is None else start["streams"]
        n_rows += sum(
            offset["rows"] - before.get(name, {"rows": 0})["rows"]
            for name, offset in end["streams"].items()
        )
    return n_rows


def median_s(epochs: Sequence[Epoch], from_s: float = 0.0, to_s: float = float("inf")) -> float:
    """The median time of the epochs that began in an interval."""
    return statistics.median(e.took_s for e in epochs if from_s <= e.began_s < to_s)


def rows_a_second(epochs: Sequence[Epoch]) -> float:
    """Of all epochs after the first seconds, from the begin of the first to the end of the last."""
    counted = [epoch for epoch in epochs if epoch.began_s >= WARM_UP_S] or list(epochs)
    end_s = max(epoch.began_s + epoch.took_s for epoch in counted)
    return sum(epoch.n_rows for epoch in counted) / (end_s - counted[0].began_s)
