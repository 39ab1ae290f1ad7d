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
from dataclasses import dataclass
from itertools import combinations

from eddies.core.join_tree import JoinTree
from eddies.core.lineage import bits

__all__ = ["Form", "Forms", "Planner", "Routing", "World", "moments"]

MOST_SETS = 600  # connected sets of sources up to which plans are searched
_MOST_FORMS = 4  # of which all subsets are considered
_POINTS = (0.21, 0.79)  # of what is to come, where costs are evaluated (Gauss)


@dataclass(frozen=True, slots=True)
class Form:
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
        self._ends = [1 << e.left | 1 << e.right for e in tree.edges]
        self._sets = self._connected_sets()
        self.is_able = len(self._sets) <= MOST_SETS and n_sources > 2
        self._splits = {m: list(self._split(m)) for m in self._sets} if self.is_able else {}
        self._borders: dict[int, list[tuple[int, int, int]]] = {}
        self._beyond: dict[tuple[int, int], int] = {}  # by join and source

    def _connected_sets(self) -> list[int]:
        """Connected sets of sources, small ones first; a few too many if there are too many."""
        found = {1 << s for s in bits(self.all_sources)}
        waiting = list(found)
        while waiting and len(found) <= MOST_SETS:
            mask = waiting.pop()
            for ends in self._ends:
                grown = mask | ends
                if ends & mask and grown not in found:
                    found.add(grown)
                    waiting.append(grown)
        return sorted(found, key=lambda mask: mask.bit_count())

    def _split(self, mask: int) -> Iterator[tuple[int, int, int]]:
        """Ways to cut a connected set at a join: (join, left part, right part)."""
        inside = [(n, ends) for n, ends in enumerate(self._ends) if ends & ~mask == 0]
        for number, _ in inside:
            edge = self.tree.edges[number]
            left = 1 << edge.left
            while True:
                grown = left
                for other, ends in inside:
                    if other != number and ends & grown:
                        grown |= ends
                if grown == left:
                    break
                left = grown
            yield number, left, mask & ~left

    def border(self, mask: int) -> list[tuple[int, int, int]]:
        """Joins that lead out of `mask`: (join, source inside, source outside)."""
        found = self._borders.get(mask)
        if found is None:
            found = self._borders[mask] = []
            for edge in self.tree.edges:
                left, right = mask >> edge.left & 1, mask >> edge.right & 1
                if left and not right:
                    found.append((edge.number, edge.left, edge.right))
                elif right and not left:
                    found.append((edge.number, edge.right, edge.left))
        return found

    def beyond(self, form: Form) -> int:
        """The sources on the other side of the join where `form` is held."""
        known = self._beyond.get((form.join, form.source))
        if known is None:
            known = self._beyond[form.join, form.source] = self._reached(
                1 << self.tree.edges[form.join].other(form.source), form.join
            )
        return known

    def _reached(self, mask: int, without: int) -> int:
        """All sources that are joined with those in `mask`, except by the join `without`."""
        while True:
            grown = mask
            for number, ends in enumerate(self._ends):
                if number != without and ends & grown:
                    grown |= ends
            if grown == mask:
                return mask
            mask = grown

    def best_tree(self, weight: Mapping[int, float]) -> Forms:
        """The forms of the join tree whose inner nodes weigh least; `weight` is by set of sources."""
        cost: dict[int, float] = {}
        cut: dict[int, tuple[int, int, int]] = {}
        for mask in self._sets:
            if mask.bit_count() == 1:
                cost[mask] = 0.0
                continue
            least, where = min(
                (cost[left] + cost[right], (number, left, right))
                for number, left, right in self._splits[mask]
            )
            cost[mask] = least + weight.get(mask, 0.0)
            cut[mask] = where
        forms = []
        waiting = [self.all_sources]
        while waiting:
            number, left, right = cut[waiting.pop()]
            edge = self.tree.edges[number]
            for part in (left, right):
                if part.bit_count() > 1:
                    source = edge.left if part >> edge.left & 1 else edge.right
                    forms.append(Form(source, number, part))
                    waiting.append(part)
        return frozenset(forms)

    def sets(self) -> list[int]:
        """Sets that can be inner nodes: connected, more than one source, not all of them."""
        return [m for m in self._sets if m.bit_count() > 1 and m != self.all_sources]

    def routing(self, forms: Forms, world: World) -> Routing:
        """How to route, and what that costs, if STAIRs have these forms."""
        return Routing(self, forms, world)

    def subsets(self, forms: Forms) -> Iterator[Forms]:
        """All parts of `forms`; for many forms, only nothing and everything and all but one."""
        listed = sorted(forms, key=lambda form: (form.mask, form.join, form.source))
        if len(listed) > _MOST_FORMS:
            yield frozenset()
            yield forms
            yield from (forms - {form} for form in listed)
            return
        for n in range(len(listed) + 1):
            yield from (frozenset(chosen) for chosen in combinations(listed, n))

    def build_cost(self, form: Form, world: World) -> float:
        """Tuples handled to make all tuples of `form` from rows, from the best source to begin with."""
        return self.best_start(form.mask, world)[0]

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
        self._world = world
        self._held = {(form.source, form.join): form.mask for form in forms}
        self._forms = sorted(forms, key=lambda form: form.mask.bit_count())
        self._cost: dict[int, float] = {planner.all_sources: 0.0}
        self._join: dict[int, int] = {}

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
        known = self._cost.get(mask)
        if known is not None:
            return known
        best, chosen = float("inf"), -1
        for join, inside, outside in self.allowed(mask):
            held = self._held.get((outside, join), 1 << outside)
            n_matches = self._world.size(held) * self._world.selectivity[join]
            cost = 1.0 + n_matches * (1.0 + self.cost(mask | held))
            if self._held.get((inside, join)) == mask:
                cost += 1.0
            if cost < best:
                best, chosen = cost, join
        self._cost[mask], self._join[mask] = best, chosen
        return best

    def join(self, mask: int) -> int:
        """The join to go to."""
        self.cost(mask)
        return self._join[mask]

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
        for point in _POINTS
    ]
