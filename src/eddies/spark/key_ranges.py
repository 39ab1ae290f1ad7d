"""Ranges of keys: cells that divide a join by intervals of a key in whose order files lie.

Tables that were written in the order of a key (orders and their lines, an inventory of days) keep it
from row group to row group, and footers say so. Then a dimension of cells can divide a key class by
intervals instead of by hash: a cell reads the row groups whose keys meet its own intervals, of every
relation that has the key, and no others. So nothing that has the key is read twice, except row groups
that lie across a border; both neighbours read those, and each keeps the rows on its side.

The ranges are dealt out to cells in turn, several to each, because what a query is about often lies
together. Rows with NULL keys match nothing: where a row group lies inside one range they stay, and
find nothing.

Known limitations: one dimension of ranges and no other beside it; keys are signed integers, dates or
timestamps; relations that are exchanged are replicated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from eddies.core.graph import Graph
from eddies.core.state.columns import column_of
from eddies.sources.row_groups import ParquetSplit
from eddies.sources.source import Split
from eddies.spark.cells import CellPlan, Parted, RelationSize, box, hashable_columns

__all__ = ["RangeFilter", "Span", "plan_ranges", "spans_of"]

Span = tuple[int, int] | None  # the least and greatest key of a split; None: nobody knows

_RANGES_PER_CELL = (8, 4, 2, 1)
_AS_GOOD = 1.05  # as the cheapest: more ranges divide what lies together better
_WORTH_WHILE = 0.98  # of the time of another plan: a row split is fairer to what lies together


@dataclass(frozen=True, slots=True)
class RangeFilter:
    """Which splits of a relation, and which of their rows, belong to a cell.

    Range i holds the keys from `borders[i - 1]` to below `borders[i]`, and belongs to the cell whose
    coordinate along `dimension` is i modulo `share`. `spans` are the keys of the relation's splits.
    """

    column: str
    share: int
    dimension: int
    borders: tuple[int, ...]
    spans: tuple[Span, ...]

    def meets(self, split: int, coordinate: int) -> bool:
        """Whether keys of a split may belong to the cell."""
        return _meets(self.spans[split], self.borders, self.share, coordinate)

    def is_inside(self, split: int) -> bool:
        """Whether all keys of a split lie in one range."""
        span = self.spans[split]
        return span is not None and _first(span, self.borders) == _last(span, self.borders)

    def kept(self, batch: pa.RecordBatch, coordinate: int) -> pa.RecordBatch:
        """The rows of `batch` that belong to the cell."""
        column = column_of(batch.column(self.column))
        keys = column.words(None).view(np.int64)
        borders = np.array(self.borders, dtype=np.int64)
        wanted = np.searchsorted(borders, keys, side="right") % self.share == coordinate
        valid = column.valid(None)
        if valid is not None:
            wanted &= valid.astype(np.bool_)
        return batch.filter(pa.array(wanted))


def _first(span: tuple[int, int], borders: Sequence[int]) -> int:
    return bisect_right(borders, span[0])


def _last(span: tuple[int, int], borders: Sequence[int]) -> int:
    return bisect_right(borders, span[1])


def _meets(span: Span, borders: Sequence[int], share: int, coordinate: int) -> bool:
    if span is None:
        return True
    first, last = _first(span, borders), _last(span, borders)
    return (coordinate - first) % share <= last - first


def spans_of(splits: Sequence[Split], column: str) -> tuple[Span, ...]:
    """The keys of splits, as footers tell."""
    return tuple(
        split.key_span(column) if isinstance(split, ParquetSplit) else None for split in splits
    )


def plan_ranges(
    graph: Graph,
    sizes: Mapping[str, RelationSize],
    splits: Mapping[str, Sequence[Split]],
    n_slots: int,
    n_cells: int | None,
    other: CellPlan,
) -> CellPlan:
    """Cells that divide a key class by ranges, if that is cheaper than `other`; else `other`.

    `splits` are those of relations that cells read themselves.
    """
    share = n_cells or n_slots
    if share == 1 or not all(size.is_divisible and size.is_scanned for size in sizes.values()):
        return other
    best = other
    for layout in _layouts(graph, splits):
        plans = [
            _plan(graph, sizes, layout, borders, share, n_slots, other.last)
            for borders in _some_borders(layout.pieces(), share)
        ]
        if plans:
            least = min(plan.ns for plan in plans)
            most_ranges = next(plan for plan in plans if plan.ns <= _AS_GOOD * least)
            if most_ranges.ns < _WORTH_WHILE * other.ns and most_ranges.ns < best.ns:
                best = most_ranges
    return best


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the keys of one class lie in the files of relations."""

    key_class: int
    columns: Mapping[str, str]  # by relation
    spans: Mapping[str, tuple[Span, ...]]
    n_rows: Mapping[str, tuple[int, ...]]  # of each split

    def pieces(self) -> list[tuple[int, int]]:
        """Least keys of the splits of the largest relation, and their rows, in order."""
        largest = max(self.n_rows, key=lambda name: sum(self.n_rows[name]))
        return sorted(
            (span[0], n_rows)
            for span, n_rows in zip(self.spans[largest], self.n_rows[largest], strict=True)
            if span is not None
        )

    def fullest(self, name: str, borders: Sequence[int], share: int) -> float:
        """The share of a relation's rows that the cell reads which reads most."""
        loads = [0] * share
        for span, n_rows in zip(self.spans[name], self.n_rows[name], strict=True):
            for coordinate in range(share):
                if _meets(span, borders, share, coordinate):
                    loads[coordinate] += n_rows
        return max(loads) / max(1, sum(self.n_rows[name]))


def _layouts(graph: Graph, splits: Mapping[str, Sequence[Split]]) -> Iterator[_Layout]:
    """Classes that two relations of several row groups have at least, not all of them only asked for
    matches: what is joined must be divided, or results would come out of every cell.
    """
    hashable = hashable_columns(graph)
    joined = {r.name for r in graph.relations if any(not graph.asked >> s & 1 for s in r.roles)}
    types = {relation.name: relation.read for relation in graph.relations}
    for number in range(len(graph.classes)):
        columns = {
            name: hashable[name][number]
            for name, parts in splits.items()
            if number in hashable[name]
            and len(parts) > 1
            and all(isinstance(part, ParquetSplit) for part in parts)
        }
        if len(columns) < 2 or joined.isdisjoint(columns):
            continue
        if not _compare([types[name].field(column).type for name, column in columns.items()]):
            continue
        yield _Layout(
            number,
            columns,
            {name: spans_of(splits[name], column) for name, column in columns.items()},
            {name: tuple(part.n_rows or 0 for part in splits[name]) for name in columns},
        )


def _compare(types: Sequence[pa.DataType]) -> bool:
    """Whether the words of keys of these types are integers that compare as the keys do."""
    if all(pa.types.is_signed_integer(type_) for type_ in types):
        return True
    has_order = pa.types.is_date32(types[0]) or pa.types.is_timestamp(types[0])
    return has_order and all(type_ == types[0] for type_ in types)


def _some_borders(pieces: Sequence[tuple[int, int]], share: int) -> Iterator[tuple[int, ...]]:
    """Borders between `pieces`, least keys with numbers of rows, that give ranges of equal size."""
    total = sum(n_rows for _, n_rows in pieces)
    for per_cell in _RANGES_PER_CELL:
        n_ranges = per_cell * share
        borders: list[int] = []
        n_before = 0
        for (_, n_rows), (key, _) in pairwise(pieces):
            n_before += n_rows
            is_due = n_before * n_ranges >= total * (len(borders) + 1)
            if is_due and (not borders or key > borders[-1]):
                borders.append(key)
        if len(borders) == n_ranges - 1:
            yield tuple(borders)


def _plan(
    graph: Graph,
    sizes: Mapping[str, RelationSize],
    layout: _Layout,
    borders: tuple[int, ...],
    share: int,
    n_slots: int,
    last: str,
) -> CellPlan:
    shares = [1] * (1 + len(graph.classes))
    shares[1 + layout.key_class] = share
    columns = layout.columns
    read = {name: layout.fullest(name, borders, share) for name in columns}
    names = [relation.name for relation in graph.relations]
    parted = {name: {layout.key_class: columns[name]} if name in columns else {} for name in names}
    return box(names, sizes, parted, tuple(shares), None, last, n_slots, Parted(borders, read))
