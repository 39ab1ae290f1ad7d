"""state="joins", "static" and "stairs" under a memory budget: what was kept is demoted, then spilled.

EddyJoins, static plans and STAIRs keep tuples of row ids in STAIRs, over base rows in SteMs. The former
can be made again from the latter, so under pressure they go first, in two stages:

1. *Demotion.* Pools of tuples get what base rows leave of the budget. A STAIR whose tuples find no room
   forgets them and becomes a view of its relation's SteM (`stairs.stair`): STAIRs are caches. At worst
   all do, and the state is that of SteMs.
2. *Spilling.* When base rows and their indexes alone come near the budget, the same SteMs go on as
   `SpillingStems`: their rows go to disk by partition, as the flush policy says, and tuples wait for
   them. The way back is not taken.

What a plan is stays: tuples still go along the joins of the spanning tree, a static plan in its one
order, the others as the routing policy chooses among the same names; only what a join probes is now
the SteM of the source it leads to, in memory and on disk. What closes a cycle is checked by that probe.

Exactly once, across the change. It happens *at rest*: nothing is in flight, and every row that is
stored has been routed to its end.

* Before it, of the parts of a result the one that is routed last finds the others (`eddy_join`; with
  demotions, Invariants A and B of `stairs.stair`). At rest all stored rows have been routed, so exactly
  the results made of stored rows are out, each once.
* After it, every result contains a row that is stored later, or not at all. Of its parts the one stored
  last finds the others, whatever their age, because its limits cover all rows stored before it
  (`exactly_once`): rows that are there at the change count as arrived in the order of their ids, which
  is the order in which they came. That rule, and the one for rows on disk (`spilling`), speak only of
  rows, so what was kept before has no influence.

Both sets are disjoint and together are all results. No batch survives the change, so no tuple is routed
half by one rule and half by the other; route tables are forgotten, since their steps lead to STAIRs.

Known limitations: intermediate results are never written to disk, but computed again; one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eddies.core.batch import RoutedBatch
from eddies.core.constraints import Move
from eddies.core.lineage import Signature
from eddies.core.module import Module, Step
from eddies.core.policies.base import Candidate, Decision, Fork, RoutingPolicy
from eddies.core.route import RouteTable
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import Resumed, StateMode
from eddies.core.state_modes.joins import JoinsMode
from eddies.core.state_modes.spilling import SpillingStems

__all__ = ["PressedJoins"]


class PressedJoins(StateMode):
    """Delegates to `kept`, and to `spilling`, over the same SteMs, once rows do not fit any more."""

    stores_on_the_way = False
    spills = True

    def __init__(self, kept: JoinsMode, spilling: SpillingStems, budget_bytes: int) -> None:
        self.kept = kept
        self.spilling = spilling
        self._now: StateMode = kept
        self._tables: list[RouteTable] = []
        kept.keep_within(budget_bytes)

    @property
    def is_spilling(self) -> bool:
        """Whether the second stage has begun."""
        return self._now is self.spilling

    @property
    def modules(self) -> list[Module]:  # type: ignore[override]  # of whichever mode is in force
        if self.is_spilling:
            return self.spilling.modules
        return [*self.kept.modules, *self.spilling.modules[len(self.spilling.residents) :]]

    @property
    def n_flushes(self) -> int:
        return self.spilling.n_flushes

    @property
    def n_ever_waited(self) -> int:
        """Tuples that ever waited for rows on disk."""
        return self.spilling.n_ever_waited

    @property
    def n_pending(self) -> int:
        return self._now.n_pending

    def check(self, n_threads: int) -> None:
        self.kept.check(n_threads)

    def informed(self, policy: RoutingPolicy) -> RoutingPolicy:
        return _LatePolicy(policy, self.spilling.informed(policy), self)

    def module_names(self) -> list[str]:
        return self.kept.module_names()

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        self.spilling.skips_build(ended)
        return self.kept.skips_build(ended)

    def take_in(self, relation: int, block: Block) -> Iterable[RoutedBatch]:
        return self._now.take_in(relation, block)

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        return self._now.drive(relation, block)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        if self.is_spilling:
            return self.kept.moves_over_rows(signature)
        return self.kept.moves(signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if table not in self._tables:
            self._tables.append(table)
        step, candidate = self._now.step(move, signature, table)
        if move.join < 0 or not self.is_spilling:
            return step, candidate
        name = self.kept.joins[move.join].name
        return step, Candidate(candidate.module, name, candidate.kind)

    def end(self, relation: int) -> None:
        self.kept.end(relation)
        self.spilling.end(relation)

    @property
    def needs_safe_point(self) -> bool:
        if self.is_spilling:
            return self.spilling.needs_safe_point
        pools = sum(stair.n_bytes_at_most for stair in self.kept.stairs.all_stairs())
        return not self.spilling.has_room_for(pools)

    def at_safe_point(self) -> None:
        self._now.at_safe_point()

    def at_rest(self) -> None:
        if not self.is_spilling and self.spilling.needs_safe_point:
            self._go_on_as_stems()

    def _go_on_as_stems(self) -> None:
        for stair in self.kept.stairs.all_stairs():
            stair.release()
        self.spilling.take_over()
        self._now = self.spilling
        for table in self._tables:
            table.forget()
        self.spilling.at_safe_point()

    def resume(self) -> Resumed | None:
        self._now.is_silent, self._now.is_settling = self.is_silent, self.is_settling
        return self._now.resume()

    def abandon(self) -> None:
        self.spilling.abandon()


class _LatePolicy:
    """`early` while joins are kept, `late` from then on: the same policy, told about rows on disk."""

    news_ns = None

    def __init__(self, early: RoutingPolicy, late: RoutingPolicy, mode: PressedJoins) -> None:
        self._early = early
        self._late = late
        self._mode = mode
        self.every_batch = early.every_batch

    @property
    def _now(self) -> RoutingPolicy:
        return self._late if self._mode.is_spilling else self._early

    @property
    def diverts(self) -> bool:
        return self._now.diverts

    @property
    def is_surprised(self) -> bool:
        return self._now.is_surprised

    def choose(self, fork: Fork) -> Decision:
        """As the policy in force."""
        return self._now.choose(fork)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """As the policy in force."""
        self._now.observe(fork, choice, n_in, n_out, elapsed_ns, n_runs)

    def reoptimize(self) -> None:
        """As the policy in force."""
        self._now.reoptimize()
