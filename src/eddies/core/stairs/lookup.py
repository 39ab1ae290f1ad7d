"""Probing the index of a STAIR: pairs of a probing tuple and a stored one with equal keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from eddies.core.batch import Ids
from eddies.core.state.hash_index import HashIndex, PendingChains
from eddies.core.state.keys import KeySide
from eddies.core.state.scratch import Scratch

__all__ = ["Pairs", "Verify", "Words", "first_found"]

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
Pairs = tuple[Ids, Ids]
"""Positions of probing tuples, and the rows of an index they meet."""
Verify = Callable[[Ids, Ids, int, KeySide], int]
"""Keeps, in place, those of the first so many pairs whose keys really are equal: see `verify_keys`."""


def first_found(
    index: HashIndex,
    words: Words,
    limit: int,
    side: KeySide,
    chosen: Ids | None,
    verify: Verify | None,
    scratch: Scratch,
) -> tuple[Pairs | None, Iterator[Pairs] | None]:
    """The first pairs, and the others if they did not all fit into the scratch. Without `verify` equal
    words mean equal keys.
    """
    found, pending = index.probe(words, limit, scratch)
    first = _pairs(found, side, chosen, verify, scratch)
    if pending is None:
        return first, None
    return first, _next_found(index, pending, side, chosen, verify, scratch)


def _next_found(
    index: HashIndex,
    pending: PendingChains | None,
    side: KeySide,
    chosen: Ids | None,
    verify: Verify | None,
    scratch: Scratch,
) -> Iterator[Pairs]:
    while pending is not None:
        found, pending = index.resume(pending, scratch)
        pairs = _pairs(found, side, chosen, verify, scratch)
        if pairs is not None:
            yield pairs


def _pairs(
    found: int, side: KeySide, chosen: Ids | None, verify: Verify | None, scratch: Scratch
) -> Pairs | None:
    """The first `found` pairs of the scratch whose keys really are equal."""
    positions, rows = scratch.positions, scratch.rows
    if chosen is not None:
        positions[:found] = chosen[positions[:found]]
    if found and verify is not None:
        found = verify(positions, rows, found, side)
    return (positions[:found].copy(), rows[:found].copy()) if found else None
