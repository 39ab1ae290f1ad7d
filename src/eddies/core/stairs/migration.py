"""State migration: from what STAIRs hold to what they should hold, at points of stasis, in stages.

Who decides is a `MigrationPolicy`; it sees an `Outlook` (sizes, selectivities, what is to come) and
answers with forms.

* `Greedy` is the paper's (section 4.3): whenever the best join tree by present sizes is another, move
  at once and entirely, whatever it costs.
* `CostAware` weighs: rewriting pays only if the rows still to come save more than it costs. Near the
  end little is to come, so nothing is moved for nothing. It may also keep a part of a tree, or nothing
  at all (SteMs), and it backs off: whoever undoes an earlier move must promise twice as much each time.
* `Never` leaves history alone.

A `Migration` does the moving. Forms no longer wanted become views of SteMs first, which is free. Then
each wanted form is built, small ones first. In the paper's terms that is a demotion of everything to
rows and a bulk promotion: the result is the state as if the new routing had always been in force. Rows
of one source of the form, the one from which it takes fewest tuples, are joined with the others chunk
by chunk; a chunk is a stage, and base batches are routed in between. Until the last stage the STAIR
goes on as a view, and keeps aside the tuples of the form that new rows make; old ones are those of rows
below the *mark*, the number of rows of each source when the building began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eddies.core.lineage import bits
from eddies.core.stairs.operations import Stairs
from eddies.core.stairs.plan import Form, Forms, Planner, World, moments
from eddies.core.stairs.stair import Stair, Tuples
from eddies.core.state.scratch import Scratch

__all__ = ["MIGRATIONS", "CostAware", "Greedy", "Migration", "MigrationPolicy", "Never", "Outlook"]

STAGE_ROWS = 32_768  # rows joined between two base batches
_NOTHING: Forms = frozenset()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a migration policy sees."""

    planner: Planner
    now: World
    to_come: Sequence[float]  # rows, by source
    selectivity: Sequence[float]
    held: Forms
    ended: int  # sources that are complete, as a mask

    def moments(self) -> list[World]:
        """The world at a few moments of what is to come."""
        return moments(self.now.rows, self.to_come, self.selectivity, self.planner.tree)

    def cost(self, forms: Forms, worlds: Sequence[World]) -> float:
        """Tuples handled for the rows to come, if STAIRs have these forms."""
        total = 0.0
        for world in worlds:
            routing = self.planner.routing(forms, world)
            for source, n_rows in enumerate(self.to_come):
                if n_rows:
                    total += n_rows * routing.cost(1 << source)
        return total / len(worlds)

    def build_cost(self, forms: Forms) -> float:
        """Tuples handled to make what is not held yet."""
        return sum(self.planner.build_cost(form, self.now) for form in forms - self.held)


class MigrationPolicy(Protocol):
    """Decides what STAIRs should hold. Must give nested or disjoint forms.

    It is asked again when the rows seen have grown by the factor `growth`.
    """

    growth: float

    def decide(self, outlook: Outlook) -> Forms: ...


class Never:
    """Nothing but rows is kept: SteMs."""

    growth = 1.5

    def decide(self, outlook: Outlook) -> Forms:
        return _NOTHING


class Greedy:
    """The best tree for the sizes of this moment, at any price.

    Worst case: it thrashes when estimates fluctuate, and moves everything just before the end.
    """

    growth = 1.02

    def decide(self, outlook: Outlook) -> Forms:
        weight = {mask: outlook.now.size(mask) for mask in outlook.planner.sets()}
        return outlook.planner.best_tree(weight)


class CostAware:
    """Moves if that pays for itself by the rows to come.

    Looks at: the tree with the least sum of future and building costs, every part of it, what is held
    now, every part of that, and nothing.
    Hesitates: a move must save `MARGIN` of the cost to come besides its own price; a form that was
    dropped before must promise twice its price, then four times, and so on.
    Worst case: estimates assume independent joins; where they mislead, it may hold a form that does not
    pay, at the cost of one stored tuple for each produced.
    """

    MARGIN = 0.03
    growth = 1.15

    def __init__(self) -> None:
        self._dropped: dict[int, int] = {}  # how often a form over these sources was given up

    def decide(self, outlook: Outlook) -> Forms:
        if not any(outlook.to_come):
            return outlook.held
        worlds = outlook.moments()
        kept = outlook.cost(outlook.held, worlds)
        best, best_cost = outlook.held, kept * (1.0 - self.MARGIN)
        for forms in self._candidates(outlook):
            cost = outlook.cost(forms, worlds) + self._price(outlook, forms)
            if cost < best_cost:
                best, best_cost = forms, cost
        for form in outlook.held - best:
            self._dropped[form.mask] = self._dropped.get(form.mask, 0) + 1
        return best

    def _candidates(self, outlook: Outlook) -> set[Forms]:
        planner = outlook.planner
        later = outlook.moments()[-1]
        held = {form.mask for form in outlook.held}
        weight = {}
        for mask in planner.sets():
            now = outlook.now.size(mask)
            weight[mask] = 3.0 * (later.size(mask) - now) + (0.0 if mask in held else 2.0 * now)
        found = set(planner.subsets(planner.best_tree(weight)))
        found |= set(planner.subsets(outlook.held))
        return {frozenset(form for form in forms if _is_probed(outlook, form)) for forms in found}

    def _price(self, outlook: Outlook, forms: Forms) -> float:
        return sum(
            outlook.planner.build_cost(form, outlook.now)
            * 2.0 ** min(8, self._dropped.get(form.mask, 0))
            for form in forms - outlook.held
        )


def _is_probed(outlook: Outlook, form: Form) -> bool:
    """Whether any source beyond the form's join may still bring somebody who probes it."""
    tree = outlook.planner.tree
    beyond = 1 << tree.edges[form.join].other(form.source)
    while True:
        grown = beyond
        for edge in tree.edges:
            ends = 1 << edge.left | 1 << edge.right
            if edge.number != form.join and ends & grown:
                grown |= ends
        if grown == beyond:
            return bool(beyond & ~outlook.ended)
        beyond = grown


MIGRATIONS: dict[str, type[MigrationPolicy]] = {
    "cost-aware": CostAware,
    "greedy": Greedy,
    "never": Never,
}


@dataclass(slots=True)
class _Building:
    """A form under construction: the source its rows are joined from, and how far that is."""

    start: int
    mark: list[int]
    position: int = 0
    made: list[Tuples] = field(default_factory=list)


class Migration:
    """Takes the STAIRs of a query to `target` forms, stage by stage.

    Call `stage` at safe points until it returns True. `n_moved` counts rows that were joined anew,
    `n_made` the tuples that came of them.
    """

    def __init__(
        self, stairs: Stairs, planner: Planner, held: Forms, target: Forms, world: World
    ) -> None:
        self._stairs = stairs
        self._planner = planner
        self._world = world
        self.target = target
        self.held = held & target
        self.n_moved = 0
        self.n_made = 0
        for form in held - target:
            stairs.demote_to_rows(stairs.stair(form.source, form.join))
        self._waiting = sorted(target - held, key=lambda form: form.mask.bit_count(), reverse=True)
        self._building: _Building | None = None

    def stage(self, scratch: Scratch, most_rows: int = STAGE_ROWS) -> bool:
        """Join up to `most_rows` rows; True when everything is in place."""
        while self._waiting and most_rows > 0:
            form = self._waiting[-1]
            stair = self._stairs.stair(form.source, form.join)
            if self._building is None:
                _, start = self._planner.best_start(form.mask, self._world)
                self._building = _Building(start, list(self._stairs.history.routed))
                stair.build(form.mask)
            most_rows -= self._advance(self._building, form, most_rows, scratch)
            building = self._building
            if building.position >= building.mark[building.start]:
                stair.adopt(building.made)
                if stair.form == form.mask:
                    self.held |= {form}
                self._building = None
                self._waiting.pop()
        return not self._waiting

    def _advance(self, building: _Building, form: Form, most_rows: int, scratch: Scratch) -> int:
        """Join the next rows of the first source with the others; returns how many rows."""
        stop = min(building.position + most_rows, building.mark[building.start])
        tuples = self._stairs.rows(building.start, building.position, stop)
        n_rows = stop - building.position
        building.position = stop
        self.n_moved += tuples.n_rows
        unfinished = [tuples] if tuples.n_rows else []
        while unfinished:
            part = unfinished.pop()
            if part.signature.sources == form.mask:
                building.made.append(part)
                self.n_made += part.n_rows
                continue
            own = self._next(part.signature.sources, form)
            unfinished += self._stairs.joined(part, own, scratch, building.mark)
        return max(1, n_rows)

    def _next(self, mask: int, form: Form) -> Stair:
        """The STAIR of a source in `mask` at the join inside `form` that makes fewest tuples."""
        join, inside, _ = min(
            (step for step in self._planner.border(mask) if form.mask >> step[2] & 1),
            key=lambda step: self._world.size(mask | 1 << step[2]),
        )
        return self._stairs.stair(inside, join)

    def name(self) -> str:
        """What is moved, in words."""
        graph = self._stairs.graph
        parts = []
        for form in sorted(self.target, key=lambda f: f.mask):
            sources = "⋈".join(graph.roles[s].name for s in bits(form.mask))
            parts.append(f"{self._stairs.stair(form.source, form.join).name}={sources}")
        return ", ".join(parts) or "rows only"
