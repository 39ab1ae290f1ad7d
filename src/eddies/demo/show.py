"""The demo from start to end. Every number it prints is measured in this very run.

The query runs three times: with eddies that adapt, with the same eddies held to the worst fixed
order, and in Spark SQL alone. All three must give the same bag of rows, which Spark compares by
count, sums and a sum of row hashes.
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live

from eddies.core.options import Options
from eddies.demo.screen import Trace, routing_table
from eddies.demo.star import DIMENSIONS, RESULT_SCHEMA, SQL, make_star, worst_fixed_order
from eddies.demo.task import eddy_task
from eddies.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["main"]

# Small enough that a tenth of a partition is several batches at the default size.
BATCH_ROWS = 16_384

Bag = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: its fingerprint, what the eddies reported, when it began and how long it took."""

    bag: Bag
    trace: Trace
    began_at: float
    seconds: float


def main(n_rows: int = 2_000_000, n_partitions: int = 2, seed: int = 7) -> int:
    """Run the demo; the exit code is 0 if all answers agree and 1 if not."""
    if n_partitions < 1 or n_rows < n_partitions:
        raise OptionError(
            f"rows={n_rows} and partitions={n_partitions}: at least one row in each partition"
        )
    n_rows -= n_rows % n_partitions
    console = Console(highlight=False)
    began = time.perf_counter()
    with console.status("Starting Spark inside this process; cold, this takes some seconds ..."):
        from eddies.spark.session import session

        spark = session(**{"spark.sql.execution.arrow.maxRecordsPerBatch": BATCH_ROWS})
        table_by_name = make_star(spark, n_rows, n_partitions, seed)
        dimension_by_name = {d.table: table_by_name[d.table].toArrow() for d in DIMENSIONS}
    console.print(f"Spark {spark.version} started in {time.perf_counter() - began:.1f} s.")
    console.print(f"{n_rows:,} sales in {n_partitions} partitions, one eddy in each:\n\n{SQL}\n")

    def run_eddies(options: Options, live: Live | None) -> Run:
        with tempfile.TemporaryDirectory(prefix="eddies-demo-") as folder:
            task = eddy_task(dimension_by_name, options, n_rows // n_partitions, Path(folder))
            results = table_by_name["sales"].mapInArrow(task, RESULT_SCHEMA)
            return _watch(results, Path(folder), live, n_rows)

    with Live(console=console, auto_refresh=False) as live:
        adaptive = run_eddies(Options(reoptimize_every=BATCH_ROWS), live)
    if not console.is_terminal:
        console.print()  # Live ends without a line break when its output is a file
    _tell_early_results(console, adaptive)

    order = worst_fixed_order()
    with console.status("The same eddies, held to the worst fixed order ..."):
        fixed = run_eddies(Options(policy="static", order=order), None)
    _tell_savings(console, adaptive, fixed, order)

    with console.status("The same query in Spark SQL ..."):
        for name, table in table_by_name.items():
            table.createOrReplaceTempView(name)
        began = time.perf_counter()
        spark_bag = _fingerprint(spark.sql(SQL))
        spark_seconds = time.perf_counter() - began
    console.print(f"Spark SQL alone: {spark_bag[0]:,} rows in {spark_seconds:.1f} s.")
    if not adaptive.bag == fixed.bag == spark_bag:
        console.print(
            f"[red]The answers differ[/]: adaptive {adaptive.bag}, fixed {fixed.bag}, "
            f"Spark SQL {spark_bag} (count, sums, row hashes)"
        )
        return 1
    console.print("[green]All three answers are the same bag of rows[/] (count, sums, row hashes).")
    return 0


def _watch(results: DataFrame, trace_folder: Path, live: Live | None, n_rows: int) -> Run:
    """Let Spark compute the fingerprint of `results` on a thread; show the trace meanwhile."""
    bags: list[Bag] = []
    errors: list[Exception] = []

    def compute() -> None:
        try:
            bags.append(_fingerprint(results))
        except Exception as error:  # noqa: BLE001 - raised again below, on the caller's thread
            errors.append(error)

    trace = Trace()
    began_at, began = time.time(), time.perf_counter()
    worker = threading.Thread(target=compute, name="eddies-demo")
    worker.start()
    while worker.is_alive():
        worker.join(timeout=0.1)
        trace.read(trace_folder)
        if live is not None:
            seconds = time.perf_counter() - began
            so_far = (
                f"{seconds:5.1f} s: {trace.n_sales:,} of {n_rows:,} sales in, "
                f"{trace.n_results:,} results out"
            )
            live.update(Group(so_far, "", routing_table(trace), ""), refresh=True)
    if errors:
        raise errors[0]
    return Run(bags[0], trace, began_at, time.perf_counter() - began)


def _fingerprint(rows: DataFrame) -> Bag:
    """A bag of rows in a few numbers: equal bags have equal ones, and others hardly ever."""
    weights = " + ".join(f"{dimension.table}_weight" for dimension in DIMENSIONS)
    sums = rows.selectExpr(
        "count(*)",
        "coalesce(sum(amount), 0)",
        f"coalesce(sum({weights}), 0)",
        "coalesce(sum(pmod(xxhash64(*), 1000000007L)), 0)",
    ).collect()
    return tuple(sums[0])


def _tell_early_results(console: Console, run: Run) -> None:
    if run.trace.first_result_at is None:
        console.print(f"No sale has partners in all dimensions; done after {run.seconds:.1f} s.")
        return
    console.print(
        f"The first results left an eddy after {run.trace.first_result_at - run.began_at:.1f} s, "
        f"the last of {run.bag[0]:,} after {run.seconds:.1f} s "
        "(both include starting Python workers)."
    )


def _tell_savings(console: Console, adaptive: Run, fixed: Run, order: tuple[str, ...]) -> None:
    n_adaptive, n_fixed = adaptive.trace.n_probes, fixed.trace.n_probes
    console.print(
        f"Probes: {n_adaptive:,}, that is {n_adaptive / adaptive.trace.n_sales:.2f} a sale. "
        f"The worst fixed order, {' → '.join(order)} - the best one at the start - "
        f"needed {n_fixed:,} ({n_fixed / fixed.trace.n_sales:.2f} a sale): "
        f"{1 - n_adaptive / n_fixed:.0%} saved."
    )
