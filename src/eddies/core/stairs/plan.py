"""What to keep and where to go, by estimated cost.

*Forms.* What a STAIR holds is described by its *form*: the set of sources its tuples span. The smallest
form is its own source, the view of a SteM, which costs an entry of an index for each row if anybody
probes it, and nothing if nobody does. A larger form is an intermediate result
that is kept up to date and reused by everyone who probes it. The forms of a binary join tree (each
inner node is kept in the STAIR at the join above it) are a static plan; no forms at all are SteMs; a
part of the forms of a tree is what selective caching leaves.

*Routing* follows from forms: the cost to go from a signature T is the least, over its joins, of one
probe plus, for every match, the cost of producing it and of going on from the larger signature. One
rule keeps forms complete: a tuple inside a form C (T a proper part of C) must be joined within C first
and then go to the join where C is held, or a tuple of C that has no match elsewhere would never be
stored. Forms of one tree are nested or disjoint, so some way is always open.

*Estimates* take joins to be independent: the size of a joined set is the product of its rows and
selectivities. Costs are counted in tuples: stored, probing, produced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from eddies.core.join_tree import JoinTree
from eddies.core.kernels.planning import (
    Floats,
    Held,
    Numbers,
    Sets,
    Steps,
    lightest_trees,
    routes_of,
    sizes_of,
)
from eddies.core.kernels.weighing import Ahead, Offers, best_trees
from eddies.core.lineage import bits
from eddies.core.stairs.shape import MOST_SETS, numbers, shape_of

__all__ = ["MOMENTS", "Form", "Forms", "Planner", "Routing", "World", "moments"]

_MOST_FORMS = 4  # of which all subsets are considered
_MOST_TREES = 64  # that are remembered
MOMENTS = (0.21, 0.79)  # of what is to come, where costs are evaluated (Gauss)


class Form(NamedTuple):
    """The STAIR of `source` at join `join` holds tuples over the sources `mask`."""

    source: int
    join: int
    mask: int


Forms = frozenset[Form]


class World:
    """Sizes and selectivities at one moment, real or expected."""

    def __init__(self, rows: Sequence[float], selectivity: Sequence[float], tree: JoinTree) -> None:
        self.rows = rows
        self.selectivity = selectivity
        self._edges = [(1 << e.left | 1 << e.right, selectivity[e.number]) for e in tree.edges]
        self._sizes: dict[int, float] = {}

    def size(self, mask: int) -> float:
        """Tuples of the join of the sources in `mask`."""
        size = self._sizes.get(mask)
        if size is None:
            size = 1.0
            for source in bits(mask):
                size *= self.rows[source]
            for ends, selectivity in self._edges:
                if ends & ~mask == 0:
                    size *= selectivity
            self._sizes[mask] = size
        return size


class Planner:
    """Plans over one join tree. `is_able` says whether the tree is small enough to search."""

    def __init__(self, tree: JoinTree, n_sources: int) -> None:
        self.tree = tree
        self.all_sources = (1 << n_sources) - 1
        self._shape = shape_of(tuple((e.left, e.right) for e in tree.edges), n_sources)
        self._sets, self._numbers = self._shape.sets, self._shape.number_of
        self.is_able = len(self._sets) <= MOST_SETS and n_sources > 2
        self._trees: dict[bytes, Forms] = {}  # by where their sets are cut

    def border(self, mask: int) -> list[tuple[int, int, int]]:
        """Joins that lead out of `mask`: (join, source inside, source outside)."""
        return self._shape.border(mask)

    def beyond(self, form: Form) -> int:
        """The sources on the other side of the join where `form` is held."""
        return self._shape.beyond(form.join, form.source)

    @property
    def menus(self) -> dict[Any, Any]:
        """What `stairs.menu` has listed for trees of this shape."""
        return self._shape.menus

    @property
    def tables(self) -> tuple[Sets, Steps]:
        """The connected sets, and the joins that lead out of each, for kernels."""
        return self._shape.tables

    def sizes(self, world: World) -> Floats:
        """The sizes of all connected sets, by number."""
        found = np.empty(len(self._sets))
        rows, selectivity = np.asarray(world.rows, float), np.asarray(world.selectivity, float)
        sizes_of(self.tables[0], rows, selectivity, found)
        return found

    def held(self, choices: Sequence[Forms]) -> Held:
        """The forms of all `choices`, small ones first."""
        first, listed = [0], []
        for forms in choices:
            listed += sorted(forms, key=lambda form: (form.mask.bit_count(), form))
            first.append(len(listed))
        sets = [self._numbers[form.mask] for form in listed]
        sources, joins = [form.source for form in listed], [form.join for form in listed]
        return Held(*map(numbers, (first, sources, joins, sets)))

    def offers(self, forms: Sequence[Form]) -> Offers:
        """`forms` as something that could be made."""
        columns = [form.source for form in forms], [form.join for form in forms]
        sets = [self._numbers[form.mask] for form in forms]
        return Offers(*map(numbers, (*columns, sets, map(self.beyond, forms))))

    def number(self, mask: int) -> int:
        """The number of a connected set of sources."""
        return self._numbers[mask]

    def best_tree(self, weight: Mapping[int, float]) -> Forms:
        """The forms of the join tree whose inner nodes weigh least; `weight` is by set of sources."""
        return self.lightest_tree(np.array([weight.get(mask, 0.0) for mask in self._sets]))

    def lightest_tree(self, weight: Floats) -> Forms:
        """The same; `weight` is by number of a set."""
        cut = np.empty(weight.shape[0], dtype=np.int64)
        lightest_trees(self._shape.cuts[0], weight, cut)
        return self._tree_cut_at(cut)

    def best_trees(self, ahead: Ahead, held: Forms) -> list[Forms]:
        """For each stretch the tree with the least sum of future and building costs."""
        n_sets = len(self._sets)
        cut = np.empty(ahead.sizes.shape[0] - n_sets, dtype=np.int64)
        best_trees(self._shape.cuts[0], ahead, numbers([self._numbers[f.mask] for f in held]), cut)
        lines = (cut[at : at + n_sets] for at in range(0, cut.shape[0], n_sets))
        return [self._tree_cut_at(line) for line in lines]

    def _tree_cut_at(self, cut: Numbers) -> Forms:
        """The forms of a tree whose sets are cut like this. The same few trees are best again and
        again.
        """
        key = cut.tobytes()
        known = self._trees.get(key)
        if known is None:
            cuts, joins = self._shape.cuts
            forms = []
            for chosen in cut[cut >= 0].tolist():
                edge = self.tree.edges[joins[chosen]]
                for number in (int(cuts.left[chosen]), int(cuts.right[chosen])):
                    part = self._sets[number]
                    if part.bit_count() > 1:
                        source = edge.left if part >> edge.left & 1 else edge.right
                        forms.append(Form(source, edge.number, part))
            if len(self._trees) >= _MOST_TREES:
                self._trees.clear()
            known = self._trees[key] = frozenset(forms)
        return known

    def sets(self) -> list[int]:
        """Sets that can be inner nodes: connected, more than one source, not all of them."""
        return [m for m in self._sets if m.bit_count() > 1 and m != self.all_sources]

    def routing(self, forms: Forms, world: World) -> Routing:
        """How to route, and what that costs, if STAIRs have these forms."""
        return Routing(self, forms, world)

    def subsets(self, forms: Forms) -> Iterator[Forms]:
        """All parts of `forms`; for many forms, only nothing and everything and all but one."""
        listed = sorted(forms)
        if len(listed) > _MOST_FORMS:
            yield frozenset()
            yield forms
            yield from (forms - {form} for form in listed)
            return
        for n in range(len(listed) + 1):
            yield from (frozenset(chosen) for chosen in combinations(listed, n))

    def best_start(self, mask: int, world: World) -> tuple[float, int]:
        """The least cost of joining the sources of `mask` one by one, and the source to begin with."""
        return min((self.cost_from(source, mask, world), source) for source in bits(mask))

    def cost_from(self, source: int, target: int, world: World) -> float:
        """Tuples handled to join all rows of `source` with the rest of `target`, and to store them."""
        mask, cost = 1 << source, 0.0
        while mask != target:
            size, grown = min(
                (world.size(mask | 1 << outside), mask | 1 << outside)
                for _, _, outside in self.border(mask)
                if target >> outside & 1
            )
            cost += world.size(mask) + size
            mask = grown
        return cost + world.size(target)


class Routing:
    """The cheapest way from every signature, given what STAIRs hold."""

    def __init__(self, planner: Planner, forms: Forms, world: World) -> None:
        self._planner = planner
        self._held = {(form.source, form.join): form.mask for form in forms}
        self.forms = forms
        self._forms = sorted(forms, key=lambda form: form.mask.bit_count())
        sizes = planner.sizes(world)
        self._cost = np.empty(sizes.shape[0])
        self._step = np.empty(sizes.shape[0], dtype=np.int64)
        selectivity = np.asarray(world.selectivity, float)
        sets, self._steps = planner.tables
        routes_of(
            sets, self._steps, planner.held([forms]), 0, sizes, selectivity, self._cost, self._step
        )

    def allowed(self, mask: int) -> list[tuple[int, int, int]]:
        """Joins a tuple over `mask` may go to: inside the smallest form it is a part of; and when it
        spans that, to the join where it is held.
        """
        border = self._planner.border(mask)
        for form in self._forms:
            if mask == form.mask:
                return [step for step in border if step[0] == form.join]
            if mask & ~form.mask == 0:
                return [step for step in border if form.mask >> step[2] & 1]
        return border

    def cost(self, mask: int) -> float:
        """Expected tuples handled from `mask` on, for one tuple."""
        return float(self._cost[self._planner.number(mask)])

    def join(self, mask: int) -> int:
        """The join to go to."""
        return int(self._steps.join[self._step[self._planner.number(mask)]])

    def views(self, mask: int) -> Iterator[tuple[int, int]]:
        """The STAIRs, by source and join, that hold rows only and are probed on the way from `mask`."""
        while mask != self._planner.all_sources:
            edge = self._planner.tree.edges[self.join(mask)]
            outside = edge.right if mask >> edge.left & 1 else edge.left
            held = self._held.get((outside, edge.number))
            if held is None:
                yield outside, edge.number
            mask |= held or 1 << outside


def moments(
    rows: Sequence[float], to_come: Sequence[float], selectivity: Sequence[float], tree: JoinTree
) -> list[World]:
    """The world at a few moments of what is to come; their mean stands for all of it."""
    return [
        World([n + point * more for n, more in zip(rows, to_come, strict=True)], selectivity, tree)
        for point in MOMENTS
    ]
