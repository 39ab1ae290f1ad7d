"""Reading one row group of a Parquet file, in the task that needs it.

Only the columns asked for are decoded, and those that predicates need are decoded first: when no row
passes, the others are never touched. The same goes for keys that have no partners (`core.partners`).
Predicates on text whose column is a short dictionary are evaluated once for each word of it.

Text that a file holds as a short dictionary is read as one: that is several times faster than reading
strings, and where the reader of the batches can use dictionaries they are handed on so. Once few rows
are left, only these are read of the columns that follow (`sources.narrowing`).

One thread does all: tasks run beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from eddies.core.expr import Expr
from eddies.core.functions.signature import Mask
from eddies.core.partners import PartnerFilter
from eddies.sources.decoded import ColumnKey
from eddies.sources.delivered import convert, without_columns
from eddies.sources.footers import footer_of
from eddies.sources.narrowing import Narrowed
from eddies.sources.open_file import OpenFile
from eddies.sources.opening import check_unchanged, reading
from eddies.sources.pages import PageColumn
from eddies.sources.partitions import partition_values
from eddies.sources.paths import DataFile, Place
from eddies.sources.pruning import Pruner
from eddies.sources.ranges import NOTHING, Range, leaf_by_name, point, range_of
from eddies.sources.rows_that_pass import RowFilter
from eddies.sources.source import DEFAULT_BATCH_ROWS

__all__ = ["ParquetSplit", "ranges_of"]

Rows = npt.NDArray[np.int32]

_MOST_BATCHES = 4  # in a row group that is decoded at once, to leave out what is not wanted
# A chunk of text that takes fewer bytes a row is (almost) only codes into its dictionary: a string
# that stands there itself takes its length (4 bytes) at least.
_DICTIONARY_BYTES_A_ROW = 3.0

# Least and greatest keys of the row groups of files, by file and column.
_spans_by_key: dict[tuple[str, DataFile, str, pa.DataType], tuple[tuple[int, int] | None, ...]] = {}
_MOST_SPANS = 256


@dataclass(frozen=True, slots=True)
class ParquetSplit:
    """Row group `row_group` of `file`. `schema` is the source's."""

    place: Place
    file: DataFile
    row_group: int
    n_rows: int
    n_bytes: int
    schema: pa.Schema

    def read(
        self,
        columns: Sequence[str],
        where: tuple[Expr, ...] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
        *,
        dictionaries: bool = False,
        opened: OpenFile | None = None,
        partners: PartnerFilter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `Split.read`. With `dictionaries`, text may come as dictionary arrays. Whoever reads many
        splits gives the same `opened` to all of them, and closes it; they have been pruned by `where`.
        Rows that have no `partners` are left out.
        """
        check_unchanged(self.place, self.file)
        if opened is None and where and not self.may_pass(Pruner(where, self.schema)):
            return
        constants = partition_values(self.file, self.schema)
        own = OpenFile() if opened is None else opened
        try:
            own.turn_to(self.place, self.file, self.n_bytes)
            reader = _Reader(self, own, tuple(columns), constants, dictionaries, partners)
            with reading(self.file):
                yield from reader.batches(where, batch_rows)
        finally:
            if opened is None:
                own.close()

    def may_pass(self, pruner: Pruner) -> bool:
        """Whether some row might fulfil the predicates of `pruner`."""
        check_unchanged(self.place, self.file)
        footer = footer_of(self.place, self.file)
        constants = partition_values(self.file, self.schema)
        leaves = leaf_by_name(footer.schema)
        return pruner.may_pass(
            ranges_of(footer, self.row_group, leaves, constants, self.schema, pruner.columns)
        )

    def key_span(self, column: str) -> tuple[int, int] | None:
        """The least and greatest value of a whole number, date or timestamp, if the footer says."""
        return _key_spans(self.place, self.file, column, self.schema.field(column).type)[
            self.row_group
        ]


def _key_spans(
    place: Place, file: DataFile, column: str, type_: pa.DataType
) -> tuple[tuple[int, int] | None, ...]:
    """`ParquetSplit.key_span` of all row groups of a file; worked out once."""
    key = (place.system.type_name, file, column, type_)
    spans = _spans_by_key.get(key)  # another thread may clear what this one has just seen
    if spans is None:
        if len(_spans_by_key) >= _MOST_SPANS:
            _spans_by_key.clear()
        spans = tuple(_read_key_spans(footer_of(place, file), file, column, type_))
        _spans_by_key[key] = spans
    return spans


def _read_key_spans(
    footer: parquet.FileMetaData, file: DataFile, column: str, type_: pa.DataType
) -> Iterator[tuple[int, int] | None]:
    leaf = leaf_by_name(footer.schema).get(column)
    is_partition = column in dict(file.partition)
    for number in range(footer.num_row_groups):
        low = high = None
        if leaf is not None and not is_partition:
            chunk = footer.row_group(number).column(leaf)
            pieces = range_of(chunk, footer.schema.column(leaf), type_).pieces
            low, high = pieces[0] if len(pieces) == 1 else (None, None)
        yield (low, high) if isinstance(low, int) and isinstance(high, int) else None


def ranges_of(
    footer: parquet.FileMetaData,
    row_group: int,
    leaves: Mapping[str, int],
    constants: Mapping[str, pa.Scalar],
    schema: pa.Schema,
    names: frozenset[str],
) -> dict[str, Range]:
    """What is known of the columns `names` in one row group. `leaves` is `leaf_by_name`."""
    group = footer.row_group(row_group)
    ranges = {}
    stored = set(footer.schema.to_arrow_schema().names) if names - leaves.keys() else set()
    for name in names:
        if name in constants:
            ranges[name] = point(constants[name])
        elif name in leaves:
            leaf = leaves[name]
            ranges[name] = range_of(
                group.column(leaf), footer.schema.column(leaf), schema.field(name).type
            )
        elif name not in stored:
            ranges[name] = NOTHING
    return ranges


class _Reader:
    """One reading of a split."""

    def __init__(
        self,
        split: ParquetSplit,
        file: OpenFile,
        columns: tuple[str, ...],
        constants: Mapping[str, pa.Scalar],
        keeps_dictionaries: bool,
        partners: PartnerFilter | None,
    ) -> None:
        self._split = split
        self._partners = partners
        self._file = file
        self._columns = columns
        self._constants = constants
        self._keeps_dictionaries = keeps_dictionaries
        self._stored = file.names - constants.keys()
        self._dictionaries: list[str] = []  # columns that are read as such

    def batches(self, where: tuple[Expr, ...], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows, at most `batch_rows` at once; a small row group in one piece."""
        rows = RowFilter(where, self._stored)
        tested = sorted(rows.columns)
        needed = list(dict.fromkeys([*tested, *(n for n in self._columns if n in self._stored)]))
        n_rows = self._split.n_rows
        if not needed:
            for start in range(0, n_rows, batch_rows):
                yield self._delivered({}, min(batch_rows, n_rows - start))
            return
        self._dictionaries = self._short_dictionaries(needed)
        is_chosen_from = bool(tested) or (self._partners is not None and self._partners.asks)
        most_batches = _MOST_BATCHES if is_chosen_from else self._file.decoded is not None
        if n_rows <= most_batches * batch_rows:
            for batch in self._tested_first(tested, needed, rows):
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
        else:
            yield from self._streamed(needed, rows, batch_rows)

    def _short_dictionaries(self, names: list[str]) -> list[str]:
        group = self._file.footer.row_group(self._split.row_group)
        leaves = self._file.leaves
        found = []
        for name in names:
            if name not in leaves or not pa.types.is_string(self._split.schema.field(name).type):
                continue
            chunk = group.column(leaves[name])
            is_short = chunk.total_uncompressed_size < _DICTIONARY_BYTES_A_ROW * chunk.num_values
            if chunk.has_dictionary_page and is_short:
                found.append(name)
        return found

    def _tested_first(
        self, tested: list[str], needed: list[str], rows: RowFilter
    ) -> Iterator[pa.RecordBatch]:
        wanted = Narrowed(self, self._split.n_rows)
        if not wanted.read(tested):
            yield from self._streamed(needed, rows, self._split.n_rows)
            return
        mask = self._mask(rows, {name: wanted.at(name)[0] for name in tested}, self._split.n_rows)
        if mask is not None:
            wanted.narrow(np.flatnonzero(mask).astype(np.int32))
        if self._partners is not None and wanted.n_wanted:
            self._drop_without_partners(self._partners, wanted, frozenset(needed))
        if not wanted.n_wanted:
            return
        if not wanted.read(needed):
            yield from self._streamed(needed, rows, self._split.n_rows)
        else:
            arrays = {name: wanted.at(name) for name in needed if name in self._columns}
            yield self._delivered(arrays, wanted.n_wanted)

    def _drop_without_partners(
        self, partners: PartnerFilter, wanted: Narrowed, needed: frozenset[str]
    ) -> None:
        if not wanted.is_large and not wanted.read(sorted(partners.columns & needed)):
            return

        def keys(name: str, rows: Rows | None) -> tuple[pa.Array, Rows | None]:
            if rows is not None:
                wanted.narrow(rows)
            if name not in needed or not wanted.read([name], as_keys=True):
                return pa.nulls(self._split.n_rows), rows
            array, places = wanted.at(name)
            return self._converted(name, array, keeps_dictionaries=True), places

        kept = partners.rows(keys, self._split.n_rows, wanted.rows)
        if kept is not None:
            wanted.narrow(kept)

    def whole(self, names: list[str]) -> dict[str, pa.Array] | None:
        """Columns in one piece each; None if one has more text than an Arrow array can hold."""
        decoded = self._file.decoded
        arrays: dict[str, pa.Array] = {}
        if decoded is not None:
            found = {name: decoded.find(self._key(name)) for name in names}
            arrays = {name: array for name, array in found.items() if array is not None}
        missing = [name for name in names if name not in arrays]
        if not missing:
            return arrays
        opened = self._file.reader(self._dictionaries)
        table = opened.read_row_group(self._split.row_group, missing, use_threads=False)
        for name in missing:
            column = table.column(name)
            if column.num_chunks > 1:
                column = column.combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                if column.num_chunks != 1:
                    return None
                column = column.chunk(0)
            arrays[name] = column
            if decoded is not None:
                decoded.keep(self._key(name), column)
        return arrays

    def by_rows(self, name: str) -> PageColumn | None:
        """A column whose rows can be read one by one; None if they cannot, or if columns are kept."""
        if self._file.decoded is not None:
            return None
        return self._file.page_column(name, self._split.row_group)

    def is_kept_coded(self, name: str) -> bool:
        """Whether a column of text is delivered as a dictionary."""
        return self._keeps_dictionaries and name in self._dictionaries

    def _key(self, name: str) -> ColumnKey:
        split = self._split
        system = split.place.system.type_name
        return ColumnKey(system, split.file, split.row_group, name, name in self._dictionaries)

    def _streamed(
        self, needed: list[str], rows: RowFilter, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        group = [self._split.row_group]
        opened = self._file.reader(self._dictionaries)
        for piece in opened.iter_batches(batch_rows, group, needed, use_threads=False):
            arrays = {name: piece.column(name) for name in needed}
            mask = self._mask(rows, arrays, piece.num_rows)
            if mask is None or mask.any():
                kept = None if mask is None else np.flatnonzero(mask).astype(np.int32)
                n_rows = piece.num_rows if kept is None else kept.shape[0]
                yield self._delivered({name: (arrays[name], kept) for name in needed}, n_rows)

    def _mask(self, rows: RowFilter, arrays: Mapping[str, pa.Array], n_rows: int) -> Mask | None:
        def array(name: str) -> pa.Array:
            return self._converted(name, arrays[name], keeps_dictionaries=True)

        return rows.mask(array, n_rows)

    def _converted(self, name: str, array: pa.Array, keeps_dictionaries: bool) -> pa.Array:
        type_ = self._split.schema.field(name).type
        is_dictionary = pa.types.is_dictionary(array.type) and array.type.value_type == type_
        return array if keeps_dictionaries and is_dictionary else convert(array, type_)

    def _delivered(
        self, arrays: Mapping[str, tuple[pa.Array, Rows | None]], n_rows: int
    ) -> pa.RecordBatch:
        """The columns asked for: of each array so many rows, those named (None: all)."""
        if not self._columns:
            return without_columns(n_rows)
        delivered = []
        for name in self._columns:
            if name in arrays:
                array, rows = arrays[name]
                if rows is not None and _is_view(array.type):
                    array = self._converted(name, array, self._keeps_dictionaries)
                if rows is not None:
                    array = array.take(pa.array(rows))
                delivered.append(self._converted(name, array, self.is_kept_coded(name)))
            elif name in self._constants:
                delivered.append(pa.repeat(self._constants[name], n_rows))
            else:
                delivered.append(pa.nulls(n_rows, self._split.schema.field(name).type))
        return pa.RecordBatch.from_arrays(delivered, names=list(self._columns))


def _is_view(type_: pa.DataType) -> bool:
    """Types that Arrow cannot filter."""
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))
