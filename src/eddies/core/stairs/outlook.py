"""What is to come, and what it will cost: the view of the future on which migrations are decided.

Nobody knows how long a source goes on, unless the host said so. What is known is that it has gone on
until now, and there is no reason to think that now is a special moment of its life. If now is a moment
drawn uniformly from that life, then a source grows to at least g times its present size with
probability 1/g, whatever that size is. The mean of that is infinite and of no use; what serves is a few
equally likely *ends*: the rows that are foreseen (as many as have come, see `statistics`) times 1/5, 1
and 5, which are the middles of the three thirds of the distribution.
A decision for one of them alone is wrong in a known way: for the near one nothing ever pays, so state
that should have been kept from the beginning is built when it has become dear; for the far one
everything pays, also just before the end.

A cost is then one number for each end. They differ by orders of magnitude, since joins grow faster
than rows, so they are not added: what counts is how much *dearer* a choice is than the best one would
have been, for each end, the work that is already done included (`spent`). A move that costs a tenth of
what was spent so far cannot lose more than a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.planning import Floats, Held, prices_of
from eddies.core.kernels.weighing import Ahead, Scene, Spans, look_ahead, making_of
from eddies.core.stairs.plan import MOMENTS, Form, Forms, Planner, World, moments

__all__ = ["ENDS", "STAKE", "Outlook", "Stretch"]

STAKE = 0.12  # of the tuples handled so far: what may be spent at once on a form that may never pay
ENDS = (0.2, 1.0, 5.0)  # equally likely, in units of the rows foreseen


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the future: the rows that come in it, by source, and the world in its middle."""

    world: World
    n_rows: Sequence[float]


class _Offer(NamedTuple):
    """What a form that is not held would cost for each end, made at once if that is cheap."""

    is_cheap: bool
    prices: list[float]


def _spans(ends: Sequence[float], middles: Sequence[float]) -> Spans:
    return Spans(*map(np.array, ((0.0, *ends[:-1]), middles, ends)))


_FROM_END_TO_END = _spans(ENDS, [(a + b) / 2 for a, b in zip((0.0, *ENDS[:-1]), ENDS, strict=True)])
_IN_HALVES = _spans((0.5, 1.0), MOMENTS)


@dataclass(frozen=True)
class Outlook:
    """What a migration policy sees.

    `to_come` are the rows foreseen by source; those of the sources in `certain` are known. `behind` are
    rows that must be indexed first if the STAIR of (source, join) is probed as a view.
    """

    planner: Planner
    now: World
    to_come: Sequence[float]
    selectivity: Sequence[float]
    held: Forms
    ended: int  # sources that are complete, as a mask
    certain: int = 0
    behind: Mapping[tuple[int, int], int] = field(default_factory=dict)
    handled: float = 0.0  # tuples, so far
    _known: dict[Forms, list[float]] = field(default_factory=dict, init=False, compare=False)
    _offers: dict[Form, _Offer] = field(default_factory=dict, init=False, compare=False)

    def moments(self) -> list[World]:
        """The world at a few moments of what is foreseen."""
        return moments(self.now.rows, self.to_come, self.selectivity, self.planner.tree)

    def cost(self, forms: Forms) -> float:
        """Tuples handled for the rows foreseen, if STAIRs have these forms."""
        return self._cost_of(forms, self.now.rows, self.to_come)

    def _cost_of(self, forms: Forms, rows: Sequence[float], to_come: Sequence[float]) -> float:
        """Tuples handled if `to_come` follow `rows`."""
        n_sets = len(self.planner.tables[0].mask)
        now, coming = np.array(rows, dtype=float), np.array(to_come, dtype=float)
        ahead = Ahead(np.empty(2 * len(to_come)), np.empty(3 * n_sets))
        scene = self.scene._replace(rows=now, to_come=coming, most=np.ones(len(to_come)))
        look_ahead(self.planner.tables[0], scene, _IN_HALVES, ahead)
        prices, _ = self._prices(self.planner.held([forms]), ahead.sizes[n_sets:], ahead.n_rows)
        return float(prices.sum())

    @cached_property
    def is_certain(self) -> bool:
        """Whether it is known how many rows will come."""
        return not any(n for s, n in enumerate(self.to_come) if not self.certain >> s & 1)

    @cached_property
    def spans(self) -> Spans:
        """The future from end to end; if all of it is known, two halves of it."""
        return _IN_HALVES if self.is_certain else _FROM_END_TO_END

    @property
    def stretches(self) -> list[Stretch]:
        """The future in stretches. What is known to come has come when as many rows of the others have
        as are foreseen; these may go on.
        """
        most = [1.0 if self.certain >> s & 1 else ENDS[-1] for s in range(len(self.to_come))]
        found = []
        for begin, middle, end in zip(*(part.tolist() for part in self.spans), strict=True):
            n_rows, rows = [], []
            for n, coming, limit in zip(self.now.rows, self.to_come, most, strict=True):
                n_rows.append(coming * (min(end, limit) - min(begin, limit)))
                rows.append(n + coming * min(middle, limit))
            world = World(rows, self.selectivity, self.planner.tree)
            found.append(Stretch(world, n_rows))
        return found

    @cached_property
    def scene(self) -> Scene:
        """The same as kernels see it."""
        most = [1.0 if self.certain >> s & 1 else ENDS[-1] for s in range(len(self.to_come))]
        edges = self.planner.tree.edges
        stairs = [(source, edge.number) for edge in edges for source in (edge.left, edge.right)]
        behind = [float(self.behind.get(stair, 0)) for stair in stairs]
        known = self.now.rows, self.to_come, most, self.selectivity, behind
        return Scene(*(np.array(values, dtype=float) for values in known))

    @cached_property
    def ahead(self) -> Ahead:
        """What comes in each stretch, and sizes."""
        sets, _ = self.planner.tables
        n_stretches = self.spans.end.shape[0]
        n_rows = np.empty(n_stretches * len(self.to_come))
        ahead = Ahead(n_rows, np.empty((n_stretches + 1) * sets.mask.shape[0]))
        look_ahead(sets, self.scene, self.spans, ahead)
        return ahead

    def costs(self, forms: Forms) -> list[float]:
        """Tuples handled from now on for each end, if STAIRs have these forms."""
        found = list(accumulate(self._costs_of_stretches(forms)))
        return found[-1:] if self.is_certain else found

    def consider(self, choices: Sequence[Forms]) -> None:
        """Work out the costs of `choices` together: that is cheaper than one by one."""
        n_sets = len(self.planner.tables[0].mask)
        held = self.planner.held(choices)
        prices, is_view = self._prices(held, self.ahead.sizes[n_sets:], self.ahead.n_rows)
        prices[:, 0] += is_view @ self.scene.behind
        self._known.update(zip(choices, prices.tolist(), strict=True))

    def note(self, forms: Forms, costs: Sequence[float]) -> None:
        """Somebody else worked out what rows cost from stretch to stretch."""
        self._known[forms] = list(costs)

    def _costs_of_stretches(self, forms: Forms) -> list[float]:
        if forms not in self._known:
            self.consider([forms])
        return self._known[forms]

    def _prices(
        self, held: Held, sizes: Floats, n_rows: Floats
    ) -> tuple[Floats, npt.NDArray[np.uint8]]:
        """Tuples handled if so many rows come, by choice and world; and by choice and STAIR, whether it
        holds rows only and is probed in the first world, so that all of them must be indexed.
        """
        sets, steps = self.planner.tables
        n_choices = held.first.shape[0] - 1
        prices = np.empty((n_choices, sizes.shape[0] // sets.mask.shape[0]))
        is_view = np.empty((n_choices, steps.ends.shape[0]), dtype=np.uint8)
        selectivity, flat = self.scene.selectivity, prices.ravel()
        prices_of(sets, steps, held, sizes, selectivity, n_rows, flat, is_view.ravel())
        return prices, is_view

    def rows_worth(self, n_tuples: float) -> float:
        """About how many of the next rows cost so many tuples."""
        n_rows = float(self.ahead.n_rows[: len(self.to_come)].sum())
        cost = self._costs_of_stretches(self.held)[0]
        return n_tuples * n_rows / cost if cost else n_tuples

    @cached_property
    def spent(self) -> float:
        """Tuples handled so far; if nobody counted them, about as many as SteMs would have: all rows
        arrived, and were indexed and joined.
        """
        if self.handled:
            return self.handled
        rows = self.now.rows
        return sum(rows) + self._cost_of(frozenset(), [0.0] * len(rows), rows)

    def is_cheap(self, form: Form) -> bool:
        """Whether all of `form` may be made at once: if that costs little, measured by what was spent,
        or if it is known that nothing is gained by waiting.
        """
        return self._offer(form).is_cheap

    def prices(self, form: Form) -> list[float]:
        """Tuples handled for each end to make `form`, at once or on demand."""
        return self._offer(form).prices

    def _offer(self, form: Form) -> _Offer:
        known = self._offers.get(form)
        if known is None:
            sets, steps = self.planner.tables
            until = self.ahead.n_rows.reshape(-1, len(self.to_come)).cumsum(axis=0)
            if self.is_certain:
                until = until[-1:].copy()
            at_once, on_demand = np.empty(1), np.empty(until.shape[0])
            offers = self.planner.offers([form])
            now, selectivity = self.ahead.sizes[: len(sets.mask)], self.scene.selectivity
            making_of(sets, steps, offers, now, selectivity, until.ravel(), at_once, on_demand)
            most = on_demand[0] if self.is_certain else STAKE * self.spent
            is_cheap = bool(at_once[0] <= most)
            prices = np.full(until.shape[0], at_once[0]) if is_cheap else on_demand
            known = self._offers[form] = _Offer(is_cheap, prices.tolist())
        return known
