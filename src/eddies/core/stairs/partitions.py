"""Whether data has horizontal partitions, and whether an order of its own for each part pays.

*A survey* of a source with several joins looks at a sample of its rows: what each would meet at each
join. If even the best choice for every single row would not spare much, there are no parts. Else one
half of the sample says by which values, or by which time of arrival, parts can be told (`regions`), and
the other half, which had no say in it, whether that is true: noise always looks like parts to those
rows that were searched for them. A glimpse, of few rows, comes first; it ends most surveys.

*The price* of either way is counted in tuples, as for forms. A part is a source of its own: it has the
matches of its rows, so many of them are there, so many will come. What the query costs is the sum over
parts, except that rows of the other sources come once only; they cost what they would if there were
nothing of the source. A part that goes to join j first has the forms of a left-deep plan that begins
there. The other way has the same forms for all parts: those that are held, none, or those of any part.
A tuple that is kept in parts takes longer than one that only probes (each insertion is checked against
what is there, Invariant B), so parts must spare several tuples for each that they handle.

Known limitations: one source is parted at a time; a part is one choice of join, whatever its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from eddies.core.batch import Ids
from eddies.core.stairs.chooser import GLIMPSE, STUDY, Care, Chooser
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Form, Forms, Planner, World
from eddies.core.stairs.regions import (
    MOST_DEPTH,
    Costs,
    Features,
    Leaf,
    Regions,
    choices,
    learn,
)
from eddies.core.stairs.statistics import Statistics

__all__ = ["Lack", "Part", "Parting", "pays", "share_to_pay", "survey"]

_FEWEST_ROWS = 512  # of a source before it is surveyed
_FEWEST_MATCHES = 0.25  # a row at its source's best join: below, no order costs much
_MOST_KEPT = 0.7  # of the matches at the best join for all that parts may leave
_MOST_KEPT_BY_ONE_CUT = 0.9  # the same at a glimpse, which looks for two parts
_CLEAR = 60  # matches counted at a glimpse; fewer say nothing
_MOST_COST = 0.85  # of what the rows to come would cost otherwise
_SLOWER = (
    3.5  # a tuple takes so many times as long where parts have orders of their own, as measured
)
_MORE_LATER = 0.8  # of a share of intermediate results that will have grown enough by and by
_LEAST_GAIN = 1.03  # all work without parts by all work with them, on average over the ends
_UNSEEN = 0.005  # matches of a row assumed where a part has none
_NOTHING = 1e-9  # of the rows: what is not there must not look as if it were known to have ended


class Lack(Enum):
    """What a survey missed: matches, of which there may be more when more rows have come, or parts."""

    MATCHES = "matches"
    PARTS = "parts"


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
    chooser: Chooser,
    n_rows: Sequence[int],
    statistics: Statistics,
    rng: np.random.Generator,
    *,
    has_drifted: bool = False,
) -> Parting | Lack:
    """The parts of a source, when so many rows of each source have come.

    Where a join matches little on average, all rows may go there first, and nothing is looked at;
    unless data `has_drifted`, and the latest rows may have little to do with the average.
    """
    if n_rows[chooser.source] < _FEWEST_ROWS:
        return Lack.MATCHES
    if not has_drifted and min(chooser.expected(statistics, n_rows)) < _FEWEST_MATCHES:
        return Lack.MATCHES
    rows, costs, matches = _look(chooser, n_rows, GLIMPSE, statistics, rng)
    is_clear = _n_seen(chooser, matches, n_rows, GLIMPSE) >= _CLEAR
    if is_clear and (lack := _lack(costs)) is not None:
        return lack
    if is_clear and _confirmed(chooser.features(rows), costs, 1, _MOST_KEPT_BY_ONE_CUT) is None:
        return Lack.PARTS
    rows, costs, matches = _look(chooser, n_rows, STUDY, statistics, rng)
    if (lack := _lack(costs)) is not None:
        return lack
    features = chooser.features(rows)
    regions = _confirmed(features, costs, MOST_DEPTH, _MOST_KEPT)
    if regions is None:
        return Lack.PARTS
    return _parting(chooser, n_rows[chooser.source], regions, features, matches)


def _look(
    chooser: Chooser,
    n_rows: Sequence[int],
    care: Care,
    statistics: Statistics,
    rng: np.random.Generator,
) -> tuple[Ids, Costs, Costs]:
    """Some rows, the tuples that come of each of them beyond each join, and what it meets there."""
    rows = chooser.sample(n_rows[chooser.source], care, rng)
    matches = chooser.matches(rows, n_rows, care, statistics, rng)
    return rows, matches * chooser.further(statistics, n_rows), matches


def _confirmed(features: Features, costs: Costs, depth: int, most_kept: float) -> Regions | None:
    """Regions that every second row says there are, if the others confirm that they spare enough."""
    regions = learn(_some(features, slice(0, None, 2)), costs[::2], most_depth=depth)
    if isinstance(regions, Leaf):
        return None
    unseen = costs[1::2]
    chosen = choices(regions, _some(features, slice(1, None, 2)), unseen.shape[0])
    kept = float(unseen[np.arange(unseen.shape[0]), chosen].sum())
    return regions if kept <= most_kept * float(unseen.sum(axis=0).min()) else None


def _parting(
    chooser: Chooser, n_own: int, regions: Regions, features: Features, matches: Costs
) -> Parting:
    """How many rows each part has and what they match, by the rows that only confirmed it."""
    chosen = choices(regions, features, matches.shape[0])
    n_latest = matches.shape[0] // 2
    coming = chooser.to_come(_some(features, slice(0, n_latest)), n_own)
    to_come = choices(regions, coming, n_latest)
    parts = []
    for choice in np.unique(chosen).tolist():
        is_here = chosen == choice
        believed = matches[1::2][is_here[1::2]]
        if not believed.shape[0]:
            believed = matches[is_here]
        now, later = float(is_here[n_latest:].mean()), float((to_come == choice).mean())
        by_join = tuple(believed.mean(axis=0).tolist())
        parts.append(Part(chooser.joins[choice].number, now, later, by_join))
    joins = tuple(edge.number for edge in chooser.joins)
    return Parting(chooser.source, regions, joins, tuple(parts))


def _lack(costs: Costs) -> Lack | None:
    """Why even the best join for every single row would not spare enough beside the best for all."""
    whole, ideal = float(costs.sum(axis=0).min()), float(costs.min(axis=1).sum())
    if whole <= _FEWEST_MATCHES * costs.shape[0]:
        return Lack.MATCHES
    return Lack.PARTS if ideal > _MOST_KEPT * whole else None


def _n_seen(chooser: Chooser, matches: Costs, n_rows: Sequence[int], care: Care) -> float:
    """Matches that were really counted, at the join that has fewest."""
    n_held = (n_rows[edge.other(chooser.source)] for edge in chooser.joins)
    shares = [min(1.0, care.n_held / max(1, n)) for n in n_held]
    return float((matches.sum(axis=0) * shares).min())


def _some(features: Features, chosen: slice) -> dict[str, npt.NDArray[np.int64]]:
    return {name: values[chosen] for name, values in features.items()}


def share_to_pay() -> float:
    """How many of all tuples must be intermediate results, at least, for parts to be likely to pay.
    These are what parts spare, once as found and once as probing; there may be more in future.
    """
    return _MORE_LATER * (1.0 - _MOST_COST / _SLOWER) / 2.0


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
    parted = [_SLOWER * (cost + price) for cost in _total(worlds, nothing, own)]
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
