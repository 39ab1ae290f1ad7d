"""SQL text to a plan: blocks for eddies, and the Spark SQL that runs above them.

    parse -> qualify -> split -> text

Each step is a function of the step before it. `parse` gives a syntax tree, `qualify` resolves every
name, `split` takes the inner select-project-join blocks out (`join_tree`, `normalise`, `lower`,
`classify`) and leaves the rest as a tree over their outputs, which is printed as Spark SQL.

Known limitations: WITH RECURSIVE is refused. Conditions of one block have no order, as everywhere
in SQL, so `y <> 0 AND 1 / y > 2` may divide by zero when the two end up in different modules; write
`CASE WHEN y <> 0 THEN 1 / y > 2 END`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import sqlglot
from sqlglot import exp

from eddies.core.answer import Answer
from eddies.core.expr import Expr
from eddies.core.functions import FUNCTIONS
from eddies.core.query import Query, UserFunction
from eddies.core.state.columns import normal_type
from eddies.errors import PlanError
from eddies.sql.answer import answers_of
from eddies.sql.derive import SchemaOf
from eddies.sql.parse import DIALECT, parse
from eddies.sql.qualify import qualify
from eddies.sql.readers import read_often, sorted_block
from eddies.sql.settings import Settings
from eddies.sql.split import Host, split

__all__ = ["Block", "SqlPlan", "plan"]

UTC_NAMES = frozenset(("UTC", "Etc/UTC", "GMT", "Z", "+00:00", "Etc/GMT", "Zulu", "Etc/Zulu"))


@dataclass(frozen=True, slots=True)
class Block:
    """One eddy's work; `name` is the table the text above reads its output under.

    `pushdown` repeats, by source name, the selections of the query as Spark SQL over the bare column
    names of the source: whoever reads the rows may drop those for which one of them is not true.
    `having` is a condition on groups that leave an eddy whole (`Aggregation.having`), `answer` what the
    text that reads them is, be it above or derived, if it is nothing but these groups.
    """

    name: str
    query: Query
    pushdown: dict[str, tuple[str, ...]] = field(default_factory=dict)
    having: Expr | None = None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """What runs where.

    `above` is Spark SQL over the blocks' outputs (tables named like the blocks) and base tables;
    None when the output of one block, the last, is the answer. `derived` are sources of blocks that
    Spark computes: Spark SQL over base tables and outputs of earlier blocks. `kept` are the base
    tables that `above` and `derived` read, `functions_above` the user functions they call.
    `constants` are the rows of sources that the text spells out. `read_often` are the blocks that the
    texts read more than once, `sorted_block` the one whose rows are sorted in the end. `answered` are
    derived sources that are the `answer` of a block.
    """

    blocks: tuple[Block, ...]
    above: str | None
    kept: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()
    constants: dict[str, pa.Table] = field(default_factory=dict)
    functions_above: frozenset[str] = frozenset()
    derived: dict[str, str] = field(default_factory=dict)
    read_often: frozenset[str] = frozenset()
    sorted_block: str | None = None
    answered: dict[str, str] = field(default_factory=dict)


def plan(
    text: str,
    schemas: Mapping[str, pa.Schema],
    functions: Iterable[UserFunction] = (),
    *,
    aggregate: bool = False,
    host: Host = "local",
    schema_of: SchemaOf | None = None,
    time_zone: str = "UTC",
    ansi: bool = True,
    gives_up_digits: bool = True,
    direct: Iterable[str] = (),
    may_ask: bool = False,
    may_pad: Iterable[str] = (),
) -> SqlPlan:
    """Plan the SELECT in `text` over the tables of `schemas`.

    With `aggregate`, a query that is nothing but groups and plain aggregates over one block is
    answered by the block's own aggregation.

    With `host="spark"`, every block is run in cells whose outputs are disjoint parts of the block's
    join result, and `above` sees their union. Aggregates are computed partially in the cells and
    merged above (`Aggregation.partial`). A join of one source is left to Spark, unless it is one of
    those in `direct`, which tasks read themselves, and is aggregated: without any block, `above` is
    `text` itself. `schema_of` tells the columns of a text over base tables; with it,
    subqueries become sources of blocks (`SqlPlan.derived`). `time_zone` is that of the session, `ansi`
    whether its ANSI mode is on, `gives_up_digits` whether decimals may lose some: what depends on
    another zone than UTC, or on one of these being off, runs above (`settings`). With `may_ask`, EXISTS
    and IN over one table are asked in the block (`ask`), and tables of `may_pad` among those in
    `direct` are LEFT JOINed there.

    Raises `PlanError` before any row is read.
    """
    if host == "spark" and aggregate:
        raise PlanError("aggregate=True is for one process: host='spark' always merges partials")
    functions = tuple(functions)
    _check_functions(functions)
    schemas = {name: _normal(schema) for name, schema in schemas.items()}
    qualified = qualify(parse(text), schemas)
    settings = Settings(time_zone in UTC_NAMES, ansi, gives_up_digits)
    outcome = split(
        qualified,
        schemas,
        functions,
        aggregate,
        host,
        schema_of,
        settings,
        frozenset(direct),
        may_ask,
        frozenset(may_pad),
    )
    above = outcome.above
    read_by_spark = [*outcome.derived_trees.values(), *([above] if above is not None else [])]
    own = set(outcome.blocks)
    often = read_often(read_by_spark, own)
    answers, answered = answers_of(above, outcome.derived_trees, outcome.blocks, often, settings)
    blocks = tuple(
        Block(
            name,
            outcome.blocks[name],
            outcome.pushdown[name],
            outcome.having.get(name),
            answers.get(name),
        )
        for name in sorted(outcome.blocks, key=_number)
    )
    calls = (node for tree in read_by_spark for node in tree.find_all(exp.Anonymous))
    called = {node.name.lower() for node in calls}
    written = text if host == "spark" and not blocks else None
    if above is not None and written is None:
        written = above.sql(DIALECT, identify=True, pretty=True)
    return SqlPlan(
        blocks,
        written,
        frozenset().union(*(_base_tables(tree, own) for tree in read_by_spark)),
        tuple(outcome.reasons),
        _used(outcome.constants, blocks),
        frozenset(function.name for function in functions if function.name.lower() in called),
        outcome.derived,
        often,
        sorted_block(above),
        answered,
    )


def _normal(schema: pa.Schema) -> pa.Schema:
    """The columns as eddies keep them: how a source encodes them is no matter of the query."""
    return pa.schema([field.with_type(normal_type(field.type)) for field in schema])


def _number(block: str) -> int:
    return int(block.rpartition("_")[2])


def _used(constants: Mapping[str, pa.Table], blocks: Iterable[Block]) -> dict[str, pa.Table]:
    read = {source.table for block in blocks for source in block.query.sources}
    return {name: table for name, table in constants.items() if name in read}


def _base_tables(above: exp.Query, blocks: set[str]) -> frozenset[str]:
    ctes = {cte.alias for cte in above.find_all(exp.CTE)}
    named = (table for table in above.find_all(exp.Table) if isinstance(table.this, exp.Identifier))
    return frozenset(table.name for table in named) - ctes - blocks


def _check_functions(functions: Iterable[UserFunction]) -> None:
    names: set[str] = set()
    for function in functions:
        name = function.name
        call = sqlglot.parse_one(f"{name}(x)", read=DIALECT) if name.isidentifier() else None
        if name in FUNCTIONS or not isinstance(call, exp.Anonymous):
            raise PlanError(f"user function {name!r} has the name of a SQL function: rename it")
        if name.lower() in names:
            raise PlanError(f"two user functions are called {name!r}: rename one")
        names.add(name.lower())
