"""One cell instead of several, where that costs less.

The cells' partial aggregates are merged above, and what two cells put out has to be exchanged for
that: a second stage, which takes Spark longer than a small join takes altogether. The output of one
cell is one partition, over which Spark merges in the same task. And what would be replicated is read
and stored once.

On a local Spark the cell does not have one core instead of all: the task may use the machine, and its
threads share reading (`read_ahead`) and probing (`core.crew`). They share Python's lock as well, so
they do less than as many cells would. Which is better follows from how much is replicated and from how
long the whole takes: large joins of tables that can be divided have cells. So have joins whose rows are
not merged, unless they are small: one cell is one partition, and whoever goes on with it is alone.

On a cluster a task has one core. How much work a join is, its inputs do not tell: a million rows may
meet in a billion pairs, and an average of matches says nothing of a hub. One thing is certain, that
there are no more tuples than the Cartesian product of all sources has. So one core does a join only if
it costs less than merging saves even in that case. Such joins are small: two tables of 500 rows, or 50
thousand rows with five others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import prod

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eddies.core.graph import Graph
from eddies.core.options import Options
from eddies.spark.cells import CellPlan, RelationSize, plan_cells

__all__ = ["local_threads", "may_share_cell", "without_merge"]

# What a second stage adds to a query, measured on a warm local Spark: 60 to 120 ms.
_MERGE_NS = 50e6
# The same on the scale of what cells are estimated to cost, which is about twice what they take here.
_MERGE_BESIDE_CELLS_NS = 100e6
# The same where the task of one cell gives the answer itself (`whole_groups`), and Spark does nothing:
# TPC-H Q1 and Q19 at scale factor 1 take 0.87 and 0.93 of the time, and are estimated at 180 and 150.
_ANSWER_BESIDE_CELLS_NS = 200e6
# A tuple is made, probes, and is checked by some function of texts.
_TUPLE_NS = 100.0
# Of a task's work: what only one thread does at a time, storing and whatever Python does itself. Two
# threads were measured to be 1.5 to 1.7 times as fast as one.
_IN_TURN = 0.25
_MOST_THREADS = 4  # more would mostly wait for Python's lock
_SMALL_NS = 200e6  # estimated for a join in one cell, of about a million rows


def local_threads(spark: SparkSession) -> int:
    """How many threads a task may use that is alone; one unless driver and tasks share a machine."""
    try:
        master = spark.sparkContext.master
    except PySparkException:  # Spark Connect: what it says of its master is about another machine
        return 1
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master or "")
    if found is None or found[1] is None:
        return 1
    n_cores = os.cpu_count() or 1
    return min(_MOST_THREADS, n_cores if found[1] == "*" else min(int(found[1]), n_cores))


def may_share_cell(options: Options) -> bool:
    """Whether nothing was asked for that says how many cells or threads there are, or needs one."""
    return (
        options.cells is None
        and options.threads == 1
        and options.memory is None
        and options.policy == "auto"
        and options.state in ("auto", "stems")
        and options.stem == "hash"
        and not options.partial
        and options.cache is None
    )


def without_merge(
    graph: Graph,
    sizes: Mapping[str, RelationSize],
    cells: CellPlan,
    n_threads: int = 1,
    *,
    may_answer: bool = False,
) -> tuple[CellPlan, int]:
    """One cell and its threads, if that is likely to be faster than `cells`; or else `cells`. With
    `may_answer`, there is nothing to do above one cell.
    """
    query = graph.query
    if cells.n_cells == 1 or query.functions:  # which would wait for each other
        return cells, 1
    if any(delivery.how != "direct" for delivery in cells.deliveries.values()):
        return cells, 1  # exchanged rows have a second stage anyway
    if any(size.n_rows is None or not size.is_divisible for size in sizes.values()):
        return cells, 1
    one, is_merged = plan_cells(graph, sizes, 1), query.aggregation is not None
    if is_merged and one.ns + _most_tuples(graph, sizes) * _TUPLE_NS <= cells.ns + _MERGE_NS:
        return one, 1
    if n_threads > 1 and (is_merged or one.ns <= _SMALL_NS):
        above_ns = _ANSWER_BESIDE_CELLS_NS if may_answer else _MERGE_BESIDE_CELLS_NS
        merging_ns = above_ns if is_merged else 0.0
        if one.ns * (_IN_TURN + (1 - _IN_TURN) / n_threads) <= cells.ns + merging_ns:
            return one, n_threads
    return cells, 1


def _most_tuples(graph: Graph, sizes: Mapping[str, RelationSize]) -> int:
    """Tuples that there can be in an eddy, results and all on the way to them, whatever the order."""
    n_rows = [max(sizes[graph.relations[role.relation].name].rows, 1) for role in graph.roles]
    return len(n_rows) * prod(n_rows)
