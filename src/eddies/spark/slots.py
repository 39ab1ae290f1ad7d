"""Slots: the rows of all DataFrames that are exchanged, in one DataFrame that Spark shuffles.

Packing (`exchange`) is a function in Python for each relation: to plan it, to start it and to hand
rows to it takes longer than to move few rows as they are. Here Spark computes the cell of a row itself.
A row of any relation has its values in *slots*, each of a type; relations share slots, and those that
one has no use for are NULL. So rows go from Java to Python once, in the cell, where `SlotRows` sorts
them out.

Spark's hash is another one than ours, so this is for classes of which the cells read nothing
themselves, and for types whose values Spark finds equal when eddies do. As in the exchange, the cell of
a row follows from its values only.

Known limitation: a value that is NULL because its slot is unused still takes its width on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from eddies.spark.exchange import BATCH_ROWS, Pack, together
from eddies.spark.inputs import quoted
from eddies.spark.spark_hash import is_exact, is_whole, spark_hash

__all__ = ["SlotRows", "Slots"]

Types = Mapping[str, str]  # by column, as Spark writes them

_OTHERS = ("binary", "double", "float")  # types that can be moved, if not compared
_CONTENT_COLUMNS = 4  # enough to tell rows apart when they are split by content


@dataclass(frozen=True, slots=True)
class Slots:
    """The type of each slot, and by relation the slot of each of its columns."""

    types: tuple[str, ...]
    places: Mapping[str, tuple[int, ...]]

    @classmethod
    def make(cls, types_by_relation: Mapping[str, Types]) -> Slots | None:
        """As many slots of each type as the relation needs that needs most; None if there are types
        whose values are not moved in slots, or relations without columns.
        """
        slots: list[str] = []
        places = {}
        for name, types in types_by_relation.items():
            if not types or not all(map(_is_movable, types.values())):
                return None
            own: list[int] = []
            for type_ in types.values():
                free = (n for n, t in enumerate(slots) if t == type_ and n not in own)
                slot = next(free, len(slots))
                if slot == len(slots):
                    slots.append(type_)
                own.append(slot)
            places[name] = tuple(own)
        return cls(tuple(slots), places)

    def selection(self, name: str, types: Types, pack: Pack) -> list[str]:
        """What Spark selects of a relation: the cell of each row, its copies too, and its slots."""
        held = dict(zip(self.places[name], types, strict=True))
        return [
            f"{_cell(types, pack)} AS cell",
            f"{pack.relation} AS relation",
            *(
                f"{quoted(held[slot]) if slot in held else f'CAST(NULL AS {type_})'} AS slot_{slot}"
                for slot, type_ in enumerate(self.types)
            ),
        ]

    def marks(self) -> list[str]:
        """What is selected of a range of cells, to tell them that they have work."""
        nulls = (f"CAST(NULL AS {type_}) AS slot_{slot}" for slot, type_ in enumerate(self.types))
        return ["CAST(id AS int) AS cell", "-1 AS relation", *nulls]


def _is_movable(type_: str) -> bool:
    return is_whole(type_) or is_exact(type_) or type_ in _OTHERS


def _cell(types: Types, pack: Pack) -> str:
    """The cell of a row, in Spark SQL; several, if it is copied."""
    terms = [
        f"CAST(pmod({spark_hash(types, [column])}, {share}) AS int) * {stride}"
        for column, share, stride in pack.hashed
    ]
    if pack.split is not None:
        share, stride = pack.split
        content = spark_hash(types, list(types)[:_CONTENT_COLUMNS])
        terms.append(f"CAST(pmod({content}, {share}) AS int) * {stride}")
    first = " + ".join(terms) or "0"
    if pack.copies == (0,):
        return first
    return f"explode(array({', '.join(f'{first} + {offset}' for offset in pack.copies)}))"


class SlotRows:
    """The rows of one cell that came in slots, by relation."""

    def __init__(self) -> None:
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}

    @classmethod
    def by_cell(
        cls,
        batches: Iterator[pa.RecordBatch],
        relations: Sequence[str],
        slots: Slots,
        schemas: Mapping[str, pa.Schema],
    ) -> Iterator[tuple[int, SlotRows]]:
        """All cells that the incoming rows belong to (usually one), each with its rows."""
        cells: dict[int, SlotRows] = {}
        for batch in batches:
            for cell, number, rows in _runs(batch):
                found = cells.setdefault(cell, cls())
                if number < 0:
                    continue  # a mark: the cell has work, whether rows come to it or not
                name = relations[number]
                columns = [rows.column(2 + slot) for slot in slots.places[name]]
                found._add(name, pa.RecordBatch.from_arrays(columns, schemas[name].names))
        yield from cells.items()

    def arrivals(self) -> dict[str, Callable[[], Iterator[pa.RecordBatch]]]:
        """For each exchanged relation a function that reads its rows."""
        for name in self._waiting:
            self._gather(name)
        return {name: partial(iter, rows) for name, rows in self._rows.items()}

    def _add(self, name: str, rows: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(name, [])
        waiting.append(rows)
        if sum(batch.num_rows for batch in waiting) >= BATCH_ROWS:
            self._gather(name)

    def _gather(self, name: str) -> None:
        """Batches that are worth a decision each, and that do not hold on to slots of others."""
        self._rows.setdefault(name, []).extend(together(self._waiting[name]))
        self._waiting[name] = []


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Cell, relation and rows, for rows that follow each other: Spark moves them by relation."""
    cells, relations = (batch.column(i).to_numpy() for i in (0, 1))
    changes = np.flatnonzero((np.diff(cells) != 0) | (np.diff(relations) != 0)) + 1
    borders = [0, *changes.tolist(), batch.num_rows]
    for start, stop in pairwise(borders):
        if stop > start:
            yield int(cells[start]), int(relations[start]), batch.slice(start, stop - start)
