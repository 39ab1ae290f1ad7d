"""On a cluster one cell does a join only if it costs less than merging saves, however many rows match.
On a local Spark its threads have the machine, and what matters is what cells would do twice.
"""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.errors import PySparkAttributeError

from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.query import UserFunction
from eddies.spark.cells import CellPlan, RelationSize, plan_cells
from eddies.spark.one_cell import local_threads, may_share_cell, without_merge
from eddies.sql import plan

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SUM = "SELECT count(*) AS n, sum({0}.v) AS s FROM {1} WHERE {2}"


def cells_of(
    sizes: dict[str, RelationSize],
    text: str | None = None,
    functions: tuple[UserFunction, ...] = (),
    n_threads: int = 1,
) -> tuple[CellPlan, CellPlan]:
    """The cells of a chain of tables in two slots, before and after."""
    before, after, _ = shared_cells_of(sizes, text, functions, n_threads)
    return before, after


def shared_cells_of(
    sizes: dict[str, RelationSize],
    text: str | None = None,
    functions: tuple[UserFunction, ...] = (),
    n_threads: int = 2,
    may_answer: bool = False,
) -> tuple[CellPlan, CellPlan, int]:
    """`cells_of`, and how many threads a cell has."""
    names = list(sizes)
    equal = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    text = text or SUM.format(names[0], ", ".join(names), equal)
    planned = plan(text, dict.fromkeys(names, SCHEMA), functions, host="spark")
    graph = make_graph(planned.blocks[0].query)
    cells = plan_cells(graph, sizes, 2)
    return cells, *without_merge(graph, sizes, cells, n_threads, may_answer=may_answer)


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


def test_threads_share_what_cells_would_replicate() -> None:
    star = {"t0": RelationSize(3_000_000, 32.0, "direct")}
    star |= {f"t{n}": RelationSize(1_000_000, 32.0, "direct") for n in (1, 2, 3)}
    different = "t0.k = t1.k AND t0.v = t2.k AND t0.k + t0.v = t3.k"
    text = SUM.format("t0", ", ".join(star), different)
    before, after, n_threads = shared_cells_of(star, text)
    assert (before.n_cells, after.n_cells, n_threads) == (2, 1, 2)


def test_large_joins_that_divide_well_keep_their_cells() -> None:
    before, after, n_threads = shared_cells_of(direct(50_000_000, 10_000))
    assert after is before
    assert n_threads == 1


def test_a_cell_that_gives_the_answer_saves_more_than_merging() -> None:
    for n_rows, may_share, may_answer in (
        (2_000_000, 1, 1),
        (20_000_000, 2, 1),
        (50_000_000, 2, 2),
    ):
        found = {
            answers: shared_cells_of(direct(n_rows, 10_000), may_answer=answers)[1].n_cells
            for answers in (False, True)
        }
        assert found == {False: may_share, True: may_answer}, n_rows


@pytest.mark.parametrize("n_rows", [(600, 600), (100_000, 100_000), (80, 80, 80)])
def test_short_joins_are_not_worth_a_stage_more(n_rows: tuple[int, ...]) -> None:
    before, after, n_threads = shared_cells_of(direct(*n_rows))
    assert (before.n_cells, after.n_cells, n_threads) == (2, 1, 2)


def test_one_partition_is_not_for_many_rows_that_nobody_merges() -> None:
    star = {"t0": RelationSize(3_000_000, 32.0, "direct")}
    star |= {f"t{n}": RelationSize(1_000_000, 32.0, "direct") for n in (1, 2, 3)}
    where = "t0.k = t1.k AND t0.v = t2.k AND t0.k + t0.v = t3.k"
    before, after, _ = shared_cells_of(star, f"SELECT t0.v FROM t0, t1, t2, t3 WHERE {where}")
    assert after is before
    few = {name: RelationSize(200_000, 32.0, "direct") for name in star}
    _, after, n_threads = shared_cells_of(few, f"SELECT t0.v FROM t0, t1, t2, t3 WHERE {where}")
    assert (after.n_cells, n_threads) == (1, 2)


def test_what_may_not_have_one_cell_may_not_be_shared() -> None:
    slow = UserFunction("slow", lambda v: v, pa.int64())
    text = "SELECT count(*) AS n FROM t0, t1 WHERE t0.k = t1.k AND slow(t0.v) > 1"
    for sizes, query, functions in (
        (direct(10, None), None, ()),
        (direct(400) | {"t1": RelationSize(400, 16.0, "exchange")}, None, ()),
        (direct(1000, 1000), text, (slow,)),
    ):
        before, after, n_threads = shared_cells_of(sizes, query, functions)
        assert after is before
        assert n_threads == 1


class Session:
    """What `local_threads` asks a session for. Spark Connect has settings, but no context."""

    def __init__(self, master: str, is_remote: bool = False) -> None:
        self.conf = {"spark.master": master}
        self._is_remote = is_remote

    @property
    def sparkContext(self) -> SimpleNamespace:
        if self._is_remote:
            raise PySparkAttributeError("there is no context")
        return SimpleNamespace(master=self.conf["spark.master"])


@pytest.mark.parametrize(
    ("master", "n_threads"),
    [
        ("local", 1),
        ("local[1]", 1),
        ("local[2]", 2),
        ("local[*]", 4),
        ("local[64, 3]", 4),
        ("local-cluster[2,1,1024]", 1),
        ("spark://127.0.0.1:7077", 1),
    ],
)
def test_only_a_local_task_may_use_the_machine(
    master: str | None, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert local_threads(Session(master)) == n_threads  # type: ignore[arg-type]
    assert local_threads(Session(master, is_remote=True)) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        Options(cells=2),
        Options(threads=3),
        Options(memory="1GB"),
        Options(policy="random"),
        Options(state="joins"),
        Options(cache="1GB"),
    ],
)
def test_whoever_asks_for_something_else_gets_it(options: Options) -> None:
    assert may_share_cell(Options())
    assert not may_share_cell(options)
