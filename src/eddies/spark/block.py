"""One block on Spark: its cells, how each relation comes to them, and the DataFrame of its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eddies.core.access.preference import Preference
from eddies.core.answer import Answer
from eddies.core.eddy import Eddy
from eddies.core.expr import Expr
from eddies.core.graph import Graph, Relation, make_graph
from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.query import Query
from eddies.errors import OptionError
from eddies.sources.reachable import AccessSource
from eddies.sources.source import Split
from eddies.sources.wanted import wanted_of
from eddies.spark.cell_access import CellAccess, access_methods, competing, may_use_access
from eddies.spark.cells import CellPlan, RelationSize, plan_cells, separate_roles
from eddies.spark.exchange import CELL_MARKS, PACKED_TYPE, Pack, make_pack
from eddies.spark.inputs import Input, most_keys, quoted, row_bytes
from eddies.spark.key_ranges import RangeFilter, plan_ranges, spans_of
from eddies.spark.one_cell import may_share_cell, without_merge
from eddies.spark.reading import HashFilter, Reading
from eddies.spark.reduced_frames import ReducedFrames
from eddies.spark.semi_joins import Member, Reducer, plan_semi_joins
from eddies.spark.shared_cells import plan_shared_cells
from eddies.spark.slots import Slots
from eddies.spark.spark_hash import same_hash, spark_types
from eddies.spark.stream_task import SHARED
from eddies.spark.task import EddyTask
from eddies.sql import Block
from eddies.sql.preference import is_about, preference
from eddies.sql.share_kept import KEPT_BY_FILTER, share_kept
from eddies.streaming.windows import RowWindow, Window, relation_windows

__all__ = ["BlockPlan", "plan_block", "plan_shared_block"]

_SESSIONS = 8  # of which, and for how many cells, numbers of cells are kept


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """One block on Spark: which cells it has and how each relation comes to them."""

    name: str
    query: Query
    graph: Graph
    cells: CellPlan
    sizes: Mapping[str, RelationSize]
    inputs: Mapping[str, Input]  # by relation
    pushdown: Mapping[str, str]  # by relation: a condition in Spark SQL for those read by Spark
    windows: Mapping[str, Window] = field(default_factory=dict)  # by relation
    access: Mapping[str, AccessSource] = field(default_factory=dict)  # relations with several ways
    prefer: Expr | None = None  # what should come out first, if it is about a source of the block
    splits: Mapping[str, tuple[Split, ...]] = field(
        default_factory=dict
    )  # by relation, where known
    semi_joins: Mapping[str, tuple[Reducer, ...]] = field(default_factory=dict)  # by relation
    n_threads: int = 1  # of each cell, where nobody asked for others
    is_gathered: bool = False  # in one partition (`gathering`)
    answer: Answer | None = None  # that its only cell gives (`whole_groups`)

    @property
    def order(self) -> tuple[str, ...]:
        """Relations in the order in which a cell takes them in."""
        return tuple(self.cells.order(self.sizes))

    def dataframe(self, spark: SparkSession, options: Options) -> DataFrame:
        """The output of the block's eddies."""
        frame = self._dataframe(spark, options)
        return frame.repartition(1) if self.is_gathered else frame

    def _dataframe(self, spark: SparkSession, options: Options) -> DataFrame:
        if self.query.parts:
            return self._run(spark, options, from_arrow_schema(SHARED))
        columns = result_schema(self.query) if self.answer is None else self.answer.schema
        if len(set(columns.names)) == len(columns):
            return self._run(spark, options, from_arrow_schema(columns))
        # Spark reads columns that come from Python by name, so they need different ones on the way.
        unique = pa.schema(
            [field.with_name(f"{i} {field.name}") for i, field in enumerate(columns)]
        )
        return self._run(spark, options, from_arrow_schema(unique)).toDF(*columns.names)

    @property
    def is_streaming(self) -> bool:
        """Whether some relation streams."""
        return any(given.is_streaming for given in self.inputs.values())

    def task(self, options: Options, names: tuple[str, ...]) -> EddyTask:
        """What the tasks of the cells do; Spark gets columns of these names."""
        exchanged = [n for n in self.order if self.cells.deliveries[n].how != "direct"]
        by_partitions = [n for n in exchanged if self.cells.deliveries[n].how == "partitions"]
        slots = self.slots
        by_blobs = "blobs" if slots is None else "slots"
        schemas = {relation.name: relation.read for relation in self.graph.relations}
        access = {
            name: CellAccess.make(source, self.reading(name), schemas[name])
            for name, source in self.access.items()
        }
        direct = [name for name in self.order if name not in exchanged and name not in access]
        return EddyTask(
            self.name,
            self.query,
            replace(options, threads=max(options.threads, self.n_threads)),
            self.cells,
            self.order,
            {name: self.reading(name) for name in direct},
            self._expected_rows(),
            "rows" if by_partitions else by_blobs if exchanged else "cells",
            names,
            schemas,
            access,
            self.prefer,
            slots,
            self.answer,
        )

    def _run(self, spark: SparkSession, options: Options, schema: StructType) -> DataFrame:
        if self.is_streaming:
            from eddies.spark.stream_block import stream_dataframe

            return stream_dataframe(self, spark, options, schema)
        task = self.task(options, tuple(schema.names))
        slots, n_cells = self.slots, self.cells.n_cells
        exchanged = [n for n in self.order if self.cells.deliveries[n].how != "direct"]
        if task.fed == "rows":
            fed = next(n for n in exchanged if self.cells.deliveries[n].how == "partitions")
            return self.columns(fed, self.reduced(spark)).mapInArrow(task, schema)
        if task.fed == "cells":
            return _cell_numbers(spark, n_cells).mapInArrow(task, schema)
        packed: DataFrame | None = None
        frames = self.reduced(spark)
        for name in exchanged:
            pack = self.pack(name, self.order.index(name))
            if slots is None:
                moved = self.columns(name, frames).mapInArrow(pack, PACKED_TYPE)
            else:
                rows = frames.rows(name, [column for column, _, _ in pack.hashed])
                moved = rows.selectExpr(*slots.selection(name, self._types(name), pack))
            packed = moved if packed is None else packed.unionAll(moved)
        assert packed is not None, "fed by blobs means that something is exchanged"
        if self.graph.asked:  # a cell has work even if no row of what it asks comes to it
            marks = CELL_MARKS if slots is None else slots.marks()
            packed = packed.unionAll(spark.range(0, n_cells, 1, 1).selectExpr(*marks))
        return packed.repartitionById(n_cells, "cell").mapInArrow(task, schema)

    def pack(self, name: str, number: int, time: str | None = None) -> Pack:
        """How the `columns` of a relation are packed; it has this number in the blobs."""
        names = self.read_columns(name)
        return make_pack(number, self.cells.deliveries[name], self.cells, time, names)

    def _expected_rows(self) -> dict[str, int]:
        """Rows of relations that come to one cell, where that is known."""
        expected = {n: size.n_rows for n, size in self.sizes.items() if size.n_rows is not None}
        shares = self.cells.shares
        for name in expected:
            delivery = self.cells.deliveries[name]
            parts = prod(shares[on.dimension] for on in delivery.hashed)
            expected[name] //= parts * (shares[0] if delivery.is_split else 1)
        return expected

    def reduced(self, spark: SparkSession) -> ReducedFrames:
        """The DataFrames of the block, without rows that are in no result."""
        return ReducedFrames(self.graph, self.inputs, self.pushdown, self.semi_joins, spark)

    def columns(self, name: str, frames: ReducedFrames) -> DataFrame:
        """The columns of a relation that the block reads, from Spark, named by their numbers."""
        numbered = enumerate(self.read_columns(name))
        chosen = (f"{quoted(column)} AS column_{n}" for n, column in numbered)
        return frames.rows(name).selectExpr(*chosen)

    def _types(self, name: str) -> dict[str, str]:
        """The types of the columns that are read of a DataFrame, as Spark writes them."""
        frame = self.inputs[name].frame
        assert frame is not None, "only DataFrames are exchanged"
        types = spark_types(frame)
        return {column: types[column] for column in self.read_columns(name)}

    @property
    def slots(self) -> Slots | None:
        """Slots for the rows that are exchanged; None if there are none, or if Spark cannot send them
        to their cells by its own hash.
        """
        deliveries = self.cells.deliveries
        exchanged = [name for name in self.order if deliveries[name].how == "exchange"]
        types = {name: self._types(name) for name in exchanged}
        hashed: dict[int, list[str]] = {}
        for name, delivery in deliveries.items():
            for on in delivery.hashed:
                type_ = types[name][on.column] if name in types else ""
                hashed.setdefault(on.dimension, []).append(type_)
        by_spark = [of for of in hashed.values() if any(of)]
        return Slots.make(types) if types and all(map(same_hash, by_spark)) else None

    def read_columns(self, name: str) -> tuple[str, ...]:
        """The columns of a relation that the block reads."""
        return tuple(next(r for r in self.graph.relations if r.name == name).read.names)

    def reading(self, name: str) -> Reading:
        """How the cells read a relation themselves."""
        relation = next(r for r in self.graph.relations if r.name == name)
        source = self.inputs[name].source
        assert source is not None, "direct delivery is of sources"
        columns, where = wanted_of(self.graph, relation)
        splits = () if name in self.access else self.splits.get(name)
        if splits is None:
            splits = tuple(source.splits(where))
        delivery, shares = self.cells.deliveries[name], self.cells.shares
        hashed = [on for on in delivery.hashed if not on.borders]
        ranged = [
            RangeFilter(
                on.column,
                shares[on.dimension],
                on.dimension,
                on.borders,
                spans_of(splits, on.column),
            )
            for on in delivery.hashed
            if on.borders
        ]
        return Reading(
            name,
            columns,
            where,
            splits,
            shares[0] if delivery.is_split else 1,
            tuple(HashFilter(on.column, shares[on.dimension], on.dimension) for on in hashed),
            ranged[0] if ranged else None,
        )


@lru_cache(_SESSIONS)
def _cell_numbers(spark: SparkSession, n_cells: int) -> DataFrame:
    """A row for each cell, with its number: always the same, and to make it takes milliseconds."""
    return spark.range(0, n_cells, 1, n_cells)


def plan_block(
    block: Block,
    inputs: Mapping[str, Input],
    n_slots: int,
    options: Options,
    local_threads: int = 1,
) -> BlockPlan:
    """Choose the cells of `block`, whose tables are `inputs`. A task that is alone on a local Spark may
    have `local_threads`.
    """
    query = block.query
    windows: dict[str, Window] = {}
    if options.window:
        from eddies.spark.stream_block import windowed

        query, windows = windowed(query, inputs, options)
    is_streaming = any(inputs[s.table].is_streaming for s in query.sources)
    ways = {} if is_streaming else _access(query, inputs)
    by_table = {
        s.table: _size(query, s.table, inputs[s.table], ways.get(s.table)) for s in query.sources
    }
    separate = separate_roles(query, by_table)
    tables = {
        own.table: old.table for own, old in zip(separate.sources, query.sources, strict=True)
    }
    graph = make_graph(separate)
    of_relation = {relation: ways[table] for relation, table in tables.items() if table in ways}
    access = competing(graph, of_relation, options)
    sizes = {
        relation: _size(query, table, inputs[table], access.get(relation))
        for relation, table in tables.items()
    }
    by_rows = [s.table for s in separate.sources if isinstance(windows.get(s.name), RowWindow)]
    cells = plan_cells(graph, sizes, n_slots, 1 if by_rows else options.cells)
    relations = {relation: inputs[table] for relation, table in tables.items()}
    splits: dict[str, tuple[Split, ...]] = {}
    n_threads = 1
    if not is_streaming and not access:
        splits = _splits(graph, relations)
        cells = plan_ranges(graph, sizes, splits, n_slots, 1 if by_rows else options.cells, cells)
        if options.cells is None:
            may_share = may_share_cell(options) and options.prefer is None
            most = local_threads if may_share else 1
            may_answer = block.answer is not None
            cells, n_threads = without_merge(graph, sizes, cells, most, may_answer=may_answer)
    # The only cell has all rows of every group, unless partitions of a DataFrame are cells, too.
    is_whole = cells.n_cells == 1 and all(d.how == "direct" for d in cells.deliveries.values())
    if separate.aggregation is not None and is_whole and not is_streaming:
        judged = replace(separate.aggregation, having=block.having)
        separate = replace(separate, aggregation=judged)
        graph = make_graph(separate)
    exchanged = [d for d in cells.deliveries.values() if d.how == "exchange"]
    if len(exchanged) == 1 and options.cells is None and not is_streaming:
        cells = _fed_by_partitions(cells, exchanged[0].relation, graph)
    conditions = {r.name: _condition(block, graph, r) for r in graph.relations}
    # Where rows are counted, all of them are.
    pushdown = {name: c for name, c in conditions.items() if c and name not in by_rows}
    by_relation = relation_windows(separate, windows)
    prefer = _preferred(query, inputs, graph, options)
    plan = BlockPlan(
        block.name,
        separate,
        graph,
        cells,
        sizes,
        relations,
        pushdown,
        by_relation,
        access,
        prefer,
        splits,
        n_threads=n_threads,
    )
    if not is_streaming and not access and prefer is None:
        Eddy(separate, options).close()  # what an eddy refuses is refused before any task runs
    if not is_streaming:
        plan = replace(plan, semi_joins=_semi_joins(block, plan))
    if is_streaming:
        from eddies.spark.stream_block import stored_cells

        plan = replace(plan, cells=stored_cells(options, plan) or cells)
    return plan


def plan_shared_block(
    block: Block, inputs: Mapping[str, Input], n_slots: int, options: Options
) -> BlockPlan:
    """Choose the cells of several queries over streams that were put together (`core.sharing`)."""
    from eddies.spark.stream_block import stored_cells

    query = block.query
    graph = make_graph(query)
    names = [relation.name for relation in graph.relations]
    sizes = {name: _size(query, name, inputs[name], None) for name in names}
    cells = plan_shared_cells(graph, sizes, n_slots, options.cells)
    conditions = {r.name: _condition(block, graph, r) for r in graph.relations}
    pushdown = {name: condition for name, condition in conditions.items() if condition}
    relations = {name: inputs[name] for name in names}
    plan = BlockPlan(block.name, query, graph, cells, sizes, relations, pushdown)
    return replace(plan, cells=stored_cells(options, plan) or cells)


def _splits(graph: Graph, inputs: Mapping[str, Input]) -> dict[str, tuple[Split, ...]]:
    """The splits of what cells read themselves."""
    found = {}
    for relation in graph.relations:
        source = inputs[relation.name].source
        if source is not None:
            found[relation.name] = tuple(source.splits(wanted_of(graph, relation)[1]))
    return found


def _condition(block: Block, graph: Graph, relation: Relation) -> str:
    """What a row of `relation` must fulfil for some role to want it; empty: nothing."""
    by_role = [block.pushdown.get(graph.roles[role].name, ()) for role in relation.roles]
    if not all(by_role):
        return ""
    return " OR ".join(f"({' AND '.join(f'({c})' for c in conditions)})" for conditions in by_role)


def _semi_joins(block: Block, plan: BlockPlan) -> dict[str, tuple[Reducer, ...]]:
    """Which rows of DataFrames need not come to the cells."""
    exchanged = {n for n, d in plan.cells.deliveries.items() if d.how != "direct"}
    frames = {name: given.frame for name, given in plan.inputs.items() if given.frame is not None}
    if not any(plan.inputs[name].facts.is_repeatable for name in frames):
        return {}  # there are none, or nobody can look into their plans
    most = most_keys(next(iter(frames.values())))
    members = {}
    for role in plan.graph.roles:
        name = plan.graph.relations[role.relation].name
        if name in frames:
            facts = plan.inputs[name].facts
            where = block.pushdown.get(role.name, ())
            members[role.source_id] = Member(
                plan.sizes[name].rows,
                spark_types(frames[name]),
                where,
                share_kept(where, facts.equal) * (KEPT_BY_FILTER if facts.has_filter else 1.0),
                facts.is_repeatable and facts.most_rows is not None and facts.most_rows <= most,
            )
    return plan_semi_joins(plan.graph, members, exchanged)


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


def _access(query: Query, inputs: Mapping[str, Input]) -> dict[str, AccessSource]:
    """Tables of the block with several ways to their rows."""
    found = {s.table: access_methods(inputs[s.table].source) for s in query.sources}
    return {table: source for table, source in found.items() if source is not None}


def _preferred(
    query: Query, inputs: Mapping[str, Input], graph: Graph, options: Options
) -> Expr | None:
    """`Options.prefer` for this block; None if it is about a source of another one."""
    if options.prefer is None or not is_about(options.prefer, query):
        return None
    if not may_use_access(options):
        raise OptionError(
            f"prefer={options.prefer!r} needs state='stems' or 'auto', threads=1 and no bound on memory"
        )
    schemas = {source.table: inputs[source.table].schema for source in query.sources}
    found = preference(options.prefer, query, schemas)
    Preference(graph, found)  # or an error that says what is wrong with it
    return found


def _size(query: Query, table: str, given: Input, ways: AccessSource | None) -> RelationSize:
    columns = {name for s in query.sources if s.table == table for name in s.schema.names}
    return RelationSize(
        given.n_rows,
        row_bytes(given.schema, sorted(columns)),
        "exchange" if given.source is None else "direct",
        is_divisible=ways is None,
        is_scanned=ways is None or bool(ways.scans),
        key=ways.key if ways is not None and len(ways.scans) > 1 else (),
    )
