"""Mirrors: a stream that fails or falls silent is followed by the next, from its own beginning."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddies.errors import SourceError
from eddies.sources import read
from eddies.sources.streams import stream_of
from eddies.sources.streams.mirrored import MirroredStream
from eddies.sources.streams.tables import TableStream
from tests.support.bag import assert_same_bag, bag_of
from tests.support.json_server import JsonServer, serve
from tests.support.reading_streams import offsets_of, read_between, read_stream, revived

TABLE = pa.table({"k": pa.array(range(200), pa.int64()), "t": [f"t{i}" for i in range(200)]})
BACKWARDS = TABLE.take(list(range(199, -1, -1)))


def test_mirrors_that_are_well_give_every_row_once() -> None:
    stream = stream_of(read.arrow(TABLE).mirror(read.arrow(BACKWARDS)).keyed("k"))
    assert stream.is_mirrored
    assert stream.key == ("k",)
    assert_same_bag(read_stream(stream, repeat(30)), TABLE)


def test_after_a_failure_the_next_mirror_is_read_from_its_start() -> None:
    failing = read.simulated(TABLE, fail_after=90)
    stream = stream_of(failing.mirror(read.arrow(BACKWARDS)))
    offsets = list(offsets_of(stream, repeat(40)))
    assert [offset["active"] for offset in offsets] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    found = bag_of(pa.concat_tables([read_between(stream, a, b) for a, b in pairwise(offsets)]))
    assert found == bag_of(TABLE) + bag_of(TABLE.slice(0, 90))
    assert [stream.is_end(offset) for offset in offsets] == [False] * 9 + [True]


def test_reading_again_reads_the_same_mirrors() -> None:
    failing = read.simulated(TABLE, fail_after=90)
    stream = stream_of(failing.mirror(read.arrow(BACKWARDS)))
    offsets = list(offsets_of(stream, repeat(40)))
    other = revived(stream)
    for start, end in pairwise(offsets):
        assert_same_bag(read_between(other, start, end), read_between(stream, start, end))
    # An interval may reach over the failure: it has rows of both mirrors.
    both = read_between(other, offsets[2], offsets[6])
    assert Counter(both.column("k").to_pylist()) == Counter([*range(80, 90), *range(120, 200)])


def test_a_mirror_that_comes_back_goes_on_where_it_was_left() -> None:
    one = read.simulated(TABLE, fail_after=90, fail_times=5)
    other = read.simulated(BACKWARDS, fail_after=50)
    stream = stream_of(one.mirror(other))
    offsets = list(offsets_of(stream, repeat(100)))
    assert [offset["active"] for offset in offsets] == [0, 0, 1, 1, 0, 0, 0]
    found = bag_of(pa.concat_tables([read_between(stream, a, b) for a, b in pairwise(offsets)]))
    assert found == bag_of(TABLE) + bag_of(BACKWARDS.slice(0, 50))


def test_when_every_mirror_has_failed_all_are_named() -> None:
    stream = stream_of(
        read.simulated(TABLE, fail_after=0).mirror(read.simulated(TABLE, fail_after=0))
    )
    with pytest.raises(SourceError, match=r"every mirror of .* failed: .*as asked; .*as asked"):
        list(offsets_of(stream))


def test_a_silent_mirror_is_left() -> None:
    moment_s = [0.0]
    stalled = stream_of(read.simulated(TABLE, stall_after=50))
    stream = MirroredStream(
        "both", [stalled, TableStream(BACKWARDS)], silence_s=10.0, now_s=lambda: moment_s[0]
    )
    at_50 = stream.latest(stream.start(), 1000)
    assert at_50["rows"] == 50
    for _ in range(10):
        assert stream.latest(at_50, 1000) == at_50
        moment_s[0] += 0.9
    moment_s[0] += 100  # an epoch that took long: nobody asked
    assert stream.latest(at_50, 1000) == at_50
    moment_s[0] += 0.9
    left = stream.latest(at_50, 1000)
    assert left["active"] == 1
    assert stream.is_end(stream.latest(left, 1000))


def test_a_file_is_followed_by_a_server(tmp_path: Path) -> None:
    """The rows that a file promised are there although the file is not."""
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=60)
    with serve(JsonServer(TABLE, "k", page_rows=30)) as pages:
        pages_source = read.http(
            f"{pages.url}/linked", rows="items", next="next", schema=TABLE.schema
        )
        stream = stream_of(read.parquet(str(tmp_path / "t.parquet")).mirror(pages_source))
        offsets, pieces = [], []
        for offset in offsets_of(stream, repeat(60)):
            if offsets:
                (tmp_path / "t.parquet").unlink(missing_ok=True)
                pieces.append(read_between(stream, offsets[-1], offset))
            offsets.append(offset)
    found = bag_of(pa.concat_tables(pieces))
    assert found.keys() == bag_of(TABLE).keys()
    assert {1, 2} == set(found.values())
    assert offsets[-1]["active"] == 1


def test_a_source_without_scan_cannot_stream() -> None:
    source = read.lookup(TABLE.schema, ["k"], lambda keys: [])
    with pytest.raises(SourceError, match="has no scan"):
        stream_of(source)
