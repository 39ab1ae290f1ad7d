"""Columns that a process keeps decoded: within the budget, and never those of another file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import eddies
from eddies.core.expr import Call, Column, Expr, Literal
from eddies.errors import SourceError
from eddies.sources.decoded import ColumnKey, DecodedColumns
from eddies.sources.open_file import OpenFile
from eddies.sources.paths import DataFile
from eddies.sources.row_groups import ParquetSplit
from eddies.sources.source import Split
from tests.support.bag import assert_same_bag

KILOBYTE = pa.array(np.arange(128))  # int64


def key(name: str) -> ColumnKey:
    return ColumnKey("local", DataFile("f", 1, 1), 0, name, False)


def rows_of(
    splits: list[Split], columns: list[str], decoded: DecodedColumns, where: tuple[Expr, ...] = ()
) -> pa.Table:
    opened = OpenFile(decoded)
    batches = []
    for split in splits:
        assert isinstance(split, ParquetSplit)
        batches += list(split.read(columns, where, opened=opened, dictionaries=True))
    opened.close()
    batches = [batch.cast(pa.schema([(n, TYPES[n]) for n in columns])) for batch in batches]
    return pa.Table.from_batches(batches, pa.schema([(n, TYPES[n]) for n in columns]))


TYPES = {"id": pa.int64(), "word": pa.string(), "price": pa.decimal128(9, 2)}


def sample(n_rows: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(n_rows), pa.int64()),
            "word": pa.array([("red", "green", None)[i % 3] for i in range(n_rows)]),
            "price": pa.array([Decimal(i) for i in range(n_rows)], pa.decimal128(9, 2)),
        }
    )


def test_what_was_kept_is_found_again() -> None:
    decoded = DecodedColumns()
    decoded.begin(10_000)
    assert decoded.find(key("a")) is None
    decoded.keep(key("a"), KILOBYTE)
    assert decoded.find(key("a")) is KILOBYTE
    assert decoded.n_bytes == 1024


def test_a_scan_larger_than_the_budget_keeps_what_fits() -> None:
    decoded = DecodedColumns()
    names = [f"c{i}" for i in range(10)]
    for run in range(3):
        decoded.begin(4 * 1024)
        found = [decoded.find(key(name)) is not None for name in names]
        assert sum(found) == (4 if run else 0)
        for name in names:
            decoded.keep(key(name), KILOBYTE)
        assert decoded.n_bytes == 4 * 1024


def test_what_is_out_of_use_makes_room() -> None:
    decoded = DecodedColumns()
    decoded.begin(2 * 1024)
    decoded.keep(key("old"), KILOBYTE)
    decoded.keep(key("older"), KILOBYTE)
    for _ in range(4):
        decoded.begin(2 * 1024)
        decoded.find(key("old"))
    decoded.keep(key("new"), KILOBYTE)
    assert decoded.find(key("older")) is None
    assert decoded.find(key("old")) is not None
    assert decoded.find(key("new")) is not None


def test_a_smaller_budget_gives_back() -> None:
    decoded = DecodedColumns()
    decoded.begin(8 * 1024)
    for i in range(8):
        decoded.keep(key(str(i)), KILOBYTE)
    decoded.begin(3 * 1024)
    assert decoded.n_bytes == 3 * 1024
    assert [decoded.find(key(str(i))) is not None for i in range(8)] == [False] * 5 + [True] * 3


def test_larger_than_everything_is_not_kept() -> None:
    decoded = DecodedColumns()
    decoded.begin(1023)
    decoded.keep(key("a"), KILOBYTE)
    assert decoded.n_bytes == 0


@pytest.mark.parametrize("budget_bytes", [100_000, 6_000, 1])
@pytest.mark.parametrize("is_tested", [True, False])
def test_rows_are_the_same(tmp_path: Path, budget_bytes: int, is_tested: bool) -> None:
    parquet.write_table(sample(1000), tmp_path / "t.parquet", row_group_size=300)
    splits = eddies.read.parquet(tmp_path).splits()
    is_red = Call("eq", (Column("t", "word"), Literal("red", pa.string())))
    where = (is_red,) if is_tested else ()
    decoded = DecodedColumns()
    expected = sample(1000)
    if is_tested:
        expected = expected.filter(pa.array([i % 3 == 0 for i in range(1000)]))
    for columns in (["id", "word"], ["price"], ["price", "id"], ["word", "id", "price"]) * 2:
        decoded.begin(budget_bytes)
        assert_same_bag(rows_of(splits, columns, decoded, where), expected.select(columns))
        assert decoded.n_bytes <= budget_bytes


def test_kept_columns_are_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.write_table(sample(1000), tmp_path / "t.parquet", row_group_size=300)
    splits = eddies.read.parquet(tmp_path).splits()
    decoded = DecodedColumns()
    decoded.begin(100_000)
    rows_of(splits, ["id", "word"], decoded)
    asked = []
    read = parquet.ParquetFile.read_row_group

    def counted(self: parquet.ParquetFile, number: int, names: list[str], **more: bool) -> pa.Table:
        asked.append(tuple(names))
        return read(self, number, names, **more)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    rows_of(splits, ["word", "price", "id"], decoded)
    assert asked == [("price",)] * 4


def test_a_file_written_again_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(sample(1000), path)
    before = eddies.read.parquet(path).splits()
    decoded = DecodedColumns()
    decoded.begin(100_000)
    rows_of(before, ["id"], decoded)
    parquet.write_table(sample(999), path)
    with pytest.raises(SourceError, match="is not the file"):
        rows_of(before, ["id"], decoded)
    after = eddies.read.parquet(path).splits()
    assert_same_bag(rows_of(after, ["id"], decoded), sample(999).select(["id"]))
