"""What the experiments with STAIRs share: contenders, a feeder, and what a run costs.

A *feed* is a list of (relation, batch) in the order of arrival: rates and delays are in the order, so a
run needs no clock. Every batch is processed completely before the next one arrives. Every result is
made, as in the paper: what all techniques share is not folded away.

Cost is counted twice. *Tuples handled*: rows that arrived, entries stored (base rows in indexes,
intermediate tuples in STAIRs), tuples that probed, tuples that came of it, and the same for migrations.
*Seconds*: processor time of this process from the first batch to the last result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.events import Event, Indexed, Migrated
from eddies.core.options import Options
from eddies.core.policies.base import RoutingPolicy
from eddies.core.query import Query
from eddies.core.stairs.migration import MigrationPolicy
from eddies.core.state_modes.auto import AutoMode
from eddies.core.state_modes.joins import JoinsMode
from eddies.core.state_modes.stairs import StairsMode

__all__ = ["BATCH_ROWS", "CONTENDERS", "Feed", "Run", "arrivals", "run_feed", "time_feed"]

BATCH_ROWS = 1000  # the paper's mini-batch
Feed = Sequence[tuple[str, pa.RecordBatch]]

CONTENDERS: dict[str, dict[str, Any]] = {
    "SHJ": {"state": "static"},
    "EddyJoins": {"state": "joins", "policy": "cumulative"},
    "SteMs": {"state": "stems"},
    "STAIRs, greedy": {"state": "stairs", "migration": "greedy"},
    "STAIRs": {"state": "stairs", "migration": "cost-aware"},
    "auto": {"state": "auto"},
}
"""Options of each technique, by name."""


@dataclass(slots=True)
class Run:
    """What came of a run. `outputs[i]` is (tuples handled, seconds, results) after batch i."""

    n_results: int
    checksum: int
    handled: int
    seconds: float
    intermediates: int
    migrations: list[Migrated] = field(default_factory=list)
    moved_at: list[dict[str, int]] = field(default_factory=list)  # rows arrived when one ended
    outputs: list[tuple[int, float, int]] = field(default_factory=list)
    eddy: Eddy | None = None


class _Watch:
    """Remembers migrations, and how much of each relation had arrived."""

    def __init__(self) -> None:
        self.migrations: list[Migrated] = []
        self.moved_at: list[dict[str, int]] = []
        self.arrived: dict[str, int] = {}
        self.n_indexed = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, Indexed) and event.module.startswith("stem:"):
            self.n_indexed += event.n_rows
        if isinstance(event, Migrated):
            self.migrations.append(event)
            self.moved_at.append(dict(self.arrived))


def handled_by(eddy: Eddy, n_indexed: int) -> int:
    """Tuples handled so far; see the module docstring."""
    progress = eddy.progress()
    total = sum(source.n_arrived for source in progress.sources)
    total += sum(route.n_in + route.n_out for route in progress.routes)
    mode = eddy.mode.stairs if isinstance(eddy.mode, AutoMode) else eddy.mode
    if isinstance(mode, JoinsMode):
        stairs = mode.stairs
        total += stairs.n_stored + stairs.n_handled
    return total + n_indexed


def run_feed(
    query: Query,
    feed: Feed,
    *,
    trace: bool = False,
    keep: bool = False,
    policy_object: RoutingPolicy | None = None,
    migration_policy: MigrationPolicy | None = None,
    arrived: dict[str, int] | None = None,
    **options: Any,
) -> Run:
    """Process a feed to the end. `arrived` is kept up to date: rows by relation, for policies of the
    caller's own that depend on it.
    """
    settings: dict[str, Any] = {"batch_rows": BATCH_ROWS, "reoptimize_every": BATCH_ROWS}
    watch = _Watch()
    if arrived is not None:
        watch.arrived = arrived
    chosen = Options(**settings | options)
    eddy = Eddy(query, chosen, events=watch, policy=policy_object, folds=False)
    if migration_policy is not None:
        assert isinstance(eddy.mode, StairsMode)
        eddy.mode.migration_policy = migration_policy
    last = {name: i for i, (name, _) in enumerate(feed)}
    found: list[pa.RecordBatch] = []
    outputs = []
    n_results = 0
    started = time.process_time()
    for i, (name, batch) in enumerate(feed):
        watch.arrived[name] = watch.arrived.get(name, 0) + batch.num_rows
        eddy.push(name, batch)
        if last[name] == i:
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            found.append(rows)
            n_results += rows.num_rows
        if trace:
            outputs.append(
                (handled_by(eddy, watch.n_indexed), time.process_time() - started, n_results)
            )
    seconds = time.process_time() - started
    intermediates = sum(
        route.n_in for route in eddy.progress().routes if route.signature.sources.bit_count() > 1
    )
    intermediates += sum(migration.n_made for migration in watch.migrations)
    answer = pa.Table.from_batches(found, schema=eddy.output.schema)
    run = Run(
        int(answer["n"][0].as_py()) if "n" in answer.column_names else n_results,
        int(answer["s"][0].as_py() or 0) if "s" in answer.column_names else 0,
        handled_by(eddy, watch.n_indexed),
        seconds,
        intermediates,
        watch.migrations,
        watch.moved_at,
        outputs,
    )
    if keep:
        run.eddy = eddy
    else:
        eddy.close()
    return run


def time_feed(query: Query, feed: Feed, **options: Any) -> float:
    """The seconds of a run of which nobody is told anything: to tell of each step is no part of any
    technique, and takes longest where there are many small ones.
    """
    settings: dict[str, Any] = {"batch_rows": BATCH_ROWS, "reoptimize_every": BATCH_ROWS}
    eddy = Eddy(query, Options(**settings | options), folds=False)
    last = {name: i for i, (name, _) in enumerate(feed)}
    found = []  # kept, as by whoever reads the answer
    started = time.process_time()
    for i, (name, batch) in enumerate(feed):
        eddy.push(name, batch)
        if last[name] == i:
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            found.append(rows)
    seconds = time.process_time() - started
    eddy.close()
    return seconds


def arrivals(
    tables: Mapping[str, pa.Table],
    rates: Mapping[str, float],
    delays: Mapping[str, float] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Feed:
    """A feed of tables that arrive at `rates` (rows a second), each after its delay."""
    due: list[tuple[float, str, pa.RecordBatch]] = []
    for name, table in tables.items():
        delay = (delays or {}).get(name, 0.0)
        position = 0
        for batch in table.combine_chunks().to_batches(max_chunksize=batch_rows):
            position += batch.num_rows
            due.append((delay + position / rates[name], name, batch))
    due.sort(key=lambda entry: entry[:2])
    return [(name, batch) for _, name, batch in due]
