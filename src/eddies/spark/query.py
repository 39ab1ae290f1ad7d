"""`eddies.sql`: DataFrames in, DataFrame out.

    df = eddies.sql("SELECT ... FROM a, b, c WHERE ...", {"a": "data/a.parquet", "b": df_b, ...})

The text is planned (`eddies.sql`): its inner joins become blocks, each a set of eddies, one per cell;
the rest is Spark SQL over the blocks' outputs. A block may also read what Spark computes from a part
of the text, or what another block puts out. What comes back is a lazy DataFrame like any other.
Nothing runs before an action, except that schemas and file footers are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from eddies.core.options import Options
from eddies.core.query import UserFunction
from eddies.errors import OptionError
from eddies.spark.above import register_function, run_above
from eddies.spark.block import BlockPlan, plan_block
from eddies.spark.cell_access import access_methods, may_use_access
from eddies.spark.frame_plan import plan_facts
from eddies.spark.gathering import is_gathered
from eddies.spark.inputs import Input, frame_input, make_inputs, normal_schema, quoted
from eddies.spark.nested_cell import CellSource
from eddies.spark.one_cell import local_threads, may_share_cell
from eddies.spark.planned_texts import PlannedTexts
from eddies.spark.session import session
from eddies.spark.stream_block import check_streaming, check_windows, saved
from eddies.spark.whole_groups import answered
from eddies.sql import Block, SqlPlan, named_tables, plan
from eddies.sql.preference import is_about
from eddies.sql.repeatable import has_repeatable_groups

__all__ = [
    "Planned",
    "n_slots",
    "plan_inputs",
    "plan_query",
    "plan_text",
    "session_of",
    "sql",
]

_DERIVED_ROWS = 100_000
_MOST_PADDING = 2_000_000  # rows: with keys and a few columns, a hundred megabytes in each cell
_PLANNED = PlannedTexts()


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


@dataclass(slots=True)
class Planned:
    """A query ready to run: its text in parts, the cells of its blocks, and its tables."""

    spark: SparkSession
    options: Options
    plan: SqlPlan
    inputs: dict[str, Input]
    blocks: list[BlockPlan] = field(default_factory=list)
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def add_blocks(self) -> None:
        """Choose cells block by block: later ones may read what earlier ones put out."""
        slots, threads = n_slots(self.spark), local_threads(self.spark)
        for block in self.plan.blocks:
            planned = self._with_nested_cells(block, slots, threads)
            if planned is None:
                for source in block.query.sources:
                    if source.table in self.plan.derived and source.table not in self.inputs:
                        self.inputs[source.table] = self._derived_input(source.table, block)
                planned = plan_block(block, self.inputs, slots, self.options, threads)
            planned = replace(planned, is_gathered=is_gathered(planned, self.plan, threads))
            planned = answered(planned, block, self.options)
            self.blocks.append(planned)
        prefer = self.options.prefer
        if prefer is not None and not any(is_about(prefer, b.query) for b in self.plan.blocks):
            names = [source.name for block in self.plan.blocks for source in block.query.sources]
            raise OptionError(
                f"prefer={prefer!r} must be about one source of a join, named by its alias before each "
                f"column; the joins have {', '.join(names) or 'none'}"
            )

    def _with_nested_cells(self, block: Block, slots: int, threads: int) -> BlockPlan | None:
        """`block` in one cell, whose task runs the cells that it reads; None if there are no such."""
        names = [s.table for s in block.query.sources if s.table in self.plan.derived]
        if threads == 1 or not names or not may_share_cell(self.options):
            return None
        nested = {}
        for name in names:
            inner = self._answering(name)
            if inner is None or inner.answer is None:
                return None
            schema = inner.answer.schema
            source = CellSource(inner.task(self.options, tuple(schema.names)), schema)
            n_rows = self._derived_rows(block)
            nested[name] = Input(name, normal_schema(schema), source, None, n_rows)
        planned = plan_block(block, self.inputs | nested, slots, self.options, threads)
        if planned.cells.n_cells > 1 or not all(
            delivery.how == "direct" for delivery in planned.cells.deliveries.values()
        ):
            return None
        self.inputs |= nested
        return planned

    def _answering(self, derived: str) -> BlockPlan | None:
        """The block whose only cell gives the rows of a derived source, if there is one."""
        name = self.plan.answered.get(derived)
        return next((b for b in self.blocks if b.name == name and b.answer is not None), None)

    def _derived_input(self, name: str, block: Block) -> Input:
        """What Spark computes. How much that will be nobody knows; the guess is less than a table."""
        given = frame_input(name, self._frame(name), is_computed=True)
        if any(known.is_streaming for known in self.inputs.values()):
            given = saved(given, self.spark, self.options)
        elif given.frame is not None and has_repeatable_groups(self.plan.derived[name]):
            given = replace(given, facts=plan_facts(given.frame, with_groups=True))
        return replace(given, n_rows=self._derived_rows(block))

    def _derived_rows(self, block: Block) -> int:
        sizes = [self.inputs[s.table].n_rows for s in block.query.sources if s.table in self.inputs]
        most = max((size for size in sizes if size is not None), default=_DERIVED_ROWS)
        return min(_DERIVED_ROWS, most // 10 + 1)

    def dataframe(self) -> DataFrame:
        """The answer, lazily."""
        if self.plan.above is None:
            return self._frame(self.blocks[-1].name)
        for block in self.blocks:
            if block.answer is not None and block.name not in self.plan.answered.values():
                return self._frame(block.name)
        return self._run(self.plan.above)

    def _frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            block = self._answering(name) or next((b for b in self.blocks if b.name == name), None)
            if block is not None:
                self._frames[name] = block.dataframe(self.spark, self.options)
            elif name in self.plan.derived:
                self._frames[name] = self._run(self.plan.derived[name])
            else:
                self._frames[name] = self.inputs[name].dataframe(self.spark)
        return self._frames[name]

    def _run(self, text: str) -> DataFrame:
        blocks = [block.name for block in self.blocks]
        known = {name.lower(): name for name in (*self.inputs, *blocks, *self.plan.derived)}
        read = [known[name] for name in sorted(named_tables(text)) if name in known]
        return run_above(self.spark, text, {name: self._frame(name) for name in read})


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
    spark = spark or session_of(tables)
    used = named_tables(query)
    inputs = make_inputs({n: t for n, t in tables.items() if n.lower() in used}, spark)
    return plan_inputs(query, inputs, list(tables), spark, options, functions)


def plan_inputs(
    query: str,
    inputs: dict[str, Input],
    tables: Iterable[str],
    spark: SparkSession,
    options: Options,
    functions: tuple[UserFunction, ...] = (),
) -> Planned:
    """`plan_query` for tables that are open already; `tables` are the names of all that there are."""
    is_streaming = any(given.is_streaming for given in inputs.values())
    if is_streaming:
        check_streaming(options)
        inputs = {name: saved(given, spark, options) for name, given in inputs.items()}
    planned = plan_text(query, inputs, tables, spark, options, functions)
    check_windows(options, is_streaming, planned.blocks)
    for function in functions:
        if function.name in planned.functions_above:
            register_function(spark, function)
    constants = make_inputs(planned.constants, spark)
    whole = Planned(spark, options, planned, inputs | constants)
    whole.add_blocks()
    return whole


def plan_text(
    query: str,
    inputs: Mapping[str, Input],
    tables: Iterable[str],
    spark: SparkSession,
    options: Options,
    functions: tuple[UserFunction, ...],
) -> SqlPlan:
    """What of a text runs in eddies, and what Spark does."""
    is_streaming = any(given.is_streaming for given in inputs.values())
    schemas = {name: pa.schema([]) for name in tables}
    schemas |= {name: given.schema for name, given in inputs.items()}
    time_zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    ansi = spark.conf.get("spark.sql.ansi.enabled") != "false"
    loses = spark.conf.get("spark.sql.decimalOperations.allowPrecisionLoss") != "false"
    may_ask = _may_ask(options) and not is_streaming and not _has_access(inputs, options)
    direct = tuple(name for name, given in inputs.items() if given.source is not None)
    may_pad = tuple(name for name in direct if may_ask and _may_pad(inputs[name]))
    n_asked = 0

    def schema_of(text: str, known: Mapping[str, pa.Schema]) -> pa.Schema:
        nonlocal n_asked
        n_asked += 1
        return _schema_of(spark, text, known)

    def make() -> tuple[SqlPlan, bool]:
        made = plan(
            query,
            schemas,
            functions,
            host="spark",
            schema_of=schema_of,
            time_zone=time_zone,
            ansi=ansi,
            gives_up_digits=loses,
            may_ask=may_ask,
            direct=direct,
            may_pad=may_pad,
        )
        return made, n_asked == 0

    if functions:  # what they are called like is all that can be compared
        return make()[0]
    key = (query, tuple(schemas.items()), time_zone, ansi, loses, may_ask, direct, may_pad)
    return _PLANNED.plan(key, make)


def _may_ask(options: Options) -> bool:
    """Whether eddies with these options can ask sources for matches."""
    in_stems = options.state in ("auto", "stems") and options.stem == "hash"
    return in_stems and options.memory is None and not options.partial and not options.order


def _may_pad(given: Input) -> bool:
    """Whether every cell may keep all rows of a table for a LEFT JOIN, as if it were replicated."""
    return given.n_rows is not None and given.n_rows <= _MOST_PADDING


def _has_access(inputs: Mapping[str, Input], options: Options) -> bool:
    """Whether eddies take rows from access methods, of which EXISTS inside the eddy knows nothing."""
    if options.prefer is not None:
        return True
    return may_use_access(options) and any(access_methods(g.source) for g in inputs.values())


def _schema_of(spark: SparkSession, text: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of a text over tables of these schemas; Spark analyses it, nothing runs."""
    used = named_tables(text)
    frames = {
        name: _row_of_nulls(spark, schema)
        for name, schema in schemas.items()
        if name.lower() in used
    }
    return to_arrow_schema(run_above(spark, text, frames).schema, timezone="UTC")


def _row_of_nulls(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """Something with these columns; much sooner made than an empty DataFrame."""
    fields = from_arrow_schema(schema).fields
    nulls = (f"CAST(NULL AS {f.dataType.simpleString()}) AS {quoted(f.name)}" for f in fields)
    return spark.sql(f"SELECT {', '.join(nulls)}")


def session_of(tables: Mapping[str, object]) -> SparkSession:
    """The session of the DataFrames among `tables`, or the embedded one."""
    for table in tables.values():
        if isinstance(table, DataFrame):
            return table.sparkSession
    return session()


def n_slots(spark: SparkSession) -> int:
    """Tasks that run at the same time, as far as can be known."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except PySparkException:  # Spark Connect has no context to ask
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
