"""Single rows taken out of Parquet pages are those that Arrow's reader gives."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from eddies.sources.pages import ColumnChunk, PageColumn, PageScratch, layout_of

TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "int16": pa.int16(),
    "uint8": pa.uint8(),
    "uint32": pa.uint32(),
    "date": pa.date32(),
    "float": pa.float32(),
    "double": pa.float64(),
    "us": pa.timestamp("us"),
    "zoned": pa.timestamp("ms", "UTC"),
    "ns": pa.timestamp("ns"),
    "decimal9": pa.decimal128(9, 2),
    "decimal15": pa.decimal128(15, 2),
    "decimal38": pa.decimal128(38, 5),
    "text": pa.string(),
    "bytes": pa.binary(),
}

NANOS = pa.timestamp("ns")


def values(type_: pa.DataType, n_rows: int, n_words: int, rng: np.random.Generator) -> pa.Array:
    """So many rows with at most so many different values."""
    numbers = rng.integers(-(1 << 31), 1 << 31, n_words)
    if pa.types.is_decimal(type_):
        scale = 10 ** (type_.precision - 10) if type_.precision > 10 else 1
        limit = 10**type_.precision
        wanted = [int(n) * scale % limit - limit // 2 for n in numbers]
        words = pa.array([Decimal(n).scaleb(-type_.scale) for n in wanted], type_)
    elif pa.types.is_string(type_) or pa.types.is_binary(type_):
        words = pa.array(["ü" * int(n % 13) + str(n % 1000) for n in numbers]).cast(type_)
    elif pa.types.is_floating(type_):
        words = pa.array(numbers / 7).cast(type_)
    elif type_.bit_width < 32:
        words = pa.array(numbers % 100).cast(type_)
    elif pa.types.is_unsigned_integer(type_):
        words = pa.array(numbers % (1 << 32)).cast(type_)
    else:
        words = pa.array(numbers.astype(np.int32 if type_.bit_width == 32 else np.int64))
        words = (pc.multiply(words, 1000) if type_ == NANOS else words).cast(type_)
    return words.take(pa.array(rng.integers(0, n_words, n_rows)))


def open_column(path: Path, row_group: int = 0) -> PageColumn | None:
    """The only column of a file, if it can be read by pages."""
    footer = parquet.read_metadata(path)
    layout = layout_of(footer.schema.column(0), footer.schema.to_arrow_schema().field(0).type)
    if layout is None:
        return None
    group = footer.row_group(row_group)
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    chunk = ColumnChunk.open(
        content, group.column(0), group.num_rows, layout.is_optional, PageScratch()
    )
    return None if chunk is None else PageColumn("a", chunk, layout)


def some_rows(n_rows: int, share: float, rng: np.random.Generator) -> np.ndarray:
    return np.flatnonzero(rng.random(n_rows) < share).astype(np.int32)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_are_those_that_arrow_reads(tmp_path: Path, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    type_ = TYPES[data.draw(st.sampled_from(sorted(TYPES)))]
    n_rows = data.draw(st.sampled_from([1, 7, 1000, 5000]))
    n_words = data.draw(st.sampled_from([1, 2, 50, 4000]))
    null_share = data.draw(st.sampled_from([None, 0.0, 0.1, 0.9, 1.0]))
    column = values(type_, n_rows, n_words, rng)
    if data.draw(st.booleans()):
        column = column.take(pa.array(np.sort(rng.integers(0, n_rows, n_rows))))  # long runs
    if null_share is not None:
        is_null = pa.array(rng.random(n_rows) < null_share)
        column = pc.if_else(is_null, pa.scalar(None, type_), column)
    schema = pa.schema([pa.field("a", type_, nullable=null_share is not None)])
    path = tmp_path / "a.parquet"
    compression = data.draw(st.sampled_from(["snappy", "zstd", "gzip", "brotli", "lz4", "none"]))
    parquet.write_table(
        pa.table([column], schema=schema),
        path,
        version=data.draw(st.sampled_from(["1.0", "2.4", "2.6"])),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        compression=compression,
        use_dictionary=data.draw(st.booleans()),
        dictionary_pagesize_limit=data.draw(st.sampled_from([100, 1 << 20])),
        data_page_size=data.draw(st.sampled_from([100, 3000, 1 << 20])),
        write_batch_size=data.draw(st.sampled_from([10, 1000])),
        store_decimal_as_integer=data.draw(st.booleans()),
        store_schema=data.draw(st.booleans()),
    )
    expected = parquet.read_table(path).column(0).combine_chunks()
    opened = open_column(path)
    if opened is None:  # version 1.0 has neither type: Arrow casts
        assert compression == "lz4" or type_ in (pa.uint32(), pa.timestamp("ns"))
        return
    share = data.draw(st.sampled_from([0.0, 0.001, 0.1, 0.9, 1.0]))
    rows = some_rows(n_rows, share, rng)
    found = opened.rows(rows)
    assert found is not None
    found.validate(full=True)
    assert found.type == expected.type
    assert found.equals(expected.take(pa.array(rows)))
    if opened.chunk.is_coded:
        coded = opened.coded(rows)
        coded.validate(full=True)
        assert coded.dictionary_decode().equals(found)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "brotli"])
@pytest.mark.parametrize("more", [-1, 1])
def test_pages_of_another_size_than_announced_are_damaged(
    tmp_path: Path, codec: str, more: int
) -> None:
    """Else bytes that nobody wrote would be values."""
    path = tmp_path / "a.parquet"
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    table = pa.table([np.arange(1000)], schema=schema)
    parquet.write_table(table, path, compression=codec, use_dictionary=False)
    assert open_column(path) is not None
    content = bytearray(path.read_bytes())
    begin = parquet.read_metadata(path).row_group(0).column(0).data_page_offset
    assert content[begin : begin + 5] == bytes([0x15, 0, 0x15, 0x80, 0x7D])  # 8,000 bytes
    content[begin + 3 : begin + 5] = [0x80 + (16000 + 2 * more) % 128, (16000 + 2 * more) // 128]
    path.write_bytes(content)
    opened = open_column(path)
    assert opened is not None
    with pytest.raises((OSError, pa.ArrowException)):
        opened.rows(np.arange(900, dtype=np.int32))


def test_pages_whose_size_nobody_checks_are_left_to_arrow(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": np.arange(1000)}), path, compression="lz4")
    assert open_column(path) is None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damaged_pages_are_an_error_or_other_values(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever the bytes are: nothing beyond them is read, and errors are those of readers of files."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    type_ = TYPES[data.draw(st.sampled_from(["int64", "int32", "decimal38", "text"]))]
    column = values(type_, 3000, data.draw(st.sampled_from([20, 2000])), rng)
    if data.draw(st.booleans()):
        column = pc.if_else(pa.array(rng.random(3000) < 0.2), pa.scalar(None, type_), column)
    path = tmp_path / "a.parquet"
    parquet.write_table(
        pa.table({"a": column}),
        path,
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        compression=data.draw(st.sampled_from(["snappy", "none"])),
        use_dictionary=data.draw(st.booleans()),
        data_page_size=2000,
    )
    footer = parquet.read_metadata(path)
    described = footer.row_group(0).column(0)
    layout = layout_of(footer.schema.column(0), type_)
    assert layout is not None
    sound = path.read_bytes()
    for _ in range(40):
        content = bytearray(sound)
        begin = 4 if rng.random() < 0.5 else int(rng.integers(4, described.total_compressed_size))
        stop = min(begin + int(rng.choice([30, 1000])), described.total_compressed_size)
        for _ in range(int(rng.choice([1, 3, 50]))):
            content[int(rng.integers(begin, max(stop, begin + 1)))] = int(
                rng.choice([0, 1, 255, rng.integers(256)])
            )
        buffer = np.frombuffer(bytes(content), dtype=np.uint8)
        chunk = ColumnChunk.open(buffer, described, 3000, layout.is_optional, PageScratch())
        if chunk is None:
            continue
        opened = PageColumn("a", chunk, layout)
        for share in (0.01, 1.0):
            rows = some_rows(3000, share, rng)
            try:
                found = opened.rows(rows)
                assert found is not None
                assert len(found) == len(rows)
                if chunk.is_coded:
                    opened.coded(rows)
            except (OSError, pa.ArrowException):
                continue
