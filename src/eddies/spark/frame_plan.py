"""What can be told of a DataFrame from its plan: whether it gives the same rows again, and how many.

Spark computes a DataFrame whenever it is asked to. Most give the same rows each time, but not all:
`limit` takes the rows that come first, a generator of random numbers may be anywhere, a table in a
database may change. Nothing in here computes anything but sums of what footers of Parquet files say,
and whoever keeps plans to himself (Spark Connect) is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the plan of a DataFrame tells.

    is_repeatable  it surely gives the same rows again, for no more than reading what it reads: files,
                   or rows that are spelled out, with selections and expressions on them.
    has_filter     it is a selection of the rows that it reads.
    most_rows      it has no more rows than that; None if nobody knows.
    """

    is_repeatable: bool = False
    has_filter: bool = False
    most_rows: int | None = None


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
    rows = [_most_rows(leaf) for leaf in leaves]
    known = [n_rows for n_rows in rows if n_rows is not None]
    return PlanFacts(is_repeatable, has_filter, sum(known) if len(known) == len(rows) else None)


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


def _most_rows(leaf: Any) -> int | None:
    """How many rows a leaf has; of files that is known of Parquet on this machine."""
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
        return sum(int(parquet.read_metadata(unquote(path.path)).num_rows) for path in paths)
    except (OSError, pa.ArrowException):  # Spark says itself what is wrong with them
        return None


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
