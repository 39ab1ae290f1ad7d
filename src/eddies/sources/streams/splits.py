"""Splits of known sizes as a stream: Parquet row groups, record batches of Arrow files.

Splits are in a fixed order and so are the rows of each, so an offset is a number of rows. Nothing is
read to find out how far one can go: the sizes are known. Tasks read their ranges themselves, and go on
with a split where they stopped (`eddies.sources.streams.readings`).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources.rows_that_pass import RowFilter
from eddies.sources.source import Split
from eddies.sources.streams.base import Offset, Part, offset_at, same_source
from eddies.sources.streams.readings import open_readings

__all__ = ["SplitRange", "SplitStream", "fingerprint_of"]


@dataclass(frozen=True, slots=True)
class SplitRange:
    """Rows `first` up to `stop` of a split, as far as they may pass `where`."""

    is_patient: ClassVar[bool] = False
    split: Split
    first: int
    stop: int
    where: tuple[Expr, ...] = ()

    @property
    def n_rows(self) -> int:
        return self.stop - self.first

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Part.read`."""
        if self.first == 0 and self.stop == self.split.n_rows:
            yield from self.split.read(columns, self.where)
            return
        # Predicates must not move the borders: rows are counted before they are filtered.
        rows = RowFilter(self.where, self._names())
        needed = [*columns, *sorted(rows.columns - set(columns))]
        for batch in open_readings.rows(self.split, needed, self.first, self.stop):
            yield _passing(batch, rows).select(list(columns))

    def _names(self) -> frozenset[str]:
        schema: pa.Schema | None = getattr(self.split, "schema", None)
        return frozenset() if schema is None else frozenset(schema.names)


def _passing(batch: pa.RecordBatch, rows: RowFilter) -> pa.RecordBatch:
    mask = rows.mask(batch.column, batch.num_rows)
    return batch if mask is None else batch.filter(pa.array(mask))


class SplitStream:
    """Splits one after the other."""

    is_mirrored: ClassVar[bool] = False
    is_patient: ClassVar[bool] = False
    key: tuple[str, ...] = ()

    def __init__(
        self, label: str, schema: pa.Schema, splits: Sequence[Split], where: tuple[Expr, ...] = ()
    ) -> None:
        sizes = [split.n_rows for split in splits]
        known = [size for size in sizes if size is not None]
        assert len(known) == len(sizes), "every split must know its size"
        self.label = label
        self.schema = schema
        self._splits = tuple(splits)
        self._stops = tuple(accumulate(known))
        self._where = where
        self._of = fingerprint_of(splits)

    @property
    def n_rows(self) -> int | None:
        """Of the splits that predicates leave."""
        return self._stops[-1] if self._stops else 0

    def narrowed(self, columns: Sequence[str]) -> SplitStream:
        """Itself: whoever reads a part says which columns."""
        return self

    def start(self) -> Offset:
        return offset_at(0, of=self._of)

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        same_source(offset, self._of, self.label)
        if offset["end"]:
            return offset
        total = self._stops[-1] if self._stops else 0
        rows = min(offset["rows"] + most_rows, total)
        return offset_at(rows, is_end=rows == total, of=self._of)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        same_source(end, self._of, self.label)
        first, stop = start["rows"], end["rows"]
        found: list[Part] = []
        number = bisect_right(self._stops, first)
        while first < stop:
            before = self._stops[number - 1] if number else 0
            upto = min(stop, self._stops[number])
            found.append(
                SplitRange(self._splits[number], first - before, upto - before, self._where)
            )
            first, number = upto, number + 1
        return found


def fingerprint_of(splits: Sequence[Split]) -> str:
    """Tells lists of splits apart: other files, sizes or numbers of rows give another text."""
    digest = hashlib.blake2b(digest_size=8)
    for split in splits:
        inner = getattr(split, "part", split)
        file = getattr(inner, "file", None)
        path = getattr(file, "path", "")
        digest.update(f"{path}|{split.n_bytes}|{split.n_rows};".encode())
    return digest.hexdigest()
