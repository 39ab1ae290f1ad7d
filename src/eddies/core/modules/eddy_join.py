"""EddyJoin: a symmetric hash join that keeps the tuples routed to it (state="joins").

The original eddy's join module (Avnur and Hellerstein 2000, section 2.2): a tuple that comes is stored
on its side and meets everything stored on the other side, atomically. The tuple is then *absorbed*:
only its concatenations go on. A tuple may be a base row or an intermediate result, so what a join
holds depends on how tuples were routed before: the burden of history that STAIRs lift.

*Exactly once* needs no stamps here: of any two tuples that match, the one that comes second finds the
first, and each tuple goes to exactly one of the joins open to it.

Tuples are vectors of row ids into the relations' stores; a side keeps one pool of them per signature,
because tuples of different signatures continue on different routes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.evaluate import keep
from eddies.core.graph import Graph
from eddies.core.join_tree import JoinEdge, JoinTree
from eddies.core.lineage import Signature, bits
from eddies.core.module import Outcome
from eddies.core.route import RouteTable
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import KeySide, is_exact, key_words, verify_keys
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["EddyJoin", "JoinStep"]


class _Pool:
    """Stored tuples of one signature: ids of each spanned source, and the key columns."""

    def __init__(self, signature: Signature, key_schema: pa.Schema) -> None:
        self.signature = signature
        self.sources = bits(signature.sources)
        fields = [pa.field(f"ids_{source}", pa.int32()) for source in self.sources]
        self.store = RowStore("pool", pa.schema([*fields, *key_schema]))
        self.index = HashIndex(self.store, key_schema.names)

    @property
    def n_bytes(self) -> int:
        return self.store.n_bytes + self.index.n_bytes


class EddyJoin:
    """Both sides of one join. `insert` a batch on its side, then `pools` of the other side to probe."""

    def __init__(self, graph: Graph, edge: JoinEdge) -> None:
        self.name = edge.name
        self.edge = edge
        self._graph = graph
        self._sides: dict[int, dict[Signature, _Pool]] = {edge.left: {}, edge.right: {}}

    def insert(self, batch: RoutedBatch, source: int) -> None:
        """Store the tuples of `batch` on the side of `source`."""
        signature = batch.route.signature
        pools = self._sides[source]
        if signature not in pools:
            stored = self._graph.relation_of(source).stored
            keys = self.key_columns(source)
            schema = pa.schema(
                [pa.field(f"key_{i}", stored.field(k).type) for i, k in enumerate(keys)]
            )
            pools[signature] = _Pool(signature, schema)
        pool = pools[signature]
        arrays: dict[str, pa.Array] = {}
        for spanned in pool.sources:
            ids = batch.ids[spanned]
            assert ids is not None, "tuples stored in joins have a row id for every source"
            arrays[f"ids_{spanned}"] = pa.array(ids)
        for i, (column, ids) in enumerate(self.side(batch, source)):
            arrays[f"key_{i}"] = column.take(ids)
        pool.store.append(Block.from_arrow(arrays, batch.n_rows))

    def pools(self, source: int) -> list[_Pool]:
        """What is stored on the side of `source`."""
        return list(self._sides[source].values())

    def key_columns(self, source: int) -> list[str]:
        side = 0 if source == self.edge.left else 1
        return [key[side] for key in self.edge.keys]

    def side(self, batch: RoutedBatch, source: int) -> KeySide:
        """The key columns of a batch that spans `source`."""
        place, ids = batch.origin.places[source], batch.ids[source]
        return [(place.column(name), ids) for name in self.key_columns(source)]

    @property
    def n_stored(self) -> dict[int, int]:
        """Tuples stored on the side of each of the two sources."""
        return {s: sum(p.store.n_rows for p in pools.values()) for s, pools in self._sides.items()}

    @property
    def n_bytes(self) -> int:
        return sum(pool.n_bytes for pools in self._sides.values() for pool in pools.values())

    def release(self) -> None:
        """Drop everything stored."""
        for pools in self._sides.values():
            for pool in pools.values():
                pool.index.release()
                pool.store.release()
            pools.clear()


class JoinStep:
    """An EddyJoin as seen from one signature."""

    def __init__(
        self, graph: Graph, tree: JoinTree, join: EddyJoin, signature: Signature, table: RouteTable
    ) -> None:
        self.name = join.name
        self._join = join
        self._functions = graph.functions
        self._checks = tree.checks
        self._table = table
        edge = join.edge
        self._own = edge.left if signature.sources >> edge.left & 1 else edge.right
        self._other = edge.other(self._own)

    def prepare(self, scratch: Scratch) -> int:
        return sum(pool.index.catch_up(scratch) for pool in self._join.pools(self._other))

    def run(self, batch: RoutedBatch, scratch: Scratch) -> Outcome:
        self._join.insert(batch, self._own)
        pieces = self._matches(batch, scratch)
        first = next(pieces, None)
        return (None, None) if first is None else (first, pieces)

    def _matches(self, batch: RoutedBatch, scratch: Scratch) -> Iterator[RoutedBatch]:
        side = self._join.side(batch, self._own)
        words, valid = key_words(side)
        chosen = None
        if valid is not None and not valid.all():
            chosen = np.flatnonzero(valid).astype(np.int32)
            words = words[chosen]
        for pool in self._join.pools(self._other):
            found, pending = pool.index.probe(words, pool.store.n_rows, scratch)
            while True:
                matched = self._matched(batch, pool, side, found, chosen, scratch)
                if matched is not None:
                    yield matched
                if pending is None:
                    break
                found, pending = pool.index.resume(pending, scratch)

    def _matched(
        self,
        batch: RoutedBatch,
        pool: _Pool,
        side: KeySide,
        found: int,
        chosen: Ids | None,
        scratch: Scratch,
    ) -> RoutedBatch | None:
        positions, rows = scratch.positions, scratch.rows
        if chosen is not None:
            positions[:found] = chosen[positions[:found]]
        stored = [pool.store.column(name) for name in pool.index.columns]
        if not is_exact(stored):
            found = verify_keys(positions, rows, found, side, stored)
        if found == 0:
            return None
        old, new = batch.route.signature, pool.signature
        after = Signature(old.sources | new.sources, old.done | new.done)
        joined = batch.picked(self._table.route(after), positions[:found])
        for source in pool.sources:
            ids = pool.store.column(f"ids_{source}").take(rows[:found])
            joined.ids[source] = np.asarray(ids)
        for mask, predicate in self._checks:
            covered = mask & ~after.sources == 0
            if covered and mask & ~old.sources and mask & ~new.sources:
                kept = keep(predicate, joined.column, joined.n_rows, self._functions)
                if kept is not None:
                    joined = joined.kept(joined.route, kept)
                    if joined.n_rows == 0:
                        return None
        return joined
