"""CSV and JSON sources against DuckDB reading the same files, and lines that are broken."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import math
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import eddies
from eddies.core.expr import Call, Column, Literal
from eddies.errors import SourceError
from eddies.sources import text_files
from tests.support.bag import assert_same_bag
from tests.support.source_rows import read_all


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "SPLIT_BYTES", 1000)
    monkeypatch.setattr(text_files, "_WINDOW_BYTES", 16)


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end"])
def test_every_line_of_a_csv_file_is_in_one_split(tmp_path: Path, line_end: str, last: str) -> None:
    rows = [f"{i},{'x' * (i % 50)},{i / 4}" for i in range(1500)]
    text = line_end.join(["id,text,number", *rows]) + (line_end if last else "")
    (tmp_path / "t.csv").write_bytes(text.encode())
    source = eddies.read.csv(tmp_path / "t.csv")
    splits = source.splits()
    assert len(splits) > 20
    found = read_all(source)
    expected = duckdb.sql(f"FROM read_csv('{tmp_path / 't.csv'}')").to_arrow_table()
    assert_same_bag(found, expected)
    assert sum(b.num_rows for split in splits for b in split.read([])) == 1500
    assert sum(b.num_rows for split in splits for b in split.read(["number"], batch_rows=3)) == 1500


@pytest.mark.usefixtures("small_splits")
def test_lines_longer_than_a_split_are_read_once(tmp_path: Path) -> None:
    rows = [f"{i},{'y' * (2500 if i % 3 == 0 else 2)}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["id,text", *rows]))
    assert sorted(read_all(eddies.read.csv(tmp_path))["id"].to_pylist()) == list(range(30))


def test_fields_of_csv_files_follow_the_rules(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "i,f,s,b,d,t,z,e,q\n"
        '1,1.5,x,true,2024-01-02,2024-01-02 03:04:05,2024-01-02T03:04:05Z,,"a ""b"", c"\n'
        '2,,"",FALSE,,,,,\n'
        ",NaN,NA,,2024-01-03,2024-01-02 03:04:05.25,,,\n"
    )
    source = eddies.read.csv(tmp_path / "t.csv")
    instant = pa.timestamp("us", "UTC")
    assert source.schema == pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
            ("t", instant),
            ("z", instant),
            ("e", pa.string()),
            ("q", pa.string()),
        ]
    )
    rows = read_all(source).to_pydict()
    assert rows["i"] == [1, 2, None]
    assert rows["f"][:2] == [1.5, None]
    assert math.isnan(rows["f"][2])
    assert rows["s"] == ["x", None, "NA"]
    assert rows["b"] == [True, False, None]
    assert rows["d"] == [dt.date(2024, 1, 2), None, dt.date(2024, 1, 3)]
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert rows["t"] == [moment, None, moment.replace(microsecond=250_000)]
    assert rows["z"] == [moment, None, None]
    assert rows["e"] == [None, None, None]
    assert rows["q"] == ['a "b", c', None, None]


def test_settings_of_csv_files(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1;'a;b';-\n2;'';3.25\n")
    source = eddies.read.csv(tmp_path / "t.csv", header=False, delimiter=";", quote="'", null="-")
    assert read_all(source).to_pylist() == [
        {"_c0": 1, "_c1": "a;b", "_c2": None},
        {"_c0": 2, "_c1": "", "_c2": 3.25},
    ]
    schema = pa.schema([("k", pa.int32()), ("text", pa.string()), ("price", pa.decimal128(9, 2))])
    typed = eddies.read.csv(
        tmp_path / "t.csv", schema=schema, header=False, delimiter=";", quote="'", null="-"
    )
    assert typed.schema == schema
    assert read_all(typed)["price"].to_pylist() == [None, Decimal("3.25")]
    (tmp_path / "lines.csv").write_text('id,text\n1,"two\nlines"\n2,one\n')
    several = eddies.read.csv(tmp_path / "lines.csv", multiline=True)
    assert read_all(several)["text"].to_pylist() == ["two\nlines", "one"]
    with pytest.raises(SourceError, match="delimiter must be one ASCII character"):
        eddies.read.csv(tmp_path / "t.csv", delimiter="::")


def test_instants_of_a_given_type_with_and_without_zone(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n2024-01-02 03:04:05,2024-01-02 05:04:05+02:00\n")
    schema = pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.timestamp("us", "UTC"))])
    rows = read_all(eddies.read.csv(tmp_path / "t.csv", schema=schema)).to_pylist()
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert rows == [{"a": moment, "b": moment}]


def test_compressed_partitioned_and_empty_text_files(tmp_path: Path) -> None:
    for key, write in (("1", gzip.compress), ("2", bz2.compress), ("3", bytes)):
        folder = tmp_path / f"k={key}"
        folder.mkdir()
        suffix = {"1": ".gz", "2": ".bz2", "3": ""}[key]
        (folder / f"t.csv{suffix}").write_bytes(write(f"v\n{key}0\n".encode()))
    (tmp_path / "k=3" / "empty.csv").write_text("")
    (tmp_path / "k=3" / "header.csv").write_text("v\n")
    source = eddies.read.csv(tmp_path)
    assert read_all(source, ["k", "v"]).sort_by("k").to_pylist() == [
        {"k": 1, "v": 10},
        {"k": 2, "v": 20},
        {"k": 3, "v": 30},
    ]
    second = Call("eq", (Column("t", "k"), Literal(2, pa.int32())))
    assert len(source.splits((second,))) == 1


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize("row", ["7,8,9", "x,8", "7"])
def test_a_broken_csv_row_is_named_by_file_and_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 5000 + row + "\n" + "1,2\n" * 5000)
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(SourceError, match=r"t.csv, line 5002: "):
        read_all(eddies.read.csv(tmp_path / "t.csv", schema=schema))


def test_csv_files_that_do_not_fit_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a,c\n1,2\n")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "nothing.csv").write_text("")
    with pytest.raises(SourceError, match=r"header of .*b.csv is a, c, but .*a.csv has a, b"):
        eddies.read.csv([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(SourceError, match=r"header of .*a.csv is a, b, but schema= has x"):
        eddies.read.csv(tmp_path / "a.csv", schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(SourceError, match=r"twice.csv names a column twice: a, a"):
        eddies.read.csv(tmp_path / "twice.csv")
    with pytest.raises(SourceError, match="all files are empty"):
        eddies.read.csv(tmp_path / "nothing.csv")


@pytest.mark.usefixtures("small_splits")
def test_json_rows_are_those_duckdb_reads(tmp_path: Path) -> None:
    lines = []
    for i in range(800):
        row: dict[str, object] = {"id": i, "text": f"line \n {i}", "number": i / 4, "list": [i, 1]}
        row["inner"] = {"x": None if i % 5 else i}
        if i % 3 == 0:
            row["odd"] = True
        lines.append(json.dumps(row))
    (tmp_path / "t.json").write_text("\n".join(lines))
    source = eddies.read.json(tmp_path / "t.json")
    assert len(source.splits()) > 20
    assert source.schema.names == ["id", "text", "number", "list", "inner", "odd"]
    columns = ["id", "text", "number", "odd"]
    expected = duckdb.sql(
        f"SELECT {', '.join(columns)} FROM read_json('{tmp_path / 't.json'}', "
        "format='newline_delimited')"
    ).to_arrow_table()
    assert_same_bag(read_all(source, columns), expected)
    inner = read_all(source, ["id", "inner", "list"]).sort_by("id").to_pylist()[5]
    assert inner == {"id": 5, "inner": {"x": 5}, "list": [5, 1]}
    assert sum(b.num_rows for split in source.splits() for b in split.read([])) == 800


def test_texts_of_json_stay_texts_and_a_schema_types_them(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"at": "2024-01-02T03:04:05", "n": null}\n{"more": 1}\n')
    source = eddies.read.json(tmp_path / "t.jsonl")
    assert read_all(source).to_pydict() == {
        "at": ["2024-01-02T03:04:05", None],
        "n": [None, None],
        "more": [None, 1],
    }
    schema = pa.schema([("at", pa.timestamp("us")), ("absent", pa.int32())])
    typed = read_all(eddies.read.json(tmp_path / "t.jsonl", schema=schema))
    assert typed.to_pydict() == {
        "at": [dt.datetime(2024, 1, 2, 3, 4, 5), None],
        "absent": [None] * 2,
    }


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize("row", ['{"a": "x"}', '{"a": ', "[1]", "7"])
def test_a_broken_json_line_is_named_by_file_and_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "t.json").write_text('{"a": 1}\n' * 900 + row + "\n" + '{"a": 1}\n' * 900)
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(SourceError, match=r"t.json, line 901: .*one JSON object a line"):
        read_all(eddies.read.json(tmp_path / "t.json", schema=schema))
    with pytest.raises(SourceError, match=r"t.json, line 901: "):
        eddies.read.json(tmp_path / "t.json")
