"""Tables and splits of known sizes: any cut gives the same bag, from any process."""

from __future__ import annotations

from itertools import chain, pairwise, repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddies.core.expr import Call, Column, Literal
from eddies.errors import SourceError
from eddies.sources import read
from eddies.sources.source import Source
from eddies.sources.streams import stream_of
from tests.support.bag import assert_same_bag
from tests.support.reading_streams import offsets_of, read_between, read_stream, revived

TABLE = pa.table(
    {
        "k": pa.array(range(997), pa.int64()),
        "t": [None if i % 7 == 0 else f"text {i % 50}" for i in range(997)],
    }
)
SIZES = st.lists(st.integers(1, 300), max_size=12)


def steps(sizes: list[int]) -> chain[int]:
    return chain(sizes, repeat(250))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("splits")
    for number in range(3):
        piece = TABLE.slice(number * 333, 333 if number < 2 else 331)
        pq.write_table(piece, folder / f"{number}.parquet", row_group_size=100)
    path = folder / "t.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
        for batch in TABLE.to_batches(max_chunksize=61):
            writer.write_batch(batch)
    parquet = [str(folder / f"{number}.parquet") for number in range(3)]
    return {
        "parquet": read.parquet(parquet),
        "arrow": read.arrow(str(path)),
        "table": read.arrow(TABLE),
    }


@pytest.mark.parametrize("kind", ["parquet", "arrow", "table"])
@given(SIZES)
@settings(max_examples=30, deadline=None)
def test_any_cut_gives_the_same_bag(files: dict[str, Source], kind: str, sizes: list[int]) -> None:
    assert_same_bag(read_stream(stream_of(files[kind]), steps(sizes)), TABLE)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "table"])
@given(SIZES, st.data())
@settings(max_examples=20, deadline=None)
def test_a_stream_made_anew_goes_on_from_any_offset(
    files: dict[str, Source], kind: str, sizes: list[int], data: st.DataObject
) -> None:
    offsets = list(offsets_of(stream_of(files[kind]), steps(sizes)))
    cut = data.draw(st.integers(1, len(offsets) - 1))
    other = revived(stream_of(files[kind]))
    again = [read_between(other, start, end) for start, end in pairwise(offsets[: cut + 1])]
    later = list(offsets_of(other, repeat(90), offsets[cut]))
    again += [read_between(other, start, end) for start, end in pairwise(later)]
    assert_same_bag(pa.concat_tables(again), TABLE)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "table"])
def test_back_pressure_bounds_every_step(files: dict[str, Source], kind: str) -> None:
    stream = stream_of(files[kind])
    offsets = list(offsets_of(stream, repeat(70)))
    sizes = [read_between(stream, start, end).num_rows for start, end in pairwise(offsets)]
    assert max(sizes) == 70
    assert [offset["rows"] for offset in offsets] == [0, *range(70, 997, 70), 997]
    assert [stream.is_end(offset) for offset in offsets] == [False] * 15 + [True]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "table"])
def test_columns_are_read_as_asked(files: dict[str, Source], kind: str) -> None:
    found = read_stream(stream_of(files[kind]), repeat(130), ["t"])
    assert_same_bag(found, TABLE.select(["t"]))
    stream = stream_of(files[kind])
    *_, last = offsets_of(stream)
    parts = stream.parts(stream.start(), last)
    assert sum(batch.num_rows for part in parts for batch in part.read([])) == 997


def test_an_empty_table_ends_in_its_first_step() -> None:
    stream = stream_of(TABLE.slice(0, 0))
    start, end = offsets_of(stream)
    assert stream.is_end(end)
    assert stream.parts(start, end) == []


def test_predicates_leave_out_rows_but_move_no_border(files: dict[str, Source]) -> None:
    where = (Call("lt", (Column("x", "k"), Literal(250, pa.int64()))),)
    stream = stream_of(files["parquet"], where=where)
    assert stream.n_rows == 300  # row groups in which rows may pass
    found = read_stream(stream, repeat(70))
    wanted = {row["k"] for row in TABLE.slice(0, 250).to_pylist()}
    keys = found.column("k").to_pylist()
    assert wanted <= set(keys)
    assert len(keys) == len(set(keys)) < 300


def test_a_source_that_changed_is_refused(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "b.parquet", row_group_size=100)
    offsets = list(offsets_of(stream_of(read.parquet(str(tmp_path)))))
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=100)
    with pytest.raises(SourceError, match="not what it was when the query's checkpoint"):
        stream_of(read.parquet(str(tmp_path))).latest(offsets[0], 10)


def test_a_pickled_slice_leaves_the_rest_behind() -> None:
    import pickle

    big = pa.table({"x": pa.array(range(1_000_000), pa.int64())})
    assert len(pickle.dumps(stream_of(big.slice(10, 20)))) < 2000
