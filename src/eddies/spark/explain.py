"""`eddies.explain`: what runs where and, after a run, what really happened.

Without a run: the blocks and the text above them, the cells of each block and how every relation comes
to them, modules and legal routes. With `analyze=True` the query runs once with traces, and a table
shows for each cell the routes its rows took: the join orders that the eddies found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from eddies.core.options import Options
from eddies.core.query import UserFunction
from eddies.observe.explain import explain_query
from eddies.spark.block import BlockPlan
from eddies.spark.query import plan_query
from eddies.spark.semi_joins import Reducer
from eddies.spark.trace import read_traces
from eddies.sql import describe

__all__ = ["explain", "trace_tables"]

_WIDTH = 110


def explain(
    query: str,
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
    analyze: bool = False,
) -> str:
    """The plan of `query` in words; with `analyze`, run it and add what every eddy did.

    Traces go to `options.trace_dir`, or to a temporary folder: then driver and executors must share
    a disk, as they do in local mode.
    """
    options = options or Options()
    functions = tuple(functions)
    planned = plan_query(query, tables, spark=spark, options=options, functions=functions)
    parts = [describe(planned.plan)]
    for block in planned.blocks:
        parts.append(_cells(block))
        parts.append(explain_query(block.query))
    if analyze:
        with tempfile.TemporaryDirectory(prefix="eddies-trace-") as temporary:
            folder = options.trace_dir or temporary
            traced = replace(options, trace_dir=folder)
            run = plan_query(query, tables, spark=spark, options=traced, functions=functions)
            run.dataframe().write.format("noop").mode("overwrite").save()
            parts.append(trace_tables(folder))
    return "\n\n".join(parts)


def _cells(block: BlockPlan) -> str:
    cells = block.cells
    shape = " x ".join(str(share) for share in cells.shares if share > 1) or "1"
    lines = [f"cells of {block.name}: {cells.n_cells} ({shape})"]
    if block.n_threads > 1:
        lines = [f"cells of {block.name}: {cells.n_cells}, of {block.n_threads} threads"]
    if any(delivery.how == "partitions" for delivery in cells.deliveries.values()):
        lines = [f"cells of {block.name}: the partitions of {cells.last}"]
    for name in block.order:
        size = block.sizes[name]
        rows = "rows unknown" if size.n_rows is None else f"{size.n_rows:,} rows"
        label = block.inputs[name].label
        streams_by = name == cells.last and not block.access
        last = ", streams by last and is not stored" if streams_by else ""
        delivery = cells.deliveries[name].describe()
        more = _semi_joins(block, name) + _ways(block, name) + _window(block, name)
        lines.append(f"  {name}: {label}, {rows}, {delivery}{last}{more}")
    if block.answer is not None:
        lines.append("  it gives the answer: the text above is not run")
    if block.is_gathered:
        lines.append("  what they put out is gathered in one partition")
    return "\n".join(lines)


def _semi_joins(block: BlockPlan, name: str) -> str:
    """Whose keys the rows of a relation must have before Spark hands them over."""
    keys = [_keys(block, reducer) for reducer in block.semi_joins.get(name, ())]
    return f", only rows with keys of {' and of '.join(keys)}" if keys else ""


def _keys(block: BlockPlan, reducer: Reducer) -> str:
    own = block.graph.roles[reducer.source].name
    inner = [_keys(block, part) for part in reducer.reducers]
    return f"{own} (with keys of {' and of '.join(inner)})" if inner else own


def _ways(block: BlockPlan, name: str) -> str:
    """The access methods of a relation that has several."""
    if name not in block.access:
        return ""
    source = block.access[name]
    ways = [f"{n} scan{'s' * (n > 1)}" if (n := len(source.scans)) else "no scan"]
    ways += [f"index {index.name!r}" for index in source.indexes]
    return f", competing: {', '.join(ways)}"


def _window(block: BlockPlan, name: str) -> str:
    """What is said of the window of a relation, where some have windows."""
    if name in block.windows:
        return f", {block.windows[name].describe()}"
    if block.windows and block.inputs[name].is_streaming:
        return ", no window: nothing is forgotten before it has ended"
    return ""


def trace_tables(folder: str | Path) -> str:
    """The traces in `folder` as tables: one for each block, a group of lines for each cell."""
    by_block: dict[str, list[dict[str, Any]]] = {}
    for record in read_traces(folder):
        by_block.setdefault(record["block"], []).append(record)
    if not by_block:
        return f"no traces in {folder}: no eddy ran, or executors write to another disk"
    printed = StringIO()
    console = Console(file=printed, width=_WIDTH, highlight=False)
    for block, records in by_block.items():
        console.print(_summary(block, records))
        console.print(_routes(block, records))
        for record in records:
            for said, n in record["troubles"].items():
                console.print(f"cell {record['cell']}: {said} ({n:,} times)")
    return printed.getvalue().rstrip()


def _summary(block: str, records: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{block}: what every cell did", title_justify="left")
    for name in ("cell", "seconds", "results", "decisions", "deciding", "stored rows", "memory"):
        table.add_column(name, justify="right")
    for record in records:
        worked = max(record["ms_working"] + record["ms_deciding"], 1e-9)
        stored = sum(source["stored"] for source in record["sources"])
        table.add_row(
            str(record["cell"]),
            f"{record['seconds']:.2f}",
            f"{record['results']:,}",
            str(record["decisions"]),
            f"{record['ms_deciding'] / worked:.1%}",
            f"{stored:,}",
            f"{sum(record['memory'].values()) / 2**20:,.1f} MB",
        )
    return table


def _routes(block: str, records: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{block}: routes really taken", title_justify="left")
    table.add_column("cell", justify="right")
    table.add_column("rows that span")
    table.add_column("went to")
    for name in ("share", "rows in", "rows out", "out/in"):
        table.add_column(name, justify="right")
    for record in records:
        totals: dict[tuple[str, ...], int] = {}
        for route in record["routes"]:
            span = tuple(route["from"])
            totals[span] = totals.get(span, 0) + route["in"]
        first = True
        for route in sorted(record["routes"], key=lambda r: (len(r["from"]), r["from"], -r["in"])):
            table.add_row(
                str(record["cell"]) if first else "",
                "+".join(route["from"]),
                route["module"],
                f"{route['in'] / totals[tuple(route['from'])]:.0%}",
                f"{route['in']:,}",
                f"{route['out']:,}",
                f"{route['out'] / route['in']:.3g}",
            )
            first = False
        table.add_section()
    return table
