"""Arrow files, tables as sources, paths without a format, and files that only Spark can reach."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

import eddies
from eddies.errors import SourceError
from eddies.sources import is_source
from tests.support.bag import assert_same_bag
from tests.support.source_rows import read_all


def sample() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(1000), pa.uint32()),
            "word": pa.array(["a", "b", None, "c"] * 250).dictionary_encode(),
        }
    )


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_arrow_files_are_read_by_record_batches(tmp_path: Path, compression: str) -> None:
    feather.write_feather(sample(), tmp_path / "t.arrow", compression=compression, chunksize=300)
    source = eddies.read.arrow(tmp_path / "t.arrow")
    assert source.schema == pa.schema([("id", pa.int64()), ("word", pa.string())])
    assert source.n_rows == 1000
    assert [split.n_rows for split in source.splits()] == [300, 300, 300, 100]
    expected = sample().cast(source.schema)
    assert_same_bag(read_all(source), expected)
    assert read_all(source, ["word"], batch_rows=7).equals(expected.select(["word"]))
    assert sum(b.num_rows for split in source.splits() for b in split.read([])) == 1000


def test_arrow_streams_are_one_split_a_file(tmp_path: Path) -> None:
    with ipc.new_stream(tmp_path / "t.arrows", sample().schema) as stream:
        stream.write_table(sample(), max_chunksize=300)
    source = eddies.read.arrow(tmp_path / "t.arrows")
    assert source.n_rows is None
    assert len(source.splits()) == 1
    assert_same_bag(read_all(source), sample().cast(source.schema))
    assert_same_bag(
        read_all(source, ["word"]),
        sample().select(["word"]).cast(pa.schema([("word", pa.string())])),
    )


def test_arrow_files_that_are_broken_or_differ(tmp_path: Path) -> None:
    feather.write_feather(sample(), tmp_path / "a.arrow")
    feather.write_feather(pa.table({"id": ["x"]}), tmp_path / "b.arrow")
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:500])
    (tmp_path / "text.arrow").write_text("hello, this is no arrow file at all")
    with pytest.raises(SourceError, match=r"b.arrow has other columns than .*a.arrow: .*'word'"):
        eddies.read.arrow([tmp_path / "a.arrow", tmp_path / "b.arrow"])
    for name in ("cut", "text"):
        with pytest.raises(SourceError, match=rf"{name}.arrow"):
            read_all(eddies.read.arrow(tmp_path / f"{name}.arrow"))


def test_an_arrow_table_is_a_source(tmp_path: Path) -> None:
    source = eddies.read.arrow(sample())
    assert is_source(source)
    assert_same_bag(read_all(source), sample().cast(source.schema))


def test_a_path_is_read_by_its_suffix(tmp_path: Path) -> None:
    rows = pa.table({"v": [1, 2]})
    (tmp_path / "folder").mkdir()
    parquet.write_table(rows, tmp_path / "folder" / "x.parquet")
    feather.write_feather(rows, tmp_path / "t.arrow")
    (tmp_path / "t.csv").write_text("v\n1\n2\n")
    (tmp_path / "t.jsonl").write_text('{"v": 1}\n{"v": 2}\n')
    (tmp_path / "t.xls").write_text("?")
    for name in ("folder", "t.arrow", "t.csv", "t.jsonl"):
        assert read_all(eddies.read.path(tmp_path / name))["v"].to_pylist() == [1, 2]
    with pytest.raises(SourceError, match=r"t.xls: cannot tell the format.*\.parquet"):
        eddies.read.path(tmp_path / "t.xls")


def test_files_that_pyarrow_cannot_reach_are_left_to_spark(tmp_path: Path) -> None:
    source = eddies.read.parquet("dbfs:/lake/orders", schema=pa.schema([("v", pa.int64())]))
    assert not source.is_direct
    assert "read by Spark: pyarrow has no file system for dbfs" in source.label
    assert pickle.loads(pickle.dumps(source)).schema.names == ["v"]
    with pytest.raises(SourceError, match="Only Spark reads it"):
        source.splits()
    with pytest.raises(SourceError, match="Spark reads no Arrow files"):
        eddies.read.arrow("dbfs:/lake/orders")
    (tmp_path / "t.csv").write_text("v\n1\n")
    with pytest.raises(SourceError, match="different file systems"):
        eddies.read.csv([tmp_path / "t.csv", "gs://anonymous@bucket/x"])
