"""The demo's data: sales and four dimensions, with hit rates that flip in mid-stream.

At first most sales have a wanted customer and few a wanted promotion; after `FLIP_AT` of every
partition it is the other way round. Any fixed join order is wrong for one of the two parts. Because
the second part is longer, the order that perfect statistics of the start would choose is the worst
of all for the whole (`worst_fixed_order`).

Values are hashes of a row's number and the seed, so that a table is the same however often and in
whatever plan Spark computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import pyarrow as pa

from eddies.core.expr import Column
from eddies.core.query import Equality, Output, Query, Selection, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "DIMENSIONS",
    "FLIP_AT",
    "RESULT_SCHEMA",
    "SQL",
    "make_star",
    "star_query",
    "worst_fixed_order",
]

FLIP_AT = 0.4


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension and how often a sale finds a wanted row in it, before and after the flip."""

    table: str
    key: str
    n_rows: int
    n_wanted: int
    hit_rate_before: float
    hit_rate_after: float


DIMENSIONS = (
    Dimension("customers", "customer_id", 50_000, 10_000, 0.95, 0.10),
    Dimension("products", "product_id", 20_000, 5_000, 0.70, 0.40),
    Dimension("stores", "store_id", 1_000, 300, 0.40, 0.70),
    Dimension("promotions", "promotion_id", 400, 40, 0.10, 0.95),
)

_MEASURES = tuple(f"{dimension.table}_weight" for dimension in DIMENSIONS)

SQL = "\n".join(
    [
        "SELECT sale_id, amount"
        + "".join(f",\n       {d.table}.weight AS {d.table}_weight" for d in DIMENSIONS),
        "FROM sales",
        *(f"JOIN {d.table} ON sales.{d.key} = {d.table}.{d.key}" for d in DIMENSIONS),
        "WHERE " + "\n  AND ".join(f"{d.table}.wanted" for d in DIMENSIONS),
    ]
)

RESULT_SCHEMA = ", ".join(f"{name} long" for name in ("sale_id", "amount", *_MEASURES))


def star_query() -> Query:
    """`SQL` as the core takes it: sources and what must hold of a result row; no order."""
    keys = [(dimension.key, pa.int64()) for dimension in DIMENSIONS]
    sales = pa.schema([("sale_id", pa.int64()), ("amount", pa.int64()), *keys])
    sources = [Source("sales", "sales", sales)]
    selections = []
    equalities = []
    output = [Output(name, Column("sales", name), pa.int64()) for name in ("sale_id", "amount")]
    for dimension, measure in zip(DIMENSIONS, _MEASURES, strict=True):
        table, key = dimension.table, dimension.key
        schema = pa.schema([(key, pa.int64()), ("wanted", pa.bool_()), ("weight", pa.int64())])
        sources.append(Source(table, table, schema))
        selections.append(Selection(Column(table, "wanted")))
        equalities.append(Equality(Column("sales", key), Column(table, key), pa.int64()))
        output.append(Output(measure, Column(table, "weight"), pa.int64()))
    return Query(tuple(sources), tuple(selections), tuple(equalities), output=tuple(output))


def make_star(
    spark: SparkSession, n_rows: int, n_partitions: int, seed: int
) -> dict[str, DataFrame]:
    """The five tables by name; `n_rows` must be a multiple of `n_partitions`."""

    def draw(salt: int, n_values: int) -> str:
        return f"pmod(xxhash64(id, {seed}L, {salt}L), {n_values})"

    # Partition i of a range holds the numbers from i * partition_rows on, in order.
    partition_rows = n_rows // n_partitions
    is_before = f"pmod(id, {partition_rows}) < {int(FLIP_AT * partition_rows)}"
    columns = ["id AS sale_id", f"{draw(0, 1000)} AS amount"]
    for number, dimension in enumerate(DIMENSIONS, start=1):
        before = int(1000 * dimension.hit_rate_before)
        after = int(1000 * dimension.hit_rate_after)
        columns.append(
            f"CASE WHEN {draw(10 * number, 1000)} < IF({is_before}, {before}, {after}) "
            f"THEN {draw(10 * number + 1, dimension.n_wanted)} "
            f"ELSE {dimension.n_wanted} "
            f"+ {draw(10 * number + 2, dimension.n_rows - dimension.n_wanted)} "
            f"END AS {dimension.key}"
        )
    table_by_name = {"sales": spark.range(0, n_rows, 1, n_partitions).selectExpr(*columns)}
    for dimension in DIMENSIONS:
        table_by_name[dimension.table] = spark.range(dimension.n_rows).selectExpr(
            f"id AS {dimension.key}",
            f"id < {dimension.n_wanted} AS wanted",
            f"{draw(1, 100)} AS weight",
        )
    return table_by_name


def worst_fixed_order() -> tuple[str, ...]:
    """Of all orders of the dimensions, the one that probes most for the whole input.

    >>> worst_fixed_order()
    ('promotions', 'stores', 'products', 'customers')
    """

    def probes_a_row(order: tuple[Dimension, ...]) -> float:
        n_probes, left_before, left_after = 0.0, FLIP_AT, 1 - FLIP_AT
        for dimension in order:
            n_probes += left_before + left_after
            left_before *= dimension.hit_rate_before
            left_after *= dimension.hit_rate_after
        return n_probes

    worst = max(permutations(DIMENSIONS), key=probes_a_row)
    return tuple(dimension.table for dimension in worst)
