"""Join algorithms by when a SteM bounces its builds back (SteMs, section 3.5).

A row that was built goes on to probe only when the SteM gives it back. A SteM that gives every batch
back at once makes a symmetric hash join. One that keeps them until the relation has ended, and then
gives them back partition by partition, makes a Grace hash join: rows that look into the same partition
come together. One that gives back the rows of some partitions at once and keeps the others makes a
hybrid hash join; one that gives them back in the order of their keys, a sort-merge join. Which of these
runs is nobody's business but the SteM's: stamps are given when rows are stored, so it does not matter
for the answer how long they wait (`exactly_once`).

    at once   -> hash, list                grace  -> held, by partition
    hybrid    -> one partition at once     sort   -> held, by key

Known limitation: partitions are places in memory here; what lies on disk is a matter of spilling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.constraints import Move
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.module import Step
from eddies.core.policies.base import Candidate, RoutingPolicy
from eddies.core.route import RouteTable
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import Resumed, StateMode

__all__ = ["BouncedMode", "BounceOrder"]

BounceOrder = Literal["grace", "hybrid", "sort"]
N_PARTITIONS = 16
RESIDENT = 4  # partitions of a hybrid hash join whose rows go on at once
_PIECES = 16  # pieces in which sorted rows are given back
_MIX = np.uint64(0x9E3779B97F4A7C15)


class BouncedMode(StateMode):
    """`inner`, with base batches given back later and in another order."""

    def __init__(self, inner: StateMode, graph: Graph, order: BounceOrder) -> None:
        self._inner = inner
        self._graph = graph
        self._order = order
        self.modules = inner.modules
        self.stores_on_the_way = inner.stores_on_the_way
        self._held: list[list[RoutedBatch]] = [[] for _ in graph.relations]
        self._ready: deque[RoutedBatch] = deque()

    @property
    def n_pending(self) -> int:
        n_held = sum(len(batches) for batches in self._held)
        return self._inner.n_pending + n_held + len(self._ready)

    @property
    def n_held_rows(self) -> int:
        """Rows that were built and not given back."""
        return sum(batch.n_rows for batches in self._held for batch in batches)

    def check(self, n_threads: int) -> None:
        self._inner.check(n_threads)

    def informed(self, policy: RoutingPolicy) -> RoutingPolicy:
        return self._inner.informed(policy)

    def module_names(self) -> list[str]:
        return self._inner.module_names()

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        """All rows are built before any is given back."""
        self._inner.skips_build(ended)
        return [False] * len(self._graph.relations)

    def take_in(self, relation: int, block: Block) -> Iterator[RoutedBatch]:
        for batch in self._inner.take_in(relation, block):
            at_once, later = self._sorted_out(batch)
            if later is not None:
                self._held[relation].append(later)
            if at_once is not None:
                yield at_once

    def _sorted_out(self, batch: RoutedBatch) -> tuple[RoutedBatch | None, RoutedBatch | None]:
        if self._order != "hybrid":
            return None, batch
        is_resident = self._partitions(batch) < RESIDENT
        parts = []
        for mask in (is_resident, ~is_resident):
            parts.append(batch.kept(batch.route, mask) if mask.any() else None)
        return parts[0], parts[1]

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        return self._inner.drive(relation, block)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return self._inner.moves(signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        return self._inner.step(move, signature, table)

    def end(self, relation: int) -> None:
        self._inner.end(relation)
        self._give_back(relation)

    def at_safe_point(self) -> None:
        self._inner.at_safe_point()

    def resume(self) -> Resumed | None:
        if self._ready:
            batch = self._ready.popleft()
            return Resumed(Signature(1 << batch.origin.driver), batch)
        return self._inner.resume()

    # Order

    def _key(self, batch: RoutedBatch) -> npt.NDArray[np.uint64]:
        """The word of the first key of the batch's source; zeros if it has none."""
        source = batch.origin.driver
        for key_class in self._graph.classes:
            if source in key_class.column_by_source:
                column = batch.origin.places[source].column(key_class.column_by_source[source])
                return column.words(batch.ids[source])
        return np.zeros(batch.n_rows, dtype=np.uint64)

    def _partitions(self, batch: RoutedBatch) -> npt.NDArray[np.int64]:
        hashed = self._key(batch) * _MIX
        return (hashed >> np.uint64(60)).astype(np.int64) % N_PARTITIONS

    def _give_back(self, relation: int) -> None:
        held, self._held[relation] = self._held[relation], []
        if not held:
            return
        if self._order == "sort":
            self._ready.extend(self._by_key(held))
            return
        numbers = [self._partitions(batch) for batch in held]
        for partition in range(N_PARTITIONS):
            for batch, number in zip(held, numbers, strict=True):
                rows = np.flatnonzero(number == partition).astype(np.int32)
                if rows.shape[0]:
                    self._ready.append(batch.picked(batch.route, rows))

    def _by_key(self, held: Sequence[RoutedBatch]) -> Iterator[RoutedBatch]:
        """Each batch is a sorted run; ranges of keys are given back one after the other."""
        keys = [self._key(batch) for batch in held]
        orders: list[Ids] = [np.argsort(key, kind="stable").astype(np.int32) for key in keys]
        everything = np.sort(np.concatenate(keys))
        places = np.linspace(0, everything.shape[0] - 1, _PIECES + 1)[1:-1].astype(np.int64)
        bounds = np.unique(everything[places])
        cuts = [np.searchsorted(k[o], bounds, "right") for k, o in zip(keys, orders, strict=True)]
        for piece in range(bounds.shape[0] + 1):
            for batch, order, cut in zip(held, orders, cuts, strict=True):
                start = int(cut[piece - 1]) if piece else 0
                stop = int(cut[piece]) if piece < bounds.shape[0] else order.shape[0]
                if stop > start:
                    yield batch.picked(batch.route, order[start:stop])
