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
from eddies.core.state.keys import key_words
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
    scratch = Scratch(_CHUNK_ROWS)
    for key_class in graph.classes:
        column = key_class.column_by_source.get(role.source_id)
        if column is None or column not in read.names or not _has_order(read.field(column).type):
            continue
        for partner, own in key_class.column_by_source.items():
            if partner not in known:
                continue
            store = stems[graph.roles[partner].relation].store
            alive = _alive(graph, stems, partner, known, scratch)
            ends = pc.min_max(store.column(own).take(None).filter(pa.array(alive)))
            target = Column(role.name, column), read.field(column).type
            found += _comparisons(*target, ends["min"].as_py(), ends["max"].as_py())
    return tuple(found)


def _has_order(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_signed_integer(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def _comparisons(column: Column, type_: pa.DataType, low: object, high: object) -> Iterator[Expr]:
    for function, value in (("ge", low), ("le", high)):
        if value is None:  # no key at all: nothing passes
            yield Literal(False, pa.bool_())
            continue
        try:
            pa.scalar(value, type_)
        except (pa.ArrowInvalid, OverflowError):
            continue  # a wider partner has keys that this column cannot hold
        yield Call(function, (column, Literal(value, type_)))


def _alive(
    graph: Graph,
    stems: Sequence[SteM],
    source: int,
    known: set[int],
    scratch: Scratch,
) -> npt.NDArray[np.bool_]:
    """Which stored rows of a source its role wants and have partners, as far as `known` ones tell."""
    role = graph.roles[source]
    store = stems[role.relation].store
    alive = np.ones(store.n_rows, dtype=np.bool_)
    if role.flag is not None:
        alive = store.column(role.flag).words(None) != 0
    for key_class in graph.classes:
        own = key_class.column_by_source.get(source)
        for other, column in key_class.column_by_source.items():
            if own is None or other == source or other not in known:
                continue
            stem = stems[graph.roles[other].relation]
            index = stem.hash_index((column,), graph.roles[other].flag)
            if index.columns != (column,):
                continue
            with stem.lock:
                index.catch_up(scratch)
            for start in range(0, store.n_rows, _CHUNK_ROWS):
                stop = min(start + _CHUNK_ROWS, store.n_rows)
                words, valid = key_words([(store.column(own), None)], start, stop)
                has_partner = index.has(words, scratch)
                if valid is not None:
                    has_partner &= valid.astype(np.bool_)
                alive[start:stop] &= has_partner
    return alive
