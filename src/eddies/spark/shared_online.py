"""Several online queries over the same sources: one Spark stream, one eddy a cell, shared SteMs.

Each text is planned by itself and must come down to one block, a plain join: what Spark would compute
above it has no place in a stream that is everybody's. The blocks are put together (`core.sharing`) and
divided into cells that suit all of them (`shared_cells`). So a row is read from its source once, is
logged once, sent to its cells once and stored once, however many queries want it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.query import Query, UserFunction
from eddies.core.sharing import check_sharing, shared
from eddies.errors import OptionError, UnsupportedError
from eddies.spark.block import BlockPlan, plan_shared_block
from eddies.spark.inputs import Input
from eddies.spark.query import n_slots, plan_text
from eddies.spark.stream_block import check_streaming, saved
from eddies.sql import Block, named_tables

__all__ = ["PlannedQueries", "plan_shared"]


@dataclass(frozen=True, slots=True)
class PlannedQueries:
    """Queries ready to run together: the block of all, and of each its columns and tables."""

    block: BlockPlan
    schemas: dict[str, pa.Schema]
    tables: dict[str, frozenset[str]]


def plan_shared(
    queries: Mapping[str, str],
    inputs: dict[str, Input],
    tables: Iterable[str],
    spark: SparkSession,
    options: Options,
    functions: tuple[UserFunction, ...],
) -> PlannedQueries:
    """Decide how `queries`, by name, run together over `inputs`."""
    check_streaming(options)
    check_sharing(options)
    if options.window:
        raise OptionError(
            "Options(window=...) is for one online query; start those with windows by themselves"
        )
    for name, given in inputs.items():
        if given.stream is not None and given.stream.is_mirrored:
            raise UnsupportedError(
                f"table {name!r} has mirrors, whose rows may come twice; queries that share an eddy "
                "read sources without mirrors"
            )
    inputs = {name: saved(given, spark, options) for name, given in inputs.items()}
    tables = list(tables)
    blocks = {
        name: _only_block(name, text, inputs, tables, spark, options, functions)
        for name, text in queries.items()
    }
    together: Query = shared({name: block.query for name, block in blocks.items()})
    pushdown = {
        f"{name}.{source}": conditions
        for name, block in blocks.items()
        for source, conditions in block.pushdown.items()
    }
    if not any(inputs[source.table].is_streaming for source in together.sources):
        raise UnsupportedError("nothing that streams is read by a query that can have results")
    # Named like the block of a query by itself: so neither takes up the state of the other.
    block = Block(next(iter(blocks.values())).name, together, pushdown)
    planned = plan_shared_block(block, inputs, n_slots(spark), options)
    schemas = {
        name: to_arrow_schema(from_arrow_schema(result_schema(block.query)), timezone="UTC")
        for name, block in blocks.items()
    }
    read = {
        name: frozenset(source.table for source in block.query.sources)
        for name, block in blocks.items()
    }
    return PlannedQueries(planned, schemas, read)


def _only_block(
    name: str,
    text: str,
    inputs: Mapping[str, Input],
    tables: list[str],
    spark: SparkSession,
    options: Options,
    functions: tuple[UserFunction, ...],
) -> Block:
    """The block that a text comes down to."""
    used = named_tables(text)
    own = {table: given for table, given in inputs.items() if table.lower() in used}
    planned = plan_text(text, own, tables, spark, options, functions)
    if not any(given.is_streaming for given in own.values()):
        raise UnsupportedError(
            f"every table of query {name!r} is a batch DataFrame: use eddies.sql"
        )
    computed = planned.constants or planned.derived
    if planned.above is not None or len(planned.blocks) != 1 or computed:
        why = "; ".join(planned.reasons)
        raise UnsupportedError(
            f"query {name!r} is more than a join of tables{f' ({why})' if why else ''}; start it by "
            "itself, or compute the rest from its result"
        )
    return planned.blocks[0]
