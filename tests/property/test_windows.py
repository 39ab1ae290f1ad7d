"""Windows of streaming joins: the same bag as DuckDB's, whatever happens, from bounded state."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from eddies.core.expr import Column
from eddies.core.options import Options
from eddies.core.output import result_schema
from eddies.core.progress import Progress, together
from eddies.core.query import Equality, Output, Query, Source
from eddies.spark.exchange import Pack
from eddies.streaming import cell as cell_module
from eddies.streaming import log as log_module
from eddies.streaming.cell import Cell, CellSpec
from eddies.streaming.log import Blob, EpochLog, end_mark, serialised
from eddies.streaming.windows import RowWindow, TimeWindow, Window, WindowedTable, with_windows
from tests.support.bag import assert_same_bag
from tests.support.driving import MOST_RESULTS, Oracle, random_options
from tests.support.windowed import WindowedCase, make_windowed


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture
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
                if rng.random() < 0.5:
                    cell.tidy(epoch)
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


@pytest.mark.usefixtures("eager_log")
def test_without_late_rows_the_answer_is_that_of_the_query(oracle: Oracle, tmp_path: Path) -> None:
    n_evicted = n_rows = 0
    for seed in range(60_000, 60_030):
        case = make_windowed(seed, late=False)
        options = random_options(random.Random(seed), state="stems")
        assert not any(case.n_late().values())
        n_evicted += check(case, oracle, tmp_path / str(seed), options, seed)
        n_rows += sum(table.num_rows for table in case.tables().values())
    assert n_evicted > n_rows / 10


@pytest.mark.usefixtures("eager_log")
def test_with_late_rows_the_answer_is_that_of_the_others(oracle: Oracle, tmp_path: Path) -> None:
    n_late = 0
    for seed in range(61_000, 61_030):
        case = make_windowed(seed, late=True)
        options = random_options(random.Random(seed), state="stems")
        n_late += sum(case.n_late().values())
        check(case, oracle, tmp_path / str(seed), options, seed)
    assert n_late > 300


@pytest.mark.usefixtures("eager_log")
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


@pytest.mark.usefixtures("eager_log")
def test_row_windows(oracle: Oracle, tmp_path: Path) -> None:
    for seed in range(63_000, 63_030):
        case = make_windowed(seed, late=seed % 2 == 0, by_rows=True)
        options = random_options(random.Random(seed), state="stems")
        check(case, oracle, tmp_path / str(seed), options, seed)


@pytest.mark.usefixtures("eager_log")
def test_all_cells_agree_on_what_is_late(oracle: Oracle, tmp_path: Path) -> None:
    """Rows are divided by a key; a cell that gets no rows of a stream is told how far it has come."""
    n_cells, n_late, n_evicted = 3, 0, 0
    for seed in range(64_000, 64_030):
        case = make_windowed(seed, late=True)
        names = [source.name for source in case.query.sources]
        on_k = [Equality(Column(names[0], "k"), Column(n, "k"), pa.int64()) for n in names[1:]]
        case = replace(case, query=replace(case.query, equalities=tuple(on_k)))
        timed = {n for n, w in case.by_relation.items() if isinstance(w, TimeWindow)}
        spec = CellSpec(
            case.windowed_query, Options(state="stems"), case.relations, windows=case.by_relation
        )
        logs = [EpochLog(str(tmp_path / f"{seed}-{cell}")) for cell in range(n_cells)]
        cells = [Cell(spec, log) for log in logs]
        results: list[pa.RecordBatch] = []
        for epoch, arrivals in enumerate(case.epochs):
            blobs: list[list[Blob]] = [[] for _ in cells]
            for arrival in arrivals:
                time = "at" if case.relations[arrival.relation] in timed else None
                pack = Pack(arrival.relation, (("k", n_cells, 1),), None, (0,), time, n_cells)
                for packed in pack(iter([arrival.rows])):
                    for cell, payload in zip(packed["cell"], packed["payload"], strict=True):
                        blobs[cell.as_py()].append((arrival.relation, payload.as_buffer()))
            for arrival in arrivals:
                for mine in blobs if arrival.is_end else ():
                    mine.append(end_mark(arrival.relation))
            for cell, log, mine in zip(cells, logs, blobs, strict=True):
                if mine:
                    log.write(epoch, mine)
                results += cell.run(epoch)
                cell.tidy(epoch)
        expected = oracle.answer(case.sql(), case.tables())
        found = pa.Table.from_batches(results, schema=result_schema(case.query))
        assert_same_bag(found, expected, f"{seed}: {case.sql()}")
        progress = together(p for cell in cells if (p := cell.progress()) is not None)
        n_late += sum(source.n_late for source in progress.sources)
        n_evicted += sum(source.n_evicted for source in progress.sources)
        with_key = {
            name: table.num_rows - table["k"].null_count
            for name, table in case.tables(without_late=False).items()
        }
        assert {s.name: s.n_arrived for s in progress.sources} == with_key
    assert n_late > 200
    assert n_evicted > 200


def stream_join(windows: dict[str, Window]) -> CellSpec:
    """Orders and items with keys, times and some text."""
    fields = [("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("note", pa.string())]
    schema = pa.schema(fields)
    names = ("orders", "items")
    tables = {name: WindowedTable(schema, True) for name in names}
    query = Query(
        tuple(Source(name, name, schema) for name in names),
        equalities=(Equality(*(Column(name, "k") for name in names), pa.int64()),),
        output=tuple(Output(name, Column(name, "note"), pa.string()) for name in names),
    )
    return CellSpec(
        with_windows(query, windows, tables), Options(state="stems"), names, windows=windows
    )


def stream_rows(times: Iterable[int], keys: Iterable[int]) -> pa.RecordBatch:
    """Rows at these seconds."""
    rows = [
        (key, time * 1_000_000, f"{key} at {time}") for key, time in zip(keys, times, strict=True)
    ]
    keys_, times_, notes = zip(*rows, strict=True)
    at = pa.array(times_, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch({"k": pa.array(keys_, pa.int64()), "at": at, "note": list(notes)})


MINUTE = 60 * 1_000_000


def test_an_epoch_that_runs_again_finds_what_it_found(tmp_path: Path, eager_log: None) -> None:
    """The log is put together after the first run of an epoch whose rows end all windows before it."""
    window = TimeWindow("at", MINUTE)
    spec = stream_join({"orders": window, "items": window})
    log = EpochLog(str(tmp_path))
    cell = Cell(spec, log)
    for epoch in range(9):
        rows = stream_rows([epoch], [epoch])
        log.write(epoch, [(0, serialised(rows)), (1, serialised(stream_rows([epoch], [-1])))])
        list(cell.run(epoch))
        cell.tidy(epoch)
    log.write(9, [(n, serialised(stream_rows([20, 500], [3, -1 - n]))) for n in (0, 1)])
    first = list(cell.run(9))
    cell.tidy(9)
    assert sum(rows.num_rows for rows in first) == 2  # the order of epoch 3, and the one of epoch 9
    again = Cell(spec, log)
    assert_same_bag(
        pa.Table.from_batches(list(again.run(9))), pa.Table.from_batches(first), "run again"
    )
    log.write(10, [(1, serialised(stream_rows([500], [3])))])
    assert not list(again.run(10))


def sizes_over_time(
    spec: CellSpec, folder: Path, n_epochs: int, n_rows: int
) -> dict[str, list[int]]:
    """What a cell and its log hold after every epoch, when a second passes in each."""
    rng = random.Random(5)
    log = EpochLog(str(folder / "log"))
    cell = Cell(spec, log)
    found: dict[str, list[int]] = {"rows": [], "bytes": [], "files": [], "log": [], "spilled": []}
    found["rebuilt"] = []
    for epoch in range(n_epochs):
        blobs = [
            (
                n,
                serialised(
                    stream_rows([epoch] * n_rows, [rng.randrange(500) for _ in range(n_rows)])
                ),
            )
            for n in (0, 1)
        ]
        log.write(epoch, blobs)
        for _ in cell.run(epoch):
            pass
        cell.tidy(epoch)
        progress = cell.progress()
        assert progress is not None
        files = [path.stat().st_size for path in (folder / "log").iterdir()]
        spilled = (folder / "spill").rglob("*")
        found["rows"].append(sum(source.n_stored for source in progress.sources))
        found["bytes"].append(sum(source.n_bytes for source in progress.sources))
        found["files"].append(len(files))
        found["log"].append(sum(files))
        found["spilled"].append(sum(path.stat().st_size for path in spilled if path.is_file()))
        found["rebuilt"].append(cell.n_rebuilt)
        assert all(source.n_arrived == n_rows * (epoch + 1) for source in progress.sources)
        if epoch % 97 == 96:
            cell.forget()
            cell = Cell(spec, log)
    return found


@pytest.mark.parametrize("how", ["times", "rows", "both", "disk"])
def test_state_and_log_stay_bounded(how: str, tmp_path: Path) -> None:
    by_time, by_rows = TimeWindow("at", 20 * 1_000_000), RowWindow(600)
    windows: dict[str, Window] = {"orders": by_time, "items": by_time}
    if how in ("rows", "both"):
        windows["items"] = by_rows
    if how == "rows":
        windows["orders"] = by_rows
    spec = stream_join(windows)
    (tmp_path / "spill").mkdir()
    if how == "disk":
        options = Options(state="stems", memory=60_000, spill_dir=str(tmp_path / "spill"))
        spec = replace(spec, options=options)
    n_rows = 30
    sizes = sizes_over_time(spec, tmp_path, 300, n_rows)
    live = {"times": 2 * 21 * n_rows, "rows": 2 * 600, "both": 21 * n_rows + 600, "disk": 10**9}
    assert max(sizes["rows"]) < 1.5 * live[how] + 2 * n_rows
    assert max(sizes["files"]) <= 26
    assert max(sizes.pop("rebuilt")) < 10  # in 97 epochs; a window has 20
    for name, series in sizes.items():
        early, late = max(series[50:140]), max(series[210:300])
        assert late <= 1.25 * early, f"{name} grew from {early} to {late}"
    assert (max(sizes["spilled"]) > 0) == (how == "disk")


def test_large_segments_leave_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch is too large to be put together with others, until its rows are dead."""
    monkeypatch.setattr(log_module, "_SMALL_BYTES", 2000)
    (tmp_path / "spill").mkdir()
    window = TimeWindow("at", 20 * 1_000_000)
    sizes = sizes_over_time(stream_join({"orders": window, "items": window}), tmp_path, 150, 30)
    assert 20 < max(sizes["files"]) <= 20 + 12
    assert max(sizes["log"][100:150]) <= 1.1 * max(sizes["log"][50:100])


def test_state_that_cannot_forget_is_made_anew_without_dead_rows(tmp_path: Path) -> None:
    window = TimeWindow("at", MINUTE)
    spec = stream_join({"orders": window, "items": window})
    spec = replace(spec, options=Options(state="stems", memory="100MB", spill_dir=str(tmp_path)))
    log = EpochLog(str(tmp_path / "log"))
    cell = Cell(spec, log)
    for epoch, time in enumerate([0, 0, 0, 500, 501]):
        log.write(epoch, [(n, serialised(stream_rows([time] * 10, range(10)))) for n in (0, 1)])
        assert sum(rows.num_rows for rows in cell.run(epoch)) == (10, 30, 50, 10, 30)[epoch]
        cell.tidy(epoch)
    progress = cell.progress()
    assert progress is not None
    found = [(s.n_arrived, s.n_stored, s.n_evicted) for s in progress.sources]
    assert found == [(50, 20, 30)] * 2
    assert cell.n_rebuilt == 2
