"""What sources deliver is what Spark reads from the same files: columns, types and rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import eddies
from eddies.sources import Source
from eddies.sources.through_spark import dataframe_of_splits
from tests.support.bag import assert_same_bag
from tests.support.source_rows import read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_rows(source: Source, spark: SparkSession) -> pa.Table:
    return source.dataframe(spark).toArrow()


def assert_as_spark(source: Source, spark: SparkSession) -> pa.Table:
    """Same names, types and rows; nested fields may have other names for list elements."""
    theirs = spark_rows(source, spark)
    assert theirs.schema.names == source.schema.names
    for ours, other in zip(source.schema, theirs.schema, strict=True):
        if not pa.types.is_nested(ours.type):
            assert ours.type == other.type, ours.name
    found = read_all(source)
    assert_same_bag(_without_nesting(found), _without_nesting(theirs), source.label)
    return found


def _without_nesting(table: pa.Table) -> pa.Table:
    """Lists and structs as texts: rows are counted, and those cannot be."""
    for i, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [repr(value) for value in table.column(i).to_pylist()]
            table = table.set_column(i, field.name, pa.array(texts))
    return table


def n_jobs(spark: SparkSession, run: Callable[[], object]) -> int:
    """How many jobs Spark starts while it does something."""
    context = spark.sparkContext
    context.setJobGroup("counted", "jobs of one test")
    try:
        before = len(context.statusTracker().getJobIdsForGroup("counted"))
        run()
        return len(context.statusTracker().getJobIdsForGroup("counted")) - before
    finally:
        context._jsc.clearJobGroup()


def plain_columns() -> pa.Table:
    return pa.table(
        {
            "i8": pa.array([1, -128, None], pa.int8()),
            "i16": pa.array([1, -(2**15), None], pa.int16()),
            "i32": pa.array([1, 2, 3], pa.int32()),
            "i64": pa.array([1, 2**62, None], pa.int64()),
            "f32": pa.array([1.5, None, -0.0], pa.float32()),
            "f64": pa.array([1.5, None, float("inf")], pa.float64()),
            "yes": pa.array([True, None, False]),
            "day": pa.array([19000, None, -5], pa.date32()),
            "money": pa.array([Decimal("1.25"), None, Decimal("-7.00")], pa.decimal128(9, 2)),
            "huge": pa.array([Decimal("1.25"), None, Decimal("-7.00")], pa.decimal128(38, 2)),
            "text": pa.array(["a", None, "b"]),
            "large": pa.array(["a", None, "b"], pa.large_string()),
            "view": pa.array(["a", None, "b"], pa.string_view()),
        }
    )


def test_columns_of_plain_types_are_told_to_spark_which_starts_no_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = plain_columns()
    parquet.write_table(table, tmp_path / "one.parquet")
    parquet.write_table(table, tmp_path / "two.parquet", store_schema=False)
    for name in ("one", "two"):
        path = str(tmp_path / f"{name}.parquet")
        source = eddies.read.parquet(path)
        assert n_jobs(spark, lambda given=source: given.dataframe(spark)) == 0  # type: ignore[misc]
        assert source.dataframe(spark).schema == spark.read.parquet(path).schema
        assert_as_spark(source, spark)


def test_columns_that_spark_may_take_for_others_are_found_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    of_spark = str(tmp_path / "of_spark")
    spark.sql("SELECT 1 AS a, CAST('x' AS VARCHAR(3)) AS b").write.parquet(of_spark)
    parquet.write_table(pa.table({"a": [dt.datetime(2024, 1, 1)]}), tmp_path / "time.parquet")
    (tmp_path / "parted" / "k=1").mkdir(parents=True)
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "parted" / "k=1" / "a.parquet")
    for path in (of_spark, str(tmp_path / "time.parquet"), str(tmp_path / "parted")):
        source = eddies.read.parquet(path)
        assert n_jobs(spark, lambda given=source: given.dataframe(spark)) > 0  # type: ignore[misc]
        assert source.dataframe(spark).schema == spark.read.parquet(path).schema


def test_parquet_types_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)
    table = pa.table(
        {
            "u8": pa.array([1, 255, None], pa.uint8()),
            "u16": pa.array([1, 65535, None], pa.uint16()),
            "u32": pa.array([1, 2**32 - 1, None], pa.uint32()),
            "u64": pa.array([1, 2**64 - 1, None], pa.uint64()),
            "i8": pa.array([1, -128, None], pa.int8()),
            "coded": pa.array(["a", "b", None]).dictionary_encode(),
            "large": pa.array(["a", "b", None], pa.large_string()),
            "view": pa.array(["a", "b", None], pa.string_view()),
            "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "day": pa.array([dt.date(1600, 1, 1), dt.date(2024, 1, 1), None]),
            "plain": pa.array([moment, dt.datetime(1960, 1, 1), None], pa.timestamp("us")),
            "millis": pa.array([moment, None, None], pa.timestamp("ms", "Europe/Berlin")),
            "seconds": pa.array([1, 2, None], pa.timestamp("s")),
            "lasting": pa.array([1, 2, None], pa.duration("ms")),
            "money": pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(15, 2)),
            "long": pa.array([Decimal(10) ** 35, None, None], pa.decimal128(38, 2)),
            "single": pa.array([1.5, float("nan"), None], pa.float32()),
            "record": pa.array([{"x": 1}, None, None], pa.struct([("x", pa.uint8())])),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    assert_as_spark(eddies.read.parquet(tmp_path / "t.parquet"), spark)


def test_files_that_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(
        "SELECT id, CAST(id % 3 AS int) AS part, CAST(id AS timestamp) AS at, "
        "CAST(id / 7 AS decimal(9,3)) AS d, IF(id % 5 = 0, NULL, concat('t', id)) AS text, "
        "IF(id % 4 = 0, NULL, date_add(DATE '2024-01-01', CAST(id AS int))) AS day "
        "FROM range(0, 500, 1, 3)"
    )
    for kind in ("INT96", "TIMESTAMP_MICROS"):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        rows.write.mode("overwrite").partitionBy("part").parquet(str(tmp_path / kind))
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        assert assert_as_spark(eddies.read.parquet(tmp_path / kind), spark).num_rows == 500
    rows.write.partitionBy("day").json(str(tmp_path / "json"))
    assert assert_as_spark(eddies.read.json(tmp_path / "json"), spark).num_rows == 500
    rows.write.option("header", True).csv(str(tmp_path / "csv"))
    assert assert_as_spark(eddies.read.csv(tmp_path / "csv"), spark).num_rows == 500


FOLDERS = {
    "whole": ["1", "-2", "2147483647"],
    "long": ["1", "3000000000"],
    "huge": ["1", "99999999999999999999"],
    "hugest": ["1" * 39, "2"],
    "decimal": ["3000000000", "99999999999999999999"],
    "double": ["1.5", "2"],
    "double and long": ["1.5", "3000000000"],
    "exponent": ["1e3", "7"],
    "date": ["2024-01-02", "__HIVE_DEFAULT_PARTITION__"],
    "timestamp": ["2024-01-02 03%3A04%3A05", "2024-01-02"],
    "not a date": ["2024-13-45", "2024-01-02"],
    "fraction": ["2024-01-02 03%3A04%3A05.5", "2024-01-02 03%3A04%3A06"],
    "long fraction": ["2024-01-02 03%3A04%3A05.25", "2024-01-02 03%3A04%3A06"],
    "word": ["a b", "c%2Fd"],
    "word and number": ["x", "1"],
    "date and number": ["2024-01-02", "1"],
    "zeros": ["007", "01"],
    "nothing": ["__HIVE_DEFAULT_PARTITION__"],
    "special": ["NaN", "1.0"],
    "truth": ["true", "false"],
    "suffix": ["1d", "2f"],
}


@pytest.mark.parametrize("name", FOLDERS)
def test_partition_types_are_sparks(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for i, text in enumerate(FOLDERS[name]):
        (tmp_path / f"k={text}").mkdir()
        parquet.write_table(pa.table({"v": [i]}), tmp_path / f"k={text}" / "t.parquet")
    assert_as_spark(eddies.read.parquet(tmp_path), spark)


def test_csv_rows_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "i,f,s,b,d,t,e,q\n"
        '1,1.5,x,true,2024-01-02,2024-01-02 03:04:05,,"a ""b"", c"\n'
        '2,,"",FALSE,,,,\n'
        "\n"
        ',NaN,NA,True,2024-01-03,2024-01-02 03:04:05.25,,"  x "\n'
        "-7,-1e3,\u00e4\U0001f600,,,2024-01-02 00:00:00,, y \n"
    )
    found = assert_as_spark(eddies.read.csv(tmp_path / "t.csv"), spark)
    assert found["s"].to_pylist() == ["x", None, "NA", "\u00e4\U0001f600"]
    (tmp_path / "plain.csv").write_text("1;'a;b';-\n2;'';3.25\n")
    settings = {"header": False, "delimiter": ";", "quote": "'", "null": "-"}
    assert_as_spark(eddies.read.csv(tmp_path / "plain.csv", **settings), spark)  # type: ignore[arg-type]
    (tmp_path / "lines.csv").write_text('id,text\n1,"two\nlines"\n2,one\n')
    assert_as_spark(eddies.read.csv(tmp_path / "lines.csv", multiline=True), spark)
    schema = pa.schema([("id", pa.int32()), ("text", pa.string())])
    given = eddies.read.csv(tmp_path / "lines.csv", multiline=True, schema=schema)
    assert_as_spark(given, spark)


def test_json_rows_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"i": 1, "f": 1.5, "s": "2024-01-02T03:04:05", "l": [1, 2], "o": {"x": null, "y": "z"}}\n'
        '{"i": null, "b": true, "f": 2, "s": ""}\n'
    )
    assert_as_spark(eddies.read.json(tmp_path / "t.json"), spark)


def test_widened_and_missing_columns_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"v": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"v": [2**40], "w": ["x"]}), tmp_path / "b.parquet")
    schema = pa.schema([("w", pa.string()), ("v", pa.int64())])
    assert_as_spark(eddies.read.parquet(tmp_path, schema=schema), spark)


def test_spark_is_given_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "with space, [brackets] and 100%"
    folder.mkdir()
    for i in range(3):
        parquet.write_table(pa.table({"v": [i]}), folder / f"p{i}.parquet")
    (folder / "_ignored").write_text("")
    assert_as_spark(eddies.read.parquet(folder), spark)
    assert_as_spark(eddies.read.parquet([folder / "p0.parquet", folder / "p2.parquet"]), spark)
    plain = tmp_path / "plain"
    plain.mkdir()
    parquet.write_table(pa.table({"v": [1]}), plain / "a1.parquet")
    parquet.write_table(pa.table({"v": [2]}), plain / "b1.parquet")
    found = assert_as_spark(eddies.read.parquet(plain / "{a,c}?.parquet"), spark)
    assert found["v"].to_pylist() == [1]


def test_splits_are_read_by_sparks_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"id": range(1000), "word": ["a", "b", None, "c"] * 250})
    feather.write_feather(table, tmp_path / "t.arrow", chunksize=100)
    assert_as_spark(eddies.read.arrow(tmp_path / "t.arrow"), spark)


def test_a_task_that_does_not_see_a_file_says_so(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"v": [1]}), path)
    source = eddies.read.parquet(path)
    splits = source.splits()
    path.unlink()
    with pytest.raises(Exception, match=r"host .* does not see .*t\.parquet.*shared file system"):
        dataframe_of_splits(spark, splits, source.schema).collect()


def test_paths_of_other_file_systems_are_read_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop's checksummed local file system stands for one that pyarrow does not know."""
    parquet.write_table(pa.table({"v": [1, 2]}), tmp_path / "t.parquet")
    from eddies.sources import read
    from eddies.sources.paths import NoFileSystem

    def unknown(path: object) -> NoFileSystem:
        return NoFileSystem((f"file:{path}",), "pyarrow has no file system for it")

    monkeypatch.setattr(read, "find_files", unknown)
    source = eddies.read.parquet(tmp_path / "t.parquet")
    assert not source.is_direct
    assert source.schema.names == ["v"]
    assert spark_rows(source, spark)["v"].to_pylist() == [1, 2]
