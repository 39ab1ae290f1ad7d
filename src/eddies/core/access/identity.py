"""Which row is which, when the same rows come by several access methods.

Competing scans and indexes deliver the same rows, and a row must be stored once (SteMs, section 3.3:
duplicates are removed when they are built). With a declared key, a row is its key. Without one, a row
is all its values and an *ordinal*: the how many-th row with these values its access method has
delivered. A source that holds a row three times delivers it three times by each of its methods, so
the third of one method is the third of the other, and the answer keeps SQL's bags. (The paper compares
values alone, and genuine duplicates collapse.) That works because a row is delivered by exactly one
look-up of an index, and by a scan once.

Only columns the query reads are compared: rows that differ elsewhere are as good as equal, and the
ordinal counts them.

Values are compared by two 64-bit hashes made in different ways, and strings byte by byte.

Known limitation: without a declared key, mirrors that hold different data cannot be told from sources
with more rows; the answer then has the rows of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.access.key_table import KeyTable
from eddies.core.batch import Ids
from eddies.core.exactly_once import NO_LIMIT
from eddies.core.graph import Relation
from eddies.core.kernels.words import mix_words
from eddies.core.state.columns import Column, TextColumn, Words, column_of, is_key_type
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import verify_keys
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch
from eddies.errors import PlanError

__all__ = ["Identities", "Sorted"]

_WORDS = pa.schema([("low", pa.int64()), ("high", pa.int64())])
_NULL_WORD = np.uint64(0x9AE16A3B2F90404F)
_OTHER = np.uint64(0x6C62272E07BB0142)  # what makes the second hash differ from the first
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows of a block that are new, and how many others differ from what is stored under their key.

    `example` is the position of such a row, -1 if there is none.
    """

    new: Ids
    n_differing: int = 0
    example: int = -1


class Identities:
    """The rows of one relation's SteM by their identity. Row ids are those of the SteM, because every
    row that is stored is registered here first.
    """

    def __init__(self, relation: Relation, key: tuple[str, ...], store: RowStore) -> None:
        names = relation.stored.names
        self.by_key = bool(key) and all(name in names for name in key)
        self._columns = key if self.by_key else tuple(names)
        self._others = tuple(name for name in names if name not in key) if self.by_key else ()
        for name in (*self._columns, *self._others):
            type_ = relation.stored.field(name).type
            if not is_key_type(type_):
                raise PlanError(
                    f"relation {relation.name!r} has several access methods, so its rows are "
                    f"compared, but {name!r} of type {type_} cannot be; leave the column out of the "
                    "query, or use one access method"
                )
        self._stem_rows = store
        self._words = RowStore(f"identities of {relation.name}", _WORDS)
        self._index = HashIndex(self._words, ("low",))
        self._delivered: dict[str, tuple[KeyTable, npt.NDArray[np.int64]]] = {}
        self._scratch = Scratch(1024)

    @property
    def n_bytes(self) -> int:
        ordinals = sum(t.n_bytes + counts.nbytes for t, counts in self._delivered.values())
        return self._words.n_bytes + self._index.n_bytes + ordinals

    def sort_out(self, block: Block, access: str) -> Sorted:
        """Register the rows of `block` that are not stored yet. The caller stores exactly those."""
        low, high = _hashes([block.column(name) for name in self._columns], block.n_rows)
        if not self.by_key:
            ordinals = self._ordinals(access, low, high).astype(np.uint64)
            mix_words(low, ordinals)
            mix_words(high, ordinals)
        stored = self._find(block, low, high)
        order = np.lexsort((np.arange(block.n_rows), high, low))
        repeats = np.zeros(block.n_rows, dtype=np.bool_)
        same = (low[order[1:]] == low[order[:-1]]) & (high[order[1:]] == high[order[:-1]])
        repeats[order[1:]] = same
        is_new = (stored < 0) & ~repeats
        new = np.flatnonzero(is_new).astype(np.int32)
        self._words.append(_word_block(low[new], high[new]))
        if not self.by_key or not self._others or new.shape[0] == block.n_rows:
            return Sorted(new)
        differs = self._differing(block, stored)
        differing = np.flatnonzero(differs)
        example = int(differing[0]) if differing.shape[0] else -1
        return Sorted(new, int(differing.shape[0]), example)

    def _find(self, block: Block, low: Words, high: Words) -> Ids:
        """The stored row of every row of the block, or -1."""
        found_rows = np.full(block.n_rows, -1, dtype=np.int32)
        if self._words.n_rows == 0:
            return found_rows
        scratch = self._scratch
        self._index.catch_up(scratch)
        found, pending = self._index.probe(low, NO_LIMIT, scratch)
        while True:
            positions, rows = scratch.positions, scratch.rows
            stored_high = self._words.column("high").words(rows[:found])
            same = np.flatnonzero(stored_high == high[positions[:found]])
            positions[: same.shape[0]] = positions[same]
            rows[: same.shape[0]] = rows[same]
            found = self._verify_texts(block, positions, rows, same.shape[0])
            found_rows[positions[:found]] = rows[:found]
            if pending is None:
                return found_rows
            found, pending = self._index.resume(pending, scratch)

    def _verify_texts(self, block: Block, positions: Ids, rows: Ids, n: int) -> int:
        for name in self._columns:
            column, stored = block.column(name), self._stem_rows.column(name)
            if n and isinstance(column, TextColumn):
                valid = column.valid(None)
                if valid is not None and not valid[positions[:n]].all():
                    continue  # NULLs have no bytes; the two hashes must do
                n = verify_keys(positions, rows, n, [(column, None)], [stored])
        return n

    def _ordinals(self, access: str, low: Words, high: Words) -> npt.NDArray[np.int64]:
        """For each row how many equal rows this access method has delivered before it."""
        if access not in self._delivered:
            self._delivered[access] = (KeyTable("ordinals", _WORDS), np.zeros(0, dtype=np.int64))
        table, counts = self._delivered[access]
        block = _word_block(low, high)
        side = [(block.column("low"), None), (block.column("high"), None)]
        ids = table.find(side)
        unknown = np.flatnonzero(ids < 0).astype(np.int32)
        if unknown.shape[0]:
            table.enter(side, unknown)
            ids = table.find(side)
        if table.n_keys > counts.shape[0]:
            grown = np.zeros(max(table.n_keys, 2 * counts.shape[0]), dtype=np.int64)
            grown[: counts.shape[0]] = counts
            counts = grown
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
        lengths = np.diff(np.r_[starts, in_order.shape[0]])
        rank = np.arange(in_order.shape[0]) - np.repeat(starts, lengths)
        ordinals = np.empty(ids.shape[0], dtype=np.int64)
        ordinals[order] = counts[in_order] + rank
        counts[in_order[starts]] += lengths
        self._delivered[access] = (table, counts)
        return ordinals

    def _differing(self, block: Block, stored: Ids) -> Mask:
        """Which rows of the block are stored with other values."""
        here = np.flatnonzero(stored >= 0).astype(np.int32)
        rows = stored[here]
        differs = np.zeros(block.n_rows, dtype=np.bool_)
        for name in self._others:
            given, kept = block.column(name), self._stem_rows.column(name)
            is_other = _null_safe_words(given, here) != _null_safe_words(kept, rows)
            differs[here] |= is_other
        return differs

    def release(self) -> None:
        """Drop everything."""
        self._index.release()
        self._words.release()
        for table, _ in self._delivered.values():
            table.release()
        self._delivered.clear()


def _null_safe_words(column: Column, ids: Ids | None) -> Words:
    words = column.words(ids)
    valid = column.valid(ids)
    if valid is None:
        return words
    return np.where(valid != 0, words, _NULL_WORD)


def _hashes(columns: list[Column], n_rows: int) -> tuple[Words, Words]:
    low = np.zeros(n_rows, dtype=np.uint64)
    high = np.full(n_rows, _OTHER, dtype=np.uint64)
    for column in columns:
        words = _null_safe_words(column, None)
        mix_words(low, words)
        valid = column.valid(None)
        mix_words(high, ~words if valid is None else np.where(valid != 0, ~words, _NULL_WORD))
    return low, high


def _word_block(low: Words, high: Words) -> Block:
    arrays = {"low": pa.array(low.view(np.int64)), "high": pa.array(high.view(np.int64))}
    return Block({n: column_of(a) for n, a in arrays.items()}, low.shape[0])
