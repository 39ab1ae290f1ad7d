"""Splits that can only be read from their beginning, as a stream: compressed files, for example.

The split at the offset is read as a whole and held in memory while it is handed out in steps; an offset
is a split and a row in it. Parts carry their rows, so that no task reads the split again. The splits
must give the same rows in the same order at every reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

from eddies.core.expr import Expr
from eddies.sources.source import Split
from eddies.sources.streams.base import Offset, Part, offset_at, same_source
from eddies.sources.streams.rows import carried
from eddies.sources.streams.splits import fingerprint_of

__all__ = ["HeldStream"]


class HeldStream:
    """Splits one after the other, each read once."""

    is_mirrored: ClassVar[bool] = False
    is_patient: ClassVar[bool] = False
    n_rows: ClassVar[int | None] = None
    key: tuple[str, ...] = ()

    def __init__(
        self,
        label: str,
        schema: pa.Schema,
        splits: Sequence[Split],
        columns: Sequence[str] | None = None,
        where: tuple[Expr, ...] = (),
    ) -> None:
        names = schema.names if columns is None else list(columns)
        self.label = label
        self.schema = pa.schema([schema.field(name) for name in names])
        self._splits = tuple(splits)
        self._where = where
        self._of = fingerprint_of(splits)
        self._held: dict[int, pa.Table] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_held": {}}

    def narrowed(self, columns: Sequence[str]) -> HeldStream:
        return HeldStream(self.label, self.schema, self._splits, columns, self._where)

    def start(self) -> Offset:
        return offset_at(0, split=0, row=0, of=self._of)

    def is_end(self, offset: Offset) -> bool:
        return bool(offset["end"])

    def latest(self, offset: Offset, most_rows: int) -> Offset:
        """Reads a split when it comes to it, so it may wait."""
        same_source(offset, self._of, self.label)
        if offset["end"]:
            return offset
        self._held = {n: table for n, table in self._held.items() if n >= offset["split"]}
        number, row, left = offset["split"], offset["row"], most_rows
        while number < len(self._splits):
            taken = min(left, self._read(number).num_rows - row)
            row, left = row + taken, left - taken
            if row < self._held[number].num_rows:
                break
            number, row = number + 1, 0
        rows = offset["rows"] + most_rows - left
        is_end = number == len(self._splits)
        return offset_at(rows, is_end=is_end, split=number, row=row, of=self._of)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        same_source(end, self._of, self.label)
        found: list[Part] = []
        for number in range(start["split"], min(end["split"] + 1, len(self._splits))):
            table = self._read(number)
            first = start["row"] if number == start["split"] else 0
            stop = end["row"] if number == end["split"] else table.num_rows
            if first < stop:
                rows = table.slice(first, stop - first)
                found.append(carried(self.schema, rows.to_batches()))
        return found

    def _read(self, number: int) -> pa.Table:
        if number not in self._held:
            batches = self._splits[number].read(self.schema.names, self._where)
            self._held[number] = pa.Table.from_batches(list(batches), self.schema)
        return self._held[number]
