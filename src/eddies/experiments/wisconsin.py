"""The overhead study's queries (its Figure 4) over Wisconsin-like tables, ready to run either way.

A `Workload` knows its query, what is loaded before the clock starts (indexed tables) and the batches
that come. `run_eddy` and `run_fixed` take the same batches, one by one, to an eddy and to the same
modules wired by hand: if several came at once, the eddy could index them together, and the ratio
would not be that of routing. `run_base` evaluates selections in a plain loop. Time is processor time
of this process; making the eddy or the plan is not counted, nor is loading indexed tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.entry import Entry
from eddies.core.evaluate import keep
from eddies.core.expr import Call, Column, Expr, Literal
from eddies.core.options import Options, StateMode
from eddies.core.progress import Progress
from eddies.core.query import (
    Aggregate,
    Aggregation,
    Equality,
    Output,
    Query,
    Selection,
    Source,
    UserFunction,
)
from eddies.experiments.fixed_plan import FixedPlan

__all__ = [
    "Timed",
    "Workload",
    "index_join",
    "run_base",
    "run_eddy",
    "run_fixed",
    "selections",
    "star_join",
]

_INT = pa.int64()
_COUNT = Aggregation((), (Aggregate("n", "count_star", None, _INT),))
_PAD = "x" * 212  # four integers and this make the study's rows of 244 bytes
_LIMITS = {"two": 2, "four": 4, "ten": 10}  # every row passes


@dataclass(frozen=True, slots=True)
class Workload:
    """A query and its input. `loaded` tables are there before the clock starts."""

    query: Query
    batches: tuple[tuple[str, pa.RecordBatch], ...]
    loaded: tuple[tuple[str, pa.RecordBatch], ...] = ()
    batch_rows: int = 1000

    @property
    def is_streamed(self) -> bool:
        """Whether one source comes last, so that its rows need not be stored."""
        return len({name for name, _ in self.batches}) == 1


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer, the processor time it took, and (of an eddy) what it did."""

    answer: pa.Table
    seconds: float
    progress: Progress | None = None


def _table(n_rows: int) -> pa.Table:
    unique = np.arange(n_rows, dtype=np.int64)
    columns = {"unique2": unique} | {name: unique % limit for name, limit in _LIMITS.items()}
    return pa.table(columns | {"pad": pa.array([_PAD] * n_rows)})


def _batches(table: pa.Table, n_rows: int) -> list[pa.RecordBatch]:
    return [
        table.slice(start, n_rows).to_batches()[0] for start in range(0, table.num_rows, n_rows)
    ]


def selections(n_rows: int, batch_rows: int, delay_us: float | None = None) -> Workload:
    """`SELECT count(*) FROM tenk1 WHERE two < 2 AND four < 4 AND ten < 10`, maybe with delays.

    `delay(x, us)` keeps the processor busy for so many microseconds a row and returns x.
    """

    def value(column: str) -> Expr:
        plain = Column("tenk1", column)
        if delay_us is None:
            return plain
        return Call("delay", (plain, Literal(float(delay_us), pa.float64())))

    predicates = tuple(
        Selection(Call("lt", (value(name), Literal(limit, _INT))), expensive=True)
        for name, limit in _LIMITS.items()
    )
    table = _table(n_rows).drop_columns(["pad"])
    query = Query(
        (Source("tenk1", "tenk1", table.schema),),
        predicates,
        aggregation=_COUNT,
        functions=(UserFunction("delay", _delay, _INT, arrow=True),),
    )
    fed = tuple(("tenk1", batch) for batch in _batches(table, batch_rows))
    return Workload(query, fed, batch_rows=batch_rows)


def _delay(values: pa.Array, micros: pa.Array | pa.Scalar) -> pa.Array:
    first = micros if isinstance(micros, pa.Scalar) else micros[0]
    end_ns = time.process_time_ns() + int(first.as_py() * 1000) * len(values)
    while time.process_time_ns() < end_ns:
        pass
    return values


def star_join(n_sources: int, n_rows: int, batch_rows: int, *, everything: bool) -> Workload:
    """Equijoin of tenk1..n on unique2: `SELECT *` or `count(*)`; sources come in turns."""
    table = _table(n_rows)
    if not everything:
        table = table.select(["unique2"])
    names = [f"tenk{i + 1}" for i in range(n_sources)]
    query = _star(names, table.schema, (), everything=everything)
    batches = _batches(table, batch_rows)
    fed = tuple((name, batch) for batch in batches for name in names)
    return Workload(query, fed, batch_rows=batch_rows)


def index_join(
    n_sources: int, modulus: int, n_rows: int, batch_rows: int, n_indexed: int = 100_000
) -> Workload:
    """hundredk1..n on unique2, where every `modulus`-th row of the first looks the others up."""
    names = [f"hundredk{i + 1}" for i in range(n_sources)]
    indexed = _table(n_indexed).select(["unique2"])
    key = Column(names[0], "unique2")
    remainder = Call("modulo", (key, Literal(modulus, _INT)))
    chosen = (Selection(Call("eq", (remainder, Literal(0, _INT)))),)
    query = _star(names, indexed.schema, chosen, everything=False)
    fed = tuple((names[0], batch) for batch in _batches(indexed.slice(0, n_rows), batch_rows))
    loaded = tuple((name, indexed.combine_chunks().to_batches()[0]) for name in names[1:])
    return Workload(query, fed, loaded, batch_rows)


def _star(
    names: list[str], schema: pa.Schema, chosen: tuple[Selection, ...], *, everything: bool
) -> Query:
    first, *others = names
    keys = tuple(
        Equality(Column(first, "unique2"), Column(other, "unique2"), _INT) for other in others
    )
    columns = tuple(
        Output(f"{name}_{field.name}", Column(name, field.name), field.type)
        for name in names
        for field in schema
    )
    return Query(
        tuple(Source(name, name, schema) for name in names),
        chosen,
        keys,
        output=columns if everything else (),
        aggregation=None if everything else _COUNT,
    )


def run_eddy(work: Workload, policy: str, every: int | None, state: StateMode = "stems") -> Timed:
    """An eddy that renews its decisions every `every` rows. Unless told otherwise it keeps SteMs, like
    the fixed plan: the same modules are compared with and without a router, and neither folds.
    """
    batch_rows = max(work.batch_rows, 64)
    options = Options(policy=policy, state=state, reoptimize_every=every, batch_rows=batch_rows)
    eddy = Eddy(work.query, options, folds=False)
    numbers = {relation.name: i for i, relation in enumerate(eddy.graph.relations)}
    for name, batch in work.loaded:
        relation = eddy.graph.relations[numbers[name]]
        eddy.stems[numbers[name]].build(Entry(eddy.graph, relation).admit(batch))
        eddy.end(name)
    answer: list[pa.RecordBatch] = []

    def feed(name: str, batch: pa.RecordBatch) -> None:
        eddy.push(name, batch)
        while (rows := eddy.poll()) is not None:
            answer.append(rows)

    def finish() -> None:
        for name in dict.fromkeys(name for name, _ in work.batches):
            eddy.end(name)
        while (rows := eddy.poll()) is not None:
            answer.append(rows)

    seconds = _time(work, feed, finish)
    progress = eddy.progress()
    return Timed(pa.Table.from_batches(answer, schema=eddy.output.schema), seconds, progress)


def run_fixed(work: Workload) -> Timed:
    """The same modules in one order, without an eddy."""
    plan = FixedPlan(work.query, max(work.batch_rows, 64))
    for name, batch in work.loaded:
        plan.load(name, batch)
    feed = plan.stream if work.is_streamed else plan.push
    answer: list[pa.RecordBatch] = []
    seconds = _time(work, feed, lambda: answer.extend(plan.finish()))
    return Timed(pa.Table.from_batches(answer, schema=plan.schema), seconds)


def run_base(work: Workload) -> Timed:
    """Selections in a plain loop, without modules: each predicate on what is left of a batch."""
    functions = {function.name: function for function in work.query.functions}
    n_rows = 0

    def feed(name: str, batch: pa.RecordBatch) -> None:
        nonlocal n_rows
        for selection in work.query.selections:
            batch = _selected(batch, selection.expr, functions)
        n_rows += batch.num_rows

    seconds = _time(work, feed, lambda: None)
    return Timed(pa.table({"n": pa.array([n_rows], _INT)}), seconds)


def _selected(
    batch: pa.RecordBatch, predicate: Expr, functions: dict[str, UserFunction]
) -> pa.RecordBatch:
    def column(wanted: Column) -> pa.Array:
        return batch.column(wanted.name)

    kept = keep(predicate, column, batch.num_rows, functions)
    return batch if kept is None or kept.all() else batch.filter(pa.array(kept))


def _time(
    work: Workload, feed: Callable[[str, pa.RecordBatch], None], finish: Callable[[], None]
) -> float:
    """Feed everything. Where tables were loaded, the first batch makes the indexes, uncounted."""
    batches = work.batches
    if work.loaded:
        feed(*batches[0])
        batches = batches[1:]
    started_ns = time.process_time_ns()
    for name, batch in batches:
        feed(name, batch)
    finish()
    return (time.process_time_ns() - started_ns) / 1e9
