"""A plan run as a host with cells would: every block in parts whose outputs are put together.

The largest source of a block is divided into `n_cells` disjoint parts, all others are there in each
cell, so that the cells' join results are disjoint and together complete. Aggregations are not put
together here: their rows are partial, and the text above has to merge them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from eddies.core.query import Query
from eddies.hosts.local import run
from eddies.sql import SqlPlan

__all__ = ["Compute", "block_outputs", "run_cells"]

Compute = Callable[[str, Mapping[str, pa.Table]], pa.Table]
"""Answers a text over the base tables and the given outputs of blocks."""


def block_outputs(
    planned: SqlPlan, tables: Mapping[str, pa.Table], n_cells: int, compute: Compute
) -> dict[str, pa.Table]:
    """The outputs of all blocks, by block name; `compute` answers the texts of derived sources."""
    known = {**tables, **planned.constants}
    outputs: dict[str, pa.Table] = {}
    for block in planned.blocks:
        for source in block.query.sources:
            if source.table in planned.derived and source.table not in known:
                known[source.table] = compute(planned.derived[source.table], outputs)
        outputs[block.name] = run_cells(block.query, known, n_cells)
    return outputs


def run_cells(query: Query, tables: Mapping[str, pa.Table], n_cells: int) -> pa.Table:
    """`query` on each of `n_cells` parts of its largest source, the rows one after another."""
    sizes = [tables[source.table].num_rows for source in query.sources]
    largest = sizes.index(max(sizes))
    whole = tables[query.sources[largest].table]
    sources = list(query.sources)
    sources[largest] = replace(sources[largest], table="the part of a cell")
    in_cell = replace(query, sources=tuple(sources))
    bounds = [whole.num_rows * cell // n_cells for cell in range(n_cells + 1)]
    answers = []
    for start, stop in pairwise(bounds):
        part = whole.slice(start, stop - start)
        answers.append(run(in_cell, {**tables, "the part of a cell": part}).table())
    return pa.concat_tables(answers)
