"""Row ids of sources that nobody looks at any more are not carried on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.batch import RoutedBatch
from eddies.core.eddy import Eddy
from eddies.core.expr import Call, Literal
from eddies.core.graph import Graph, make_graph
from eddies.core.join_tree import make_join_tree
from eddies.core.kernels.distinct import first_of_each, mark_new
from eddies.core.lineage import Signature
from eddies.core.live import EVERYTHING, Live
from eddies.core.options import Options
from eddies.core.output import Collector
from eddies.core.query import Aggregate, Aggregation, Filter, Query, Selection
from tests.support.small import col, make_query

INT = pa.int64()
TABLES = {
    name: pa.table({"x": np.arange(40) % 5, "y": np.arange(40) % 7, "v": np.arange(40)})
    for name in "abcd"
}
CHAIN = ["a.x = b.x", "b.y = c.y", "c.x = d.x"]


def chain(**settings: object) -> Query:
    return make_query(TABLES, CHAIN, **settings)  # type: ignore[arg-type]


def live(graph: Graph, sources: int) -> int:
    """Of the sources spanned, those that are live."""
    return Live(graph).at(Signature(sources)) & sources


def total(*columns: str) -> Aggregation:
    sums = tuple(Aggregate(f"s{i}", "sum", col(c), INT) for i, c in enumerate(columns))
    return Aggregation((), (Aggregate("n", "count_star", None, INT), *sums))


def test_what_the_answer_and_keys_yet_to_be_joined_need_is_live() -> None:
    graph = make_graph(chain(output=["a.v"]))
    assert live(graph, 0b0011) == 0b0011  # b leads to c
    assert live(graph, 0b0111) == 0b0101  # c leads to d; b has met both its partners
    assert live(graph, 0b1110) == 0b0010  # b leads to a
    assert live(graph, 0b1111) == 0b0001


def test_a_counted_result_needs_no_row_ids() -> None:
    graph = make_graph(chain(aggregation=total()))
    assert live(graph, 0b1111) == 0
    assert live(make_graph(chain(aggregation=total("c.v"))), 0b1111) == 0b0100


def test_whoever_a_predicate_over_several_sources_looks_at_stays_live() -> None:
    later = Filter(Call("lt", (col("a.v"), col("d.v"))))
    assert live(make_graph(chain(aggregation=total(), filters=(later,))), 0b1111) == 0b1001
    costly = Selection(Call("gt", (col("b.v"), Literal(1, INT))), expensive=True)
    assert live(make_graph(chain(aggregation=total(), selections=(costly,))), 0b1111) == 0b0010


def test_along_a_tree_the_other_equalities_are_checked_on_the_results() -> None:
    cycle = make_graph(make_query(TABLES, [*CHAIN, "d.y = a.y"], aggregation=total()))
    tree = make_join_tree(cycle)
    (checked,) = [mask for mask, _ in tree.checks]
    assert Live(cycle, tree).at(Signature(0b1111)) == checked
    assert live(cycle, 0b1111) == 0


@pytest.mark.parametrize("state", ["stems", "stairs", "joins", "static", "auto"])
def test_results_carry_only_what_is_live(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RoutedBatch] = []
    collect = Collector.collect

    def seeing(self: Collector, batch: RoutedBatch) -> None:
        seen.append(batch)
        collect(self, batch)

    monkeypatch.setattr(Collector, "collect", seeing)
    order = tuple(make_join_tree(make_graph(chain())).edges[i].name for i in (1, 0, 2))
    options = Options(state=state, batch_rows=7, order=order if state == "static" else ())
    eddy = Eddy(chain(aggregation=total("c.v")), options, folds=False)
    for start in range(0, 40, 7):
        for name, table in TABLES.items():
            eddy.push(name, table.slice(start, 7).to_batches()[0])
            while eddy.poll() is not None:
                pass
    for name in TABLES:
        eddy.end(name)
    found = list(iter(eddy.poll, None))
    counts = [np.bincount(np.arange(40) % n) for n in (5, 7)]
    y_of_x = np.zeros((5, 7), dtype=np.int64)
    np.add.at(y_of_x, (np.arange(40) % 5, np.arange(40) % 7), 1)
    n_results = int((counts[0] @ y_of_x) @ (y_of_x.T @ counts[0]))
    assert found[0]["n"].to_pylist() == [n_results]
    assert sum(batch.n_rows for batch in seen) == n_results
    assert {batch.route.live for batch in seen} == {0b0100}
    for batch in seen:
        carried = [s for s, ids in enumerate(batch.ids) if ids is not None]
        assert carried in ([2], []), "only c is looked at"
        assert carried == [2] or batch.origin.driver == 2


def test_tuples_that_joins_may_store_keep_all_their_ids() -> None:
    eddy = Eddy(chain(aggregation=total()), Options(state="stairs"))
    assert eddy.mode.live(Signature(0b0011)) == EVERYTHING
    assert eddy.mode.live(Signature(0b1111)) == 0


@pytest.mark.parametrize(("n", "n_words"), [(0, 1), (1, 1), (7, 2), (1000, 300), (1000, 10**9)])
def test_the_first_place_of_each_word(n: int, n_words: int) -> None:
    words = np.random.default_rng(n).integers(0, n_words, n).astype(np.uint64)
    words[: n // 5] = 0
    positions = np.empty(n, np.int32)
    found = first_of_each(words, positions)
    assert sorted(positions[:found]) == sorted(np.unique(words, return_index=True)[1])


@pytest.mark.parametrize(("n", "n_rows"), [(0, 1), (1, 1), (7, 2), (1000, 300), (1000, 10**5)])
def test_rows_without_a_mark_are_found_once(n: int, n_rows: int) -> None:
    rng = np.random.default_rng(n)
    rows, marks = rng.integers(0, n_rows, n).astype(np.int32), rng.random(n_rows) < 0.5
    before = marks.copy()
    fresh = np.empty(n, np.int32)
    found = mark_new(rows, marks, fresh)
    assert sorted(fresh[:found]) == sorted(set(rows[~before[rows]]))
    assert marks[rows].all()
    assert np.count_nonzero(marks) == np.count_nonzero(before) + found
