"""Rows without partners, dropped on the way in: semi-joins with relations that have ended.

When a relation has ended, its SteM says which keys there are. A row of another relation that is still
to come and has none of them is in no result, so it need not be stored or indexed. What is left of that
relation tells in turn which rows of the next one matter: a condition on nations thins out customers,
and through them orders (Yannakakis' first pass, while reading).

The keys of a SteM are kept in a Bloom filter, which may let rows through that have no partner, and
never drops one that has. A large SteM that has all rows of its relation probably has all keys; it is
asked only through an index that costs nothing, since probes will need it: where it is farther from the
relation that comes last. A filter that drops too little is not asked any more: after some rows that is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.graph import Graph
from eddies.core.graph.distance import distances
from eddies.core.kernels.bloom import add_words, may_contain
from eddies.core.kernels.gather import among_words
from eddies.core.modules.stem import SteM
from eddies.core.state.columns import Words, column_of, is_key_type
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import key_words
from eddies.core.state.scratch import Scratch

__all__ = ["PartnerFilter", "Partners"]

Ids = npt.NDArray[np.int32]

_KEYS_PER_WORD = 8  # eight bits a key
_CHUNK_ROWS = 1 << 16
_JUDGED_ROWS = 1 << 15  # after which it is known what a filter drops...
_KEEPS_TOO_MUCH = 0.75  # ...and one that keeps more is not worth asking: storing costs little more
_LARGER = 2  # times the rows to come: a filter of so many keys costs more than it spares
_THINNED_OUT = 0.75  # share of a partner's rows that is left: with more, most keys are there...
_SMALLER = 16  # ...unless it has so many times fewer rows than the relation that is to come


class _Keys(Protocol):
    """The keys of a relation that has ended."""

    def positions(self, words: Words) -> Ids:
        """Of the words, in order, those that may be among the keys; all that are."""
        ...


class Partners:
    """The keys of relations that have ended, brought together when they are first needed."""

    def __init__(self, graph: Graph, stems: Sequence[SteM]) -> None:
        self._graph = graph
        self._stems = stems
        self._blooms: dict[tuple[int, str], _BloomKeys] = {}

    def known_to(self, relation: int, ended: Sequence[bool]) -> dict[str, list[tuple[int, str]]]:
        """By key column of `relation`, which has one role: ended sources and their columns."""
        own = self._graph.relations[relation]
        found: dict[str, list[tuple[int, str]]] = {}
        for key_class in self._graph.classes:
            column = key_class.column_by_source.get(own.roles[0])
            if column is None or column not in own.read.names:
                continue
            for source, other in key_class.column_by_source.items():
                if source != own.roles[0] and ended[self._graph.roles[source].relation]:
                    found.setdefault(column, []).append((source, other))
        return found

    def rows_to_come(
        self, relation: int, ended: Sequence[bool], expected_rows: Mapping[str, int]
    ) -> tuple[float, float]:
        """A guess how many rows of `relation` have partners, and as a tie-break how few a partner has.

        If keys are spread evenly, the share of a partner's rows that is left is also that of its keys.
        """
        n_rows = float(expected_rows.get(self._graph.relations[relation].name, np.inf))
        likely, fewest = n_rows, np.inf
        for partners in self.known_to(relation, ended).values():
            for source, _ in partners:
                other = self._graph.roles[source].relation
                n_stored = self._stems[other].store.n_rows
                n_all = expected_rows.get(self._graph.relations[other].name, n_stored)
                likely = min(likely, n_rows * n_stored / max(n_all, 1))
                fewest = min(fewest, n_stored)
        return likely, fewest

    def filter(
        self,
        relation: int,
        ended: Sequence[bool],
        expected_rows: Mapping[str, int],
        last: int | None,
    ) -> PartnerFilter | None:
        """Drops rows of `relation` that have no partners; None if no relation that has ended tells
        anything. `expected_rows` are those of relations in all, `last` is the one that will stream by.
        """
        n_likely, _ = self.rows_to_come(relation, ended, expected_rows)
        read = self._graph.relations[relation].read
        asked: list[_Asked] = []
        for column, partners in self.known_to(relation, ended).items():
            type_ = read.field(column).type
            for source, other in partners:
                store = self._stems[self._graph.roles[source].relation].store
                if not _alike(store.column(other).type, type_) or store.n_rows > _LARGER * n_likely:
                    continue
                n_all = expected_rows.get(store.name, store.n_rows)
                if store.n_rows <= max(_THINNED_OUT * n_all, n_likely / _SMALLER):
                    asked.append(_Asked(column, type_, self._bloom(source, other)))
                elif last is not None and self._is_on_the_way(relation, source, last):
                    asked.append(_Asked(column, type_, self._index(source, other)))
        return PartnerFilter(asked) if asked else None

    def _is_on_the_way(self, relation: int, source: int, last: int) -> bool:
        """Whether rows of `last` that have met `relation` look `source` up by the one key that these
        two share.
        """
        own, driver = self._graph.relations[relation].roles[0], self._graph.relations[last].roles[0]
        if own == driver:
            return False
        members = [key_class.column_by_source for key_class in self._graph.classes]
        joins = distances(self._graph, driver)
        is_farther = own in joins and joins[source] > joins[own]
        return is_farther and sum(own in m and source in m for m in members) == 1

    def _index(self, source: int, column: str) -> _IndexedKeys:
        role = self._graph.roles[source]
        stem = self._stems[role.relation]
        return _IndexedKeys(stem, stem.hash_index((column,), role.flag))

    def _bloom(self, source: int, column: str) -> _BloomKeys:
        if (source, column) not in self._blooms:
            role = self._graph.roles[source]
            store = self._stems[role.relation].store
            n_words = 1 << max(1, (store.n_rows // _KEYS_PER_WORD).bit_length())
            bloom = np.zeros(n_words, dtype=np.uint64)
            for start in range(0, store.n_rows, _CHUNK_ROWS):
                stop = min(start + _CHUNK_ROWS, store.n_rows)
                words, _ = key_words([(store.column(column), None)], start, stop)
                if role.flag is not None:
                    words = words[store.column(role.flag).words(None, start, stop) != 0]
                add_words(np.ascontiguousarray(words), bloom)
            self._blooms[source, column] = _BloomKeys(bloom)
        return self._blooms[source, column]


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether equal values of these types have equal words."""
    whole = pa.types.is_signed_integer
    return is_key_type(one) and (one == other or bool(whole(one) and whole(other)))


class _BloomKeys:
    """Keys in a Bloom filter."""

    __slots__ = ("_bloom",)

    def __init__(self, bloom: Words) -> None:
        self._bloom = bloom

    def positions(self, words: Words) -> Ids:
        positions = np.empty(words.shape[0] + 1, dtype=np.int32)
        passed = np.empty(words.shape[0] + 1, dtype=np.uint64)
        return positions[: may_contain(np.ascontiguousarray(words), self._bloom, positions, passed)]


class _IndexedKeys:
    """Keys in an index of their SteM."""

    __slots__ = ("_index", "_scratch", "_stem")

    def __init__(self, stem: SteM, index: HashIndex) -> None:
        self._stem = stem
        self._index = index
        self._scratch = Scratch(_CHUNK_ROWS)

    def positions(self, words: Words) -> Ids:
        if self._index.is_behind:
            with self._stem.lock:
                self._index.catch_up(self._scratch)
        return np.flatnonzero(self._index.has(words, self._scratch)).astype(np.int32)


class _Asked:
    """Keys that are asked for a column, and what came of it."""

    __slots__ = ("column", "keys", "n_in", "n_kept", "type")

    def __init__(self, column: str, type_: pa.DataType, keys: _Keys) -> None:
        self.column = column
        self.type = type_
        self.keys = keys
        self.n_in = 0
        self.n_kept = 0

    def kept(self, keys: pa.Array, rows: Ids | None) -> Ids | None:
        """Positions in `rows` (None: all) of keys that may be there; None if that cannot be told."""
        if pa.types.is_dictionary(keys.type) and keys.type.value_type == self.type:
            if len(keys.dictionary) <= (len(keys) if rows is None else rows.shape[0]):
                return self._kept_words(keys, rows)
            keys = (keys if rows is None else keys.take(pa.array(rows))).dictionary_decode()
            rows = None
        if keys.type != self.type:
            return None
        words, valid = key_words([(column_of(keys), rows)])
        kept = self.keys.positions(words)
        return kept if valid is None else kept[valid[kept] != 0]

    def _kept_words(self, keys: pa.DictionaryArray, rows: Ids | None) -> Ids:
        """Asks for each word of a dictionary once."""
        words, valid = key_words([(column_of(keys.dictionary), None)])
        is_there = np.zeros(words.shape[0] + 1, dtype=np.bool_)  # the last one for NULL
        is_there[self.keys.positions(words)] = True
        if valid is not None:
            is_there[:-1] &= valid != 0
        indices = keys.indices.cast(pa.int32())
        if indices.null_count:
            indices = pc.fill_null(indices, words.shape[0])
        codes = np.asarray(indices)
        if rows is not None:
            codes = codes.take(rows)
        positions = np.empty(codes.shape[0] + 1, dtype=np.int32)
        return positions[: among_words(codes, is_there, positions)]

    @property
    def is_worth_asking(self) -> bool:
        return self.n_in < _JUDGED_ROWS or self.n_kept <= _KEEPS_TOO_MUCH * self.n_in


class PartnerFilter:
    """Asks filters one after another, the one that keeps least first."""

    def __init__(self, asked: list[_Asked]) -> None:
        self._asked = asked
        self.columns = frozenset(one.column for one in asked)
        self.n_dropped = 0  # rows without partners, so far

    @property
    def asks(self) -> bool:
        """Whether there is a filter left that drops enough."""
        return bool(self._asked)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that may have partners."""
        rows = self.rows(lambda name, left: (batch.column(name), left), batch.num_rows, None)
        return batch if rows is None else batch.take(pa.array(rows))

    def rows(
        self,
        keys: Callable[[str, Ids | None], tuple[pa.Array, Ids | None]],
        n_rows: int,
        rows: Ids | None,
    ) -> Ids | None:
        """Those of `rows` (None: of all `n_rows`) that may have partners; None: all. `keys` gives, for
        a column among `self.columns` and the rows that are left, an array and which of its rows are
        those (None: all). The array may be a dictionary array.
        """
        n_first = n_rows if rows is None else rows.shape[0]
        for asked in self._asked:
            n_in = n_rows if rows is None else rows.shape[0]
            if n_in == 0:
                continue
            kept = asked.kept(*keys(asked.column, rows))
            if kept is None:
                continue
            asked.n_in += n_in
            asked.n_kept += kept.shape[0]
            if kept.shape[0] <= _KEEPS_TOO_MUCH * n_in:
                rows = kept if rows is None else rows[kept]
        self._asked = sorted(
            (asked for asked in self._asked if asked.is_worth_asking),
            key=lambda asked: asked.n_kept / max(asked.n_in, 1),
        )
        self.n_dropped += n_first - (n_rows if rows is None else rows.shape[0])
        return rows
