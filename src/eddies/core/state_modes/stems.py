"""state="stems": base rows only. Nothing kept depends on how batches were routed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.constraints import Move, is_result, legal_moves, may_skip_build
from eddies.core.exactly_once import NO_LIMIT, StampRule, can_match
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.live import Live
from eddies.core.module import Module, Step
from eddies.core.modules.exists import Ask
from eddies.core.modules.pad import Pad
from eddies.core.modules.stem import Probe, SteM, has_keys
from eddies.core.policies.base import Candidate
from eddies.core.reduction import may_multiply, reduce_stems
from eddies.core.route import RouteTable
from eddies.core.state.rows import Block
from eddies.core.state_modes.base import BaseBatches, Resumed, StateMode, select_step

__all__ = ["StemsMode"]


class StemsMode(StateMode):
    """Every relation has a SteM; batches probe the SteMs of the sources they lack."""

    stores_on_the_way = False
    n_pending = 0
    still_until = inf
    needs_safe_point = False
    forgets = True
    shares = True

    def __init__(self, graph: Graph, stems: Sequence[SteM], stamps: StampRule) -> None:
        self._graph = graph
        self._stems = stems
        self._stamps = stamps
        self._base = BaseBatches(graph, stems)
        self._live = Live(graph)
        self._asked = graph.asked
        # Whether every relation has one role in one query: then its batches are the blocks that come.
        is_one_to_one = len(graph.roles) == len(graph.relations)
        self._is_plain = is_one_to_one and len(graph.parts) == 1 and not graph.asked
        self._candidates: dict[tuple[int, bool], Candidate] = {}  # the same at every signature
        self._driven: tuple[int, tuple[int, ...], bool] | None = None  # until something is stored
        self.modules: list[Module] = list(stems)

    def check(self, n_threads: int) -> None:
        pass

    def module_names(self) -> list[str]:
        roles = self._graph.roles
        return [f"stem:{role.name}" for role in roles if not self._asked >> role.source_id & 1]

    def skips_build(self, ended: Sequence[bool]) -> list[bool]:
        if ended.count(False) > 1:
            return [False] * len(ended)
        numbers = range(len(ended))
        if not all(ended):  # of those that have ended no rows come
            return [not ended[n] and may_skip_build(self._graph, n, ended) for n in numbers]
        return [may_skip_build(self._graph, number, ended) for number in numbers]

    def take_in(self, relation: int, block: Block) -> list[RoutedBatch]:
        self._driven = None
        base = self._base
        before = [store.n_rows for store in base.stores]
        self._stems[relation].build(block)
        after = before.copy()
        after[relation] = base.stores[relation].n_rows
        if self._is_plain:
            limits = self._stamps.limits(self._graph, relation, before, after)
            if not can_match(limits, relation):
                return []
            return [base.batch(relation, block, limits, before[relation])]
        batches = []
        for source_id in self._graph.relations[relation].roles:
            limits = self._limits(source_id, before, after)
            if self._asked >> source_id & 1 or not self._can_match(limits, source_id):
                continue
            rows = self._base.wanted(source_id, block)
            batch = self._base.batch(source_id, block, limits, before[relation], rows)
            if batch.n_rows:
                batches.append(batch)
        return batches

    def drive(self, relation: int, block: Block) -> RoutedBatch | None:
        source_id = self._graph.relations[relation].roles[0]
        driven = self._driven
        if driven is None or driven[0] != source_id:
            # Nothing is stored any more: what holds for this batch holds for all that follow.
            lengths = [store.n_rows for store in self._base.stores]
            limits = self._limits(source_id, lengths, lengths)
            driven = self._driven = (source_id, limits, self._can_match(limits, source_id))
        return self._base.batch(source_id, block, driven[1], -1) if driven[2] else None

    def _can_match(self, limits: Sequence[int], driver: int) -> bool:
        parts = self._graph.parts
        if len(parts) == 1:
            return can_match(limits, driver)
        return can_match(limits, driver, parts[self._graph.part_of(1 << driver)].sources)

    def _limits(
        self, source_id: int, before: Sequence[int], after: Sequence[int]
    ) -> tuple[int, ...]:
        """What a driver may match. Sources that are only asked are complete by then."""
        limits = self._stamps.limits(self._graph, source_id, before, after)
        if not self._asked:
            return limits
        return tuple(
            NO_LIMIT if self._asked >> source & 1 else limit for source, limit in enumerate(limits)
        )

    def live(self, signature: Signature) -> int:
        return self._live.at(signature)

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        return legal_moves(self._graph, signature)

    def step(self, move: Move, signature: Signature, table: RouteTable) -> tuple[Step, Candidate]:
        if move.optional >= 0:
            plan = self._graph.optionals[move.optional].exists
            if plan is None:
                return select_step(self._graph, move, signature, table)
            stem = self._stems[self._graph.roles[plan.target].relation]
            made = Pad if plan.padded else Ask
            ask = made(
                self._graph, stem, move.optional, signature, table.route(move.after(signature))
            )
            return ask, Candidate(len(self._graph.roles) + move.optional, ask.name, "select")
        return self._probe(move, signature, table), self._candidate(move, signature)

    def option(
        self, move: Move, signature: Signature, table: RouteTable
    ) -> tuple[Callable[[], Step], Candidate]:
        if move.optional >= 0:
            return super().option(move, signature, table)
        return partial(self._probe, move, signature, table), self._candidate(move, signature)

    def _probe(self, move: Move, signature: Signature, table: RouteTable) -> Probe:
        target, graph = move.target, self._graph
        after = move.after(signature)
        may_fold = table.may_fold and is_result(graph, after)
        stem = self._stems[graph.roles[target].relation]
        return Probe(graph, stem, target, signature, table.route(after), may_fold)

    def _candidate(self, move: Move, signature: Signature) -> Candidate:
        graph = self._graph
        module = target = move.target
        # What a source brings when it is looked up by a key says nothing about what it brings when only
        # a comparison leads to it: policies learn about that under another number.
        if graph.filters and not (move.cross or has_keys(graph, signature, target)):
            module = len(graph.roles) + len(graph.optionals) + target
        candidate = self._candidates.get((module, move.cross))
        if candidate is None:
            stem = self._stems[graph.roles[target].relation]
            forecast = partial(_n_stored, stem) if move.cross else None
            name = f"stem:{graph.roles[target].name}"
            candidate = Candidate(module, name, "probe", move.cross, forecast)
            self._candidates[module, move.cross] = candidate
        return candidate

    def end(self, relation: int) -> None:
        if self._graph.pads(relation):
            self._driven = None
            self._stems[relation].add_null_row()

    def before_last(self, relation: int, n_to_come: int) -> None:
        if len(self._graph.parts) > 1:
            return  # rows that one query cannot use may be another's
        self._driven = None
        driver = self._graph.relations[relation].roles[0]
        reduce_stems(self._graph, self._stems, driver, n_to_come)

    def may_multiply(self, relation: int) -> bool:
        """Whether rows of the last relation may meet many dead ends for each of them."""
        return may_multiply(self._graph, self._stems, self._graph.relations[relation].roles[0])

    def at_safe_point(self) -> None:
        pass

    def keep_only(self, relation: int, rows: Ids) -> None:
        self._driven = None
        self._stems[relation].keep_only(rows)

    def resume(self) -> Resumed | None:
        return None


def _n_stored(stem: SteM) -> float:
    """What a Cartesian product makes of one tuple."""
    return float(stem.store.n_rows)
