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

from eddies.core.functions import FUNCTIONS
from eddies.core.query import Query, UserFunction
from eddies.core.state.columns import normal_type
from eddies.errors import PlanError
from eddies.sql.parse import DIALECT, parse
from eddies.sql.qualify import qualify
from eddies.sql.split import Host, split

__all__ = ["Block", "SqlPlan", "plan"]


@dataclass(frozen=True, slots=True)
class Block:
    """One eddy's work; `name` is the table the text above reads its output under."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """What runs where.

    `above` is Spark SQL over the blocks' outputs (tables named like the blocks) and the base tables
    in `kept`; None when the output of the only block is the answer. `constants` are the rows of
    sources that the text spells out. `functions_above` names the user functions `above` calls.
    """

    blocks: tuple[Block, ...]
    above: str | None
    kept: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()
    constants: dict[str, pa.Table] = field(default_factory=dict)
    functions_above: frozenset[str] = frozenset()


def plan(
    text: str,
    schemas: Mapping[str, pa.Schema],
    functions: Iterable[UserFunction] = (),
    *,
    aggregate: bool = False,
    host: Host = "local",
) -> SqlPlan:
    """Plan the SELECT in `text` over the tables of `schemas`.

    With `aggregate`, a query that is nothing but groups and plain aggregates over one block is
    answered by the block's own aggregation.

    With `host="spark"`, every block is run in cells whose outputs are disjoint parts of the block's
    join result, and `above` sees their union. Aggregates are computed partially in the cells and
    merged above (`Aggregation.partial`). A join of one source is left to Spark: without any block,
    `above` is `text` itself.

    Raises `PlanError` before any row is read.
    """
    if host == "spark" and aggregate:
        raise PlanError("aggregate=True is for one process: host='spark' always merges partials")
    functions = tuple(functions)
    _check_functions(functions)
    schemas = {name: _normal(schema) for name, schema in schemas.items()}
    qualified = qualify(parse(text), schemas)
    outcome = split(qualified, schemas, functions, aggregate, host)
    blocks = tuple(
        Block(name, outcome.blocks[name]) for name in sorted(outcome.blocks, key=_number)
    )
    constants = _used(outcome.constants, blocks)
    reasons = tuple(outcome.reasons)
    if outcome.above is None:
        return SqlPlan(blocks, None, reasons=reasons, constants=constants)
    above = outcome.above
    called = {node.name.lower() for node in above.find_all(exp.Anonymous)}
    return SqlPlan(
        blocks,
        above.sql(DIALECT, identify=True, pretty=True) if blocks or host == "local" else text,
        _base_tables(above, set(outcome.blocks)),
        reasons,
        constants,
        frozenset(function.name for function in functions if function.name.lower() in called),
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
