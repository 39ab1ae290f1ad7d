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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import exp
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.planning import Floats, prices_of
from eddies.core.stairs.plan import Form, Forms, Planner, World, moments

__all__ = ["Outlook", "Stretch"]

STAKE = 0.12  # of the tuples handled so far: what may be spent at once on a form that may never pay
_ASKED_ENOUGH = 2.3  # times for a row on average, until nine tenths of them have been asked for
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
        worlds = self.moments()
        prices, _ = self._prices([forms], self._sizes(worlds), [self.to_come] * len(worlds))
        return float(prices.sum()) / len(worlds)

    @cached_property
    def is_certain(self) -> bool:
        """Whether it is known how many rows will come."""
        return not any(n for s, n in enumerate(self.to_come) if not self.certain >> s & 1)

    @cached_property
    def stretches(self) -> list[Stretch]:
        """The future from end to end; if all of it is known, two halves of it."""
        if self.is_certain:
            half = [n / 2 for n in self.to_come]
            return [Stretch(world, half) for world in self.moments()]
        found, before = [], 0.0
        for end in ENDS:
            middle = self._rows_until((before + end) / 2)
            n_rows = [
                b - a for a, b in zip(self._rows_until(before), self._rows_until(end), strict=True)
            ]
            rows = [a + b for a, b in zip(self.now.rows, middle, strict=True)]
            found.append(Stretch(World(rows, self.selectivity, self.planner.tree), n_rows))
            before = end
        return found

    def _rows_until(self, end: float) -> list[float]:
        return [
            n * (min(end, 1.0) if self.certain >> s & 1 else end)
            for s, n in enumerate(self.to_come)
        ]

    def costs(self, forms: Forms) -> list[float]:
        """Tuples handled from now on for each end, if STAIRs have these forms."""
        found = list(accumulate(self._costs_of_stretches(forms)))
        return found[-1:] if self.is_certain else found

    def consider(self, choices: Iterable[Forms]) -> None:
        """Work out the costs of `choices` together: that is cheaper than one by one."""
        new = [forms for forms in choices if forms not in self._known]
        if not new:
            return
        n_rows = [stretch.n_rows for stretch in self.stretches]
        prices, is_view = self._prices(new, self.later, n_rows)
        prices[:, 0] += is_view @ self._behind
        self._known.update(zip(new, prices.tolist(), strict=True))

    def _costs_of_stretches(self, forms: Forms) -> list[float]:
        self.consider([forms])
        return self._known[forms]

    @cached_property
    def _behind(self) -> Floats:
        """Rows that the indexes of views lack, by STAIR."""
        edges = self.planner.tree.edges
        stairs = [(source, edge.number) for edge in edges for source in (edge.left, edge.right)]
        return np.array([self.behind.get(stair, 0) for stair in stairs], dtype=float)

    @cached_property
    def later(self) -> Floats:
        """Sizes of all connected sets, a line for each stretch."""
        return self._sizes([stretch.world for stretch in self.stretches])

    def _sizes(self, worlds: Sequence[World]) -> Floats:
        return np.stack([self.planner.sizes(world) for world in worlds])

    def _prices(
        self, choices: Sequence[Forms], sizes: Floats, n_rows: Sequence[Sequence[float]]
    ) -> tuple[Floats, npt.NDArray[np.uint8]]:
        """Tuples handled if so many rows come, by choice and world; and by choice and STAIR, whether it
        holds rows only and is probed in the first world, so that all of them must be indexed.
        """
        planner = self.planner
        sets, steps = planner.tables
        coming = np.concatenate(n_rows)
        prices = np.empty(len(choices) * len(sizes))
        is_view = np.empty(len(choices) * steps.ends.shape[0], dtype=np.uint8)
        selectivity = np.asarray(self.selectivity, float)
        held = planner.held(choices)
        prices_of(sets, steps, held, sizes.ravel(), selectivity, coming, prices, is_view)
        return prices.reshape(len(choices), -1), is_view.reshape(len(choices), -1)

    def rows_worth(self, n_tuples: float) -> float:
        """About how many of the next rows cost so many tuples."""
        n_rows = sum(self.stretches[0].n_rows)
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
        nothing: Forms = frozenset()
        worlds = moments([0.0] * len(rows), rows, self.selectivity, self.planner.tree)
        prices, _ = self._prices([nothing], self._sizes(worlds), [rows] * len(worlds))
        return sum(rows) + float(prices.sum()) / len(worlds)

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
            at_once = self.planner.build_cost(form, self.now)
            on_demand = self._prices_on_demand(form)
            most = on_demand[0] if self.is_certain else STAKE * self.spent
            is_cheap = at_once <= most
            prices = [at_once] * len(on_demand) if is_cheap else on_demand
            known = self._offers[form] = _Offer(is_cheap, prices)
        return known

    def _prices_on_demand(self, form: Form) -> list[float]:
        """Tuples handled to expand the rows that will be asked for, and to find out which they are.

        If a row is asked for m times on average, a share 1 - exp(-m) of all rows is asked for at all.
        """
        whole = self.planner.cost_from(form.source, form.mask, self.now)
        beyond = self.planner.beyond(form)
        selectivity = self.selectivity[form.join]
        found = []
        for end in (1.0,) if self.is_certain else ENDS:
            n_probes = sum(n for s, n in enumerate(self._rows_until(end)) if beyond >> s & 1)
            asked = 1.0 - exp(-n_probes * selectivity)
            looked = min(n_probes, _ASKED_ENOUGH / selectivity) if selectivity else n_probes
            found.append(whole * asked + looked)
        return found
