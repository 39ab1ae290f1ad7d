"""What can be told of a DataFrame from its plan: whether it gives the same rows again, and how many.

Spark computes a DataFrame whenever it is asked to. Most give the same rows each time, but not all:
`limit` takes the rows that come first, a generator of random numbers may be anywhere, a table in a
database may change. Nothing in here computes anything but sums of what footers of Parquet files say,
and whoever keeps plans to himself (Spark Connect) is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame

__all__ = ["NO_FACTS", "PlanFacts", "analyzed", "plan_facts"]

# What takes rows as they are, chooses among them or changes them one by one.
_ROW_BY_ROW = {"Filter", "Project", "SubqueryAlias", "View", "Union"}
_MADE = {"LocalRelation", "Range", "OneRowRelation"}
_GROUPS = {"Aggregate", "Distinct"}
_ROW_GROUPS = 4  # of which footers are asked for the width of values: one is like another


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the plan of a DataFrame tells.

    is_repeatable  it surely gives the same rows again, for no more than reading what it reads: files,
                   or rows that are spelled out, with selections and expressions on them.
    has_filter     it is a selection of the rows that it reads.
    most_rows      it has no more rows than that; None if nobody knows.
    equal          by column of its files: the share of rows that have one certain value, guessed.
    """

    is_repeatable: bool = False
    has_filter: bool = False
    most_rows: int | None = None
    equal: Mapping[str, float] = field(default_factory=dict)


NO_FACTS = PlanFacts()


def plan_facts(frame: DataFrame, *, with_groups: bool = False) -> PlanFacts:
    """What the plan of `frame` tells; `with_groups`, if its groups are the same each time."""
    plan = analyzed(frame)
    if plan is None:
        return NO_FACTS
    nodes = list(_nodes(plan))
    names = [node.nodeName() for node in nodes]
    simple = _ROW_BY_ROW | _GROUPS if with_groups else _ROW_BY_ROW
    leaves = [node for node, name in zip(nodes, names, strict=True) if name not in simple]
    filters = [node for node, name in zip(nodes, names, strict=True) if name == "Filter"]
    has_filter = any(node.condition().toString() != "true" for node in filters)
    if not all(_is_made(leaf) or _is_files(leaf) for leaf in leaves):
        return PlanFacts(False, has_filter)
    changes = has_filter or not {"Project", *_GROUPS}.isdisjoint(names)
    is_repeatable = bool(plan.deterministic()) and not (changes and _may_be_dear(frame, plan))
    equal: dict[str, float] = {}
    rows = [_most_rows(leaf, equal) for leaf in leaves]
    known = [n_rows for n_rows in rows if n_rows is not None]
    most_rows = sum(known) if len(known) == len(rows) else None
    return PlanFacts(is_repeatable, has_filter, most_rows, equal)


def analyzed(frame: DataFrame) -> Any:
    """The plan of a batch DataFrame, which belongs to Java; None if there is no way to it."""
    inner = getattr(frame, "_jdf", None)
    return None if inner is None or frame.isStreaming else inner.queryExecution().analyzed()


def _is_made(leaf: Any) -> bool:
    return leaf.nodeName() in _MADE


def _is_files(leaf: Any) -> bool:
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return False
    return bool(leaf.relation().getClass().getSimpleName() == "HadoopFsRelation")


def _most_rows(leaf: Any, equal: dict[str, float]) -> int | None:
    """How many rows a leaf has. Of files only Parquet on this machine tells, which adds to `equal`."""
    if leaf.nodeName() == "LocalRelation":
        return int(leaf.data().size())
    if leaf.nodeName() == "Range":
        return int(str(leaf.numElements()))
    if not _is_files(leaf) or leaf.relation().fileFormat().toString() != "Parquet":
        return None
    paths = [urlparse(path) for path in leaf.relation().location().inputFiles()]
    if not paths or any(path.scheme != "file" or path.netloc for path in paths):
        return None
    try:
        footers = [parquet.read_metadata(unquote(path.path)) for path in paths]
    except (OSError, pa.ArrowException):  # Spark says itself what is wrong with them
        return None
    equal.update(_equal(footers[0]))
    return sum(int(footer.num_rows) for footer in footers)


def _equal(footer: parquet.FileMetaData) -> dict[str, float]:
    """By column, the share of rows that one value is likely to have.

    Parquet numbers the values of a column where they are few, and writes numbers of as many bits as it
    takes: with two bits a row there are three or four values. Where values are many they are written
    themselves, in many bits, so the share is next to nothing, as it should be.
    """
    numbers = range(min(footer.num_row_groups, _ROW_GROUPS))
    n_rows = sum(footer.row_group(number).num_rows for number in numbers)
    equal = {}
    for column in range(footer.num_columns if n_rows else 0):
        chunks = [footer.row_group(number).column(column) for number in numbers]
        n_bits = 8 * sum(chunk.total_uncompressed_size for chunk in chunks) / n_rows
        equal[chunks[0].path_in_schema] = max(2.0 ** -min(n_bits, 64), 1 / n_rows)
    return equal


def _may_be_dear(frame: DataFrame, plan: Any) -> bool:
    """Whether there are functions in Python, or queries inside expressions: nobody knows their cost,
    and of the latter not either whether they give the same again.
    """
    patterns = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
    return any(
        plan.containsPattern(pattern)
        for pattern in (patterns.PYTHON_UDF(), patterns.PLAN_EXPRESSION())
    )


def _nodes(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
