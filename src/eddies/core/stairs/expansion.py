"""Promotion on demand: a form is made for the rows that somebody asks for, when somebody asks.

A bulk promotion pays for all rows of a STAIR before the first of them is used, and if the sources end
soon after, it was for nothing. Nobody knows when they end. But whoever probes a view and gets bare rows
has to join them with the rest of the form anyway: if what came of that is kept, the work of promoting
was needed work, and only the storing is at risk. So a STAIR may hold a form *on demand*: some of its
rows are *expanded*, which means that the tuples of the form that contain them are in its pools, the
others are still bare rows of the view. A probe first expands the bare rows it is going to meet, and
then finds tuples of the form only. A row that nobody asks for is never expanded; one that is asked for
twice is joined once. When nine tenths are expanded, the rest follows and the view is left.

*Invariant A*: an expanded row is represented by its tuples, complete when it is expanded and kept
complete by insertion; every other row by itself. *Invariant B*: never by both.
"""

from __future__ import annotations

from eddies.core.batch import Ids
from eddies.core.lineage import Signature
from eddies.core.stairs.operations import Stairs
from eddies.core.stairs.plan import Form, Planner, World
from eddies.core.stairs.stair import Stair, Tuples
from eddies.core.state.scratch import Scratch

__all__ = ["Expansion", "next_inside"]


class Expansion:
    """Makes the tuples of one form, for any rows of the source whose STAIR holds it."""

    def __init__(self, stairs: Stairs, planner: Planner, form: Form, world: World) -> None:
        self._stairs = stairs
        self._planner = planner
        self._form = form
        self._world = world

    def expand(self, rows: Ids, scratch: Scratch) -> list[Tuples]:
        """All tuples of the form that contain one of `rows`."""
        source = self._form.source
        made: list[Tuples] = []
        unfinished = [Tuples(Signature(1 << source), {source: rows})]
        while unfinished:
            part = unfinished.pop()
            if part.signature.sources == self._form.mask:
                made.append(part)
                continue
            own = next_inside(
                self._stairs, self._planner, self._world, part.signature.sources, self._form
            )
            unfinished += self._stairs.joined(part, own, scratch)
        return made

    def count(self, n_tuples: int) -> None:
        """So many tuples were looked at to find out which rows to expand."""
        self._stairs.n_handled += n_tuples


def next_inside(stairs: Stairs, planner: Planner, world: World, mask: int, form: Form) -> Stair:
    """The STAIR of a source in `mask` at the join inside `form` that makes fewest tuples."""
    join, inside, _ = min(
        (step for step in planner.border(mask) if form.mask >> step[2] & 1),
        key=lambda step: world.size(mask | 1 << step[2]),
    )
    return stairs.stair(inside, join)
