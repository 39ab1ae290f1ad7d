"""What a batch has been through: its signature.

All rows of a routed batch have the same signature, so one decision routes them all (the overhead
study's bitmap, section 3; SteMs' TupleState). Masks are plain integers: bit i of `sources` is source
i of the query, bit j of `done` is optional module j (an expensive predicate).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Signature", "bits"]


class Signature(NamedTuple):
    """Sources spanned and optional predicates passed. Both masks only grow (*Progress*).

    `prior` are sources that bounced the batch back. ProbeCompletion lets no such batch go on, so the
    mask is zero unless the rule is switched off.
    """

    sources: int
    done: int = 0
    prior: int = 0


def bits(mask: int) -> list[int]:
    """Positions of the set bits, lowest first.

    >>> bits(0b1010)
    [1, 3]
    """
    positions = []
    while mask:
        lowest = mask & -mask
        positions.append(lowest.bit_length() - 1)
        mask ^= lowest
    return positions
