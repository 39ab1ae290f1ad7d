"""Queries that share an eddy: each gets its own answer, whatever the others want."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.output import query_of
from eddies.core.query import Query
from eddies.core.sharing import shared
from eddies.errors import UnsupportedError
from eddies.spark.cells import RelationSize
from eddies.spark.exchange import Blobs, make_pack
from eddies.spark.shared_cells import plan_shared_cells
from eddies.streaming.cell import Cell, CellSpec
from eddies.streaming.log import EpochLog, end_mark, serialised
from tests.support.bag import Row, bag_of, compare
from tests.support.driving import MOST_RESULTS, Oracle, random_options
from tests.support.duckdb_sql import query_sql
from tests.support.random_queries import SHAPES, Case, aggregated, make_case
from tests.support.shared_queries import random_parts

N_CASES = 15

Bags = dict[str, Counter[Row]]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def made(
    seed: int, shape: str, rng: random.Random, oracle: Oracle
) -> tuple[Case, dict[str, Query], Bags] | None:
    """Queries with answers that are not too long; None if there are no such."""
    case = make_case(seed, shape, functions=False)
    for _ in range(20):
        queries = random_parts(case, rng)
        if any(not query.output for query in queries.values()):
            continue
        if all(query.never for query in queries.values()):
            continue
        answers = {
            name: oracle.answer(f"{query_sql(query)} LIMIT {MOST_RESULTS + 1}", case.tables)
            for name, query in queries.items()
        }
        if all(answer.num_rows <= MOST_RESULTS for answer in answers.values()):
            return case, queries, {name: bag_of(answer) for name, answer in answers.items()}
        case = case.halved()
    return None


def some_cases(
    what: str, n_cases: int, oracle: Oracle, shape: str | None = None
) -> Iterator[tuple[random.Random, Case, dict[str, Query], Bags]]:
    """Random queries that share their tables, with their answers, at least half of `n_cases`."""
    n_made = 0
    for seed in range(n_cases):
        rng = random.Random(f"shared {what} {seed}")
        found = made(seed, shape or rng.choice(SHAPES), rng, oracle)
        if found is not None:
            n_made += 1
            yield rng, *found
    assert n_made >= n_cases / 2, "most are skipped: the test proves little"


def read(case: Case, query: Query) -> dict[str, pa.Table]:
    names = [relation.name for relation in make_graph(query).relations]
    return {name: case.tables[name] for name in names}


def apart(names: Iterable[str], results: Iterable[pa.RecordBatch]) -> Bags:
    found: Bags = {name: Counter() for name in names}
    for rows in results:
        found[query_of(rows)] += bag_of(rows)
    return found


def driven(
    query: Query, tables: Mapping[str, pa.Table], rng: random.Random, options: Options
) -> list[pa.RecordBatch]:
    """What an eddy finds that gets its rows in a random interleaving."""
    eddy = Eddy(query, options)
    found: list[pa.RecordBatch] = []
    waiting = {
        name: table.to_batches(max_chunksize=rng.choice((1, 3, 50)))
        for name, table in tables.items()
    }
    while waiting:
        name = rng.choice(list(waiting))
        if waiting[name]:
            eddy.push(name, waiting[name].pop(0))
        else:
            eddy.end(name)
            del waiting[name]
        while rng.random() < 0.3 and (rows := eddy.poll()) is not None:
            found.append(rows)
    while (rows := eddy.poll()) is not None:
        found.append(rows)
    assert eddy.is_done
    assert eddy.n_in_flight == 0
    return found


def assert_same(bags: Bags, answers: Bags, what: object) -> None:
    for name, answer in answers.items():
        difference = compare(bags[name], answer)
        assert not difference, f"{name} of {what}: {difference}"


@pytest.mark.parametrize("shape", SHAPES)
def test_each_query_gets_its_own_answer(shape: str, oracle: Oracle) -> None:
    n_results = 0
    for rng, case, queries, answers in some_cases(shape, N_CASES, oracle, shape):
        query = shared(queries)
        bags = apart(queries, driven(query, read(case, query), rng, random_options(rng)))
        assert_same(bags, answers, case)
        n_results += sum(answer.total() for answer in answers.values())
    assert n_results > 100


def test_each_result_comes_out_of_one_cell(oracle: Oracle) -> None:
    n_divided = 0
    for rng, case, queries, answers in some_cases("cells", 70, oracle):
        query = shared(queries)
        graph = make_graph(query)
        tables = read(case, query)
        sizes = {name: RelationSize(rng.randint(1, 10**6), 24, "exchange") for name in tables}
        plan = plan_shared_cells(graph, sizes, 2, rng.choice((2, 3, 5)))
        n_divided += plan.n_cells > 1
        results: list[pa.RecordBatch] = []
        order = plan.order(sizes)
        packed = [
            blobs
            for number, name in enumerate(order)
            for blobs in make_pack(number, plan.deliveries[name], plan)(
                iter(tables[name].select(relation_columns(query, name)).to_batches())
            )
        ]
        for _, blobs in Blobs.by_cell(iter(packed), order):
            delivered = {
                name: pa.Table.from_batches(list(arrivals()))
                for name, arrivals in blobs.arrivals().items()
            }
            eddy = Eddy(query, random_options(rng))
            for name in order:
                for batch in delivered[name].to_batches() if name in delivered else ():
                    eddy.push(name, batch)
                eddy.end(name)
            while (rows := eddy.poll()) is not None:
                results.append(rows)
        assert_same(apart(queries, results), answers, (plan, case))
    assert n_divided > 25


def relation_columns(query: Query, table: str) -> list[str]:
    return list(dict.fromkeys(n for s in query.sources if s.table == table for n in s.schema.names))


def test_epochs_that_are_run_again(oracle: Oracle, tmp_path: Path) -> None:
    for number, (rng, case, queries, answers) in enumerate(some_cases("epochs", 25, oracle)):
        query = shared(queries)
        tables = read(case, query)
        names = list(tables)
        spec = CellSpec(query, random_options(rng, state="stems"), tuple(names))
        log = EpochLog(str(tmp_path / str(number)))
        cell = Cell(spec, log)
        n_epochs = rng.randint(1, 12)
        results: list[pa.RecordBatch] = []
        for epoch in range(n_epochs):
            blobs = []
            for number, name in enumerate(names):
                n_rows = tables[name].num_rows
                start, stop = (n_rows * e // n_epochs for e in (epoch, epoch + 1))
                pieces = tables[name].slice(start, stop - start).combine_chunks().to_batches()
                blobs += [(number, serialised(piece)) for piece in pieces]
                blobs += [end_mark(number)] if epoch == n_epochs - 1 else []
            log.write(epoch, blobs)
            if rng.random() < 0.3:  # lost before they were committed
                list(cell.run(epoch))
                log.write(epoch, rng.sample(blobs, len(blobs)))
            if rng.random() < 0.3:
                cell = Cell(spec, log)
            results += cell.run(epoch)
            cell.tidy(epoch)
        assert_same(apart(queries, results), answers, case)


def test_what_cannot_be_shared_is_named() -> None:
    case = make_case(1, "chain", functions=False)
    with pytest.raises(UnsupportedError, match="'totals' groups its rows"):
        shared({"totals": aggregated(case).query, "rows": case.query})
