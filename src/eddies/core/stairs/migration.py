"""State migration: from what STAIRs hold to what they should hold, at points of stasis, in stages.

Who decides is a `MigrationPolicy`; it sees an `Outlook` (sizes, selectivities, what is to come) and
answers with forms.

* `Greedy` is the paper's (section 4.3): whenever the best join tree by present sizes is another, move
  at once and entirely, whatever it costs.
* `CostAware` weighs: rewriting pays only if the rows still to come save more than it costs, and how
  many they are is uncertain (`outlook`). What is dear is made on demand (`expansion`), so that little
  is lost if the end is near. It may also keep a part of a tree, or nothing at all (SteMs), and it backs
  off: whoever undoes an earlier move must promise twice as much each time.
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

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from eddies.core.kernels.weighing import Caution, weigh
from eddies.core.lineage import bits
from eddies.core.stairs.expansion import Expansion, next_inside
from eddies.core.stairs.menu import Menu, Menus
from eddies.core.stairs.operations import Stairs
from eddies.core.stairs.outlook import STAKE, Outlook
from eddies.core.stairs.pace import Pace
from eddies.core.stairs.plan import Form, Forms, Planner, World
from eddies.core.stairs.stair import Tuples
from eddies.core.state.scratch import Scratch

__all__ = ["MIGRATIONS", "CostAware", "Greedy", "Migration", "MigrationPolicy", "Never"]

STAGE_ROWS = 32_768  # rows joined between two base batches
_NOTHING: Forms = frozenset()


class MigrationPolicy(Protocol):
    """Decides what STAIRs should hold. Must give nested or disjoint forms.

    It is asked again when the rows seen have grown by the factor `growth`, and the rows that came since
    cost about `stride` tuples: to ask costs something, too.
    """

    growth: float
    stride: float
    on_demand: bool  # whether forms are made row by row when they are needed, or all at once

    def decide(self, outlook: Outlook) -> Forms: ...

    def gave_up(self, forms: Forms) -> None:
        """There was no room for `forms`."""


class Never:
    """Nothing but rows is kept: SteMs."""

    growth = 1.5
    stride = 0.0
    on_demand = False

    def decide(self, outlook: Outlook) -> Forms:
        return _NOTHING

    def gave_up(self, forms: Forms) -> None:
        pass


class Greedy:
    """The best tree for the sizes of this moment, at any price.

    Worst case: it thrashes when estimates fluctuate, and moves everything just before the end.
    """

    growth = 1.02
    stride = 0.0
    on_demand = False

    def decide(self, outlook: Outlook) -> Forms:
        weight = {mask: outlook.now.size(mask) for mask in outlook.planner.sets()}
        return outlook.planner.best_tree(weight)

    def gave_up(self, forms: Forms) -> None:
        pass


class CostAware:
    """Moves if that pays for itself by the rows to come, whatever their number.

    Looks at: for each end that is likely (`outlook`), the tree with the least sum of future and
    building costs, every part of it, what is held now, every part of that, and nothing.
    Chooses: what is least dearer than the best would have been, on average over the ends.
    Hesitates: a move must gain `MARGIN` of all work; it must pay if the middle end comes true, and if
    its forms are dear (made on demand) `CAUTION` of their price besides; a form that was dropped
    before, also for want of room, must promise twice its price, then four times, and so on.
    Worst case: estimates assume independent joins; where they mislead, it may hold a form that does not
    pay, at the cost of one stored tuple for each produced.
    """

    MARGIN = 0.01
    CAUTION = 0.5
    growth = 1.15
    stride = 150_000.0
    on_demand = True

    def __init__(self) -> None:
        self._dropped: dict[int, int] = {}  # how often a form over these sources was given up
        self._menus: Menus | None = None

    def decide(self, outlook: Outlook) -> Forms:
        if not any(outlook.to_come):
            return outlook.held
        menu = self._menu(outlook)
        sets, steps = outlook.planner.tables
        ahead = outlook.ahead
        # How many times its price each new form must promise.
        back_off = np.array([2.0 ** min(8, self._dropped.get(f.mask, 0)) for f in menu.new])
        caution = Caution(outlook.spent, STAKE, self.MARGIN, self.CAUTION)
        prices = np.empty(len(menu.choices) * outlook.spans.end.shape[0])
        best = menu.choices[
            weigh(sets, steps, menu.listed, outlook.scene, ahead, back_off, caution, prices)
        ]
        outlook.note(outlook.held, prices[: outlook.spans.end.shape[0]].tolist())
        self.gave_up(outlook.held - best)
        return best

    def _menu(self, outlook: Outlook) -> Menu:
        if self._menus is None or self._menus.planner is not outlook.planner:
            self._menus = Menus(outlook.planner)
        return self._menus.menu(outlook)

    def gave_up(self, forms: Forms) -> None:
        for form in forms:
            self._dropped[form.mask] = self._dropped.get(form.mask, 0) + 1


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
    pace: Pace = field(default_factory=Pace)


class Migration:
    """Takes the STAIRs of a query to `target` forms, stage by stage.

    Call `stage` at safe points until it returns True. `n_moved` counts rows that were joined anew,
    `n_made` the tuples that came of them.
    """

    def __init__(
        self,
        stairs: Stairs,
        planner: Planner,
        held: Forms,
        target: Forms,
        world: World,
        on_demand: Forms = _NOTHING,
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
        for form in on_demand - held:
            expansion = Expansion(stairs, planner, form, world)
            stairs.stair(form.source, form.join).hold_on_demand(form.mask, expansion)
        self.held |= on_demand
        self._waiting = sorted(
            target - self.held, key=lambda form: form.mask.bit_count(), reverse=True
        )
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
            building = self._building
            most_rows -= self._advance(building, form, most_rows, scratch)
            is_over = building.position >= building.mark[building.start]
            if is_over or not stair.has_room_for(building.made):
                stair.adopt(building.made)
                if stair.form == form.mask:
                    self.held |= {form}
                self._building = None
                self._waiting.pop()
        return not self._waiting

    def give_up(self, forms: Forms) -> None:
        """`forms`, which were held, became views again: they are not asked for when this ends."""
        self.target -= forms
        self.held -= forms

    def _advance(self, building: _Building, form: Form, most_rows: int, scratch: Scratch) -> int:
        """Join the next rows of the first source with the others; returns how many rows."""
        most_rows = min(most_rows, building.pace.n_rows)
        stop = min(building.position + most_rows, building.mark[building.start])
        tuples = self._stairs.rows(building.start, building.position, stop)
        n_rows = stop - building.position
        building.position = stop
        self.n_moved += tuples.n_rows
        n_before = self.n_made
        unfinished = [tuples] if tuples.n_rows else []
        while unfinished:
            part = unfinished.pop()
            if part.signature.sources == form.mask:
                building.made.append(part)
                self.n_made += part.n_rows
                continue
            own = next_inside(
                self._stairs, self._planner, self._world, part.signature.sources, form
            )
            unfinished += self._stairs.joined(part, own, scratch, building.mark)
        building.pace.see(max(1, n_rows), self.n_made - n_before)
        return max(1, n_rows)

    def name(self) -> str:
        """What is moved, in words."""
        graph = self._stairs.graph
        parts = []
        for form in sorted(self.target, key=lambda f: f.mask):
            sources = "⋈".join(graph.roles[s].name for s in bits(form.mask))
            parts.append(f"{self._stairs.stair(form.source, form.join).name}={sources}")
        return ", ".join(parts) or "rows only"
