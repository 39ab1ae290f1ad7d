"""The streaming bench where no Java is needed: generated rows, their answers, early results, claims."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from eddies.bench.streaming import early, generated, windows
from eddies.bench.streaming.epochs import Epoch, median_s, rows_a_second
from eddies.bench.streaming.run import main
from eddies.errors import OptionError


def test_generated_rows_are_the_same_however_they_are_read() -> None:
    source = generated.GeneratedSource("c", 200_000)
    names = source.schema.names
    whole = pa.Table.from_batches([generated.key_rows("c", 0, 200_000)])
    read = [batch for split in source.splits() for batch in split.read(names, (), 7919)]
    assert pa.Table.from_batches(read).equals(whole)
    assert sum(split.n_rows or 0 for split in source.splits()) == 200_000


def test_every_source_has_every_key_of_a_block_once() -> None:
    for name in generated.SOURCES:
        keys = generated.keys_of(name, generated.BLOCK_ROWS, 2 * generated.BLOCK_ROWS)
        assert np.array_equal(np.sort(keys), np.arange(generated.BLOCK_ROWS) + generated.BLOCK_ROWS)


def test_the_expected_answer_is_that_of_the_join() -> None:
    n_rows = {"a": 900_000, "b": 1_300_000, "c": 700_000, "d": 1_100_000}
    with duckdb.connect() as connection:
        for name, n in n_rows.items():
            connection.register(name, pa.Table.from_batches([generated.key_rows(name, 0, n)]))
        joined = connection.sql(generated.QUERY).to_arrow_table().combine_chunks()
    assert joined.num_rows > 10_000
    found = generated.found_in(joined.to_batches()[0])
    assert found == generated.expected(n_rows)


def test_windowed_rows_are_in_the_order_of_their_times() -> None:
    moments = windows.timed_rows("b", 100, 5000).column("moment").cast(pa.int64()).to_numpy()
    assert (np.diff(moments) > 0).all()
    first, second = (windows.timed_rows("b", 0, 5000)["k"], windows.timed_rows("a", 0, 5000)["k"])
    assert not first.equals(second)


def test_the_windowed_answer_is_compared_row_by_row() -> None:
    n_rows = 20_000
    with duckdb.connect() as connection:
        for name in windows.SOURCES:
            rows = pa.Table.from_batches([windows.timed_rows(name, 0, n_rows)])
            connection.register(name, rows)
        right = connection.sql(f"{windows.QUERY} AND {windows.IN_WINDOW}").to_arrow_table()
    assert right.num_rows > 1000
    assert windows.difference_to_duckdb(right, n_rows) is None
    twice = pa.concat_tables([right.slice(1), right.slice(1, 1)])
    said = windows.difference_to_duckdb(twice, n_rows)
    assert said is not None
    assert "1 are missing, 1 should not be there" in said


def test_when_results_could_come_follows_from_schedules() -> None:
    tables = early.early_tables()
    possible_s, right = early.possible(tables, early.early_sources(tables, 60.0))
    assert len(possible_s) == right.num_rows > 10_000
    assert (np.diff(possible_s) >= 0).all()
    assert possible_s[0] > 6.0, "one source begins after a tenth of the time"
    late = early.Early(possible_s, possible_s + 1.5, None)
    assert late.first_late_s == pytest.approx(1.5)
    assert 0.5 < late.share_delivered < 0.75
    assert early.Early(possible_s, possible_s, None).share_delivered == pytest.approx(
        0.75, abs=0.01
    )


def test_epochs_are_counted_in_intervals() -> None:
    epochs = [Epoch(n, float(n), 0.5 + n / 100, 1000) for n in range(20)]
    assert median_s(epochs, 0, 3) == pytest.approx(0.51)
    assert median_s(epochs, 17) == pytest.approx(0.68)
    assert rows_a_second(epochs) == pytest.approx(15_000 / (19.69 - 5))


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(OptionError, match="no case 'speed'"):
        main(("speed",), console=console)
    with pytest.raises(OptionError, match="above 0"):
        main(minutes=0, console=console)
    with pytest.raises(OptionError, match="no folder"):
        main(json_path=tmp_path / "none" / "x.json", console=console)
