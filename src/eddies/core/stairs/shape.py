"""The shape of a join tree: its connected sets of sources, how they grow and how they can be cut.

All of it depends only on which sources are joined. Eddies of one query have the same shape, in every
cell and at every spanning tree they return to, so a process works each shape out once (`shape_of`).
Sets go by number, small ones first. Nothing here changes after it was made; some is made when it is
first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from eddies.core.kernels.planning import Cuts, Numbers, Sets, Steps
from eddies.core.lineage import bits

__all__ = ["MOST_SETS", "Shape", "numbers", "shape_of"]

MOST_SETS = 600  # connected sets of sources up to which plans are searched


class Shape:
    """Of a tree with these `joins`: join j is between the sources `joins[j]`.

    `sets` are masks; a few too many if there are more than `MOST_SETS`, and then not all of them.
    """

    def __init__(self, joins: tuple[tuple[int, int], ...], n_sources: int) -> None:
        self._joins = joins
        self._ends = [1 << left | 1 << right for left, right in joins]
        self.all_sources = (1 << n_sources) - 1
        self.sets = self._connected_sets()
        self.number_of = {mask: number for number, mask in enumerate(self.sets)}
        self.menus: dict[Any, Any] = {}  # see `stairs.menu`, which alone knows what is in it
        self._borders: dict[int, list[tuple[int, int, int]]] = {}
        self._beyond: dict[tuple[int, int], int] = {}  # by join and source

    def _connected_sets(self) -> list[int]:
        found = {1 << s for s in bits(self.all_sources)}
        waiting = list(found)
        while waiting and len(found) <= MOST_SETS:
            mask = waiting.pop()
            for ends in self._ends:
                grown = mask | ends
                if ends & mask and grown not in found:
                    found.add(grown)
                    waiting.append(grown)
        return sorted(found, key=lambda mask: mask.bit_count())

    def border(self, mask: int) -> list[tuple[int, int, int]]:
        """Joins that lead out of `mask`: (join, source inside, source outside)."""
        found = self._borders.get(mask)
        if found is None:
            found = []
            for number, (one, other) in enumerate(self._joins):
                left, right = mask >> one & 1, mask >> other & 1
                if left and not right:
                    found.append((number, one, other))
                elif right and not left:
                    found.append((number, other, one))
            self._borders[mask] = found
        return found

    def beyond(self, join: int, source: int) -> int:
        """The sources on the other side of `join`, seen from `source`, which is one of its ends."""
        known = self._beyond.get((join, source))
        if known is None:
            left, right = self._joins[join]
            inside = [pair for pair in enumerate(self._ends) if pair[0] != join]
            known = _grown(1 << (right if source == left else left), inside)
            self._beyond[join, source] = known
        return known

    def _split(self, mask: int) -> Iterator[tuple[int, int, int]]:
        """Ways to cut a connected set at a join: (join, left part, right part)."""
        inside = [(n, ends) for n, ends in enumerate(self._ends) if ends & ~mask == 0]
        for number, _ in inside:
            others = [pair for pair in inside if pair[0] != number]
            left = _grown(1 << self._joins[number][0], others)
            yield number, left, mask & ~left

    # Tables for kernels

    @cached_property
    def tables(self) -> tuple[Sets, Steps]:
        """The connected sets, and the joins that lead out of each."""
        smaller, leaf, by = [], [], []
        first, steps = [0], []
        for mask in self.sets:
            rest = (mask & ~(1 << source) for source in bits(mask))
            inner = next((m for m in rest if m in self.number_of), 0)
            smaller.append(self.number_of.get(inner, -1))
            leaf.append((mask & ~inner).bit_length() - 1)
            last = (n for n, e in enumerate(self._ends) if e & ~mask == 0 and e & ~inner)
            by.append(next(last) if inner else -1)
            steps += [
                (join, inside, outside, self.number_of[mask | 1 << outside])
                for join, inside, outside in self.border(mask)
            ]
            first.append(len(steps))
        singles = [self.number_of[1 << source] for source in bits(self.all_sources)]
        by_mask = sorted(range(len(self.sets)), key=self.sets.__getitem__)
        ends = [end for pair in self._joins for end in pair]
        join, inside, outside, to = map(numbers, zip(*steps, strict=True))
        return (
            Sets(*map(numbers, (self.sets, smaller, leaf, by, by_mask, singles))),
            Steps(numbers(first), join, inside, outside, to, numbers(ends)),
        )

    @cached_property
    def cuts(self) -> tuple[Cuts, list[int]]:
        """Ways to cut each set in two, and the join of each way."""
        first, ways = [0], []
        for mask in self.sets:
            ways += [
                (number, self.number_of[left], self.number_of[right])
                for number, left, right in self._split(mask)
            ]
            first.append(len(ways))
        joins, left, right = (list(column) for column in zip(*ways, strict=True))
        return Cuts(numbers(first), numbers(left), numbers(right)), joins


def _grown(mask: int, joins: Iterable[tuple[int, int]]) -> int:
    """All sources that `joins`, each with the mask of its ends, connect with those in `mask`."""
    joins = list(joins)
    while True:
        grown = mask
        for _, ends in joins:
            if ends & grown:
                grown |= ends
        if grown == mask:
            return mask
        mask = grown


@lru_cache(maxsize=64)
def shape_of(joins: tuple[tuple[int, int], ...], n_sources: int) -> Shape:
    """The shape of a tree with these joins."""
    return Shape(joins, n_sources)


def numbers(values: Iterable[int]) -> Numbers:
    """As kernels take them."""
    return np.fromiter(values, dtype=np.int64)
