"""Windows of streaming joins: the same bag as DuckDB's, whatever happens, from bounded state."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.progress import Progress
from eddies.streaming import cell as cell_module
from eddies.streaming import log as log_module
from eddies.streaming.cell import Cell, CellSpec
from eddies.streaming.log import EpochLog
from tests.support.bag import assert_same_bag
from tests.support.driving import MOST_RESULTS, Oracle, random_options
from tests.support.windowed import WindowedCase, make_windowed


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture(autouse=True)
def eager_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of these tests are short: put together what little there is."""
    monkeypatch.setattr(cell_module, "_COMPACT_EVERY", 2)
    monkeypatch.setattr(log_module, "_MOST_SMALL", 4)
    monkeypatch.setattr(log_module, "_SMALL_BYTES", 6000)


def run(
    case: WindowedCase, folder: Path, rng: random.Random, options: Options, *, in_order: bool
) -> tuple[pa.Table, Progress, Cell]:
    """All results that a sink would have, from a cell that is killed, moved and run again."""
    spec = CellSpec(case.windowed_query, options, case.relations, windows=case.by_relation)
    log = EpochLog(str(folder))
    kept = [Cell(spec, log), Cell(spec, log)]
    results: list[pa.RecordBatch] = []
    cell = kept[0]
    for epoch in range(len(case.epochs)):
        blobs = case.blobs(epoch)
        while True:
            here = int(rng.random() < 0.2)
            cell = kept[here]
            if blobs:
                if not in_order:
                    rows = [blob for blob in blobs if blob[1].size]
                    rng.shuffle(rows)
                    blobs = rows + [blob for blob in blobs if not blob[1].size]
                log.write(epoch, blobs)
            what = rng.random()
            given = cell.run(epoch)
            if what < 0.1:  # the task is killed in the middle
                next(given, None)
                given.close()
                continue
            found = list(given)
            if what < 0.2:  # results are lost before they are committed
                if what < 0.15:  # with the process
                    kept[here] = Cell(spec, log)
                continue
            break
        results += found
        progress = cell.progress()
        cell.tidy(epoch)
        if rng.random() < 0.1:
            kept[here] = Cell(spec, log)  # the cell goes on elsewhere
    assert progress is not None
    return pa.Table.from_batches(results, schema=result_schema(case.query)), progress, cell


def check(case: WindowedCase, oracle: Oracle, folder: Path, options: Options, seed: int) -> int:
    """Run a case against DuckDB; returns how many rows were evicted."""
    rng = random.Random(f"history {seed}")
    while True:
        sql = f"{case.sql()} LIMIT {MOST_RESULTS + 1}"
        expected = oracle.answer(sql, case.tables())
        if expected.num_rows <= MOST_RESULTS:
            break
        case = case.halved()
    in_order = "number" in case.sql()
    found, progress, _ = run(case, folder, rng, options, in_order=in_order)
    assert_same_bag(found, expected, f"{seed}: {case.sql()} with {case.windows} and {options}")
    n_late = {source.name: source.n_late for source in progress.sources}
    assert n_late == case.n_late()
    n_arrived = {source.name: source.n_arrived for source in progress.sources}
    assert n_arrived == {n: t.num_rows for n, t in case.tables(without_late=False).items()}
    return sum(source.n_evicted for source in progress.sources)


def test_without_late_rows_the_answer_is_that_of_the_query(oracle: Oracle, tmp_path: Path) -> None:
    n_evicted = n_rows = 0
    for seed in range(60_000, 60_030):
        case = make_windowed(seed, late=False)
        options = random_options(random.Random(seed), state="stems")
        assert not any(case.n_late().values())
        n_evicted += check(case, oracle, tmp_path / str(seed), options, seed)
        n_rows += sum(table.num_rows for table in case.tables().values())
    assert n_evicted > n_rows / 10


def test_with_late_rows_the_answer_is_that_of_the_others(oracle: Oracle, tmp_path: Path) -> None:
    n_late = 0
    for seed in range(61_000, 61_030):
        case = make_windowed(seed, late=True)
        options = random_options(random.Random(seed), state="stems")
        n_late += sum(case.n_late().values())
        check(case, oracle, tmp_path / str(seed), options, seed)
    assert n_late > 300


def test_rows_on_disk(oracle: Oracle, tmp_path: Path) -> None:
    n_evicted = 0
    for seed in range(62_000, 62_020):
        case = make_windowed(seed, late=seed % 2 == 0)
        rng = random.Random(seed)
        options = random_options(
            rng,
            state="stems",
            memory=rng.choice((1, 2000, 20_000)),
            spill_dir=str(tmp_path),
            batch_rows=rng.choice((2, 7, 1009)),
        )
        n_evicted += check(case, oracle, tmp_path / str(seed), options, seed)
    assert n_evicted > 100


def test_row_windows(oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(63_000, 63_030):
        case = make_windowed(seed, late=seed % 2 == 0, by_rows=True)
        options = random_options(random.Random(seed), state="stems")
        check(case, oracle, tmp_path / str(seed), options, seed)
