"""What runs above the eddies: Spark SQL over their outputs.

DataFrames are passed to `spark.sql` by name, which works on every kind of session and leaves no view
behind. Spark marks such names with braces, so those of the text itself are doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from sqlglot import exp

from eddies.core.query import UserFunction
from eddies.sql.parse import DIALECT, parse

__all__ = ["register_function", "run_above"]

_TEXTS = 256  # that are remembered in the form that Spark is given


@dataclass(frozen=True, slots=True)
class _Above:
    """A text in the form that Spark is given. `marks` are the names it is passed DataFrames by, each
    with the table it stands for. `items` are the columns of a text that only selects from one table,
    which it calls `alias`; empty if it does more.
    """

    text: str
    marks: tuple[tuple[str, str], ...]
    alias: str = ""
    items: tuple[str, ...] = ()


def run_above(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The answer of `text`, whose tables are `frames`.

    Passing a DataFrame by name makes a view and drops it again, which takes Spark longer than to
    analyse a short text; a text that only selects from one DataFrame is a selection of it.
    """
    above = _above(text, tuple(frames))
    if above.items:
        frame = frames[above.marks[0][1]]
        return frame.alias(above.alias).selectExpr(*above.items)
    return spark.sql(above.text, **{mark: frames[name] for mark, name in above.marks})  # type: ignore[arg-type]


@lru_cache(_TEXTS)
def _above(text: str, tables: tuple[str, ...]) -> _Above:
    tree = parse(text)
    names = {name.lower(): name for name in tables}
    marks: dict[str, str] = {}
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        name = table.name.lower()
        if name in ctes or name not in names:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        mark = marks.setdefault(names[name], f"eddies_frame_{len(marks)}")
        table.set("this", exp.to_identifier(mark, quoted=True))
        table.set("db", None)
        table.set("catalog", None)
    passed = tuple((mark, name) for name, mark in marks.items())
    written = tree.sql(DIALECT, identify=True).replace("{", "{{").replace("}", "}}")
    for mark, _ in passed:
        written = written.replace(f"`{mark}`", f"{{{mark}}}")
    if len(passed) != 1 or not _only_selects(tree):
        return _Above(written, passed)
    items = tuple(item.sql(DIALECT, identify=True) for item in tree.expressions)
    return _Above(written, passed, tree.args["from_"].this.alias, items)


def _only_selects(tree: exp.Query) -> bool:
    """Whether `tree` is items, be they aggregates, over one table and nothing else."""
    if not isinstance(tree, exp.Select) or not _has_only(tree, "expressions", "from_"):
        return False
    table = tree.args["from_"].this
    return (
        isinstance(table, exp.Table)
        and _has_only(table, "this", "alias")
        and _has_only(table.args["alias"], "this")
        and [*tree.find_all(exp.Query)] == [tree]
    )


def _has_only(node: exp.Expr, *keys: str) -> bool:
    return all(key in keys for key, value in node.args.items() if value)


def register_function(spark: SparkSession, function: UserFunction) -> None:
    """Let Spark SQL call a function that the eddies' queries call by the same name."""
    returns = from_arrow_type(function.returns)
    if function.arrow:
        spark.udf.register(function.name, arrow_udf(_arrow_call(function), returns))  # type: ignore[call-overload]
    else:
        spark.udf.register(function.name, udf(function.function, returns))


def _arrow_call(function: UserFunction) -> Callable[..., Any]:
    """With the annotations by which PySpark tells what an Arrow function takes."""

    def call(*columns: pa.Array) -> pa.Array:
        return function.function(*columns)

    call.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return call
