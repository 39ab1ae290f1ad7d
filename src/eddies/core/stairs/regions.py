"""Which join suits which rows: a small decision tree, learned from the rows themselves.

Where data has horizontal partitions, no one order is good for all rows of a source. Rows that arrive at
the same time often belong together, and so may rows with like values. Both are questions about a row:
its number of arrival and its stored columns. For a sample of rows the matches at each join are counted
(in a sample of the other side); the tree splits at the value that leaves the fewest expected
intermediate tuples when each part takes its own best join, as long as that gains enough. This is the
content-based routing that the paper leaves open, and its windowed policy is the case in which arrival
is the only question.

Rows that arrive later than everything sampled fall into the part of the latest rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.sampling import best_cut

__all__ = [
    "ARRIVAL",
    "Costs",
    "Features",
    "Leaf",
    "Regions",
    "Split",
    "choices",
    "describe",
    "learn",
]

ARRIVAL = "arrival"
MOST_DEPTH = 3
_FEWEST_ROWS = 24  # of a sample in a part
_LEAST_GAIN = 0.10  # of the expected tuples of the whole sample, for a split to be made

Features = Mapping[str, npt.NDArray[np.int64]]
Costs = npt.NDArray[np.float64]  # tuples expected of each row (line) at each join (column)


@dataclass(frozen=True, slots=True)
class Leaf:
    """Rows that go to join number `choice` (a position among the joins compared)."""

    choice: int


@dataclass(frozen=True, slots=True)
class Split:
    """Rows with `name` up to `value` to the left, the others to the right."""

    name: str
    value: int
    left: Regions
    right: Regions


Regions = Leaf | Split


def learn(
    features: Features, costs: Costs, now: Regions | None = None, most_depth: int = MOST_DEPTH
) -> Regions:
    """The tree for rows with these features and costs. Ties are decided for what is in force."""
    total = float(costs.sum(axis=0).min()) if costs.shape[0] else 0.0
    default = now.choice if isinstance(now, Leaf) else 0
    return _grow(features, costs, max(total, 1.0), most_depth, default)


def _grow(features: Features, costs: Costs, total: float, depth: int, default: int) -> Regions:
    sums = costs.sum(axis=0)
    leaf = Leaf(_lowest(sums, default))
    is_cheap = float(sums[leaf.choice]) <= _LEAST_GAIN * total  # then no split can gain enough
    if depth == 0 or costs.shape[0] < 2 * _FEWEST_ROWS or is_cheap:
        return leaf
    best_cost, best = float(sums[leaf.choice]) - _LEAST_GAIN * total, None
    for name, values in features.items():
        cost, value = _best_cut(values, costs)
        if cost < best_cost:
            best_cost, best = cost, (name, value)
    if best is None:
        return leaf
    name, value = best
    is_left = features[name] <= value
    parts = []
    for chosen in (is_left, ~is_left):
        part = {n: v[chosen] for n, v in features.items()}
        parts.append(_grow(part, costs[chosen], total, depth - 1, leaf.choice))
    return Split(name, value, parts[0], parts[1])


def _lowest(sums: npt.NDArray[np.float64], default: int) -> int:
    choice = int(sums.argmin())
    return default if sums[default] <= sums[choice] else choice


def _best_cut(values: npt.NDArray[np.int64], costs: Costs) -> tuple[float, int]:
    """The least cost of cutting at a value, and the value."""
    order = np.argsort(values)
    ordered = values[order]
    cost = np.empty(1)
    place = best_cut(ordered, costs[order].ravel(), max(1, _FEWEST_ROWS), cost)
    return (float("inf"), 0) if place < 0 else (float(cost[0]), int(ordered[place]))


def choices(regions: Regions, features: Features, n_rows: int) -> npt.NDArray[np.int64]:
    """For each row the choice of its part."""
    if isinstance(regions, Leaf):
        return np.full(n_rows, regions.choice, dtype=np.int64)
    is_left = features[regions.name] <= regions.value
    left, right = (
        part.choice if isinstance(part, Leaf) else choices(part, features, n_rows)
        for part in (regions.left, regions.right)
    )
    return np.where(is_left, left, right)


def describe(regions: Regions, joins: Sequence[str]) -> str:
    """The tree in one line."""
    if isinstance(regions, Leaf):
        return joins[regions.choice]
    left, right = describe(regions.left, joins), describe(regions.right, joins)
    return f"({regions.name} <= {regions.value} ? {left} : {right})"
