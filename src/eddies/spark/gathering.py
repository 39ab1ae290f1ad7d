"""Blocks whose output is gathered in one partition before Spark goes on.

Spark sorts in three steps: it reads a sample to find borders, exchanges the rows, and sorts what
arrives. What is above the last exchange runs twice for that, be it a stage of eddies, and groups that
cells aggregated are merged in an exchange of their own before. Few rows are sooner exchanged once, to
one task that merges and sorts them.

A block that is read twice runs twice. Spark runs equal parts of a query once if they end in an
exchange, and the output of one cell has none: so it gets one.

Both take tens of milliseconds off a query and cost nothing but time if rows are more than expected.
So rows are gathered for an order only on a local Spark, where one task is not much less than all, and
only if they are likely to be few: the groups of columns with short dictionaries, or joins of small
tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pyarrow import parquet

from eddies.core.expr import Column, columns_of
from eddies.core.graph import Graph
from eddies.core.query import Query
from eddies.sources.footers import footer_of
from eddies.sources.ranges import leaf_by_name
from eddies.sources.row_groups import ParquetSplit
from eddies.sources.source import Split
from eddies.spark.block import BlockPlan
from eddies.sql import SqlPlan

__all__ = ["is_gathered", "most_values"]

_FEW_GROUPS = 10_000
_FEW_ROWS = 20_000  # of every relation of a join whose results are not grouped
_LEAST_BYTES = 4  # of an entry of a dictionary: the length of a text, or a number
_COMPRESSION = 4  # how much smaller than its entries a dictionary may be


def is_gathered(block: BlockPlan, plan: SqlPlan, local_threads: int) -> bool:
    """Whether all that the cells of `block` put out goes to one partition."""
    if block.is_streaming or any(d.how == "partitions" for d in block.cells.deliveries.values()):
        return False
    if block.cells.n_cells == 1:
        return block.query.aggregation is not None and block.name in plan.read_often
    if local_threads == 1 or block.name != plan.sorted_block:
        return False
    if block.query.aggregation is not None:
        return _most_groups(block.query, block.graph, block) <= _FEW_GROUPS
    return all(size.rows <= _FEW_ROWS for size in block.sizes.values())


def _most_groups(query: Query, graph: Graph, block: BlockPlan) -> float:
    """How many groups there may be, as far as dictionaries tell."""
    assert query.aggregation is not None
    relations = {r.name: graph.relations[r.relation].name for r in graph.roles}
    keys: dict[Column, None] = {}
    for group in query.aggregation.groups:
        keys.update(dict.fromkeys(columns_of(group.expr)))
    return prod(most_values(block.splits.get(relations[k.source], ()), k.name) for k in keys)


def most_values(splits: Sequence[Split], column: str) -> float:
    """About as many different values as a column may have in Parquet files, NULL among them: as many as
    the longest of its dictionaries has room for. Infinity if some values are in none.
    """
    most = 0.0 if splits else float("inf")
    for split in splits:
        if not isinstance(split, ParquetSplit):
            return float("inf")
        footer = footer_of(split.place, split.file)
        leaf = leaf_by_name(footer.schema).get(column)
        if leaf is None:
            return float("inf")
        most = max(most, _entries(footer.row_group(split.row_group).column(leaf)))
    return most


def _entries(chunk: parquet.ColumnChunkMetaData) -> float:
    """Entries that fit into the dictionary of one column in one row group, and NULL."""
    first, data = chunk.dictionary_page_offset, chunk.data_page_offset
    if not chunk.has_dictionary_page or first is None or data is None or data <= first:
        return float("inf")
    n_bytes: int = data - first
    return 1 + _COMPRESSION * n_bytes / _LEAST_BYTES
