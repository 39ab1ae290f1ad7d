"""`eddies.sql`: DataFrames in, DataFrame out.

    df = eddies.sql("SELECT ... FROM a, b, c WHERE ...", {"a": "data/a.parquet", "b": df_b, ...})

The text is planned (`eddies.sql`): its inner joins become blocks, each a set of eddies, one per cell;
the rest is Spark SQL over the blocks' outputs. What comes back is a lazy DataFrame like any other.
Nothing runs before an action, except that schemas and file footers are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eddies.core.graph import Graph, make_graph
from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.query import Query, UserFunction
from eddies.spark.above import register_function, run_above
from eddies.spark.cells import CellPlan, RelationSize, plan_cells, separate_roles
from eddies.spark.exchange import PACKED, make_pack
from eddies.spark.inputs import Input, make_inputs, row_bytes
from eddies.spark.reading import HashFilter, Reading
from eddies.spark.session import session
from eddies.spark.task import EddyTask
from eddies.sql import SqlPlan, named_tables, plan

__all__ = ["BlockPlan", "Planned", "plan_query", "sql"]


def sql(
    query: str,
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
) -> DataFrame:
    """The answer to `query`, as a lazy DataFrame.

    `tables` maps names to pyspark DataFrames, sources of `eddies.read`, pyarrow tables, or paths.
    `functions` are those of your own that the text calls.
    """
    planned = plan_query(query, tables, spark=spark, options=options, functions=functions)
    return planned.dataframe()


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """One block on Spark: which cells it has and how each relation comes to them."""

    name: str
    query: Query
    graph: Graph
    cells: CellPlan
    sizes: Mapping[str, RelationSize]
    inputs: Mapping[str, Input]  # by relation

    @property
    def order(self) -> tuple[str, ...]:
        """Relations in the order in which a cell takes them in."""
        return tuple(self.cells.order(self.sizes))

    def dataframe(self, spark: SparkSession, options: Options) -> DataFrame:
        """The output of the block's eddies."""
        columns = result_schema(self.query)
        if len(set(columns.names)) == len(columns):
            return self._run(spark, options, from_arrow_schema(columns))
        # Spark reads columns that come from Python by name, so they need different ones on the way.
        unique = pa.schema(
            [field.with_name(f"{i} {field.name}") for i, field in enumerate(columns)]
        )
        return self._run(spark, options, from_arrow_schema(unique)).toDF(*columns.names)

    def _run(self, spark: SparkSession, options: Options, schema: StructType) -> DataFrame:
        exchanged = [n for n in self.order if self.cells.deliveries[n].how != "direct"]
        by_partitions = [n for n in exchanged if self.cells.deliveries[n].how == "partitions"]
        fed = "rows" if by_partitions else "blobs" if exchanged else "cells"
        task = EddyTask(
            self.name,
            self.query,
            options,
            self.cells,
            self.order,
            {name: self._reading(name) for name in self.order if name not in exchanged},
            {name: size.n_rows for name, size in self.sizes.items() if size.n_rows is not None},
            fed,
            tuple(schema.names),
        )
        if fed == "rows":
            return self._columns(by_partitions[0], spark).mapInArrow(task, schema)
        n_cells = self.cells.n_cells
        if fed == "cells":
            return spark.range(0, n_cells, 1, n_cells).mapInArrow(task, schema)
        packed: DataFrame | None = None
        for name in exchanged:
            pack = make_pack(self.order.index(name), self.cells.deliveries[name], self.cells)
            blobs = self._columns(name, spark).mapInArrow(pack, PACKED)
            packed = blobs if packed is None else packed.unionAll(blobs)
        assert packed is not None, "fed by blobs means that something is exchanged"
        return packed.repartitionById(n_cells, "cell").mapInArrow(task, schema)

    def _columns(self, name: str, spark: SparkSession) -> DataFrame:
        """The columns of a relation that the block reads, from Spark."""
        relation = next(r for r in self.graph.relations if r.name == name)
        frame = self.inputs[name].dataframe(spark)
        return frame.select(*(f"`{column}`" for column in relation.read.names))

    def _reading(self, name: str) -> Reading:
        relation = next(r for r in self.graph.relations if r.name == name)
        source = self.inputs[name].source
        assert source is not None, "direct delivery is of sources"
        where = self.graph.roles[relation.roles[0]].selections if len(relation.roles) == 1 else ()
        delivery, shares = self.cells.deliveries[name], self.cells.shares
        return Reading(
            name,
            tuple(relation.read.names),
            where,
            tuple(source.splits(where)),
            shares[0] if delivery.is_split else 1,
            tuple(HashFilter(h.column, shares[h.dimension], h.dimension) for h in delivery.hashed),
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """A query ready to run: blocks, and the text above them."""

    spark: SparkSession
    options: Options
    plan: SqlPlan
    blocks: tuple[BlockPlan, ...]
    inputs: Mapping[str, Input]
    functions: tuple[UserFunction, ...]

    def dataframe(self) -> DataFrame:
        """The answer, lazily."""
        outputs = {block.name: block.dataframe(self.spark, self.options) for block in self.blocks}
        if self.plan.above is None:
            return outputs[self.blocks[0].name]
        outputs |= {name: self.inputs[name].dataframe(self.spark) for name in self.plan.kept}
        for function in self.functions:
            if function.name in self.plan.functions_above:
                register_function(self.spark, function)
        return run_above(self.spark, self.plan.above, outputs)


def plan_query(
    query: str,
    tables: Mapping[str, object],
    *,
    spark: SparkSession | None = None,
    options: Options | None = None,
    functions: Iterable[UserFunction] = (),
) -> Planned:
    """Decide what runs where. Reads schemas and footers, no rows."""
    options = options or Options()
    functions = tuple(functions)
    spark = spark or _session_of(tables)
    used = named_tables(query)
    inputs = make_inputs({n: t for n, t in tables.items() if n.lower() in used}, spark)
    schemas = {name: pa.schema([]) for name in tables}
    schemas |= {name: given.schema for name, given in inputs.items()}
    planned = plan(query, schemas, functions, host="spark")
    constants = make_inputs(planned.constants, spark)
    n_slots = _n_slots(spark)
    blocks = tuple(
        _plan_block(block.name, block.query, inputs | constants, n_slots, options)
        for block in planned.blocks
    )
    return Planned(spark, options, planned, blocks, inputs, functions)


def _plan_block(
    name: str, query: Query, inputs: Mapping[str, Input], n_slots: int, options: Options
) -> BlockPlan:
    by_table = {s.table: _size(query, s.table, inputs[s.table]) for s in query.sources}
    separate = separate_roles(query, by_table)
    tables = {
        own.table: old.table for own, old in zip(separate.sources, query.sources, strict=True)
    }
    sizes = {relation: by_table[table] for relation, table in tables.items()}
    graph = make_graph(separate)
    cells = plan_cells(graph, sizes, n_slots, options.cells)
    exchanged = [d for d in cells.deliveries.values() if d.how == "exchange"]
    if len(exchanged) == 1 and options.cells is None:
        cells = _fed_by_partitions(cells, exchanged[0].relation, graph)
    relations = {relation: inputs[table] for relation, table in tables.items()}
    return BlockPlan(name, separate, graph, cells, sizes, relations)


def _fed_by_partitions(cells: CellPlan, relation: str, graph: Graph) -> CellPlan:
    """With one DataFrame among files, its partitions are the row split: nothing is exchanged."""
    found = next(r for r in graph.relations if r.name == relation)
    if cells.last != relation or len(found.roles) > 1:
        return cells
    deliveries = {
        name: replace(d, how="partitions" if name == relation else d.how, is_split=False, hashed=())
        for name, d in cells.deliveries.items()
    }
    return replace(cells, shares=(1,) * len(cells.shares), deliveries=deliveries)


def _size(query: Query, table: str, given: Input) -> RelationSize:
    columns = {name for s in query.sources if s.table == table for name in s.schema.names}
    how = "exchange" if given.source is None else "direct"
    return RelationSize(given.n_rows, row_bytes(given.schema, sorted(columns)), how)  # type: ignore[arg-type]


def _session_of(tables: Mapping[str, object]) -> SparkSession:
    for table in tables.values():
        if isinstance(table, DataFrame):
            return table.sparkSession
    return session()


def _n_slots(spark: SparkSession) -> int:
    """Tasks that run at the same time, as far as can be known."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # noqa: BLE001  Spark Connect has no context to ask
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
