"""Direct delivery: a task reads its own part of a relation.

Every cell reads the same list of splits and takes from it what belongs to its coordinates, so the list
is made once and travels to all of them:

* a *row split* deals out splits, if that can be done evenly. If not, it gives each cell an interval
  of the rows, counted over the concatenated splits. Splits outside of the interval are not opened; one
  that is cut by a border is read by both neighbours, each of which keeps its side;
* a *hashed* relation is read by all and filtered: a row stays where the hash of its key says. NULL
  keys match nothing and are dropped;
* a relation divided by *ranges* of keys (`key_ranges`) is read where its row groups meet those of the
  cell, and filtered where they lie across a border.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.constants import with_constants
from eddies.core.expr import Expr
from eddies.core.partners import PartnerFilter
from eddies.core.state.columns import column_of
from eddies.sources.decoded import DecodedColumns
from eddies.sources.open_file import OpenFile
from eddies.sources.pruning import Pruner
from eddies.sources.row_groups import ParquetSplit
from eddies.sources.source import Split
from eddies.spark.key_ranges import RangeFilter
from eddies.spark.read_ahead import read_ahead

__all__ = ["HashFilter", "Heavy", "Reading", "coordinates_of"]

Heavy = Mapping[int, npt.NDArray[np.uint64]]  # by dimension: the words of heavy keys
_UNEVEN = 1.05  # as many rows for some cell as it would have if all had the same
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(33)
_HALF = np.uint64(32)


def coordinates_of(
    array: pa.Array, share: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_] | None]:
    """Where the hash of each value lies along a dimension of `share` cells, and which are not NULL."""
    column = column_of(array)
    words = column.words(None)
    # The upper half of a word counts as well: whole floats and round times have nothing in the lower.
    mixed = ((words ^ (words >> _HALF)) * _MULTIPLIER) >> _SHIFT
    valid = column.valid(None)
    found = (mixed % np.uint64(share)).astype(np.int32)
    return found, None if valid is None else valid.astype(np.bool_)


@dataclass(frozen=True, slots=True)
class HashFilter:
    """Keeps the rows whose `column` hashes to the cell's coordinate along `dimension`."""

    column: str
    share: int
    dimension: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What all cells read of one relation. `row_share` is 1 if the rows are not split, and so it is if
    they are divided by ranges.
    """

    relation: str
    columns: tuple[str, ...]
    where: tuple[Expr, ...]
    splits: tuple[Split, ...]
    row_share: int
    filters: tuple[HashFilter, ...]
    ranged: RangeFilter | None = None

    def batches(
        self,
        coordinates: Sequence[int],
        heavy: Heavy | None = None,
        *,
        is_last: bool = False,
        even_empty: bool = False,
        bounds: tuple[Expr, ...] = (),
        partners: PartnerFilter | None = None,
        decoded: DecodedColumns | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows for the cell at `coordinates`; along dimension 0 lies the row split. Batches of
        which nothing is left come only if `even_empty`.

        Rows with `heavy` keys stay in every cell of their dimension, except those of the last relation,
        which are dealt out (see `heavy_keys`). Splits that hold nothing within `bounds` may be left
        out, and rows without `partners`, but not where rows with heavy keys are counted: cells may have
        different ones. What the process has `decoded` already is not decoded again.
        """
        n_before = 0
        is_counted = is_last and bool(heavy)
        assert not (is_counted and (bounds or partners)), (
            "cells deal out alike what they read alike"
        )
        with _Scan(self.columns, self.where, bounds, partners, decoded) as scan:
            if self.ranged is not None:
                arrivals = self._in_ranges(self.ranged, coordinates[self.ranged.dimension], scan)
            else:
                arrivals = self._split_rows(coordinates[0], scan)
            for batch in arrivals:
                kept = self._hashed(batch, coordinates, heavy or {}, n_before if is_last else None)
                n_before += batch.num_rows
                if kept.num_rows or even_empty:
                    yield kept

    @property
    def is_whole(self) -> bool:
        """Whether there is one cell as far as this relation goes: all its rows belong to it."""
        return self.row_share == 1 and not self.filters and self.ranged is None

    def batches_ahead(
        self, bounds: tuple[Expr, ...], partners: Sequence[PartnerFilter | None]
    ) -> Iterator[pa.RecordBatch]:
        """`batches` of a relation that `is_whole`, read by as many threads as there are `partners`: a
        filter learns, so each thread has one of its own.
        """
        with ExitStack() as stack:
            scans = [
                stack.enter_context(_Scan(self.columns, self.where, bounds, own, None))
                for own in partners
            ]
            wanted = [split for split in self.splits if scans[0].may_pass(split)]
            for batch in read_ahead(wanted, [scan.read for scan in scans]):
                if batch.num_rows:
                    yield batch

    @property
    def uses_bounds(self) -> bool:
        """Whether bounds of keys may spare reading."""
        return any(isinstance(split, ParquetSplit) for split in self.splits)

    @property
    def drops_rows(self) -> bool:
        """Whether rows without partners are dropped as they are read."""
        return all(isinstance(split, ParquetSplit) for split in self.splits)

    def kept(self, batch: pa.RecordBatch, coordinates: Sequence[int]) -> pa.RecordBatch:
        """The rows of a batch that belong to the cell; for those that come another way."""
        return self._hashed(batch, coordinates, {}, None)

    def _in_ranges(
        self, ranged: RangeFilter, coordinate: int, scan: _Scan
    ) -> Iterator[pa.RecordBatch]:
        for number, split in enumerate(self.splits):
            if ranged.meets(number, coordinate) and scan.may_pass(split):
                is_inside = ranged.is_inside(number)
                for batch in scan.read(split):
                    yield batch if is_inside else ranged.kept(batch, coordinate)

    def _split_rows(self, part: int, scan: _Scan) -> Iterator[pa.RecordBatch]:
        if self.row_share == 1:
            yield from _whole(self.splits, scan)
            return
        sizes = [split.n_rows for split in self.splits]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            dealt = _dealt(known, self.row_share)
            if dealt is not None:
                mine = [s for s, cell in zip(self.splits, dealt, strict=True) if cell == part]
                yield from _whole(mine, scan)
            else:
                yield from self._interval(part, known, scan)
            return
        # Nobody knows the borders: deal out whole splits, or batches if there are few splits.
        # Batches can be dealt out only if every reading gives the same ones.
        many = len(self.splits) >= 4 * self.row_share or not all(
            getattr(split, "is_repeatable", True) for split in self.splits
        )
        number = 0
        for split in self.splits[part :: self.row_share] if many else self.splits:
            for batch in scan.read(split):
                if many or number % self.row_share == part:
                    yield batch
                number += 1

    def _interval(self, part: int, sizes: Sequence[int], scan: _Scan) -> Iterator[pa.RecordBatch]:
        total = sum(sizes)
        begin = total * part // self.row_share
        end = total * (part + 1) // self.row_share
        first = 0
        for split, size in zip(self.splits, sizes, strict=True):
            low, high = max(begin - first, 0), min(end - first, size)
            first += size
            if low >= high or not scan.may_pass(split):
                continue
            if (low, high) == (0, size):
                yield from scan.read(split)
                continue
            # A border: predicates must not move it, so this split is read without them.
            position = 0
            for batch in scan.read_all(split):
                start = min(max(low - position, 0), batch.num_rows)
                stop = min(max(high - position, 0), batch.num_rows)
                position += batch.num_rows
                if start < stop:
                    yield batch.slice(start, stop - start)

    def _hashed(
        self,
        batch: pa.RecordBatch,
        coordinates: Sequence[int],
        heavy: Heavy,
        n_before: int | None,
    ) -> pa.RecordBatch:
        """The rows of `batch` that belong to the cell; `n_before` rows came before it if those with
        heavy keys are to be dealt out.
        """
        keep: npt.NDArray[np.bool_] | None = None
        for one in self.filters:
            found, valid = coordinates_of(batch.column(one.column), one.share)
            wanted = found == coordinates[one.dimension]
            if one.dimension in heavy:
                words = column_of(batch.column(one.column)).words(None)
                is_heavy = np.isin(words, heavy[one.dimension])
                dealt = True
                if n_before is not None:
                    numbers = np.arange(n_before, n_before + batch.num_rows)
                    dealt = numbers % one.share == coordinates[one.dimension]
                wanted = np.where(is_heavy, dealt, wanted)
            if valid is not None:
                wanted &= valid
            keep = wanted if keep is None else keep & wanted
        return batch if keep is None else batch.filter(pa.array(keep))


def _dealt(sizes: Sequence[int], row_share: int) -> list[int] | None:
    """The cell of each split, if all cells can have about the same number of rows; None if not.

    Neighbours go to different cells, because what a query is about often lies together.
    """
    loads = [(0, cell) for cell in range(row_share)]
    cells = []
    for size in sizes:
        load, cell = heapq.heappop(loads)
        heapq.heappush(loads, (load + size, cell))
        cells.append(cell)
    return cells if max(loads)[0] <= _UNEVEN * sum(sizes) / row_share else None


def _whole(splits: Sequence[Split], scan: _Scan) -> Iterator[pa.RecordBatch]:
    for split in splits:
        if scan.may_pass(split):
            yield from scan.read(split)


class _Scan:
    """One reading of splits: keeps what they share from one to the next, such as an open file."""

    def __init__(
        self,
        columns: tuple[str, ...],
        where: tuple[Expr, ...],
        bounds: tuple[Expr, ...],
        partners: PartnerFilter | None,
        decoded: DecodedColumns | None,
    ) -> None:
        self._columns, self._bounds = columns, bounds
        self._where = tuple(map(with_constants, where))
        self._partners = partners
        self._file = OpenFile(decoded)
        self._pruner: tuple[pa.Schema, Pruner] | None = None

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def may_pass(self, split: Split) -> bool:
        """Whether a split may hold rows within the bounds, as far as can be told without reading it."""
        if not self._bounds or not isinstance(split, ParquetSplit):
            return True
        if self._pruner is None or self._pruner[0] is not split.schema:
            self._pruner = split.schema, Pruner(self._bounds, split.schema)
        return split.may_pass(self._pruner[1])

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split that predicates, and keys without partners, leave."""
        if not isinstance(split, ParquetSplit):
            return split.read(self._columns, self._where)
        return split.read(self._columns, self._where, opened=self._file, partners=self._partners)

    def read_all(self, split: Split) -> Iterator[pa.RecordBatch]:
        """All rows of a split."""
        return split.read(self._columns)
