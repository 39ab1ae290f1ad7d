"""Arrivals: batches of one source, each with the moment from which it can be had.

A host asks when the next batch is due, takes it when that moment has come, and learns the end when
nothing is due any more. In-memory tables are always due; simulated sources say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Protocol

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.errors import SourceError
from eddies.sources.source import Source, is_source

__all__ = ["Arrivals", "Batches", "InMemory", "SplitArrivals", "arrivals_of"]


class Arrivals(Protocol):
    """A scan of one source. Moments are nanoseconds after the query's start."""

    schema: pa.Schema

    @property
    def n_rows(self) -> int | None:
        """How many rows will come, if that is known."""
        ...

    def due_ns(self) -> int | None:
        """When the next batch can be had; None at the end. Never falls.

        May wait for the source if `n_rows` is not known.
        """
        ...

    def take(self) -> pa.RecordBatch:
        """The batch that is due."""
        ...


class InMemory:
    """A pyarrow table, in pieces of at most `batch_rows` rows, without copies."""

    def __init__(self, table: pa.Table, batch_rows: int) -> None:
        self.schema = table.schema
        self._n_rows = int(table.num_rows)
        self._batches = iter(table.to_batches(max_chunksize=batch_rows))
        self._next = next(self._batches, None)

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    def due_ns(self) -> int | None:
        return None if self._next is None else 0

    def take(self) -> pa.RecordBatch:
        batch = self._next
        assert batch is not None, "take() after the end"
        self._next = next(self._batches, None)
        return batch


class Batches:
    """Any iterable of record batches; its rows are due whenever they are asked for.

    It is asked for a batch when somebody wants to know whether there is one, not before: an iterator
    over something live may make its reader wait.
    """

    def __init__(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        self._name = name
        self._batches: Iterator[pa.RecordBatch] = iter(batches)
        self._is_ended = False
        self._next = self._fetch()
        if self._next is None:
            raise SourceError(
                f"source {name!r} is an empty iterator, so its columns are unknown; "
                "pass an empty pyarrow.Table or a RecordBatchReader instead"
            )
        self.schema = self._next.schema

    @property
    def n_rows(self) -> int | None:
        return None

    def _fetch(self) -> pa.RecordBatch | None:
        try:
            batch = next(self._batches, None)
        except Exception as error:
            raise SourceError(f"source {self._name!r} failed: {error}") from error
        if batch is not None and not isinstance(batch, pa.RecordBatch):
            raise SourceError(
                f"source {self._name!r} delivered a {type(batch).__name__}, not a RecordBatch"
            )
        self._is_ended = batch is None
        return batch

    def due_ns(self) -> int | None:
        if self._next is None and not self._is_ended:
            self._next = self._fetch()
        return None if self._next is None else 0

    def take(self) -> pa.RecordBatch:
        assert self.due_ns() is not None, "take() after the end"
        batch, self._next = self._next, None
        return batch


class SplitArrivals:
    """The splits of a source, one after the other. `narrow` says what of it is wanted."""

    def __init__(self, source: Source, batch_rows: int) -> None:
        self.schema = source.schema
        self._source = source
        self._batch_rows = batch_rows
        self._where: tuple[Expr, ...] = ()
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._next: pa.RecordBatch | None = None

    @property
    def n_rows(self) -> int | None:
        return self._source.n_rows

    def narrow(self, columns: Iterable[str], where: tuple[Expr, ...]) -> None:
        """Read these columns only, of rows that may pass; before anything is read."""
        assert self._batches is None, "narrow() after the first batch"
        self.schema = pa.schema([self._source.schema.field(name) for name in columns])
        self._where = where

    def _read(self) -> Iterator[pa.RecordBatch]:
        for split in self._source.splits(self._where):
            yield from split.read(self.schema.names, self._where, self._batch_rows)

    def due_ns(self) -> int | None:
        if self._batches is None:
            self._batches = self._read()
            self._next = next(self._batches, None)
        return None if self._next is None else 0

    def take(self) -> pa.RecordBatch:
        assert self.due_ns() is not None, "take() after the end"
        assert self._batches is not None
        batch, self._next = self._next, next(self._batches, None)
        return batch


def arrivals_of(name: str, source: object, batch_rows: int) -> Arrivals:
    """Arrivals of a table, a reader, an iterable of batches, a source of `eddies.read` or a path, or
    of what is an `Arrivals` already.
    """
    if isinstance(source, str | PathLike):
        from eddies.sources import read

        source = read.path(source)
    if is_source(source):
        return SplitArrivals(source, batch_rows)
    if isinstance(source, pa.Table):
        return InMemory(source, batch_rows)
    if isinstance(source, pa.RecordBatch):
        return InMemory(pa.Table.from_batches([source]), batch_rows)
    if isinstance(source, pa.RecordBatchReader):
        return _ReaderArrivals(name, source)
    if hasattr(source, "due_ns") and hasattr(source, "take"):
        return source  # type: ignore[return-value]
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        return Batches(name, source)
    raise SourceError(
        f"source {name!r} is a {type(source).__name__}; expected a pyarrow Table, RecordBatch, "
        "RecordBatchReader, an iterable of RecordBatch, a path, or an eddies source"
    )


class _ReaderArrivals(Batches):
    """A reader knows its schema even when it has no batch."""

    def __init__(self, name: str, reader: pa.RecordBatchReader) -> None:
        self._name = name
        self._batches = iter(reader)
        self.schema = reader.schema
        self._is_ended = False
        self._next = None
