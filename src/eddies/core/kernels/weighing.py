"""A look ahead: what comes until each end, what forms would cost to make, and which choice is best.

The arithmetic behind `stairs.outlook` and `stairs.migration.CostAware`. A look happens now and then, in
the middle of other work, when nothing it needs is in any cache: there an operation on a small array
takes ten microseconds, and all of a look in one kernel little more. What a choice of forms costs, given
sizes, is in `planning`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from eddies.core.kernels.jit import f64, i64, inlined, kernel, ro, rw
from eddies.core.kernels.planning import (
    CUTS,
    HELD,
    SETS,
    STEPS,
    Cuts,
    Floats,
    Held,
    Numbers,
    Sets,
    Steps,
    lightest_trees,
    prices_of,
    sizes_of,
)

__all__ = [
    "Ahead",
    "Caution",
    "Choices",
    "Offers",
    "Scene",
    "Spans",
    "best_trees",
    "look_ahead",
    "making_of",
    "weigh",
]


class Offers(NamedTuple):
    """Forms that could be made: the STAIR of `source` at `join` would hold tuples over the set `form`,
    for those who come from the sources `beyond`, a mask.
    """

    source: Numbers
    join: Numbers
    form: Numbers
    beyond: Numbers


class Choices(NamedTuple):
    """What is weighed: the forms of all choices, the first of which is held; forms that some choice has
    and that are not held, where `asks[c * n + f]` is 1 if choice c has form f of these n; and how many
    forms each choice has.
    """

    held: Held
    offers: Offers
    asks: Floats
    n_forms: Numbers


class Scene(NamedTuple):
    """What is known, by source: `rows` that are there, rows foreseen `to_come`, and how many times so
    many may come at `most`; by join, its `selectivity`; by STAIR, in the order of `Steps.ends`, rows
    that its index lacks if it is probed as a view (`behind`).
    """

    rows: Floats
    to_come: Floats
    most: Floats
    selectivity: Floats
    behind: Floats


class Spans(NamedTuple):
    """Stretches of the future, in units of the rows foreseen: `begin`, `end`, and the `middle`, where
    costs are evaluated.
    """

    begin: Floats
    middle: Floats
    end: Floats


class Ahead(NamedTuple):
    """`n_rows` that come, by stretch and source; and `sizes`, by world and set: now, then the middle of
    each stretch.
    """

    n_rows: Floats
    sizes: Floats


class Caution(NamedTuple):
    """What a choice must promise: see `stairs.migration.CostAware`. `spent` are tuples handled so far;
    what costs a share `stake` of them is made at once.
    """

    spent: float
    stake: float
    margin: float
    at_risk: float


_ASKED_ENOUGH = 2.3  # times for a row on average, until nine tenths of them have been asked for
_floats = ro(f64)
_offers = types.NamedUniTuple(rw(i64), 4, Offers)
_choices = types.NamedTuple((HELD, _offers, rw(f64), rw(i64)), Choices)
_scene = types.NamedUniTuple(rw(f64), 5, Scene)
_spans = types.NamedUniTuple(rw(f64), 3, Spans)
_ahead = types.NamedUniTuple(rw(f64), 2, Ahead)
_caution = types.NamedUniTuple(f64, 4, Caution)


@inlined
def joined_from(sets: Sets, steps: Steps, sizes: Floats, source: int, target: int) -> float:
    """Tuples handled to join all rows of `source` with the rest of the set `target`, always with the
    source after which fewest tuples are left, and to store what comes of it.
    """
    wanted = sets.mask[target]
    i, cost = sets.single[source], 0.0
    while i != target:
        least, to = np.inf, -1
        for k in range(steps.first[i], steps.first[i + 1]):
            if not wanted >> steps.outside[k] & 1:
                continue
            size, grown = sizes[steps.to[k]], steps.to[k]
            if to < 0 or size < least or (size == least and sets.mask[grown] < sets.mask[to]):
                least, to = size, grown
        cost += sizes[i] + least
        i = to
    return cost + sizes[target]


@kernel(types.void(SETS, STEPS, _offers, _floats, _floats, _floats, rw(f64), rw(f64)))
def making_of(
    sets: Sets,
    steps: Steps,
    offers: Offers,
    sizes: Floats,
    selectivity: Floats,
    n_rows: Floats,
    at_once: Floats,
    on_demand: Floats,
) -> None:
    """Tuples handled to make each form: `at_once`, from the best source to begin with; and `on_demand`,
    by form and end, to expand the rows that will be asked for and to find out which they are. Until
    each end come `n_rows` by source, those of all ends one after the other.

    If a row is asked for m times on average, a share 1 - exp(-m) of all rows is asked for at all.
    """
    n_sources = sets.single.shape[0]
    n_ends = n_rows.shape[0] // n_sources
    for f in range(offers.form.shape[0]):
        target = offers.form[f]
        at_once[f] = np.inf
        for source in range(n_sources):
            if sets.mask[target] >> source & 1:
                at_once[f] = min(at_once[f], joined_from(sets, steps, sizes, source, target))
        whole = joined_from(sets, steps, sizes, offers.source[f], target)
        share = selectivity[offers.join[f]]
        for end in range(n_ends):
            n_probes = 0.0
            for source in range(n_sources):
                if offers.beyond[f] >> source & 1:
                    n_probes += n_rows[end * n_sources + source]
            looked = n_probes if share == 0.0 else min(n_probes, _ASKED_ENOUGH / share)
            on_demand[f * n_ends + end] = whole * (1.0 - np.exp(-n_probes * share)) + looked


@kernel(types.void(SETS, _scene, _spans, _ahead))
def look_ahead(sets: Sets, scene: Scene, spans: Spans, ahead: Ahead) -> None:
    """What comes in each stretch, and the sizes of all sets now and in the middle of each."""
    n_sets, n_sources = sets.mask.shape[0], sets.single.shape[0]
    sizes_of(sets, scene.rows, scene.selectivity, ahead.sizes[:n_sets])
    rows = np.empty(n_sources, np.float64)
    for w in range(spans.end.shape[0]):
        for source in range(n_sources):
            most, to_come = scene.most[source], scene.to_come[source]
            come = min(spans.end[w], most) - min(spans.begin[w], most)
            ahead.n_rows[w * n_sources + source] = to_come * come
            rows[source] = scene.rows[source] + to_come * min(spans.middle[w], most)
        sizes_of(sets, rows, scene.selectivity, ahead.sizes[(w + 1) * n_sets : (w + 2) * n_sets])


@kernel(types.void(CUTS, _ahead, ro(i64), rw(i64)))
def best_trees(cuts: Cuts, ahead: Ahead, held: Numbers, cut: Numbers) -> None:
    """For each stretch the tree with the least sum of future and building costs, as `lightest_trees`
    gives it; the sets `held` need not be built.
    """
    n_sets = cuts.first.shape[0] - 1
    weight = np.empty(cut.shape[0], np.float64)
    for here in range(0, cut.shape[0], n_sets):
        for i in range(n_sets):
            now, later = ahead.sizes[i], ahead.sizes[here + n_sets + i]
            weight[here + i] = 3.0 * (later - now) + 2.0 * now
        for i in held:
            weight[here + i] -= 2.0 * ahead.sizes[i]
    lightest_trees(cuts, weight, cut)


@kernel(i64(SETS, STEPS, _choices, _scene, _ahead, ro(f64), _caution, rw(f64)))
def weigh(
    sets: Sets,
    steps: Steps,
    choices: Choices,
    scene: Scene,
    ahead: Ahead,
    back_off: Floats,
    caution: Caution,
    prices: Floats,
) -> int:
    """The choice that is least dearer than the best would have been, on average over the ends; 0, what
    is held, unless another gains enough and risks little. A new form must promise `back_off` times its
    price. `prices` are what rows to come cost, by choice and stretch.

    A future of two stretches is known, and has one end.
    """
    n_sets, n_sources = sets.mask.shape[0], sets.single.shape[0]
    n_choices, n_new = choices.n_forms.shape[0], choices.offers.form.shape[0]
    n_stretches = ahead.n_rows.shape[0] // n_sources
    n_stairs = steps.ends.shape[0]
    is_certain = n_stretches == 2
    n_ends = 1 if is_certain else n_stretches
    is_view = np.empty(n_choices * n_stairs, np.uint8)
    later, n_rows, selectivity = ahead.sizes[n_sets:], ahead.n_rows, scene.selectivity
    prices_of(sets, steps, choices.held, later, selectivity, n_rows, prices, is_view)
    until = np.zeros(n_ends * n_sources, np.float64)
    for end in range(n_ends):
        for w in range(n_stretches if is_certain else end + 1):
            for source in range(n_sources):
                until[end * n_sources + source] += n_rows[w * n_sources + source]
    at_once, on_demand = np.empty(n_new, np.float64), np.empty(n_new * n_ends, np.float64)
    offers, now = choices.offers, ahead.sizes[:n_sets]
    making_of(sets, steps, offers, now, selectivity, until, at_once, on_demand)

    middle = n_ends // 2
    costs = np.empty(n_choices * n_ends, np.float64)
    at_risk = np.zeros(n_choices, np.float64)
    for c in range(n_choices):
        for stair in range(n_stairs):
            if is_view[c * n_stairs + stair]:
                prices[c * n_stretches] += scene.behind[stair]
        for end in range(n_ends):
            cost = 0.0
            for w in range(n_stretches if is_certain else end + 1):
                cost += prices[c * n_stretches + w]
            costs[c * n_ends + end] = cost
        for f in range(n_new):
            if choices.asks[c * n_new + f] == 0.0:
                continue
            most = on_demand[f * n_ends] if is_certain else caution.stake * caution.spent
            for end in range(n_ends):
                price = at_once[f] if at_once[f] <= most else on_demand[f * n_ends + end]
                costs[c * n_ends + end] += back_off[f] * price
                if end == middle and at_once[f] > most:
                    at_risk[c] += price

    least = np.full(n_ends, np.inf)
    for c in range(n_choices):
        for end in range(n_ends):
            least[end] = min(least[end], caution.spent + costs[c * n_ends + end])
    best, least_loss, held_loss = 0, np.inf, np.inf
    for c in range(n_choices):
        loss = 0.0
        for end in range(n_ends):
            loss += (caution.spent + costs[c * n_ends + end]) / least[end] / n_ends
        if c == 0:
            held_loss = loss
        elif costs[c * n_ends + middle] + caution.at_risk * at_risk[c] > costs[middle]:
            continue
        if loss < least_loss or (loss == least_loss and choices.n_forms[c] < choices.n_forms[best]):
            best, least_loss = c, loss
    return best if least_loss <= held_loss - caution.margin else 0
