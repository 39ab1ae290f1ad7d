"""Probing the index of a STAIR: pairs of a probing tuple and a stored one with equal keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from eddies.core.batch import Ids
from eddies.core.state.columns import Column
from eddies.core.state.hash_index import HashIndex, PendingChains
from eddies.core.state.keys import KeySide, is_exact, verify_keys
from eddies.core.state.scratch import Scratch

__all__ = ["Pairs", "Words", "first_found"]

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
Pairs = tuple[Ids, Ids]
"""Positions of probing tuples, and the rows of an index they meet."""


def first_found(
    index: HashIndex,
    words: Words,
    limit: int,
    side: KeySide,
    chosen: Ids | None,
    stored: Sequence[Column],
    scratch: Scratch,
) -> tuple[Pairs | None, Iterator[Pairs] | None]:
    """The first pairs, and the others if they did not all fit into the scratch."""
    found, pending = index.probe(words, limit, scratch)
    first = _pairs(found, side, chosen, stored, scratch)
    if pending is None:
        return first, None
    return first, _next_found(index, pending, side, chosen, stored, scratch)


def _next_found(
    index: HashIndex,
    pending: PendingChains | None,
    side: KeySide,
    chosen: Ids | None,
    stored: Sequence[Column],
    scratch: Scratch,
) -> Iterator[Pairs]:
    while pending is not None:
        found, pending = index.resume(pending, scratch)
        pairs = _pairs(found, side, chosen, stored, scratch)
        if pairs is not None:
            yield pairs


def _pairs(
    found: int, side: KeySide, chosen: Ids | None, stored: Sequence[Column], scratch: Scratch
) -> Pairs | None:
    """The first `found` pairs of the scratch whose keys really are equal."""
    positions, rows = scratch.positions, scratch.rows
    if chosen is not None:
        positions[:found] = chosen[positions[:found]]
    if found and not is_exact(stored):
        found = verify_keys(positions, rows, found, side, stored)
    return (positions[:found].copy(), rows[:found].copy()) if found else None
