"""Parquet sources against DuckDB reading the same files, and what goes wrong with files."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.core.eddy import Eddy
from eddies.core.expr import Call, Column, Literal
from eddies.core.query import Equality, Output, Query, Source
from eddies.errors import SourceError
from eddies.sources.footers import forget_footers
from eddies.spark.reading import Reading
from tests.support.bag import assert_same_bag
from tests.support.source_rows import read_all


def column(name: str) -> Column:
    return Column("any", name)


def sample(n_rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = pa.array(["red", "green", "blue", None]).take(pa.array(rng.integers(0, 4, n_rows)))
    return pa.table(
        {
            "id": np.arange(n_rows),
            "group": pa.array(rng.integers(0, 9, n_rows), mask=rng.random(n_rows) < 0.1),
            "price": pa.array([Decimal(int(c)).scaleb(-2) for c in rng.integers(0, 9999, n_rows)]),
            "word": words,
            "note": [f"note {i} {i % 7}" for i in range(n_rows)],
            "day": pa.array(rng.integers(9000, 9100, n_rows), pa.int32()).cast(pa.date32()),
        }
    )


@pytest.mark.parametrize("batch_rows", [1 << 20, 1000, 7])
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_rows_are_those_duckdb_reads(tmp_path: Path, writer: str, batch_rows: int) -> None:
    rows = sample(5000)
    path = tmp_path / "t.parquet"
    if writer == "pyarrow":
        parquet.write_table(rows, path, row_group_size=1700)
    else:
        duckdb.sql("SELECT * FROM rows").write_parquet(str(path), row_group_size=2048)
    source = eddies.read.parquet(path)
    assert source.n_rows == 5000
    splits = source.splits()
    assert len(splits) > 1
    assert sum(split.n_rows or 0 for split in splits) == 5000
    found = read_all(source, batch_rows=batch_rows)
    assert_same_bag(found, duckdb.sql(f"FROM '{path}'").to_arrow_table())
    assert max(batch.num_rows for batch in found.to_batches()) <= batch_rows


def test_columns_come_in_the_order_asked_for_and_may_be_none(tmp_path: Path) -> None:
    parquet.write_table(sample(100), tmp_path / "t.parquet", row_group_size=30)
    source = eddies.read.parquet(tmp_path)
    (first, *_) = source.splits()
    (batch,) = first.read(["note", "id"])
    assert batch.schema.names == ["note", "id"]
    assert [b.num_rows for split in source.splits() for b in split.read([])] == [30, 30, 30, 10]
    assert [b.num_rows for b in first.read([], batch_rows=16)] == [16, 14]


def test_types_are_those_spark_gives(tmp_path: Path) -> None:
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)
    table = pa.table(
        {
            "u8": pa.array([1, 255, None], pa.uint8()),
            "u16": pa.array([1, 65535, None], pa.uint16()),
            "u32": pa.array([1, 2**32 - 1, None], pa.uint32()),
            "u64": pa.array([1, 2**64 - 1, None], pa.uint64()),
            "coded": pa.array(["a", "b", None]).dictionary_encode(),
            "large": pa.array(["a", "b", None], pa.large_string()),
            "view": pa.array(["a", "b", None], pa.string_view()),
            "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "nanos": pa.array([1, 1999, None], pa.timestamp("ns")),
            "berlin": pa.array([moment, moment, None], pa.timestamp("ms", "Europe/Berlin")),
            "seconds": pa.array([1, 2, None], pa.timestamp("s")),
            "lasting": pa.array([1, 2, None], pa.duration("ms")),
            "list": pa.array([[1], [2, 3], None], pa.large_list(pa.uint8())),
            "record": pa.array([{"x": "a"}, None, None], pa.struct([("x", pa.large_string())])),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    source = eddies.read.parquet(tmp_path / "t.parquet")
    expected = {
        "u8": pa.int16(),
        "u16": pa.int32(),
        "u32": pa.int64(),
        "u64": pa.decimal128(20, 0),
        "coded": pa.string(),
        "large": pa.string(),
        "view": pa.string(),
        "fixed": pa.binary(),
        "nanos": pa.timestamp("us"),
        "berlin": pa.timestamp("us", "UTC"),
        "seconds": pa.timestamp("us"),
        "lasting": pa.int64(),
        "list": pa.list_(pa.int16()),
        "record": pa.struct([("x", pa.string())]),
    }
    assert {f.name: f.type for f in source.schema} == expected
    rows = read_all(source)
    assert rows["u64"].to_pylist() == [Decimal(1), Decimal(2**64 - 1), None]
    assert rows["u32"].to_pylist() == [1, 2**32 - 1, None]
    assert rows["nanos"].cast(pa.int64()).to_pylist() == [0, 1, None]
    assert rows["view"].to_pylist() == ["a", "b", None]
    assert rows["list"].to_pylist() == [[1], [2, 3], None]
    assert rows["record"].to_pylist() == [{"x": "a"}, None, None]


def test_int96_timestamps_are_instants(tmp_path: Path) -> None:
    moments = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 5, 6), None]
    table = pa.table({"at": pa.array(moments, pa.timestamp("us"))})
    parquet.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    source = eddies.read.parquet(tmp_path / "t.parquet")
    assert source.schema.field("at").type == pa.timestamp("us", "UTC")
    assert read_all(source)["at"].cast(pa.timestamp("us")).to_pylist() == moments


def test_predicates_leave_out_row_groups_partitions_and_rows(tmp_path: Path) -> None:
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        parquet.write_table(sample(4000, year), folder / "t.parquet", row_group_size=1000)
    source = eddies.read.parquet(tmp_path)
    assert len(source.splits()) == 8
    in_2024 = Call("eq", (column("year"), Literal(2024, pa.int32())))
    below = Call("lt", (column("id"), Literal(1500, pa.int64())))
    green = Call("eq", (column("word"), Literal("green", pa.string())))
    assert len(source.splits((in_2024,))) == 4
    assert len(source.splits((below,))) == 4
    assert len(source.splits((in_2024, below))) == 2
    found = read_all(source, ["id", "note", "year"], (in_2024, below, green))
    expected = duckdb.sql(
        f"SELECT id, note, CAST(year AS INTEGER) AS year FROM read_parquet('{tmp_path}/*/*.parquet', "
        "hive_partitioning=true) WHERE year = 2024 AND id < 1500 AND word = 'green'"
    ).to_arrow_table()
    assert expected.num_rows > 100
    assert_same_bag(found, expected)


@pytest.mark.parametrize("batch_rows", [1 << 20, 100])
def test_a_reader_leaves_errors_and_user_functions_to_the_eddy(
    tmp_path: Path, batch_rows: int
) -> None:
    parquet.write_table(sample(300), tmp_path / "t.parquet")
    source = eddies.read.parquet(tmp_path)
    fails = Call(
        "eq",
        (
            Call("int_divide", (Literal(1, pa.int64()), column("group"))),
            Literal(1, pa.int64()),
        ),
    )
    unknown = Call("my_function", (column("note"),))
    found = read_all(source, ["id"], (unknown, fails), batch_rows=batch_rows)
    assert found.num_rows == 300


def test_partition_columns_have_the_types_spark_infers(tmp_path: Path) -> None:
    folders = [
        "i=1/l=1/d=2024-01-02/s=a%2Fb/x=1.5/n=__HIVE_DEFAULT_PARTITION__/t=2024-01-02 03%3A04%3A05",
        "i=-2/l=3000000000/d=__HIVE_DEFAULT_PARTITION__/s=7/x=2/n=__HIVE_DEFAULT_PARTITION__"
        "/t=2024-01-02 03%3A04%3A05.5",
    ]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        parquet.write_table(pa.table({"v": [1]}), tmp_path / folder / "t.parquet")
    source = eddies.read.parquet(tmp_path)
    expected = pa.schema(
        [
            ("v", pa.int64()),
            ("i", pa.int32()),
            ("l", pa.int64()),
            ("d", pa.date32()),
            ("s", pa.string()),
            ("x", pa.float64()),
            ("n", pa.null()),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
    assert source.schema == expected
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert read_all(source).sort_by("i").to_pylist() == [
        {
            "v": 1,
            "i": -2,
            "l": 3 * 10**9,
            "d": None,
            "s": "7",
            "x": 2.0,
            "n": None,
            "t": moment.replace(microsecond=500000),
        },
        {
            "v": 1,
            "i": 1,
            "l": 1,
            "d": dt.date(2024, 1, 2),
            "s": "a/b",
            "x": 1.5,
            "n": None,
            "t": moment,
        },
    ]
    null_day = Call("is_null", (column("d"),))
    assert len(source.splits((null_day,))) == 1


def test_paths_of_every_kind_mean_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    for i in range(3):
        parquet.write_table(pa.table({"v": [i]}), tmp_path / "data" / f"p{i}.parquet")
    (tmp_path / "data" / "_SUCCESS").write_text("")
    (tmp_path / "data" / ".hidden.parquet").write_text("")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    for path in (
        "data",
        folder,
        "data/*.parquet",
        "data/p[0-2].parquet",
        "data/{p0,p1,p2}.parquet",
        "d*/p?.parquet",
        ["data/p0.parquet", folder / "p1.parquet", "data/p2.parquet"],
        ["data/p0.parquet", "data"],
        folder.as_uri(),
        folder.as_uri() + "/*.parquet",
    ):
        source = eddies.read.parquet(path)
        monkeypatch.chdir("/")
        assert sorted(read_all(source)["v"].to_pylist()) == [0, 1, 2], path
        monkeypatch.chdir(tmp_path)
    assert eddies.read.parquet("data").label == "parquet data"


def test_a_name_that_looks_like_a_pattern_but_exists_is_that_file(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"v": [1]}), tmp_path / "a[1].parquet")
    assert eddies.read.parquet(tmp_path / "a[1].parquet").n_rows == 1


def write(path: Path, **columns: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)


def test_mistakes_in_paths_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "deep" / "a" / "t.parquet", v=[1])
    write(tmp_path / "mixed" / "k=1" / "t.parquet", v=[1])
    write(tmp_path / "mixed" / "j=1" / "t.parquet", v=[1])
    for path, message in (
        (tmp_path / "gone.parquet", "there is no .*gone.parquet"),
        (tmp_path / "*.csv", "no file matches"),
        (tmp_path / "empty", "has no files; it is empty"),
        (tmp_path / "deep", "1 in subfolders.*key=value.*pattern"),
        (tmp_path / "mixed", r"do not agree on partition keys.*\['j'\].*\['k'\]"),
        ([], "list of paths is empty"),
        ("", "path is empty"),
        (7, "not int"),
        ([b"x"], "not bytes"),
    ):
        with pytest.raises(SourceError, match=message):
            eddies.read.parquet(path)  # type: ignore[arg-type]


def test_broken_files_are_named_when_the_source_is_made(tmp_path: Path) -> None:
    write(tmp_path / "good.parquet", v=list(range(1000)))
    content = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    (tmp_path / "nothing.parquet").write_bytes(b"")
    for name in ("cut", "text", "nothing"):
        with pytest.raises(SourceError, match=f"{name}.parquet"):
            eddies.read.parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match=r"cut.parquet"):
        eddies.read.parquet([tmp_path / "good.parquet", tmp_path / "cut.parquet"])


def test_damage_behind_a_good_footer_is_named_when_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, v=list(range(100_000)))
    content = bytearray(path.read_bytes())
    content[4:50_000] = bytes(50_000 - 4)
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"t.parquet cannot be read on host"):
        read_all(eddies.read.parquet(path))


def test_files_that_differ_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "types" / "a.parquet", v=[1], w=["x"])
    write(tmp_path / "types" / "b.parquet", v=[1.5], w=["x"])
    with pytest.raises(SourceError, match=r"'v' is int64 in .*a.parquet and double in .*b.parquet"):
        eddies.read.parquet(tmp_path / "types")
    write(tmp_path / "less" / "a.parquet", v=[1], w=["x"])
    write(tmp_path / "less" / "b.parquet", v=[1])
    with pytest.raises(SourceError, match=r"less/b.parquet lacks column 'w', which .*a.parquet"):
        eddies.read.parquet(tmp_path / "less")
    write(tmp_path / "more" / "a.parquet", v=[1])
    write(tmp_path / "more" / "b.parquet", v=[1], w=["x"])
    with pytest.raises(SourceError, match=r"more/a.parquet lacks column 'w', which .*b.parquet"):
        eddies.read.parquet(tmp_path / "more")
    write(tmp_path / "order" / "a.parquet", v=[1], w=["x"])
    write(tmp_path / "order" / "b.parquet", w=["y"], v=[2])
    assert sorted(read_all(eddies.read.parquet(tmp_path / "order"))["v"].to_pylist()) == [1, 2]


def test_a_given_schema_fills_widens_and_refuses(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"v": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"v": [2**40], "w": ["x"], "z": [0]}), tmp_path / "b.parquet")
    schema = pa.schema([("w", pa.string()), ("v", pa.int64())])
    source = eddies.read.parquet(tmp_path, schema=schema)
    assert source.schema == schema
    assert read_all(source).sort_by("v").to_pylist() == [
        {"w": None, "v": 1},
        {"w": "x", "v": 2**40},
    ]
    only_null = Call("is_null", (column("w"),))
    assert [split.n_rows for split in source.splits((only_null,))] == [1]
    big = Call("gt", (column("v"), Literal(2**33, pa.int64())))
    assert read_all(source, ["v"], (big,))["v"].to_pylist() == [2**40]
    with pytest.raises(
        SourceError, match=r"'v' of .*b.parquet is int64, which cannot be read as in"
    ):
        eddies.read.parquet(tmp_path, schema=pa.schema([("v", pa.int32())]))


def test_a_file_that_is_gone_or_changed_when_a_task_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(path, v=[1, 2, 3])
    (split,) = eddies.read.parquet(path).splits()
    write(path, v=[4, 5, 6])
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 10**9))
    with pytest.raises(SourceError, match=r"t.parquet on host .* is not the file"):
        list(split.read(["v"]))
    path.unlink()
    with pytest.raises(SourceError, match=r"host .* does not see .*t.parquet.*shared file system"):
        list(split.read(["v"]))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", v=[1])
    (tmp_path / "t.parquet").chmod(0)
    with pytest.raises(SourceError, match="read permission"):
        eddies.read.parquet(tmp_path / "t.parquet")


def test_footers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        write(tmp_path / f"{i}.parquet", v=[i])
    forget_footers()
    first = eddies.read.parquet(tmp_path)
    # From here on no footer can be read: the second query must know them all.
    monkeypatch.setattr(parquet, "read_metadata", None)
    again = eddies.read.parquet(tmp_path)
    assert again.n_rows == 20
    assert sorted(read_all(first)["v"].to_pylist()) == list(range(20))


def test_text_may_come_as_dictionaries_and_is_the_same(tmp_path: Path) -> None:
    parquet.write_table(sample(3000), tmp_path / "t.parquet")
    source = eddies.read.parquet(tmp_path)
    (split,) = source.splits()
    (plain,) = split.read(["word", "note"])
    (coded,) = split.read(["word", "note"], dictionaries=True)  # type: ignore[call-arg]
    assert plain.schema.types == [pa.string(), pa.string()]
    assert pa.types.is_dictionary(coded.schema.field("word").type)
    assert coded.schema.field("note").type == pa.string()  # every note is another
    assert coded.column("word").dictionary_decode().equals(plain.column("word"))


def test_a_file_is_opened_once_for_all_its_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        table = pa.table({"x": range(40), "t": [f"{name}{i % 3}" for i in range(40)]})
        parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
    splits = eddies.read.parquet(str(tmp_path)).splits()
    opened: list[object] = []
    make = parquet.ParquetFile

    def counted(path: object, **settings: object) -> parquet.ParquetFile:
        opened.append(path)
        return make(path, **settings)

    monkeypatch.setattr(parquet, "ParquetFile", counted)
    reading = Reading("t", ("x", "t"), (), tuple(splits), 1, ())
    found = [x for batch in reading.batches((0,)) for x in batch["x"].to_pylist()]
    assert found == [*range(40), *range(40)]
    assert len(opened) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads from /proc what is mapped")
def test_what_was_read_of_a_large_file_does_not_stay_mapped(tmp_path: Path) -> None:
    """Mapped pages count as memory of the task, which has promised to take little."""
    path = tmp_path / "t.parquet"
    numbers = np.random.default_rng(0).integers(0, 1 << 62, 16 << 20)
    settings = {"compression": "none", "use_dictionary": False}
    parquet.write_table(pa.table({"x": numbers}), path, row_group_size=1 << 20, **settings)
    reading = Reading("t", ("x",), (), tuple(eddies.read.parquet(str(path)).splits()), 1, ())
    mapped = [_mapped_bytes(path) for _ in reading.batches((0,))]
    assert len(mapped) == 16
    assert 0 < max(mapped) <= path.stat().st_size / 2


def _mapped_bytes(path: Path) -> int:
    """How much of a file is in memory as part of this process."""
    n_bytes, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_ours = line.endswith(str(path))
        elif is_ours and line.startswith("Rss:"):
            n_bytes += int(line.split()[1]) * 1024
    return n_bytes


def test_rows_without_partners_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_rows = 4000
    table = pa.table(
        {
            "k": pa.array([None if i % 10 == 9 else i for i in range(n_rows)], pa.int64()),
            "flag": ["yes" if i % 2 else "no" for i in range(n_rows)],
            "text": [f"number {i}" for i in range(n_rows)],
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=20)
    splits = tuple(eddies.read.parquet(str(tmp_path / "t.parquet")).splits())
    schema = pa.schema([("k", pa.int64())])
    query = Query(
        sources=(Source("a", "a", schema), Source("t", "t", table.schema)),
        equalities=(Equality(Column("a", "k"), Column("t", "k"), pa.int64()),),
        output=(Output("text", Column("t", "text"), pa.string()),),
    )
    eddy = Eddy(query)
    eddy.push("a", pa.record_batch({"k": pa.array(range(1000, 1100), pa.int64())}))
    eddy.end("a")
    partners = eddy.partner_filter("t", {"a": 1000, "t": n_rows})
    assert partners is not None
    decoded: list[tuple[int, str]] = []
    read_row_group = parquet.ParquetFile.read_row_group

    def counted(
        self: parquet.ParquetFile, i: int, columns: list[str], **settings: object
    ) -> pa.Table:
        decoded.extend((i, name) for name in columns)
        return read_row_group(self, i, columns, **settings)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    where = (Call("eq", (column("flag"), Literal("yes", pa.string()))),)
    reading = Reading("t", ("k", "text"), where, splits, 1, ())
    found = pa.Table.from_batches(reading.batches((0,), is_last=True, partners=partners))
    wanted = [i for i in range(1000, 1100) if i % 2 and i % 10 != 9]
    texts = found["text"].to_pylist()
    assert {f"number {i}" for i in wanted} <= set(texts)  # never one that has partners
    assert len(texts) == len(set(texts)) < 2 * len(wanted)  # a filter may let some others through
    assert {i for i, name in decoded if name == "k"} == set(range(len(splits)))
    assert len([i for i, name in decoded if name == "text"]) < len(splits) / 2
