"""A table of different keys: each gets a number when it first occurs. Whole batches at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.batch import Ids
from eddies.core.exactly_once import NO_LIMIT
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import KeySide, is_exact, key_words, verify_keys
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["NO_KEY", "UNKNOWN", "KeyTable"]

UNKNOWN = -1  # in place of a number: never entered
NO_KEY = -2  # a NULL in the key, which therefore equals nothing


class KeyTable:
    """Keys over the columns of `schema`, numbered in the order in which they were entered."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.columns = tuple(schema.names)
        self.schema = schema
        self._store = RowStore(name, schema)
        self._index = HashIndex(self._store, self.columns)
        self._scratch = Scratch(1024)

    @property
    def n_keys(self) -> int:
        """Different keys so far."""
        return self._store.n_rows

    @property
    def n_bytes(self) -> int:
        return self._store.n_bytes + self._index.n_bytes

    def find(self, side: KeySide) -> Ids:
        """The number of every row's key, `UNKNOWN` or `NO_KEY`."""
        words, valid = key_words(side)
        ids = np.full(words.shape[0], UNKNOWN, dtype=np.int32)
        chosen: Ids | None = None
        if valid is not None and not valid.all():
            ids[valid == 0] = NO_KEY
            chosen = np.flatnonzero(valid).astype(np.int32)
            words = words[chosen]
        if words.shape[0] == 0 or self._store.n_rows == 0:
            return ids
        scratch = self._scratch
        self._index.catch_up(scratch)
        found, pending = self._index.probe(words, NO_LIMIT, scratch)
        self._note(ids, side, found, chosen)
        while pending is not None:
            found, pending = self._index.resume(pending, scratch)
            self._note(ids, side, found, chosen)
        return ids

    def _note(self, ids: Ids, side: KeySide, found: int, chosen: Ids | None) -> None:
        positions, rows = self._scratch.positions, self._scratch.rows
        if chosen is not None:
            positions[:found] = chosen[positions[:found]]
        stored = [self._store.column(name) for name in self.columns]
        if not is_exact(stored):
            found = verify_keys(positions, rows, found, side, stored)
        ids[positions[:found]] = rows[:found]

    def enter(self, side: KeySide, positions: Ids) -> Ids:
        """Number the different keys at `positions`, none of which is known or NULL."""
        columns = [(column, _picked(ids, positions)) for column, ids in side]
        if is_exact([column for column, _ in side]):
            words, _ = key_words(columns)
            first = np.sort(np.unique(words, return_index=True)[1]).astype(np.int32)
            arrays = [column.take(_picked(ids, first)) for column, ids in columns]
        else:
            arrays = _distinct([column.take(ids) for column, ids in columns])
        arrays = [_as(array, field.type) for array, field in zip(arrays, self.schema, strict=True)]
        n_new = len(arrays[0])
        first_id = self._store.n_rows
        self._store.append(Block.from_arrow(dict(zip(self.columns, arrays, strict=True)), n_new))
        return np.arange(first_id, first_id + n_new, dtype=np.int32)

    def keys(self, ids: Ids) -> pa.RecordBatch:
        """The keys with these numbers."""
        arrays = [self._store.column(name).take(ids) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def release(self) -> None:
        """Drop everything; the table must not be used afterwards."""
        self._index.release()
        self._store.release()


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


def _picked(ids: Ids | None, positions: Ids) -> Ids:
    picked = positions if ids is None else ids[positions]
    return np.ascontiguousarray(picked, dtype=np.int32)


def _distinct(arrays: list[pa.Array]) -> list[pa.Array]:
    names = [f"k{i}" for i in range(len(arrays))]
    plain = [pc.add(a, 0) if pa.types.is_floating(a.type) else a for a in arrays]  # -0.0 is 0.0
    groups = pa.table(plain, names=names).group_by(names, use_threads=False).aggregate([])
    return [_one_chunk(groups.column(name)) for name in names]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
