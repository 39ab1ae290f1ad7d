"""What an eddy keeps of the rows that came, and where that lets batches go.

The papers differ in one thing above all: what is kept. SteMs keep base rows, EddyJoins and STAIRs
keep intermediate results as well, under memory pressure some of it lies on disk. Everything else (the
loop, the route table, policies, entry and output) is the same. So the eddy asks its *state mode*

* when rows arrive: store them, and which base batches must be routed (`take_in`, `drive`);
* when a signature first occurs: where may it go, and by which step (`moves`, `step`);
* when nothing is in flight: rearrange state (`at_safe_point`), or let something that waited inside
  the state go on (`resume`): a look-up that came back, a probe against rows read from disk;
* when, besides, all rows that are stored have been routed: change what state is (`at_rest`).

The query has ended when all relations have ended, nothing is in flight and `n_pending` is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eddies.core.batch import Ids, Origin, RoutedBatch
from eddies.core.constraints import Move
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.live import EVERYTHING
from eddies.core.module import Module, Step
from eddies.core.modules.selection import Select
from eddies.core.modules.stem import SteM
from eddies.core.policies.base import Candidate, RoutingPolicy
from eddies.core.route import Route, RouteTable, already
from eddies.core.state.rows import Block, RowStore

__all__ = ["BaseBatches", "Resumed", "StateMode", "select_step"]

_NOWHERE = Route(Signature(0))


@dataclass(frozen=True, slots=True)
class Resumed:
    """A batch that waited inside the state and goes on from `signature`."""

    signature: Signature
    batch: RoutedBatch


class StateMode(Protocol):
    """See the module docstring. One thread calls all of these, except `moves`, `step`, `drive`.

    A mode that `spills` keeps within the budget itself, at safe points. The others do not, and the
    eddy fails when their state exceeds it.
    """

    modules: list[Module]
    stores_on_the_way: bool  # whether steps store tuples: then the budget is checked after each
    spills: bool = False
    # Until its router has handled so many tuples, `at_safe_point`, `at_rest`, `resume` do nothing.
    still_until: float = 0.0
    is_silent: bool = False  # whether all sources are silent: `resume` may give out idle work
    is_settling: bool = False  # whether an epoch ends: `resume` gives out everything that waits
    shares: bool = False  # whether several threads may route stored rows once all have come
    forgets: bool = False  # whether `keep_only` can be asked for

    @property
    def needs_safe_point(self) -> bool:
        """Whether more rows should not be stored before state has been rearranged."""
        return False

    def before_last(self, relation: int, n_to_come: int) -> None:
        """All relations but this one are complete, it is not stored, and nothing is in flight: state
        may be prepared for its rows, likely `n_to_come`, that only probe.
        """
        return

    def abandon(self) -> None:
        """The eddy has failed or was closed: leave nothing outside this process behind."""
        return

    @property
    def n_pending(self) -> int:
        """Batches and probes that wait inside the state."""
        ...

    def check(self, n_threads: int) -> None:
        """Raise `OptionError` if the mode cannot work with so many threads."""
        ...

    def informed(self, policy: RoutingPolicy) -> RoutingPolicy:
        """The policy, told what it cannot see of this state."""
        return policy

    def module_names(self) -> list[str]:
        """Modules of which an order must name all, except one source: the one whose rows drive."""
        ...

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        """For each relation whether its rows need not be stored any more."""
        ...

    def take_in(self, relation: int, block: Block) -> Iterable[RoutedBatch]:
        """Store `block` (at least one row) and give the base batches that must be routed. Go through
        all of them before anything else happens: a mode may store while it gives.
        """
        ...

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        """A base batch of rows that are not stored, or None if it cannot give any result."""
        ...

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        """Where `signature` may go."""
        ...

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        """A move as something to run, and as a policy sees it."""
        ...

    def option(
        self, move: Move, signature: Signature, table: RouteTable
    ) -> tuple[Callable[[], Step], Candidate]:
        """The same for a move that may never be made: how to make what is run, then."""
        step, candidate = self.step(move, signature, table)
        return already(step), candidate

    def live(self, signature: Signature) -> int:
        """The sources whose row ids tuples with `signature` carry, as a mask."""
        return EVERYTHING

    def end(self, relation: int) -> None:
        """A relation has delivered its last row."""
        ...

    def at_safe_point(self) -> None:
        """Nothing is in flight: state may be rearranged."""
        ...

    def at_rest(self) -> None:
        """Nothing is in flight, and every row that is stored has been routed to its end."""
        return

    def keep_only(self, relation: int, rows: Ids) -> None:
        """Forget all stored rows of a relation but these. Nothing is in flight or waits."""
        raise AssertionError("a mode that forgets rows says how")

    def resume(self) -> Resumed | None:
        """Something that can go on now, if no base batch waits; None if there is nothing yet."""
        ...


class BaseBatches:
    """Makes base batches of stored or unstored rows; shared by all state modes."""

    def __init__(self, graph: Graph, stems: Sequence[SteM]) -> None:
        self._graph = graph
        self.stores = [stem.store for stem in stems]
        self._places = [self.stores[role.relation] for role in graph.roles]
        self._source_ids = {role.name: role.source_id for role in graph.roles}

    def lengths(self) -> list[int]:
        """Rows stored so far, by relation."""
        return [store.n_rows for store in self.stores]

    def wanted(self, source_id: int, block: Block) -> Ids | None:
        """The rows of `block` that pass the selections of a role; None: all of them."""
        flag = self._graph.roles[source_id].flag
        if flag is None:
            return None
        rows = np.flatnonzero(block.column(flag).words(None)).astype(np.int32)
        return None if rows.shape[0] == block.n_rows else rows

    def batch(
        self,
        source_id: int,
        block: Block,
        limits: tuple[int, ...],
        first_row: int,
        rows: Ids | None = None,
    ) -> RoutedBatch:
        """A base batch, not yet on any route (routers set that: each has a table of its own)."""
        places: list[Block | RowStore] = [*self._places]
        home = self._places[source_id]
        places[source_id] = block
        origin = Origin(source_id, places, limits, first_row, home, self._source_ids)
        ids: list[Ids | None] = [None] * len(places)
        ids[source_id] = rows
        n_rows = block.n_rows if rows is None else rows.shape[0]
        return RoutedBatch(_NOWHERE, origin, ids, n_rows)

    def stored_batch(
        self,
        source_id: int,
        block: Block,
        limits: tuple[int, ...],
        first_row: int,
        rows: Ids | None,
    ) -> RoutedBatch:
        """The same, addressing rows by their stored ids: for state that outlives the block."""
        if rows is None:
            stored = np.arange(first_row, first_row + block.n_rows, dtype=np.int32)
        else:
            stored = rows + np.int32(first_row)
        places = self._places
        origin = Origin(source_id, places, limits, -1, places[source_id], self._source_ids)
        ids: list[Ids | None] = [None] * len(places)
        ids[source_id] = stored
        return RoutedBatch(_NOWHERE, origin, ids, stored.shape[0])


def select_step(
    graph: Graph, move: Move, signature: Signature, table: RouteTable
) -> tuple[Step, Candidate]:
    """The step of an optional predicate. Its module number comes after those of the sources."""
    select = Select(graph, move.optional, table.route(move.after(signature)))
    return select, Candidate(len(graph.roles) + move.optional, select.name, "select")
