"""Tuples as STAIRs exchange them, and what all STAIRs of a query know of the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddies.core.batch import Ids
from eddies.core.lineage import Signature

if TYPE_CHECKING:
    from eddies.core.stairs.stair import Stair

__all__ = ["History", "Match", "Tuples", "distinct"]


@dataclass(frozen=True, slots=True)
class Tuples:
    """Tuples of one signature: a vector of row ids for every source spanned."""

    signature: Signature
    ids: Mapping[int, Ids]

    @property
    def n_rows(self) -> int:
        return int(next(iter(self.ids.values())).shape[0])

    def picked(self, positions: Ids) -> Tuples:
        """The tuples at `positions`."""
        return Tuples(self.signature, {s: ids[positions] for s, ids in self.ids.items()})


@dataclass(frozen=True, slots=True)
class Match:
    """What a probe found: positions of the probing tuples, and the stored tuples they met."""

    positions: Ids
    stored: Tuples


class History:
    """What all STAIRs of a query must know of the past.

    `routed[source]` is how many rows of its relation have been routed: a view of a SteM shows no row
    beyond, for rows that wait have not met anybody yet. `enforces=False` leaves Invariant B alone on
    insertion, as the paper does; it is there to show what then goes wrong. `allowance` is how many
    bytes all pools together may take (None: any number), `stairs` are those that count.
    """

    __slots__ = ("allowance", "enforces", "is_rewritten", "n_demoted", "routed", "stairs")

    def __init__(self, n_sources: int) -> None:
        self.routed = [0] * n_sources
        self.is_rewritten = False
        self.enforces = True
        self.allowance: int | None = None
        self.stairs: list[Stair] = []
        self.n_demoted = 0  # STAIRs that became views because there was no room

    def has_room(self, n_bytes: int) -> bool:
        """Whether pools may grow by `n_bytes`."""
        if self.allowance is None:
            return True
        return sum(stair.n_bytes_at_most for stair in self.stairs) + n_bytes <= self.allowance


def distinct(signature: Signature, tuples: Tuples) -> Tuples:
    """The part of `tuples` that `signature` spans, each combination once."""
    ids = {s: tuples.ids[s] for s in tuples.ids if signature.sources >> s & 1}
    order = np.lexsort(list(ids.values()))
    is_first = np.ones(order.shape[0], dtype=np.bool_)
    is_first[1:] = np.logical_or.reduce([v[order[1:]] != v[order[:-1]] for v in ids.values()])
    return Tuples(signature, {s: v[order[is_first]] for s, v in ids.items()})
