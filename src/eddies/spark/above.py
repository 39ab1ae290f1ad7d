"""What runs above the eddies: Spark SQL over their outputs.

DataFrames are passed to `spark.sql` by name, which works on every kind of session and leaves no view
behind. Spark marks such names with braces, so those of the text itself are doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def run_above(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The answer of `text`, whose tables are `frames`."""
    tree = parse(text)
    names = {name.lower(): name for name in frames}
    passed: dict[str, DataFrame] = {}
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        name = table.name.lower()
        if name in ctes or name not in names:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        mark = f"eddies_frame_{len(passed)}"
        for known, frame in passed.items():
            if frame is frames[names[name]]:
                mark = known
        passed[mark] = frames[names[name]]
        table.set("this", exp.to_identifier(mark, quoted=True))
        table.set("db", None)
        table.set("catalog", None)
    written = tree.sql(DIALECT, identify=True).replace("{", "{{").replace("}", "}}")
    for mark in passed:
        written = written.replace(f"`{mark}`", f"{{{mark}}}")
    return spark.sql(written, **passed)  # type: ignore[arg-type]


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
