"""Diversion: rows with a heavy key leave their batch and take the way on which they find less.

One decision routes a batch, because rows with the same signature are alike on average. Where keys are
skewed they are not. Take triangles in a graph with hubs: an edge into a hub has thousands of
continuations, but few edges come to where it begins; for an edge out of a hub it is the other way
round. Any one order multiplies the hubs' edges with each other, whoever plans it. An eddy may send each
row its own way: with `a` and `b` matches on two ways the row costs min(a, b). Summed over the edges of
a graph, this is what worst-case optimal joins promise for triangles (Ngo, Porat, Re and Rudra 2012),
by probes of plain indexes.

A decision whose step brings many rows for one is looked at: if the index behind it has heavy keys, the
rows of each batch that have one are told apart, and go to the other probe of the same fork that has
the fewest rows for them, if these are much fewer. (To know, the index of the other way is made, if it
was not there.) All ways of a fork are legal and stamps belong to the driver, so the answer is the same.
The policy is not told of rows that left: they say nothing about others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from eddies.core.batch import RoutedBatch
from eddies.core.lineage import Signature
from eddies.core.module import Step
from eddies.core.route import Route

__all__ = ["Diversion", "Foretells"]

FAN_OUT = 16  # rows for one, on average, from which on a step is looked at
_GAIN = 4.0  # a row leaves if it finds so many times less elsewhere


@runtime_checkable
class Foretells(Protocol):
    """A step that can say beforehand what rows will find."""

    @property
    def has_heavy_keys(self) -> bool:
        """Whether some keys have many more rows than others."""
        ...

    def matches(self, batch: RoutedBatch) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """About how many rows each row of `batch` will find, and which of them have heavy keys."""
        ...


class Diversion:
    """Looks after the decisions of one router. The ways on which heavy keys were `met` are known to all
    routers of an eddy: each would have to multiply some rows to find out.
    """

    def __init__(self) -> None:
        self.fan_out = FAN_OUT
        self.met: set[tuple[Signature, int]] = set()  # with the number of the way
        self.n_diverted = 0  # rows

    def apart(
        self, batch: RoutedBatch, route: Route, choice: int, prepare: Callable[[Step], object]
    ) -> Iterator[tuple[int, RoutedBatch]]:
        """`batch` in parts, each with the step that it should go to; the last stays with `choice`.
        `prepare` brings the state behind a step up to date.
        """
        step = route.ways[choice].step
        others = [n for n in _probes(route) if n != choice]
        if not others or not isinstance(step, Foretells):
            yield choice, batch
            return
        prepare(route.ways[choice].step)
        if not step.has_heavy_keys:
            yield choice, batch
            return
        route.ways[choice].has_heavy_keys = True
        self.met.add((route.signature, choice))
        expected, is_heavy = step.matches(batch)
        heavy = np.flatnonzero(is_heavy & (expected >= FAN_OUT * _GAIN))
        if not heavy.shape[0]:
            yield choice, batch
            return
        picked = batch.picked(route, heavy.astype(np.int32))
        best = expected[heavy] / _GAIN
        ways = np.full(heavy.shape[0], choice)
        for number in others:
            other = route.ways[number].step
            assert isinstance(other, Foretells)
            prepare(route.ways[number].step)
            found, _ = other.matches(picked)
            ways[found < best] = number
            best = np.minimum(best, found)
        stays = np.ones(batch.n_rows, dtype=np.bool_)
        for number in others:
            rows = heavy[ways == number]
            if rows.shape[0]:
                stays[rows] = False
                self.n_diverted += rows.shape[0]
                yield number, batch.picked(route, rows.astype(np.int32))
        if stays.any():
            yield choice, batch.kept(route, stays)


def _probes(route: Route) -> list[int]:
    """The steps of a route that can say beforehand what rows will find, and do not multiply all."""
    assert route.fork is not None
    return [
        number
        for number, candidate in enumerate(route.fork.candidates)
        if candidate.kind == "probe"
        and not candidate.cross
        and isinstance(route.ways[number].step, Foretells)
    ]
