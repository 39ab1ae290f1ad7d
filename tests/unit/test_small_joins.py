"""One cell does a join only if it costs less than merging saves, however many rows match."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.graph import make_graph
from eddies.core.query import UserFunction
from eddies.spark.cells import CellPlan, RelationSize, plan_cells
from eddies.spark.small_joins import without_merge
from eddies.sql import plan

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SUM = "SELECT count(*) AS n, sum({0}.v) AS s FROM {1} WHERE {2}"


def cells_of(
    sizes: dict[str, RelationSize],
    text: str | None = None,
    functions: tuple[UserFunction, ...] = (),
) -> tuple[CellPlan, CellPlan]:
    """The cells of a chain of tables in two slots, before and after."""
    names = list(sizes)
    equal = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    text = text or SUM.format(names[0], ", ".join(names), equal)
    planned = plan(text, dict.fromkeys(names, SCHEMA), functions, host="spark")
    graph = make_graph(planned.blocks[0].query)
    cells = plan_cells(graph, sizes, 2)
    return cells, without_merge(graph, sizes, cells)


def direct(*n_rows: int | None) -> dict[str, RelationSize]:
    return {f"t{i}": RelationSize(n, 16.0, "direct") for i, n in enumerate(n_rows)}


@pytest.mark.parametrize("n_rows", [(400, 400), (50_000, 4), (60, 60, 30), (0, 1000)])
def test_a_join_whose_product_is_small_has_one_cell(n_rows: tuple[int, ...]) -> None:
    before, after = cells_of(direct(*n_rows))
    assert (before.n_cells, after.n_cells) == (2, 1)


@pytest.mark.parametrize("n_rows", [(600, 600), (50_000, 50), (100_000, 100_000), (80, 80, 80)])
def test_a_join_that_may_explode_keeps_its_cells(n_rows: tuple[int, ...]) -> None:
    before, after = cells_of(direct(*n_rows))
    assert after is before
    assert after.n_cells == 2


def test_rows_that_nobody_counted_keep_their_cells() -> None:
    before, after = cells_of(direct(10, None))
    assert after is before


def test_rows_that_are_exchanged_keep_their_cells() -> None:
    sizes = direct(400) | {"t1": RelationSize(400, 16.0, "exchange")}
    before, after = cells_of(sizes)
    assert after is before


def test_rows_that_are_not_merged_keep_their_cells() -> None:
    before, after = cells_of(direct(400, 400), "SELECT t0.v FROM t0, t1 WHERE t0.k = t1.k")
    assert after is before


def test_functions_of_which_nobody_knows_the_cost_keep_their_cells() -> None:
    slow = UserFunction("slow", lambda v: v, pa.int64())
    before, after = cells_of(
        direct(400, 400),
        "SELECT count(*) AS n FROM t0, t1 WHERE t0.k = t1.k AND slow(t0.v) > 1",
        (slow,),
    )
    assert after is before
