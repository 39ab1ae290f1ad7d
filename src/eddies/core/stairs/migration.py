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
each wanted form is built in its STAIR, small ones first: the rows of the STAIR's source, a chunk at a
time, are promoted through the joins inside the form until they span it. A few chunks are one stage; the
next base batch is routed before the next stage. Between stages Invariants A and B hold like at any
other time, so results go on flowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eddies.core.batch import Ids
from eddies.core.lineage import Signature, bits
from eddies.core.stairs.operations import Stairs
from eddies.core.stairs.plan import Form, Forms, Planner, World, moments
from eddies.core.stairs.stair import Stair
from eddies.core.state.scratch import Scratch

__all__ = ["MIGRATIONS", "CostAware", "Greedy", "Migration", "MigrationPolicy", "Never", "Outlook"]

STAGE_ROWS = 32_768  # rows promoted between two base batches
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
    """Decides what STAIRs should hold. Must give nested or disjoint forms."""

    def decide(self, outlook: Outlook) -> Forms: ...


class Never:
    """Nothing but rows is kept: SteMs."""

    def decide(self, outlook: Outlook) -> Forms:
        return _NOTHING


class Greedy:
    """The best tree for the sizes of this moment, at any price.

    Worst case: it thrashes when estimates fluctuate, and moves everything just before the end.
    """

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


class Migration:
    """Takes the STAIRs of a query to `target` forms, stage by stage.

    Call `stage` at safe points until it returns True. `n_moved` and `n_made` count tuples.
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
        self._began = False

    def stage(self, scratch: Scratch, most_rows: int = STAGE_ROWS) -> bool:
        """Promote up to `most_rows` rows; True when everything is in place."""
        while self._waiting and most_rows > 0:
            form = self._waiting[-1]
            stair = self._stairs.stair(form.source, form.join)
            if not self._began:
                stair.materialise()
                self._began = True
            most_rows -= self._grow(stair, form, most_rows, scratch)
            if stair.is_view and stair.is_open:  # there was no room
                self._waiting.pop()
                self._began = False
                continue
            if all(signature.sources == form.mask for signature in stair.pools):
                stair.form = form.mask if stair.is_open else 0
                self.held |= {form}
                self._waiting.pop()
                self._began = False
        return not self._waiting

    def _grow(self, stair: Stair, form: Form, most_rows: int, scratch: Scratch) -> int:
        """Promote rows of the STAIR's source until they span the form; returns how many rows."""
        base = [s for s in stair.pools if s.sources == 1 << form.source]
        n_taken = 0
        for signature in base:
            rows = stair.pools[signature].live_rows()[: most_rows - n_taken]
            n_taken += rows.shape[0]
            if rows.shape[0]:
                self._promote(stair, signature, form, scratch, rows)
        while True:
            partial = [s for s in stair.pools if s.sources not in (1 << form.source, form.mask)]
            if not partial:
                return max(1, n_taken)
            for signature in partial:
                if signature.sources & ~form.mask:
                    kept = signature.sources & form.mask
                    self._stairs.demote(stair, signature, kept, scratch)
                elif signature in stair.pools:
                    self._promote(stair, signature, form, scratch, None)

    def _promote(
        self, stair: Stair, signature: Signature, form: Form, scratch: Scratch, rows: Ids | None
    ) -> None:
        inside = [
            step for step in self._planner.border(signature.sources) if form.mask >> step[2] & 1
        ]
        join, source, _ = min(
            inside, key=lambda step: self._world.size(signature.sources | 1 << step[2])
        )
        pool = stair.pools[signature]
        self.n_moved += pool.n_live if rows is None else rows.shape[0]
        to = self._stairs.stair(source, join)
        self.n_made += self._stairs.promote(stair, signature, to, scratch, rows)

    def name(self) -> str:
        """What is moved, in words."""
        graph = self._stairs.graph
        parts = []
        for form in sorted(self.target, key=lambda f: f.mask):
            sources = "⋈".join(graph.roles[s].name for s in bits(form.mask))
            parts.append(f"{self._stairs.stair(form.source, form.join).name}={sources}")
        return ", ".join(parts) or "rows only"
