"""Invariant B: no STAIR holds two tuples that agree on all sources both contain.

Two that do are replaced by their common part: see `stair` for why, and for when this has to be asked.
A common part may in turn agree with others, so the work goes on until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eddies.core.batch import Ids
from eddies.core.lineage import Signature
from eddies.core.stairs.pool import Pool
from eddies.core.stairs.tuples import Tuples, distinct
from eddies.core.state.scratch import Scratch

__all__ = ["keep_apart"]


def keep_apart(
    pools: Mapping[Signature, Pool],
    append: Callable[[Tuples], Pool],
    pool: Pool,
    tuples: Tuples,
    others: Sequence[Pool],
    scratch: Scratch,
) -> None:
    """Enforce B for `tuples`, which are in `pool`, against `others`, to a fixpoint.

    `pools` are all pools of the STAIR; `append` puts tuples into one of them, or into a new one.
    """
    waiting: list[tuple[Pool, Tuples, Sequence[Pool]]] = [(pool, tuples, others)]
    while waiting:
        pool, tuples, others = waiting.pop()
        for other in others:
            if other.n_live == 0 or pool.n_live == 0:
                continue
            common = _common(pool, tuples, other, scratch)
            if common is not None:
                kept = append(common)
                waiting.append((kept, common, list(pools.values())))


def _common(pool: Pool, tuples: Tuples, other: Pool, scratch: Scratch) -> Tuples | None:
    """Remove violations between `tuples`, which are in `pool`, and `other`.

    Returns the common parts that must be stored instead, unless one of the two sides is just that.
    """
    mask = pool.signature.sources & other.signature.sources
    positions, theirs = other.agreeing(tuples.ids, mask, scratch)
    if pool is other:
        _collapse(pool, positions, theirs)
        return None
    if theirs.shape[0] == 0:
        return None
    # Rows of `pool` move when it is written anew: look up where the tuples are now.
    own = tuples.picked(np.unique(positions))
    if mask == pool.signature.sources:
        other.kill(np.unique(theirs))
        return None
    _, mine = pool.agreeing(own.ids, pool.signature.sources, scratch)
    pool.kill(np.unique(mine))
    if mask == other.signature.sources:
        return None
    other.kill(np.unique(theirs))
    done = pool.signature.done & other.signature.done
    return distinct(Signature(mask, done), own)


def _collapse(pool: Pool, positions: Ids, rows: Ids) -> None:
    """Of equal tuples keep the oldest."""
    if rows.shape[0] == 0:
        return
    oldest = np.full(int(positions.max()) + 1, np.iinfo(np.int32).max, dtype=np.int32)
    np.minimum.at(oldest, positions, rows)
    pool.kill(np.unique(rows[rows > oldest[positions]]))
