"""Early results in real time: this engine's SteMs, real files on disk, four slow and bursty sources.

The other experiments on early results are in virtual time. This one runs on the clock of the machine:
four sources of 40,000 rows send bursts with Pareto pauses for about 16 seconds, and memory is a
tenth of the input. One run answers waiting tuples while all sources are silent, one does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from eddies.core.expr import Column
from eddies.core.options import Options
from eddies.core.query import Equality, Output, Query, Source
from eddies.core.state_modes.spilling import SpillingStems
from eddies.hosts.local import LocalRun
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series
from eddies.sources.simulated import Simulated

__all__ = ["EXPERIMENTS"]

ROWS = 40_000
BURST_ROWS = 2_000
SECONDS = 16.0
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
NAMES = ("a", "b", "c", "d")


class _Deaf(LocalRun):
    """A host that does not use silence."""

    def _use_silence(self, waiting: list[str]) -> Iterator[pa.RecordBatch]:
        return iter(())


def _query() -> Query:
    sources = tuple(Source(name, name, SCHEMA) for name in NAMES)
    equalities = tuple(
        Equality(Column("a", "k"), Column(name, "k"), pa.int64()) for name in NAMES[1:]
    )
    output = tuple(Output(name, Column(name, "v"), pa.int64()) for name in NAMES)
    return Query(sources, equalities=equalities, output=output)


def _tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(11)
    return {
        name: pa.table({"k": rng.permutation(ROWS), "v": np.arange(ROWS)}, schema=SCHEMA)
        for name in NAMES
    }


def _bursty(table: pa.Table, seed: int) -> Simulated:
    rng = np.random.default_rng(seed)
    pauses = np.minimum(rng.pareto(1.5, ROWS // BURST_ROWS) + 1, 60)
    pauses *= SECONDS / pauses.sum()
    return Simulated(
        table, batch_rows=BURST_ROWS, burst_rows=BURST_ROWS, pauses_s=[float(p) for p in pauses]
    )


def _timed(kind: type[LocalRun]) -> tuple[list[float], list[int], SpillingStems, int]:
    """Moments and counts of results, the eddy's state, and the number of different results."""
    tables = _tables()
    memory = sum(table.nbytes for table in tables.values()) // 10
    arrivals = {name: _bursty(table, i) for i, (name, table) in enumerate(tables.items())}
    run = kind(_query(), arrivals, Options(memory=memory), interleave=True)
    started = time.perf_counter()
    moments: list[float] = []
    counts: list[int] = []
    found = []
    for batch in run:
        found.append(batch)
        moments.append(time.perf_counter() - started)
        counts.append(batch.num_rows + (counts[-1] if counts else 0))
    mode = run.eddy.mode
    assert isinstance(mode, SpillingStems)
    ids = pa.Table.from_batches(found).column("a").to_numpy()
    return moments, counts, mode, len(np.unique(ids))


def _real_time() -> Finding:
    moments, counts, mode, n_different = _timed(LocalRun)
    deaf_moments, deaf_counts, _, _ = _timed(_Deaf)
    half = ROWS // 2
    when = float(np.interp(half, counts, moments))
    deaf_when = float(np.interp(half, deaf_counts, deaf_moments))
    claim = Claim(
        "ER-real",
        "In real time: exact, with rows on disk, and half of the results earlier if silence is used.",
        (
            Check("results", counts[-1], ROWS, ROWS),
            Check("different results", n_different, ROWS, ROWS),
            Check("flushes", mode.n_flushes, 1),
            Check("merges in silence", mode.n_silent_merges, 1),
            Check("time to half of the results / without silence", when / deaf_when, high=1.0),
        ),
    )
    series = (
        Series("silence is used", moments, [float(count) for count in counts]),
        Series("cleanup only", deaf_moments, [float(count) for count in deaf_counts], True),
    )
    panel = Panel("memory for a tenth of the input", "time (s)", "results", series)
    rows = tuple({"time_s": m, "results": c} for m, c in zip(moments, counts, strict=True))
    return Finding((claim,), (Figure("er-real-time", "In real time", (panel,), rows),))


EXPERIMENTS = (Experiment("er-real-time", "early-results", ("ER-real",), _real_time),)
