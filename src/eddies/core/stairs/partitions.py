"""Whether data has horizontal partitions, and whether an order of its own for each part pays.

*A survey* of a source with several joins looks at a sample of its rows: what each would meet at each
join. If even the best choice for every single row would not spare much, there are no parts, and that is
all it costs (a tenth of a millisecond). Else one half of the sample says by which values, or by which
time of arrival, parts can be told (`regions`), and the other half, which had no say in it, whether that
is true: noise always looks like parts to those rows that were searched for them.

*The price* of either way is counted in tuples, as for forms. A part is a source of its own: it has the
matches of its rows, so many of them are there, so many will come. What the query costs is the sum over
parts, except that rows of the other sources come once only; they cost what they would if there were
nothing of the source. A part that goes to join j first has the forms of a left-deep plan that begins
there. The other way has the same forms for all parts: those that are held, none, or those of any part.

Known limitations: one source is parted at a time; a part is one choice of join, whatever its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eddies.core.stairs.chooser import Chooser
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Form, Forms, Planner, World
from eddies.core.stairs.regions import Costs, Features, Leaf, Regions, choices, learn
from eddies.core.stairs.statistics import Statistics

__all__ = ["Part", "Parting", "pays", "survey"]

_FEWEST_ROWS = 512  # of a source before it is surveyed
_FEWEST_MATCHES = 0.25  # a row at its source's best join: below, no order costs much
_MOST_KEPT = 0.7  # of the matches at the best join for all that parts may leave
_MOST_COST = 0.85  # of what the rows to come would cost otherwise
_LEAST_GAIN = 1.03  # all work without parts by all work with them, on average over the ends
_UNSEEN = 0.005  # matches of a row assumed where a part has none
_NOTHING = 1e-9  # of the rows: what is not there must not look as if it were known to have ended


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a source that go to the join `choice` (its number in the tree) first."""

    choice: int
    now: float  # share of the rows that have come
    to_come: float  # share of those to come
    matches: tuple[float, ...]  # of a row at each join of the source


@dataclass(frozen=True, slots=True)
class Parting:
    """How the rows of `source` are parted."""

    source: int
    regions: Regions
    joins: tuple[int, ...]
    parts: tuple[Part, ...]


def survey(
    chooser: Chooser, n_rows: Sequence[int], statistics: Statistics, rng: np.random.Generator
) -> Parting | None:
    """The parts of a source, when so many rows of each source have come; None: there are none."""
    n_own = n_rows[chooser.source]
    if n_own < _FEWEST_ROWS:
        return None
    latest, anywhere = chooser.sample(n_own, rng)
    rows = np.concatenate([latest, anywhere])
    costs = chooser.costs(rows, n_rows, statistics, rng)
    if not _could_gain(costs):
        return None
    features = chooser.features(rows)
    is_taught = np.arange(rows.shape[0]) % 2 == 0  # of the latest and of the others one half each
    regions = learn(_some(features, is_taught), costs[is_taught])
    if isinstance(regions, Leaf):
        return None
    chosen = choices(regions, features, rows.shape[0])
    unseen, by_region = costs[~is_taught], chosen[~is_taught]
    kept = float(unseen[np.arange(unseen.shape[0]), by_region].sum())
    if kept > _MOST_KEPT * float(unseen.sum(axis=0).min()):
        return None
    n_latest = latest.shape[0]
    is_latest = np.arange(rows.shape[0]) < n_latest
    coming = chooser.to_come(_some(features, is_latest), n_own)
    to_come = choices(regions, coming, n_latest)
    direct = np.stack(
        [
            chooser.matches(edge, rows, n_rows[edge.other(chooser.source)], statistics, rng)
            for edge in chooser.joins
        ],
        axis=1,
    )
    parts = []
    for choice in np.unique(chosen).tolist():
        is_here = chosen == choice
        believed = is_here & ~is_taught
        matches = direct[believed if believed.any() else is_here].mean(axis=0)
        now, later = float(is_here[~is_latest].mean()), float((to_come == choice).mean())
        parts.append(Part(chooser.joins[choice].number, now, later, tuple(matches.tolist())))
    joins = tuple(edge.number for edge in chooser.joins)
    return Parting(chooser.source, regions, joins, tuple(parts))


def _could_gain(costs: Costs) -> bool:
    """Whether the best join for every single row would spare enough beside the best for all."""
    whole, ideal = float(costs.sum(axis=0).min()), float(costs.min(axis=1).sum())
    is_dear = whole > _FEWEST_MATCHES * costs.shape[0]
    return is_dear and ideal < _MOST_KEPT * whole


def _some(features: Features, chosen: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.int64]]:
    return {name: values[chosen] for name, values in features.items()}


def pays(outlook: Outlook, parting: Parting, caution: float = 1.0) -> bool:
    """Whether the rows to come cost less if parts have orders of their own, taking the rows that are
    there apart included. With more `caution` it must pay so many times that price.
    """
    worlds = [_of_part(outlook, parting, part) for part in parting.parts]
    nothing = _of_part(outlook, parting, None)
    own = [
        _left_deep(outlook.planner, parting.source, part.choice, world.now)
        for part, world in zip(parting.parts, worlds, strict=True)
    ]
    price = caution * _price(outlook, parting)
    parted = [cost + price for cost in _total(worlds, nothing, own)]
    together = [
        _with_building(outlook, forms, _total(worlds, nothing, [forms] * len(worlds)))
        for forms in {outlook.held, frozenset(), *own}
    ]
    least = [min(costs) for costs in zip(*together, strict=True)]
    middle = len(least) // 2
    if parted[middle] > _MOST_COST * least[middle]:
        return False
    spent = outlook.spent
    gains = [(spent + a) / (spent + b) for a, b in zip(least, parted, strict=True)]
    return bool(sum(gains) > _LEAST_GAIN * len(gains))


def _of_part(outlook: Outlook, parting: Parting, part: Part | None) -> Outlook:
    """What is to come if the source had the rows of one part only, or none."""
    source, tree = parting.source, outlook.planner.tree
    now, later = (_NOTHING, _NOTHING) if part is None else (part.now, part.to_come)
    rows, to_come = list(outlook.now.rows), list(outlook.to_come)
    selectivity = list(outlook.selectivity)
    if part is not None:
        for join, matches in zip(parting.joins, part.matches, strict=True):
            n_other = max(1.0, rows[tree.edges[join].other(source)])
            selectivity[join] = max(matches, _UNSEEN) / n_other
    rows[source] *= max(now, _NOTHING)
    to_come[source] *= max(later, _NOTHING)
    return replace(
        outlook,
        now=World(rows, selectivity, tree),
        to_come=to_come,
        selectivity=selectivity,
        behind={},
        handled=outlook.spent,
    )


def _left_deep(planner: Planner, source: int, join: int, world: World) -> Forms:
    """The forms of a plan that begins with one join of a source and goes on as cheaply as it can."""
    mask, forms = 1 << source | 1 << planner.tree.edges[join].other(source), []
    while mask != planner.all_sources:
        _, (number, inside, outside) = min(
            (world.size(mask | 1 << step[2]), step) for step in planner.border(mask)
        )
        forms.append(Form(inside, number, mask))
        mask |= 1 << outside
    return frozenset(forms)


def _total(worlds: Sequence[Outlook], nothing: Outlook, forms: Sequence[Forms]) -> list[float]:
    """Tuples handled for each end, if each part has its forms; other sources' own rows count once."""
    alone = [nothing.costs(held) for held in forms]
    found = [max(costs) for costs in zip(*alone, strict=True)]
    for world, held, without in zip(worlds, forms, alone, strict=True):
        costs = world.costs(held)
        found = [sum(parts) for parts in zip(found, costs, (-c for c in without), strict=True)]
    return found


def _with_building(outlook: Outlook, forms: Forms, costs: Sequence[float]) -> list[float]:
    """`costs` for each end, and the price of the forms that are not held yet."""
    found = list(costs)
    for form in forms - outlook.held:
        found = [cost + price for cost, price in zip(found, outlook.prices(form), strict=True)]
    return found


def _price(outlook: Outlook, parting: Parting) -> float:
    """Tuples handled to take the rows apart: each is stored where it goes, looks for its partners
    there, and what it finds is stored at the other joins.
    """
    n_rows, price = outlook.now.rows[parting.source], 0.0
    for part in parting.parts:
        found = part.matches[parting.joins.index(part.choice)]
        price += part.now * n_rows * (2.0 + found * len(parting.joins))
    return price
