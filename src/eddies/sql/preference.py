"""`Options.prefer`: a predicate in SQL text as an expression over one source of a planned query."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from eddies.core.expr import Call, Expr
from eddies.core.query import Query
from eddies.errors import OptionError
from eddies.sql.parse import parse

__all__ = ["is_about", "preference"]


def is_about(text: str, query: Query) -> bool:
    """Whether the predicate `text` names a source of `query`."""
    known = {source.name.lower() for source in query.sources}
    return any(column.table.lower() in known for column in _condition(text).find_all(exp.Column))


def _condition(text: str) -> exp.Where:
    where = parse(f"SELECT 1 WHERE {text}").find(exp.Where)
    assert where is not None
    return where


def preference(text: str, query: Query, schemas: Mapping[str, pa.Schema]) -> Expr:
    """The predicate `text`, which names one source of `query` by its alias: `c.country = 'PE'`."""
    from eddies.sql import plan

    aliases = {column.table for column in _condition(text).find_all(exp.Column)}
    known = {source.name.lower(): source for source in query.sources}
    if len(aliases) != 1 or not {alias.lower() for alias in aliases} <= set(known):
        names = ", ".join(source.name for source in query.sources)
        raise OptionError(
            f"prefer={text!r} must be about one source, named by its alias before each column; the "
            f"query has {names}"
        )
    source = known[aliases.pop().lower()]
    planned = plan(
        f"SELECT 1 AS one FROM {source.table} AS {source.name} WHERE {text}",
        {source.table: schemas[source.table]},
    )
    selections = [s.expr for block in planned.blocks for s in block.query.selections]
    if not selections or planned.above is not None:
        raise OptionError(f"prefer={text!r} must be a plain predicate on {source.name!r}")
    return reduce(lambda left, right: Call("and", (left, right)), selections)
