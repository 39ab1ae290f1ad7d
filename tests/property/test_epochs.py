"""Exactly once in epochs: whatever is run again, lost or forgotten between epochs, the same bag."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from eddies.core.expr import Column
from eddies.core.graph import make_graph
from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.query import Equality, Output, Query, Source
from eddies.errors import StateError
from eddies.streaming.cell import Cell, CellSpec
from eddies.streaming.log import Blob, EpochLog, end_mark, serialised
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, random_options
from tests.support.random_queries import SHAPES, Case, make_case


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def cut(case: Case, names: list[str], rng: random.Random, n_epochs: int) -> list[list[Blob]]:
    """The rows of all relations, each in some epoch, with end marks after the last rows of some, and
    some ticks.
    """
    epochs: list[list[Blob]] = [[] for _ in range(n_epochs)]
    for number, name in enumerate(names):
        table = case.tables[name].combine_chunks()
        moments = sorted(rng.randrange(n_epochs) for _ in range(rng.randint(1, 5)))
        borders = sorted(rng.randint(0, table.num_rows) for _ in moments[1:])
        starts = [0, *borders]
        for moment, start, stop in zip(moments, starts, [*borders, table.num_rows], strict=True):
            for batch in table.slice(start, stop - start).to_batches():
                epochs[moment].append((number, serialised(batch)))
        if rng.random() < 0.5:
            epochs[rng.randint(moments[-1], n_epochs - 1)].append(end_mark(number))
    for blobs in epochs:
        rng.shuffle(blobs)
        if rng.random() < 0.2:
            blobs.append(end_mark(-1))
    return epochs


def run(case: Case, folder: Path, rng: random.Random, options: Options) -> tuple[pa.Table, int]:
    """All results that a sink would have, and how often a cell was made anew.

    Two keepers have the cell, as if it moved between two hosts: each misses epochs, and has epochs that
    were run again elsewhere.
    """
    names = [relation.name for relation in make_graph(case.query).relations]
    spec = CellSpec(case.query, options, tuple(names))
    log = EpochLog(str(folder / "cell"))
    kept = [Cell(spec, log), Cell(spec, log)]
    others = 0
    results: list[pa.RecordBatch] = []
    epochs = cut(case, names, rng, rng.randint(1, 40))
    for epoch, blobs in enumerate(epochs):
        while True:
            here = int(rng.random() < 0.2)
            cell = kept[here]
            if blobs:
                log.write(epoch, blobs if rng.random() < 0.5 else shuffled(blobs, rng))
            what = rng.random()
            given = cell.run(epoch)
            if what < 0.1:  # the task is killed in the middle
                next(given, None)
                given.close()
                continue
            found = list(given)
            if what < 0.2:  # results are lost before they are committed
                if what < 0.15:  # with the process
                    others += cell.n_rebuilt
                    kept[here] = Cell(spec, log)
                continue
            if rng.random() < 0.1 and blobs:  # a task that was given up writes once more
                log.write(epoch, shuffled(blobs, rng))
            break
        results += found
        cell.tidy(epoch)
        if rng.random() < 0.1:
            others += cell.n_rebuilt
            kept[here] = Cell(spec, log)  # the cell goes on elsewhere
    schema = result_schema(case.query)
    n_made = others + sum(cell.n_rebuilt for cell in kept)
    if not schema.names and results:
        return pa.Table.from_batches(results), n_made
    return pa.Table.from_batches(results, schema=schema), n_made


def shuffled(blobs: list[Blob], rng: random.Random) -> list[Blob]:
    """The same blobs as they may come as well: from several tasks, also ends before rows."""
    return rng.sample(blobs, len(blobs))


@pytest.mark.parametrize("shape", SHAPES)
def test_any_history_same_bag(shape: str, oracle: Oracle, tmp_path: Path) -> None:
    n_rebuilt = 0
    for seed in range(50_000, 50_008):
        case, expected = oracle.bounded(make_case(seed, shape))
        rng = random.Random(f"epochs {seed}")
        options = random_options(rng, state="stems", threads=1)
        results, n_made = run(case, tmp_path / str(seed), rng, options)
        assert_same_bag(results, expected, f"{case} with {options}")
        n_rebuilt += n_made - 1
    assert n_rebuilt > 5


@pytest.mark.parametrize("shape", SHAPES)
def test_any_history_same_bag_with_rows_on_disk(shape: str, oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(51_000, 51_005):
        case, expected = oracle.bounded(make_case(seed, shape))
        rng = random.Random(f"epochs {seed}")
        n_bytes = sum(table.nbytes for table in case.tables.values())
        options = random_options(
            rng,
            state="stems",
            threads=1,
            memory=max(1, n_bytes // rng.choice((3, 10, 50))),
            spill_dir=str(tmp_path),
            batch_rows=rng.choice((2, 7, 1009)),
        )
        results, _ = run(case, tmp_path / str(seed), rng, options)
        assert_same_bag(results, expected, f"{case} with {options}")


def small_log(folder: Path, n_epochs: int) -> EpochLog:
    log = EpochLog(str(folder))
    for epoch in range(-1, n_epochs):
        batch = pa.RecordBatch.from_pydict({"k": pa.array([epoch], pa.int64())})
        log.write(epoch, [(0, serialised(batch))])
    return log


def test_few_files_are_left(tmp_path: Path) -> None:
    log = small_log(tmp_path, 100)
    while log.compact(99):
        pass
    segments = log.segments(100)
    assert len(segments) < 20
    previous = -2
    rows = []
    for segment in segments:
        for _, payload in log.read(segment, previous):
            rows += [row for batch in pa.ipc.open_stream(payload) for row in batch["k"].to_pylist()]
        previous = segment.last
    assert rows == list(range(-1, 100))
    with pytest.raises(StateError, match="put epochs"):
        log.segments(50)


def test_what_killed_writers_leave_is_removed(tmp_path: Path) -> None:
    log = small_log(tmp_path, 9)
    left = [tmp_path / f".{segment.name}.{'0' * 32}" for segment in log.segments(9)]
    for path in left:
        path.touch()
    log.sweep(5)
    assert [path.exists() for path in left] == [segment.last >= 5 for segment in log.segments(9)]


def join_of_two() -> tuple[CellSpec, pa.RecordBatch]:
    schema = pa.schema([("k", pa.int64())])
    keys = Column("l", "k"), Column("r", "k")
    query = Query(
        sources=(Source("l", "l", schema), Source("r", "r", schema)),
        equalities=(Equality(*keys, pa.int64()),),
        output=(Output("k", keys[0], pa.int64()),),
    )
    spec = CellSpec(query, Options(state="stems"), ("l", "r"))
    return spec, pa.RecordBatch.from_pydict({"k": [1, 2, 3]}, schema=schema)


def test_an_epoch_that_runs_again_at_once_is_not_computed_again(tmp_path: Path) -> None:
    spec, rows = join_of_two()
    log = EpochLog(str(tmp_path))
    cell = Cell(spec, log)
    for epoch in range(4):
        for _ in range(2):
            log.write(epoch, [(epoch % 2, serialised(rows))])
            n_found = sum(batch.num_rows for batch in cell.run(epoch))
            assert n_found == 3 * ((epoch + 1) // 2)
    assert cell.n_rebuilt == 1


def test_a_segment_written_again_with_other_rows_is_noticed(tmp_path: Path) -> None:
    spec, rows = join_of_two()
    log = EpochLog(str(tmp_path))
    here, elsewhere = Cell(spec, log), Cell(spec, log)
    log.write(0, [(0, serialised(rows))])
    assert not list(here.run(0))
    log.write(0, [(0, serialised(rows.slice(0, 1)))])
    assert not list(elsewhere.run(0))
    log.write(1, [(1, serialised(rows))])
    assert sum(batch.num_rows for batch in here.run(1)) == 1


def test_a_lost_segment_is_noticed(tmp_path: Path) -> None:
    log = small_log(tmp_path, 5)
    (tmp_path / log.segments(4)[2].name).unlink()
    segments = log.segments(5)
    assert [segment.last for segment in segments] == [-1, 0, 2, 3, 4]
    list(log.read(segments[1], -1))
    with pytest.raises(StateError, match="a segment is lost"):
        log.read(segments[2], 0)


@pytest.mark.parametrize("how", ["cut", "flip"])
def test_a_damaged_segment_is_noticed(how: str, tmp_path: Path) -> None:
    log = small_log(tmp_path, 3)
    segment = log.segments(3)[1]
    path = tmp_path / segment.name
    data = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        payload = next(iter(log.read(segment)))[1].to_pybytes()
        data[data.index(payload) + len(payload) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(StateError, match="damaged"):
        list(log.read(segment))
