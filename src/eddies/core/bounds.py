"""Bounds: between what the keys of rows that are still to come must lie to find partners.

When a relation has ended, its SteM says which keys there are. A part of another relation's source whose
keys all lie outside, as file footers tell, need not be read: facts that lie in the order of time are
read for the days that a query is about, though it names those days by a condition on another table, or
on one behind that.

The keys of a partner count if its selections want their rows, and if the rows themselves have partners
in the ended relations that equalities connect them with: one step, no further. Bounds can only be too
wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddies.core.expr import Call, Column, Expr, Literal
from eddies.core.graph import Graph
from eddies.core.modules.stem import SteM
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import key_words
from eddies.core.state.rows import RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["key_bounds"]

_MOST_ROWS = 1 << 20  # of a partner: bounds of more keys rarely leave anything out
_CHUNK_ROWS = 1 << 16


def key_bounds(
    graph: Graph, stems: Sequence[SteM], ended: Sequence[bool], relation: int
) -> tuple[Expr, ...]:
    """Comparisons that a row of `relation`, which has one role, fulfils if it has partners. `ended`
    says which relations are complete.
    """
    role = graph.roles[graph.relations[relation].roles[0]]
    read = graph.relations[relation].read
    known = {
        other.source_id
        for other in graph.roles
        if ended[other.relation]
        and other.relation != relation
        and stems[other.relation].store.n_rows <= _MOST_ROWS
    }
    found: list[Expr] = []
    partners = _Partners(graph, stems, known)
    for key_class in graph.classes:
        column = key_class.column_by_source.get(role.source_id)
        if column is None or column not in read.names or not _has_order(read.field(column).type):
            continue
        for partner, own in key_class.column_by_source.items():
            if partner not in known:
                continue
            store = stems[graph.roles[partner].relation].store
            alive = partners.alive(partner)
            ends = pc.min_max(store.column(own).take(None).filter(pa.array(alive)))
            found += _comparisons(Column(role.name, column), read.field(column).type, ends)
    partners.release()
    return tuple(found)


def _has_order(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_signed_integer(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def _comparisons(column: Column, type_: pa.DataType, ends: pa.StructScalar) -> Iterator[Expr]:
    for function, end in (("ge", ends["min"]), ("le", ends["max"])):
        if not end.is_valid:  # no key at all: nothing passes
            yield Literal(False, pa.bool_())
            continue
        try:
            value = end.as_py()
            pa.scalar(value, type_)
        except (pa.ArrowInvalid, OverflowError, ValueError):
            continue  # a key that this column, or a date of Python's, cannot hold
        yield Call(function, (column, Literal(value, type_)))


class _Partners:
    """Which rows of `known` sources can have partners. Makes indexes of its own: those of SteMs are for
    probes, which may need others.
    """

    def __init__(self, graph: Graph, stems: Sequence[SteM], known: set[int]) -> None:
        self._graph, self._stems, self._known = graph, stems, known
        self._scratch = Scratch(_CHUNK_ROWS)
        self._alive: dict[int, npt.NDArray[np.bool_]] = {}
        self._indexes: dict[tuple[int, str], HashIndex] = {}

    def alive(self, source: int) -> npt.NDArray[np.bool_]:
        """Which stored rows of a source its role wants and have partners in all known sources."""
        if source not in self._alive:
            role = self._graph.roles[source]
            store = self._stems[role.relation].store
            alive = np.ones(store.n_rows, dtype=np.bool_)
            if role.flag is not None:
                alive = store.column(role.flag).words(None) != 0
            for key_class in self._graph.classes:
                own = key_class.column_by_source.get(source)
                for other, column in key_class.column_by_source.items():
                    if own is not None and other != source and other in self._known:
                        alive &= self._has(store, own, self._index(other, column))
            self._alive[source] = alive
        return self._alive[source]

    def _has(self, store: RowStore, own: str, index: HashIndex) -> npt.NDArray[np.bool_]:
        found = np.zeros(store.n_rows, dtype=np.bool_)
        for start in range(0, store.n_rows, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, store.n_rows)
            words, valid = key_words([(store.column(own), None)], start, stop)
            found[start:stop] = index.has(words, self._scratch)
            if valid is not None:
                found[start:stop] &= valid.astype(np.bool_)
        return found

    def _index(self, source: int, column: str) -> HashIndex:
        if (source, column) not in self._indexes:
            role = self._graph.roles[source]
            index = HashIndex(self._stems[role.relation].store, (column,), role.flag)
            index.catch_up(self._scratch)
            self._indexes[source, column] = index
        return self._indexes[source, column]

    def release(self) -> None:
        """Give the memory of the indexes back."""
        for index in self._indexes.values():
            index.release()
