"""CSV and JSON files, cut at any line; compressed files and Arrow streams, held while handed out."""

from __future__ import annotations

import gzip
import json
from itertools import chain, pairwise, repeat
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from eddies.errors import SourceError
from eddies.sources import read
from eddies.sources.source import Source
from eddies.sources.streams import stream_of
from tests.support.bag import assert_same_bag
from tests.support.reading_streams import offsets_of, read_between, read_stream, revived

TABLE = pa.table(
    {
        "k": pa.array(range(613), pa.int64()),
        "t": ["ä" * (i % 40) + "x" for i in range(613)],
    }
)
KINDS = ["csv", "json", "csv.gz", "multiline", "arrow stream"]
PIECES = [TABLE.slice(0, 250), TABLE.slice(250, 0), TABLE.slice(250)]


def _csv(piece: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    csv.write_csv(piece, sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("lines")
    schema = TABLE.schema
    for kind in ("csv", "json", "gz", "multiline", "arrows"):
        (folder / kind).mkdir()
    for number, piece in enumerate(PIECES):
        (folder / "csv" / f"{number}.csv").write_bytes(_csv(piece))
        (folder / "multiline" / f"{number}.csv").write_bytes(_csv(piece))
        (folder / "gz" / f"{number}.csv.gz").write_bytes(gzip.compress(_csv(piece)))
        lines = "\n".join(json.dumps(row) for row in piece.to_pylist())
        (folder / "json" / f"{number}.json").write_text(lines)  # no line break at the end
        path = str(folder / "arrows" / f"{number}.arrows")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(piece, max_chunksize=99)
    return {
        "csv": read.csv(str(folder / "csv"), schema=schema),
        "json": read.json(str(folder / "json"), schema=schema),
        "csv.gz": read.csv(str(folder / "gz"), schema=schema),
        "multiline": read.csv(str(folder / "multiline"), schema=schema, multiline=True),
        "arrow stream": read.arrow(str(folder / "arrows")),
    }


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.integers(1, 200), max_size=8))
@settings(max_examples=12, deadline=None)
def test_any_cut_gives_the_same_bag(
    sources: dict[str, Source], kind: str, sizes: list[int]
) -> None:
    steps = chain(sizes, repeat(170))
    assert_same_bag(read_stream(stream_of(sources[kind]), steps), TABLE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_made_anew_goes_on_and_reads_again(sources: dict[str, Source], kind: str) -> None:
    stream = stream_of(sources[kind])
    offsets = list(offsets_of(stream, repeat(100)))
    first = [read_between(stream, start, end) for start, end in pairwise(offsets)]
    for cut in range(len(offsets) - 1):
        other = revived(stream)
        assert_same_bag(read_between(other, offsets[cut], offsets[cut + 1]), first[cut])
        rest = list(offsets_of(other, repeat(130), offsets[cut + 1]))
        later = [read_between(other, start, end) for start, end in pairwise(rest)]
        assert_same_bag(pa.concat_tables([*first[: cut + 1], *later]), TABLE)


@pytest.mark.parametrize("kind", KINDS)
def test_back_pressure_bounds_every_step(sources: dict[str, Source], kind: str) -> None:
    stream = stream_of(sources[kind])
    for start, end in pairwise(offsets_of(stream, repeat(64))):
        assert read_between(stream, start, end).num_rows <= 64


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_read_as_asked(sources: dict[str, Source], kind: str) -> None:
    stream = stream_of(sources[kind], ["t"])
    assert_same_bag(read_stream(stream, repeat(130), ["t"]), TABLE.select(["t"]))


def test_lines_longer_than_a_window_are_one_row(tmp_path: Path) -> None:
    table = pa.table({"t": ["y" * 3_000_000, "short", "z" * 1_500_000]})
    (tmp_path / "long.csv").write_bytes(_csv(table))
    stream = stream_of(read.csv(str(tmp_path / "long.csv")))
    assert_same_bag(read_stream(stream, repeat(1)), table)


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gone.csv"
    path.write_bytes(_csv(TABLE))
    stream = stream_of(read.csv(str(path)))
    start = stream.start()
    path.unlink()
    with pytest.raises(SourceError, match=r"gone\.csv"):
        list(offsets_of(stream, repeat(10), start))
