"""A plan in words, for `eddies explain`."""

from __future__ import annotations

from collections.abc import Iterator

from eddies.core.evaluate import render
from eddies.core.query import Aggregate, Query
from eddies.sql.plan import Block, SqlPlan
from eddies.sql.types import sql_name

__all__ = ["describe"]


def describe(plan: SqlPlan) -> str:
    """Sources, predicates by kind and outputs of each block; the text above and why it is there."""
    return "\n".join(_lines(plan))


def _lines(plan: SqlPlan) -> Iterator[str]:
    for block in plan.blocks:
        yield from _block(block)
    for name, text in plan.derived.items():
        yield f"source {name}, computed by Spark:"
        yield from (f"  {line}" for line in text.splitlines())
    if plan.above is None:
        yield "above: nothing, the block's output is the answer"
    else:
        yield "above (Spark SQL):"
        yield from (f"  {line}" for line in plan.above.splitlines())
    if plan.kept:
        yield f"read by Spark itself: {', '.join(sorted(plan.kept))}"
    for reason in plan.reasons:
        yield f"because: {reason}"


def _block(block: Block) -> Iterator[str]:
    query = block.query
    yield f"block {block.name}:" + (" empty, a condition is never true" if query.never else "")
    for source in query.sources:
        role = "" if source.name == source.table else f" = {source.table}"
        columns = ", ".join(f"{field.name} {sql_name(field.type)}" for field in source.schema)
        yield f"  source {source.name}{role} ({columns})"
    for selection in query.selections:
        yield f"  selection{_cost(selection.expensive)} {render(selection.expr)}"
    for equality in query.equalities:
        yield (
            f"  equality {render(equality.left)} = {render(equality.right)} "
            f"as {sql_name(equality.type)}"
        )
    for condition in query.filters:
        yield f"  filter{_cost(condition.expensive)} {render(condition.expr)}"
    yield from _answer(query)
    if block.having is not None:
        yield f"  of groups that are whole {render(block.having)}"


def _answer(query: Query) -> Iterator[str]:
    if query.aggregation is None:
        for output in query.output:
            yield f"  output {output.name} {sql_name(output.type)} = {render(output.expr)}"
        return
    partial = "partial " if query.aggregation.partial else ""
    for group in query.aggregation.groups:
        yield f"  group {group.name} {sql_name(group.type)} = {render(group.expr)}"
    for aggregate in query.aggregation.aggregates:
        yield f"  {partial}aggregate {aggregate.name} {sql_name(aggregate.type)} = {_call(aggregate)}"


def _call(aggregate: Aggregate) -> str:
    if aggregate.arg is None:
        return "count(*)"
    return f"{aggregate.function}({render(aggregate.arg)})"


def _cost(expensive: bool) -> str:
    return " (expensive)" if expensive else ""
