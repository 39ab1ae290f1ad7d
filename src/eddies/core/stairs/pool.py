"""A pool: the stored tuples of one signature inside a STAIR.

A tuple is one row id for each source it spans, into the relations' stores; nothing else is copied. Its
join key is a column of one of those stores, read through the row ids when an index needs it. Pools are
append-only, with a hash index over the key, made when somebody probes. Tuples that are moved or
demoted disappear by a *dead* mark: indexes need no deletion, matches with dead rows are dropped, and
when more than half of a pool is dead it is written anew. A pool that becomes empty is thrown away
whole, which is what bulk migration mostly does.

For Invariant B a pool answers a second question: which tuples agree with given ones on some of the
sources? That is an equijoin on row ids, so the same kind of index serves, made on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids
from eddies.core.kernels.gather import gather
from eddies.core.lineage import Signature, bits
from eddies.core.state.buffers import SHELF
from eddies.core.state.columns import Bytes, KeyColumn, Words
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import KeySide, is_exact, key_words, verify_keys
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["Pool"]

_FEWEST_TO_COMPACT = 4096
_PROBED_ROWS = 65_536  # tuples looked up by ids at a time
_FIRST_ROOM = 4096  # tuples


def _ids_name(source: int) -> str:
    return f"row ids of {source}"


class _Through:
    """A column of a relation, of the rows that the tuples of a pool have there."""

    __slots__ = ("_name", "_pool", "_source", "_store")

    def __init__(self, pool: Pool, source: int, store: RowStore, name: str) -> None:
        self._pool = pool
        self._source = source
        self._store = store
        self._name = name

    @property
    def type(self) -> pa.DataType:
        return self._store.column(self._name).type

    @property
    def exact(self) -> bool:
        return self._store.column(self._name).exact

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        rows = self._pool.ids(self._source, ids)
        return self._store.column(self._name).words(rows[start:stop] if ids is None else rows)

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        rows = self._pool.ids(self._source, ids)
        return self._store.column(self._name).valid(rows[start:stop] if ids is None else rows)


class _RowIds:
    """The row ids of one source as a key: of a pool, or (`ids`) of tuples that look for theirs."""

    __slots__ = ("_ids", "_pool", "_source")
    type = pa.uint32()  # two of them make one exact word
    exact = True

    def __init__(self, source: int, pool: Pool | None = None, ids: Ids | None = None) -> None:
        self._source = source
        self._pool = pool
        self._ids = ids

    def words(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Words:
        known = self._pool.ids(self._source) if self._pool is not None else self._ids
        assert known is not None
        return (known[start:stop] if ids is None else known[ids]).astype(np.uint64)

    def valid(self, ids: Ids | None, start: int = 0, stop: int | None = None) -> Bytes | None:
        return None


class _Fetched(Mapping[int, Ids]):
    """The row ids of some tuples of a pool, by source: fetched when they are asked for, at once, for
    the pool may renumber its rows.
    """

    __slots__ = ("_pool", "_rows")

    def __init__(self, pool: Pool, rows: Ids) -> None:
        self._pool = pool
        self._rows = rows

    def __getitem__(self, source: int) -> Ids:
        return self._pool.ids(source, self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._pool.sources)

    def __len__(self) -> int:
        return len(self._pool.sources)


class Pool:
    """Tuples that all have `signature`, to be found by the columns `key` of `source`, whose rows are in
    `store`. Rows of a pool are numbered from 0 and renumbered by `kill`.
    """

    expected_rows = 0  # nobody knows how many tuples there will be
    is_growing = False
    is_complete = False

    def __init__(
        self, signature: Signature, source: int, store: RowStore, key: Sequence[str]
    ) -> None:
        self.signature = signature
        self.sources = bits(signature.sources)
        self._place = {source: number for number, source in enumerate(self.sources)}
        self._columns: dict[str, KeyColumn] = {
            **{name: _Through(self, source, store, name) for name in key},
            **{_ids_name(other): _RowIds(other, self) for other in self.sources},
        }
        self._source = source
        self._store = store
        self._key = tuple(key)
        self.is_exact = is_exact([self._columns[name] for name in key])  # words are keys
        self._start()

    def _start(self) -> None:
        self.n_rows = 0  # dead ones among them
        self._ids = np.empty((len(self.sources), 0), dtype=np.int32)  # a line a source
        self._lent: npt.NDArray[np.uint64] | None = None
        self.index = HashIndex(self, self._key)
        self._by_ids: dict[int, HashIndex] = {}
        self._dead: npt.NDArray[np.bool_] | None = None
        self.n_dead = 0

    @property
    def n_live(self) -> int:
        return self.n_rows - self.n_dead

    @property
    def n_bytes(self) -> int:
        by_ids = sum(index.n_bytes for index in self._by_ids.values())
        dead = 0 if self._dead is None else self._dead.nbytes
        return 4 * len(self.sources) * self.n_rows + self.index.n_bytes + by_ids + dead

    def column(self, name: str) -> KeyColumn:
        """What indexes are made of: a column of the key, or the ids of a source."""
        return self._columns[name]

    def append(self, ids: Mapping[int, Ids], n_rows: int) -> None:
        """Store tuples."""
        first = self.n_rows
        last = first + n_rows
        if last > self._ids.shape[1]:
            self._make_room(last)
        own = self._ids
        for place, source in enumerate(self.sources):
            own[place, first:last] = ids[source]
        self.n_rows = last

    def _make_room(self, n_rows: int) -> None:
        room = 1 << (max(n_rows, _FIRST_ROOM) - 1).bit_length()
        n_words = len(self.sources) * room // 2
        lent = SHELF.take(n_words)
        grown = lent.view(np.int32).reshape(len(self.sources), room)
        grown[:, : self.n_rows] = self._ids[:, : self.n_rows]
        if self._lent is not None:
            SHELF.put(self._lent)
        self._ids, self._lent = grown, lent

    def ids(self, source: int, rows: Ids | None = None) -> Ids:
        """The row ids of `source` in the tuples `rows` (all rows, dead ones too, when None: a view)."""
        known: Ids = self._ids[self._place[source], : self.n_rows]
        if rows is None:
            return known
        taken = np.empty(rows.shape[0], dtype=np.int32)
        gather(known, rows, taken)
        return taken

    def fetched(self, rows: Ids) -> Mapping[int, Ids]:
        """The row ids of the tuples `rows`, by source; only those that are looked at are fetched."""
        return _Fetched(self, rows)

    def live_rows(self) -> Ids:
        """All rows that are not dead."""
        n_rows = self.n_rows
        if self._dead is None:
            return np.arange(n_rows, dtype=np.int32)
        return np.flatnonzero(~self._dead[:n_rows]).astype(np.int32)

    def is_dead(self, rows: Ids) -> npt.NDArray[np.bool_] | None:
        """For each of `rows` whether it is dead; None: no row is."""
        if self._dead is None:
            return None
        if self._dead.shape[0] < self.n_rows:
            self._grow_marks()
        return self._dead[rows]

    def _grow_marks(self) -> None:
        marks = np.zeros(max(self.n_rows, 64) * 2, dtype=np.bool_)
        if self._dead is not None:
            marks[: self._dead.shape[0]] = self._dead
        self._dead = marks

    def kill(self, rows: Ids) -> None:
        """Remove the tuples `rows` (dead ones among them do no harm)."""
        if rows.shape[0] == 0:
            return
        if self._dead is None or self._dead.shape[0] < self.n_rows:
            self._grow_marks()
        assert self._dead is not None
        self._dead[rows] = True
        self.n_dead = int(np.count_nonzero(self._dead))
        if self.n_dead > max(_FEWEST_TO_COMPACT, self.n_rows // 2) or self.n_live == 0:
            self._compact()

    def _compact(self) -> None:
        """Write the live rows anew."""
        rows = self.live_rows()
        ids = {source: self.ids(source, rows) for source in self.sources}
        self.release()
        self._start()
        if rows.shape[0]:
            self.append(ids, rows.shape[0])

    def verify(self, positions: Ids, rows: Ids, n: int, side: KeySide) -> int:
        """Keep, in place, the first `n` matches whose keys are really equal; returns how many remain.
        `positions` point into `side`, `rows` are rows of this pool.
        """
        met = positions[:n]
        probing = [(column, met if ids is None else ids[met]) for column, ids in side]
        stored = [self._store.column(name) for name in self._key]
        numbers = np.arange(n, dtype=np.int32)
        n = verify_keys(numbers, self.ids(self._source, rows[:n]), n, probing, stored)
        positions[:n] = positions[numbers[:n]]
        rows[:n] = rows[numbers[:n]]
        return n

    def agreeing(self, ids: Mapping[int, Ids], mask: int, scratch: Scratch) -> tuple[Ids, Ids]:
        """Live tuples that have the row ids `ids` in all sources of `mask`.

        Returns positions in `ids` and, for each, a row of this pool; in no particular order.
        """
        sources = bits(mask)
        index = self._by_ids.get(mask)
        if index is None:
            names = [_ids_name(source) for source in sources]
            index = self._by_ids[mask] = HashIndex(self, names)
        index.catch_up(scratch)
        stored = [self.column(name) for name in index.columns]
        n_tuples = ids[sources[0]].shape[0]
        found_positions: list[Ids] = []
        found_rows: list[Ids] = []
        for start in range(0, n_tuples, _PROBED_ROWS):
            part = slice(start, start + _PROBED_ROWS)
            side = [(_RowIds(source, ids=ids[source][part]), None) for source in sources]
            words, _ = key_words(side)
            found, pending = index.probe(words, self.n_rows, scratch)
            while True:
                if not is_exact(stored):
                    found = verify_keys(scratch.positions, scratch.rows, found, side, stored)
                found_positions.append(scratch.positions[:found] + np.int32(start))
                found_rows.append(scratch.rows[:found].copy())
                if pending is None:
                    break
                found, pending = index.resume(pending, scratch)
        positions, rows = np.concatenate(found_positions), np.concatenate(found_rows)
        dead = self.is_dead(rows)
        return (positions, rows) if dead is None else (positions[~dead], rows[~dead])

    def release(self) -> None:
        """Give memory back; the pool must not be used afterwards."""
        self.index.release()
        for index in self._by_ids.values():
            index.release()
        self._by_ids.clear()
        if self._lent is not None:
            SHELF.put(self._lent)
            self._lent = None
        self._ids = self._ids[:, :0]
