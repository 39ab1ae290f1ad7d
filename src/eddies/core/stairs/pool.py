"""A pool: the stored tuples of one signature inside a STAIR.

A tuple is one row id for each source it spans, into the relations' stores, and its join key. Pools are
append-only columns with a hash index over the key, made when somebody probes. Tuples that are moved or
demoted disappear by a *dead* mark: indexes need no deletion, matches with dead rows are dropped, and
when more than half of a pool is dead it is written anew. A pool that becomes empty is thrown away
whole, which is what bulk migration mostly does.

For Invariant B a pool answers a second question: which tuples agree with given ones on some of the
sources? That is an equijoin on row ids, so the same kind of index serves, made on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.batch import Ids
from eddies.core.lineage import Signature, bits
from eddies.core.state.columns import column_of
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import is_exact, key_words, verify_keys
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["Pool"]

_FEWEST_TO_COMPACT = 4096
_PROBED_ROWS = 65_536  # tuples looked up by ids at a time


def _ids_name(source: int) -> str:
    return f"ids_{source}"


class Pool:
    """Tuples that all have `signature`. Rows of a pool are numbered from 0 and renumbered by `kill`."""

    def __init__(self, signature: Signature, key_types: Sequence[pa.DataType]) -> None:
        self.signature = signature
        self.sources = bits(signature.sources)
        self._schema = pa.schema(
            [
                *(pa.field(_ids_name(source), pa.int32()) for source in self.sources),
                *(pa.field(f"key_{i}", type_) for i, type_ in enumerate(key_types)),
            ]
        )
        self.key_names = [f"key_{i}" for i in range(len(key_types))]
        self._start()

    def _start(self) -> None:
        self.store = RowStore("pool", self._schema)
        self.index = HashIndex(self.store, self.key_names)
        self._by_ids: dict[int, HashIndex] = {}
        self._dead: npt.NDArray[np.bool_] | None = None
        self.n_dead = 0

    @property
    def n_rows(self) -> int:
        """Rows, dead ones among them."""
        return self.store.n_rows

    @property
    def n_live(self) -> int:
        return self.store.n_rows - self.n_dead

    @property
    def n_bytes(self) -> int:
        by_ids = sum(index.n_bytes for index in self._by_ids.values())
        dead = 0 if self._dead is None else self._dead.nbytes
        return self.store.n_bytes + self.index.n_bytes + by_ids + dead

    def append(self, ids: Mapping[int, Ids], keys: Sequence[pa.Array], n_rows: int) -> Ids:
        """Store tuples; returns their rows."""
        first = self.store.n_rows
        arrays = {_ids_name(source): pa.array(ids[source]) for source in self.sources}
        arrays |= dict(zip(self.key_names, keys, strict=True))
        self.store.append(Block.from_arrow(arrays, n_rows))
        return np.arange(first, first + n_rows, dtype=np.int32)

    def ids(self, source: int, rows: Ids | None = None) -> Ids:
        """The row ids of `source` in the tuples `rows` (all rows, dead ones too, when None)."""
        return np.asarray(self.store.column(_ids_name(source)).take(rows))

    def keys(self, rows: Ids) -> list[pa.Array]:
        """The key columns of the tuples `rows`."""
        return [self.store.column(name).take(rows) for name in self.key_names]

    def live_rows(self) -> Ids:
        """All rows that are not dead."""
        n_rows = self.store.n_rows
        if self._dead is None:
            return np.arange(n_rows, dtype=np.int32)
        return np.flatnonzero(~self._dead[:n_rows]).astype(np.int32)

    def is_dead(self, rows: Ids) -> npt.NDArray[np.bool_] | None:
        """For each of `rows` whether it is dead; None: no row is."""
        if self._dead is None:
            return None
        if self._dead.shape[0] < self.store.n_rows:
            self._grow_marks()
        return self._dead[rows]

    def _grow_marks(self) -> None:
        marks = np.zeros(max(self.store.n_rows, 64) * 2, dtype=np.bool_)
        if self._dead is not None:
            marks[: self._dead.shape[0]] = self._dead
        self._dead = marks

    def kill(self, rows: Ids) -> None:
        """Remove the tuples `rows` (dead ones among them do no harm)."""
        if rows.shape[0] == 0:
            return
        if self._dead is None or self._dead.shape[0] < self.store.n_rows:
            self._grow_marks()
        assert self._dead is not None
        self._dead[rows] = True
        self.n_dead = int(np.count_nonzero(self._dead))
        if self.n_dead > max(_FEWEST_TO_COMPACT, self.store.n_rows // 2) or self.n_live == 0:
            self._compact()

    def _compact(self) -> None:
        """Write the live rows anew."""
        rows = self.live_rows()
        ids = {source: self.ids(source, rows) for source in self.sources}
        keys = self.keys(rows)
        self.release()
        self._start()
        if rows.shape[0]:
            self.append(ids, keys, rows.shape[0])

    def agreeing(self, ids: Mapping[int, Ids], mask: int, scratch: Scratch) -> tuple[Ids, Ids]:
        """Live tuples that have the row ids `ids` in all sources of `mask`.

        Returns positions in `ids` and, for each, a row of this pool; in no particular order.
        """
        sources = bits(mask)
        index = self._by_ids.get(mask)
        if index is None:
            names = [_ids_name(source) for source in sources]
            index = self._by_ids[mask] = HashIndex(self.store, names)
        index.catch_up(scratch)
        stored = [self.store.column(name) for name in index.columns]
        n_tuples = ids[sources[0]].shape[0]
        found_positions: list[Ids] = []
        found_rows: list[Ids] = []
        for start in range(0, n_tuples, _PROBED_ROWS):
            part = slice(start, start + _PROBED_ROWS)
            side = [(column_of(pa.array(ids[source][part])), None) for source in sources]
            words, _ = key_words(side)
            found, pending = index.probe(words, self.store.n_rows, scratch)
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
        self.store.release()
