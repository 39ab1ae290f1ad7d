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

from eddies.core.kernels.planning import Floats, Held, Offers, making_of, prices_of
from eddies.core.stairs.plan import MOMENTS, Form, Forms, Planner, World, moments

__all__ = ["Offered", "Outlook", "Stretch"]

STAKE = 0.12  # of the tuples handled so far: what may be spent at once on a form that may never pay
ENDS = (0.2, 1.0, 5.0)  # equally likely, in units of the rows foreseen


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the future: the rows that come in it, by source, and the world in its middle."""

    world: World
    n_rows: Sequence[float]


class Offered(NamedTuple):
    """What forms that are not held would cost, by form and end; made at once if that is cheap."""

    is_cheap: npt.NDArray[np.bool_]
    prices: Floats


def _column(values: Sequence[float]) -> Floats:
    return np.array(values)[:, None]


_FROM_END_TO_END = (
    _column((0.0, *ENDS[:-1])),
    _column([(a + b) / 2 for a, b in zip((0.0, *ENDS[:-1]), ENDS, strict=True)]),
    _column(ENDS),
)
_IN_HALVES = _column((0.0, 0.5)), _column(MOMENTS), _column((0.5, 1.0))
"""Where stretches begin, where costs are evaluated, and where they end."""


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
    _offers: dict[Form, Offered] = field(default_factory=dict, init=False, compare=False)

    def moments(self) -> list[World]:
        """The world at a few moments of what is foreseen."""
        return moments(self.now.rows, self.to_come, self.selectivity, self.planner.tree)

    def cost(self, forms: Forms) -> float:
        """Tuples handled for the rows foreseen, if STAIRs have these forms."""
        return self._cost_of(forms, self.now.rows, self.to_come)

    def _cost_of(self, forms: Forms, rows: Sequence[float], to_come: Sequence[float]) -> float:
        """Tuples handled if `to_come` follow `rows`."""
        coming = np.array(to_come, dtype=float)
        sizes = self._sizes(np.array(rows, dtype=float) + _IN_HALVES[1] * coming)
        coming = np.tile(coming, (sizes.shape[0], 1))
        prices, _ = self._prices(self.planner.held([forms]), sizes, coming)
        return float(prices.mean(axis=1)[0])

    @cached_property
    def is_certain(self) -> bool:
        """Whether it is known how many rows will come."""
        return not any(n for s, n in enumerate(self.to_come) if not self.certain >> s & 1)

    @cached_property
    def _future(self) -> tuple[Floats, Floats]:
        """The future from end to end; if all of it is known, two halves of it. A line for each stretch:
        the rows that come in it, by source, and those that are there in its middle.
        """
        begin, middle, end = _IN_HALVES if self.is_certain else _FROM_END_TO_END
        to_come = np.array(self.to_come, dtype=float)
        if self.certain and not self.is_certain:
            # What is known to come has come when the foreseen rows of the others have.
            most = np.array([1.0 if self.certain >> s & 1 else np.inf for s in range(len(to_come))])
            begin, middle, end = (np.minimum(at, most) for at in (begin, middle, end))
        return (end - begin) * to_come, np.array(self.now.rows, dtype=float) + middle * to_come

    @property
    def stretches(self) -> list[Stretch]:
        """The future in stretches."""
        n_rows, rows = (lines.tolist() for lines in self._future)
        worlds = [World(line, self.selectivity, self.planner.tree) for line in rows]
        return [Stretch(world, coming) for world, coming in zip(worlds, n_rows, strict=True)]

    @cached_property
    def _until(self) -> Floats:
        """Rows that come until each end, by end and source."""
        n_rows = self._future[0].cumsum(axis=0)
        return n_rows[-1:] if self.is_certain else n_rows

    def costs(self, forms: Forms) -> list[float]:
        """Tuples handled from now on for each end, if STAIRs have these forms."""
        found = list(accumulate(self._costs_of_stretches(forms)))
        return found[-1:] if self.is_certain else found

    def consider(self, choices: Sequence[Forms], held: Held | None = None) -> Floats:
        """The costs of `choices` from stretch to stretch, worked out together: that is cheaper than one
        by one. `held` are their forms, if somebody listed them already (`Planner.held`).
        """
        n_rows, _ = self._future
        if held is None:
            held = self.planner.held(choices)
        prices, is_view = self._prices(held, self.sizes[1:], n_rows)
        prices[:, 0] += is_view @ self._behind
        self._known.update(zip(choices, prices.tolist(), strict=True))
        return prices

    def _costs_of_stretches(self, forms: Forms) -> list[float]:
        if forms not in self._known:
            self.consider([forms])
        return self._known[forms]

    @cached_property
    def _behind(self) -> Floats:
        """Rows that the indexes of views lack, by STAIR."""
        edges = self.planner.tree.edges
        stairs = [(source, edge.number) for edge in edges for source in (edge.left, edge.right)]
        return np.array([self.behind.get(stair, 0) for stair in stairs], dtype=float)

    @cached_property
    def sizes(self) -> Floats:
        """Sizes of all connected sets, by number: a line for now, and one for each stretch."""
        return self._sizes(np.vstack([np.array(self.now.rows, dtype=float), self._future[1]]))

    def _sizes(self, rows: Floats) -> Floats:
        found = self.planner.sizes_for(rows.ravel(), np.asarray(self.selectivity, float))
        return found.reshape(rows.shape[0], -1)

    def _prices(
        self, held: Held, sizes: Floats, n_rows: Floats
    ) -> tuple[Floats, npt.NDArray[np.uint8]]:
        """Tuples handled if so many rows come, by choice and world; and by choice and STAIR, whether it
        holds rows only and is probed in the first world, so that all of them must be indexed.
        """
        sets, steps = self.planner.tables
        n_choices = held.first.shape[0] - 1
        prices = np.empty((n_choices, sizes.shape[0]))
        is_view = np.empty((n_choices, steps.ends.shape[0]), dtype=np.uint8)
        selectivity = np.asarray(self.selectivity, float)
        coming, flat = n_rows.ravel(), prices.ravel()
        prices_of(sets, steps, held, sizes.ravel(), selectivity, coming, flat, is_view.ravel())
        return prices, is_view

    def rows_worth(self, n_tuples: float) -> float:
        """About how many of the next rows cost so many tuples."""
        n_rows = float(self._future[0][0].sum())
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
        return bool(self._offer(form).is_cheap[0])

    def prices(self, form: Form) -> list[float]:
        """Tuples handled for each end to make `form`, at once or on demand."""
        found: list[float] = self._offer(form).prices[0].tolist()
        return found

    def _offer(self, form: Form) -> Offered:
        known = self._offers.get(form)
        if known is None:
            known = self._offers[form] = self.offered(self.planner.offers([form]))
        return known

    def offered(self, offers: Offers) -> Offered:
        """What it would cost to make these forms, each by itself."""
        until = self._until
        at_once = np.empty(offers.form.shape[0])
        on_demand = np.empty((at_once.shape[0], until.shape[0]))
        sets, steps = self.planner.tables
        selectivity = np.asarray(self.selectivity, float)
        flat = on_demand.ravel()
        making_of(sets, steps, offers, self.sizes[0], selectivity, until.ravel(), at_once, flat)
        is_cheap = at_once <= (on_demand[:, 0] if self.is_certain else STAKE * self.spent)
        return Offered(is_cheap, np.where(is_cheap[:, None], at_once[:, None], on_demand))
