"""Streams read as a query reads them: step by step, through parts and streams that were pickled."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import pyarrow as pa

from eddies.sources.streams import Offset, Stream

__all__ = ["offsets_of", "read_between", "read_stream", "revived"]

_LONGEST_S = 20


def revived(stream: Stream) -> Stream:
    """The stream as another process has it."""
    copy: Stream = pickle.loads(pickle.dumps(stream))
    return copy


def offsets_of(
    stream: Stream,
    sizes: Iterable[int] | None = None,
    start: Offset | None = None,
    wait: Callable[[], None] = lambda: time.sleep(0.002),
) -> Iterator[Offset]:
    """Offsets from `start` to the end, each at most the next of `sizes` rows on."""
    offset = stream.start() if start is None else start
    assert not stream.is_end(offset) or start is not None
    yield offset
    until = time.monotonic() + _LONGEST_S
    for size in repeat(1000) if sizes is None else sizes:
        while not stream.is_end(offset):
            found = json.loads(json.dumps(stream.latest(offset, size)))
            if found != offset:
                offset = found
                yield offset
                break
            assert time.monotonic() < until, f"nothing new after {offset}"
            wait()
        if stream.is_end(offset):
            assert stream.latest(offset, size) == offset
            return


def read_between(
    stream: Stream, start: Offset, end: Offset, columns: list[str] | None = None
) -> pa.Table:
    """What lies between two offsets."""
    columns = stream.schema.names if columns is None else columns
    schema = pa.schema([stream.schema.field(name) for name in columns])
    parts = pickle.loads(pickle.dumps(stream.parts(start, end)))
    batches = [batch for part in parts for batch in part.read(columns)]
    return pa.Table.from_batches(batches, schema=schema)


def read_stream(
    stream: Stream, sizes: Iterable[int] | None = None, columns: list[str] | None = None
) -> pa.Table:
    """All rows, read in steps."""
    pieces, last = [], None
    for offset in offsets_of(stream, sizes):
        if last is not None:
            pieces.append(read_between(stream, last, offset, columns))
        last = offset
    return pa.concat_tables(pieces)
