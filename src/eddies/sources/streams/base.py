"""Streams: sources that are read progressively, and can be read again from any place.

A `Stream` says how far it can be read at this moment. Places in it are *offsets*: small dictionaries
that are written as JSON into the checkpoint of a query, and from which a new process goes on. What lies
between two offsets falls into `Part`s, which are sent to tasks and read there.

    offset = stream.start()
    while not stream.is_end(offset):
        end = stream.latest(offset, most_rows=100_000)
        for part in stream.parts(offset, end):
            yield from part.read(columns)
        offset = end

Invariants, for every stream:

* *Any cut, same bag.* However the offsets between start and end are chosen, the parts between them hold
  together the rows of the source, each once; a mirrored stream may repeat rows after a failure.
* *Read again, same bag.* The parts between two offsets hold the same rows whenever they are asked for,
  by whichever process, from a stream made anew: a task that is run again gives what it gave.
* *Nobody waits.* `latest` returns at once. It returns `offset` itself when nothing new can be had yet.
* *One end.* `is_end` becomes true once, at an offset that `latest` returns; never at `start()`, so that
  an empty source has an interval with its end in it, too.
* *Back-pressure.* `latest` goes at most `most_rows` rows on. A step may be longer where a source cannot
  be cut finer, which its module says.

Every offset has `rows`, about how many rows lie before it, and `end`. The moment and the process of
`start()` do not matter for `parts`: Spark asks for a new start when it repeats the first epoch.

A stream can be pickled. What it knows of the moment (threads, pages read ahead) stays behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from eddies.errors import SourceError

__all__ = ["Offset", "Part", "Stream", "offset_at", "same_source"]

Offset = dict[str, Any]  # Any: what JSON has


class Part(Protocol):
    """Some rows of a stream, to be read in a task. Can be pickled."""

    @property
    def n_rows(self) -> int:
        """About how many rows it has."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether reading it tries again by itself, so that nobody else need."""
        ...

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Its rows with exactly `columns`, in that order."""
        ...


class Stream(Protocol):
    """A source that is read progressively. See the module docstring."""

    @property
    def label(self) -> str:
        """What it is, for people."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns as delivered."""
        ...

    @property
    def n_rows(self) -> int | None:
        """How many rows it has in all, if that is known."""
        ...

    @property
    def is_mirrored(self) -> bool:
        """Whether rows may come twice, from mirrors."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row; empty if nobody has said so."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether what `latest` raises has been tried again already."""
        ...

    def narrowed(self, columns: Sequence[str]) -> Stream:
        """The same stream, of which only `columns` will be asked for. Its offsets are the same."""
        ...

    def start(self) -> Offset:
        """Before the first row."""
        ...

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        """How far it can be read now; `offset` if there is nothing new.

        Raises `SourceError` when the source has failed and trying again did not help. It may be asked
        again later.
        """
        ...

    def is_end(self, offset: Offset) -> bool:
        """Whether no row comes after `offset`."""
        ...

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        """What lies between two offsets, of which the second came from `latest`."""
        ...


def offset_at(rows: int, *, is_end: bool = False, **place: object) -> Offset:
    """An offset: what all have, and what tells its place to the stream that made it."""
    return {"rows": rows, "end": is_end, **place}


def same_source(offset: Offset, fingerprint: str, label: str) -> None:
    """Raise `SourceError` if an offset was made when the source was another one."""
    found = offset.get("of")
    if found != fingerprint:
        raise SourceError(
            f"{label} is not what it was when the query's checkpoint was written: files were added, "
            "removed or written again, or the query reads other parts of it. Restore the source, or "
            "start the query with a new checkpoint"
        )
