"""Row stores and blocks: where the rows behind row ids are.

A `Block` is a batch as it came in: the columns a source needs, without copies. A `RowStore` is the
append-only memory of one relation; a row's id is its arrival number, so the store's length at some
moment is a stamp: the rows present then are exactly those with a smaller id (see `exactly_once`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.state.columns import Column, column_of, empty_column
from eddies.core.state.narrow_column import alike, narrow_array, narrow_column, picked
from eddies.errors import SourceError

__all__ = ["MAX_ROWS", "Block", "RowStore"]

MAX_ROWS = 2**31 - 2  # row ids are int32, and row + 1 must be one too
_PIECE_ROWS = 1 << 17


class Block:
    """Rows of one batch. Row ids are positions in the block.

    A column is made of its Arrow array when first asked for: one that only predicates read never is.
    `n_offered` says of how many rows these were chosen by selections (all of them if not given).
    """

    __slots__ = ("_arrays", "_columns", "memo", "n_offered", "n_rows")

    def __init__(
        self, columns: Mapping[str, Column], n_rows: int, n_offered: int | None = None
    ) -> None:
        self._arrays: dict[str, pa.Array] = {}
        self._columns = dict(columns)
        self.n_rows = n_rows
        self.n_offered = n_rows if n_offered is None else n_offered
        self.memo: dict[int, npt.NDArray[np.int8]] = {}

    @classmethod
    def from_arrow(
        cls, arrays: dict[str, pa.Array], n_rows: int, n_offered: int | None = None
    ) -> Block:
        """The rows of `arrays`, all of normal types. The block owns the dictionary from now on."""
        block = cls({}, n_rows, n_offered)
        block._arrays = arrays
        return block

    def column(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = column_of(self._arrays[name])
        return column

    def columns(self) -> Mapping[str, Column]:
        for name in self._arrays:
            self.column(name)
        return self._columns

    def narrowed(self, schema: pa.Schema) -> Block:
        """The same rows, with the columns of `schema`, in as few bytes as they need."""
        columns = {
            field.name: narrow_column(field.type, narrow_array(self.take(field.name, None)))
            for field in schema
        }
        return Block(columns, self.n_rows, self.n_offered)

    def take(self, name: str, ids: npt.NDArray[np.int32] | None) -> pa.Array:
        """The rows `ids` (None: all) of a column as Arrow."""
        array = self._arrays.get(name) if ids is None else None
        return self.column(name).take(ids) if array is None else array


class RowStore:
    """Append-only rows of one relation. `offered_rows` is how many rows the relation is believed to
    have before selections; 0 if nobody knows.
    """

    __slots__ = ("_columns", "_n_offered", "_offered_rows", "is_complete", "memo", "n_rows", "name")

    def __init__(self, name: str, schema: pa.Schema, offered_rows: int = 0) -> None:
        self.name = name
        self.n_rows = 0
        self._offered_rows = offered_rows
        self._n_offered = 0
        self.is_complete = False  # whether it is known that no row will come any more
        self._columns = {field.name: empty_column(field.type) for field in schema}
        self.memo: dict[int, npt.NDArray[np.int8]] = {}

    def append(self, block: Block) -> None:
        """Add the rows of `block`; their ids are the next `block.n_rows` numbers."""
        if self.n_rows + block.n_rows > MAX_ROWS:
            raise SourceError(
                f"relation {self.name!r} has more than {MAX_ROWS} rows in one eddy; "
                "split the query into more cells"
            )
        self.n_rows += block.n_rows
        self._n_offered += block.n_offered
        room = self.expected_rows
        for name, column in self._columns.items():
            mine, others = alike(column, block.column(name))
            mine.append(others, room)
            self._columns[name] = mine

    @property
    def offered_rows(self) -> int:
        """How many rows the relation is believed to have before selections; 0 if nobody knows."""
        return self._offered_rows

    @property
    def expected_rows(self) -> int:
        """How many rows there will be if selections go on letting through the share they did."""
        return self._offered_rows * self.n_rows // max(1, self._n_offered)

    @property
    def is_growing(self) -> bool:
        """Whether more rows are known to come."""
        return not self.is_complete and self.n_rows < self.expected_rows

    def skip(self, n_rows: int) -> None:
        """So many rows came that need not be stored."""
        self._n_offered += n_rows

    def column(self, name: str) -> Column:
        return self._columns[name]

    def take(self, name: str, ids: npt.NDArray[np.int32] | None) -> pa.Array:
        """The rows `ids` (None: all) of a column as Arrow."""
        return self._columns[name].take(ids)

    def keep_only(self, rows: npt.NDArray[np.int32]) -> None:
        """Keep these rows, in this order; their ids are now their positions among them.

        Done a column at a time, so that only one is there twice, and in pieces, because the text of all
        rows may be more than one Arrow array can hold.
        """
        pieces = [rows[i : i + _PIECE_ROWS] for i in range(0, max(1, len(rows)), _PIECE_ROWS)]
        for name, column in self._columns.items():
            first, *others = [picked(column, piece) for piece in pieces]
            column.release()
            for other in others:
                first.append(other, rows.shape[0])
            self._columns[name] = first
        self.memo = {number: answers[rows] for number, answers in self._memos()}
        self.n_rows = rows.shape[0]
        self._n_offered = self.n_rows

    def _memos(self) -> Iterator[tuple[int, npt.NDArray[np.int8]]]:
        """Answers of expensive predicates, made as long as the store."""
        for number, answers in self.memo.items():
            missing = max(0, self.n_rows - answers.shape[0])
            yield number, np.pad(answers, (0, missing), constant_values=-1)

    def release(self) -> None:
        """Give the memory of the rows back. Only their number may be asked for afterwards."""
        for column in self._columns.values():
            column.release()
        self.memo.clear()

    @property
    def n_bytes(self) -> int:
        """Memory held by the rows."""
        return sum(column.n_bytes for column in self._columns.values())
