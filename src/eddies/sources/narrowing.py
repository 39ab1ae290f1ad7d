"""Rows of a row group that are still wanted, and what was read of them.

Predicates leave some rows of a row group, keys that have no partners fewer. Every column is read once,
of the rows that are wanted at that moment; later fewer are taken out of what was read. Whether a column
is decoded as a whole by Arrow's reader or its rows are taken out of the pages (`sources.pages`) is
decided here, by their share.

A column is decompressed either way, so a page reader spares what comes after that. With more rows than
every other one, Arrow is as fast (`benchmarks/pages.py`); in small row groups what it takes to find
pages counts for more.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.sources.pages import PageColumn

__all__ = ["GroupColumns", "Narrowed"]

Rows = npt.NDArray[np.int32]

_FEWEST_ROWS = 1 << 13  # of a row group of which single rows are read
_MOST_ROWS = 0.5  # share of rows up to which they are read one by one
_MOST_WORDS = 0.5  # words of a dictionary for each row up to which words are tested, not rows


class GroupColumns(Protocol):
    """The columns of a row group."""

    def whole(self, names: list[str]) -> dict[str, pa.Array] | None:
        """All rows of columns; None if one has more text than an Arrow array can hold."""
        ...

    def by_rows(self, name: str) -> PageColumn | None:
        """A column whose rows can be read one by one; None if they cannot."""
        ...

    def is_kept_coded(self, name: str) -> bool:
        """Whether whoever reads takes text as a dictionary, and a column is short enough for one."""
        ...


class Narrowed:
    """The rows wanted; `rows` is None as long as these are all. First `read`, then `at` or `taken`."""

    def __init__(self, columns: GroupColumns, n_rows: int) -> None:
        self._columns = columns
        self._n_rows = n_rows
        self._read: dict[str, tuple[Rows | None, pa.Array]] = {}
        self.rows: Rows | None = None

    @property
    def is_large(self) -> bool:
        """Whether to read single rows may pay."""
        return self._n_rows >= _FEWEST_ROWS

    @property
    def n_wanted(self) -> int:
        """How many rows are wanted."""
        return self._n_rows if self.rows is None else self.rows.shape[0]

    def narrow(self, rows: Rows) -> None:
        """Only these rows, which ascend and were wanted before, are wanted from now on."""
        self.rows = rows

    def read(self, names: list[str], *, as_keys: bool = False) -> bool:
        """Read columns that were not read before, for the rows wanted; False if one has too much text.

        `as_keys`: every different value matters only once, so they may become dictionary arrays.
        """
        missing = []
        for name in names:
            if name not in self._read:
                array = self._by_rows(name, as_keys)
                if array is None:
                    missing.append(name)
                else:
                    self._read[name] = self.rows, array
        whole = self._columns.whole(missing) if missing else {}
        if whole is None:
            return False
        for name, array in whole.items():
            self._read[name] = None, array
        return True

    def at(self, name: str) -> tuple[pa.Array, Rows | None]:
        """An array, and which of its rows are those wanted (None: all)."""
        read_rows, array = self._read[name]
        if self.rows is None or read_rows is self.rows:
            return array, None
        if read_rows is None:
            return array, self.rows
        return array, np.searchsorted(read_rows, self.rows).astype(np.int32)

    def _by_rows(self, name: str, as_keys: bool) -> pa.Array | None:
        is_few = self.n_wanted <= _MOST_ROWS * self._n_rows
        if not self.is_large or not (is_few or as_keys):
            return None
        column = self._columns.by_rows(name)
        if column is None:
            return None
        rows = np.arange(self._n_rows, dtype=np.int32) if self.rows is None else self.rows
        is_coded = column.chunk.is_coded
        if self._columns.is_kept_coded(name):
            return column.coded(rows) if is_coded else None
        if as_keys and is_coded and column.chunk.n_words <= _MOST_WORDS * self.n_wanted:
            return column.coded(rows)
        return column.rows(rows) if is_few else None
