"""A plan without an eddy: the same modules, wired by hand in one order.

This is what the overhead study compares with: the same operators, the same language, the same batches,
and nothing that decides, measures or remembers. The difference in time is what routing costs. Like an
eddy, the plan does not take a batch through while a source has no row yet that it could match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from eddies.core.batch import Origin, RoutedBatch
from eddies.core.constraints import Move, is_result, legal_moves
from eddies.core.entry import Entry
from eddies.core.exactly_once import EarlierOnly, can_match
from eddies.core.graph import make_graph
from eddies.core.lineage import Signature
from eddies.core.live import Live
from eddies.core.module import Step
from eddies.core.modules.selection import Select
from eddies.core.modules.stem import Probe, SteM
from eddies.core.output import Output
from eddies.core.query import Query
from eddies.core.route import Route
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch

__all__ = ["FixedPlan"]


class FixedPlan:
    """Sources are probed and predicates applied in the order of the query's text.

    `push` stores a batch and takes it through; `load` only stores it; `stream` only takes it through
    (for the last source to come). `finish` gives the answer.
    """

    def __init__(self, query: Query, batch_rows: int) -> None:
        self._graph = make_graph(query)
        self._live = Live(self._graph)
        self._stems = [SteM(relation) for relation in self._graph.relations]
        self._stores = [stem.store for stem in self._stems]
        self._entries = [Entry(self._graph, relation) for relation in self._graph.relations]
        self._relations = {r.name: i for i, r in enumerate(self._graph.relations)}
        self._source_ids = {role.name: role.source_id for role in self._graph.roles}
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._stamps = EarlierOnly()
        self._scratch = Scratch(batch_rows)
        self._output = Output(self._graph)
        self._collect = self._output.collector().collect

    def _wire(self, sources: int) -> tuple[Step, ...]:
        """The steps of a batch that starts at a source, each the first that is legal."""
        steps: list[Step] = []
        signature = Signature(sources)
        while not is_result(self._graph, signature):
            move = legal_moves(self._graph, signature)[0]
            steps.append(self._step(move, signature))
            signature = move.after(signature)
        return tuple(steps)

    def _step(self, move: Move, signature: Signature) -> Step:
        after = move.after(signature)
        to = Route(after, self._live.at(after))
        if move.optional >= 0:
            return Select(self._graph, move.optional, to)
        stem = self._stems[self._graph.roles[move.target].relation]
        return Probe(self._graph, stem, move.target, signature, to)

    def load(self, source: str, batch: pa.RecordBatch) -> None:
        """Rows that are only looked up."""
        relation = self._relations[source]
        self._stems[relation].build(self._entries[relation].admit(batch))

    def push(self, source: str, batch: pa.RecordBatch) -> None:
        """Store the rows, then find what they complete."""
        relation = self._relations[source]
        block = self._entries[relation].admit(batch)
        before = [store.n_rows for store in self._stores]
        self._stems[relation].build(block)
        after = [store.n_rows for store in self._stores]
        self._drive(relation, block, before, after)

    def stream(self, source: str, batch: pa.RecordBatch) -> None:
        """Find what the rows complete, without storing them."""
        relation = self._relations[source]
        block = self._entries[relation].admit(batch)
        lengths = [store.n_rows for store in self._stores]
        self._drive(relation, block, lengths, lengths)

    def finish(self) -> list[pa.RecordBatch]:
        """The answer, of `schema`."""
        self._output.finish()
        batches = []
        while (batch := self._output.pop()) is not None:
            batches.append(batch)
        for stem in self._stems:
            stem.release()
        return batches

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        return self._output.schema

    def _drive(
        self, relation: int, block: Block, before: Sequence[int], after: Sequence[int]
    ) -> None:
        if block.n_rows == 0:
            return
        source = self._graph.relations[relation].roles[0]
        limits = self._stamps.limits(self._graph, source, before, after)
        if not can_match(limits, source):
            return
        places: list[Block | RowStore] = [self._stores[r.relation] for r in self._graph.roles]
        places[source] = block
        home = self._stores[relation]
        first = before[relation] if after[relation] > before[relation] else -1
        origin = Origin(source, places, limits, first, home, self._source_ids)
        start = RoutedBatch(
            Route(Signature(1 << source)), origin, [None] * len(places), block.n_rows
        )
        if source not in self._steps:
            # When it is first needed, as an eddy does: neither wires ahead of the clock.
            self._steps[source] = self._wire(1 << source)
        self._run((start,), self._steps[source])

    def _run(self, batches: Iterable[RoutedBatch], steps: tuple[Step, ...]) -> None:
        for start in batches:
            batch: RoutedBatch | None = start
            for number, step in enumerate(steps):
                assert batch is not None
                step.prepare(self._scratch)
                batch, more = step.run(batch, self._scratch)
                if more is not None:
                    self._run(_chained(batch, more), steps[number + 1 :])
                    batch = None
                if batch is None:
                    break
            if batch is not None:
                self._collect(batch)


def _chained(first: RoutedBatch | None, more: Iterator[RoutedBatch]) -> Iterator[RoutedBatch]:
    if first is not None:
        yield first
    yield from more
