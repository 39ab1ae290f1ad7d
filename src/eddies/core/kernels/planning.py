"""Costs of keeping intermediate results: the arithmetic behind `stairs.plan` and `stairs.outlook`.

A look at the future weighs a dozen choices of forms in a few worlds, and each of them means the
cheapest way from every connected set of sources. In Python that took half a millisecond, as long as a
thousand rows take to be joined. Sets of sources go by number, small sets first; what depends on the
join tree alone is worked out once (`Sets`, `Steps`).

A choice of forms is a part of `Held`: the forms `first[c]` to `first[c + 1]`, small ones first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from eddies.core.kernels.jit import f64, i64, inlined, kernel, ro, rw, u8

__all__ = [
    "Cuts",
    "Floats",
    "Held",
    "Numbers",
    "Sets",
    "Steps",
    "lightest_trees",
    "prices_of",
    "routes_of",
    "sizes_of",
]

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Sets(NamedTuple):
    """Connected sets of sources: set `i` has the sources `mask[i]`, and the last one has all.

    A set of more than one is the set `smaller[i]` and the source `leaf[i]`, joined by `join[i]`. Of the
    sets in the order of their masks the k-th is `by_mask[k]`. The set of source s alone is `single[s]`.
    """

    mask: Numbers
    smaller: Numbers
    leaf: Numbers
    join: Numbers
    by_mask: Numbers
    single: Numbers


class Steps(NamedTuple):
    """Joins that lead out of set i: those from `first[i]` to `first[i + 1]`. Step k goes by `join[k]`
    from a source `inside[k]` to a source `outside[k]`; with that source the set is `to[k]`. Join j is
    between the sources `ends[2 * j]` and `ends[2 * j + 1]`.
    """

    first: Numbers
    join: Numbers
    inside: Numbers
    outside: Numbers
    to: Numbers
    ends: Numbers


class Cuts(NamedTuple):
    """Ways to cut set i in two at a join: those from `first[i]` to `first[i + 1]`."""

    first: Numbers
    left: Numbers
    right: Numbers


class Held(NamedTuple):
    """Forms of all choices: the STAIR of `source` at `join` holds tuples over the set `form`."""

    first: Numbers
    source: Numbers
    join: Numbers
    form: Numbers


_floats = ro(f64)
SETS = types.NamedUniTuple(rw(i64), 6, Sets)
STEPS = types.NamedUniTuple(rw(i64), 6, Steps)
CUTS = types.NamedUniTuple(rw(i64), 3, Cuts)
HELD = types.NamedUniTuple(rw(i64), 4, Held)


@kernel(types.void(SETS, _floats, _floats, rw(f64)))
def sizes_of(sets: Sets, rows: Floats, selectivity: Floats, sizes: Floats) -> None:
    """Tuples of the join of each set. `rows` (by source) and `sizes` have those of all worlds one after
    the other.
    """
    n_sets, n_sources = sets.mask.shape[0], sets.single.shape[0]
    for world in range(rows.shape[0] // n_sources):
        here, now = world * n_sets, world * n_sources
        for i in range(n_sets):
            size = rows[now + sets.leaf[i]]
            if sets.smaller[i] >= 0:
                size *= sizes[here + sets.smaller[i]] * selectivity[sets.join[i]]
            sizes[here + i] = size


@inlined
def number_of(sets: Sets, mask: int) -> int:
    """The set that has these sources; there must be one."""
    low, high = 0, sets.mask.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if sets.mask[sets.by_mask[middle]] < mask:
            low = middle + 1
        else:
            high = middle
    return sets.by_mask[low]


@kernel(types.void(SETS, STEPS, HELD, i64, _floats, _floats, rw(f64), rw(i64)))
def routes_of(
    sets: Sets,
    steps: Steps,
    held: Held,
    choice: int,
    sizes: Floats,
    selectivity: Floats,
    cost: Floats,
    step: Numbers,
) -> None:
    """From each set: tuples handled to the end for one tuple, and the step to begin with (-1: none).

    A step costs one probe, one more if the tuple is stored there, and for every match one and what
    comes after. A tuple inside a form goes on inside it, and when it spans that, to its join.
    """
    first, last = held.first[choice], held.first[choice + 1]
    whole = sets.mask.shape[0] - 1
    cost[whole] = 0.0
    step[whole] = -1
    for i in range(whole - 1, -1, -1):
        mask = sets.mask[i]
        around = -1
        for f in range(first, last):
            if mask & ~sets.mask[held.form[f]] == 0:
                around = f
                break
        best = np.inf
        chosen = -1
        for k in range(steps.first[i], steps.first[i + 1]):
            join, inside, outside = steps.join[k], steps.inside[k], steps.outside[k]
            if around >= 0:
                if held.form[around] == i:
                    if join != held.join[around]:
                        continue
                elif not sets.mask[held.form[around]] >> outside & 1:
                    continue
            size, to, value = sizes[sets.single[outside]], steps.to[k], 1.0
            for f in range(first, last):
                if held.join[f] != join:
                    continue
                if held.source[f] == outside:
                    size = sizes[held.form[f]]
                    to = number_of(sets, mask | sets.mask[held.form[f]])
                elif held.source[f] == inside and held.form[f] == i:
                    value += 1.0
            n_matches = size * selectivity[join]
            if n_matches > 0.0:
                value += n_matches * (1.0 + cost[to])
            if value < best:
                best, chosen = value, k
        cost[i] = best
        step[i] = chosen


@kernel(types.void(SETS, STEPS, HELD, _floats, _floats, _floats, rw(f64), rw(u8)))
def prices_of(
    sets: Sets,
    steps: Steps,
    held: Held,
    sizes: Floats,
    selectivity: Floats,
    n_rows: Floats,
    prices: Floats,
    is_view: npt.NDArray[np.uint8],
) -> None:
    """What rows cost by choice and world, and which STAIRs must be indexed as views in the first world.

    `sizes` and `n_rows` (by source) have those of all worlds one after the other, `prices` has one
    entry for each choice and world, and `is_view` one for each choice and STAIR, in the order of
    `Steps.ends`.
    """
    n_sets, n_sources = sets.mask.shape[0], sets.single.shape[0]
    n_worlds = n_rows.shape[0] // n_sources
    n_stairs = steps.ends.shape[0]
    cost = np.empty(n_sets, np.float64)
    step = np.empty(n_sets, np.int64)
    probed = np.empty(n_stairs, np.uint8)
    for choice in range(held.first.shape[0] - 1):
        for world in range(n_worlds):
            now = sizes[world * n_sets : (world + 1) * n_sets]
            coming = n_rows[world * n_sources : (world + 1) * n_sources]
            routes_of(sets, steps, held, choice, now, selectivity, cost, step)
            probed[:] = 0
            price = 0.0
            for source in range(n_sources):
                if coming[source] == 0.0:
                    continue
                i = sets.single[source]
                price += coming[source] * cost[i]
                while step[i] >= 0:
                    k = step[i]
                    join, outside, to = steps.join[k], steps.outside[k], steps.to[k]
                    for f in range(held.first[choice], held.first[choice + 1]):
                        if held.join[f] == join and held.source[f] == outside:
                            to = number_of(sets, sets.mask[i] | sets.mask[held.form[f]])
                    if to == steps.to[k]:
                        probed[2 * join + (steps.ends[2 * join + 1] == outside)] = 1
                    i = to
            for stair in range(n_stairs):
                if probed[stair]:
                    price += coming[steps.ends[stair]]
            prices[choice * n_worlds + world] = price
            if world == 0:
                is_view[choice * n_stairs : (choice + 1) * n_stairs] = probed


@kernel(types.void(CUTS, _floats, rw(i64)))
def lightest_trees(cuts: Cuts, weight: Floats, cut: Numbers) -> None:
    """Where to cut the sets of a tree so that all its sets together weigh least; -1 for sets that are
    no part of the tree, and for single sources. `weight` and `cut` have those of all trees one after
    the other.
    """
    n_sets = cuts.first.shape[0] - 1
    least = np.empty(n_sets, np.float64)
    for tree in range(weight.shape[0] // n_sets):
        here = tree * n_sets
        for i in range(n_sets):
            cut[here + i] = -1
            least[i] = 0.0
            best = np.inf
            for k in range(cuts.first[i], cuts.first[i + 1]):
                value = least[cuts.left[k]] + least[cuts.right[k]]
                if value < best:
                    best = value
                    cut[here + i] = k
            if cut[here + i] >= 0:
                least[i] = best + weight[here + i]
        is_part = np.zeros(n_sets, np.uint8)
        is_part[n_sets - 1] = 1
        for i in range(n_sets - 1, -1, -1):  # what is cut comes before its parts
            k = cut[here + i]
            if k < 0:
                continue
            if is_part[i]:
                is_part[cuts.left[k]] = is_part[cuts.right[k]] = 1
            else:
                cut[here + i] = -1
