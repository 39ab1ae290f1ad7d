"""Rows that wait for EOTs: where an unstored batch meets what was looked up for it.

Stored rows need no such place, their SteM is it. Rows of a batch that was not stored can be found by
nobody, so those that lack matches wait here, each under the keys that were asked for on its behalf.
When one of its keys is covered, a row goes on, and then finds all its matches at once (SteM-39, 40: it
does not spin, and needs no mark of what it has seen).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.lineage import Signature

__all__ = ["GoesOn", "WaitingRows"]

QueueName = tuple[int, int]  # relation and set of bind columns
GoesOn = tuple[Signature, RoutedBatch]


@dataclass(slots=True, eq=False)
class _Party:
    """Rows of one batch that wait for one source."""

    batch: RoutedBatch
    signature: Signature
    relation: int
    is_here: npt.NDArray[np.bool_]
    n_here: int


class WaitingRows:
    """All rows that wait. `n_rows` of them."""

    def __init__(self) -> None:
        self._parties: dict[int, _Party] = {}
        self._by_key: dict[QueueName, dict[int, list[tuple[_Party, Ids]]]] = {}
        self.n_rows = 0

    def add(
        self,
        batch: RoutedBatch,
        signature: Signature,
        relation: int,
        keys: Iterable[tuple[QueueName, Ids]],
    ) -> None:
        """Let all rows of `batch` wait; `keys` are, for each queue, the number of every row's key or
        a negative number where the row has none there.
        """
        here = np.ones(batch.n_rows, dtype=np.bool_)
        party = _Party(batch, signature, relation, here, batch.n_rows)
        self._parties[id(party)] = party
        self.n_rows += batch.n_rows
        for queue, ids in keys:
            by_key = self._by_key.setdefault(queue, {})
            order = np.argsort(ids, kind="stable").astype(np.int32)
            starts = np.flatnonzero(np.r_[True, np.diff(ids[order]) != 0])
            for rows in np.split(order, starts[1:]):
                key = int(ids[rows[0]])
                if key >= 0:
                    by_key.setdefault(key, []).append((party, rows))

    def batches(self, sources: int) -> list[GoesOn]:
        """What waits and spans `sources`."""
        return [
            (party.signature, party.batch)
            for party in self._parties.values()
            if party.signature.sources & sources == sources
        ]

    def covered(self, queue: QueueName, ids: Sequence[int]) -> list[GoesOn]:
        """The rows that waited for these keys."""
        by_key = self._by_key.get(queue)
        if not by_key:
            return []
        found: dict[int, list[Ids]] = {}
        for key in ids:
            for party, rows in by_key.pop(key, ()):
                found.setdefault(id(party), []).append(rows)
        gone: list[GoesOn] = []
        for number, parts in found.items():
            if number in self._parties:
                gone += self._leave(number, self._parties[number], np.concatenate(parts))
        return gone

    def complete(self, relation: int) -> list[GoesOn]:
        """All rows that waited for a relation that has everything now."""
        gone: list[GoesOn] = []
        for number, party in list(self._parties.items()):
            if party.relation == relation:
                gone += self._leave(number, party, np.arange(party.batch.n_rows, dtype=np.int32))
        return gone

    def _leave(self, number: int, party: _Party, rows: Ids) -> list[GoesOn]:
        rows = np.unique(rows[party.is_here[rows]])
        if rows.shape[0] == 0:
            return []
        party.is_here[rows] = False
        party.n_here -= rows.shape[0]
        self.n_rows -= rows.shape[0]
        if party.n_here == 0:
            del self._parties[number]
        return [(party.signature, party.batch.picked(party.batch.route, rows))]
