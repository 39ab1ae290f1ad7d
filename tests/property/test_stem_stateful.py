"""A SteM in any order of builds and probes, against a list of rows and a loop over it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eddies.core.batch import Origin, RoutedBatch
from eddies.core.expr import Call
from eddies.core.graph import make_graph
from eddies.core.lineage import Signature
from eddies.core.modules.stem import Probe, SteM
from eddies.core.query import Filter
from eddies.core.route import Route
from eddies.core.state.rows import Block
from eddies.core.state.scratch import Scratch
from tests.support import naive
from tests.support.small import col, make_query

KEYS = st.one_of(st.none(), st.integers(0, 3))
TEXTS = st.sampled_from([None, "", "a", "b", "longer than seven", "longer than eight"])
ROWS = st.lists(st.tuples(KEYS, TEXTS, KEYS), max_size=12)
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64())])
EMPTY = SCHEMA.empty_table()
Row = tuple[int | None, str | None, int | None]


def block_of(rows: list[Row]) -> Block:
    arrays = {
        field.name: pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)
    }
    return Block.from_arrow(arrays, len(rows))


class SteMMachine(RuleBasedStateMachine):
    """Builds of any size; probes by key, by composite key, by band and by product, with any limit."""

    @initialize(batch_rows=st.sampled_from([1, 4, 100]))
    def start(self, batch_rows: int) -> None:
        tables = {"p": EMPTY, "t": EMPTY}
        band = Call("le", (col("p.v"), col("t.v")))
        queries = {
            "key": make_query(tables, ["p.k = t.k"]),
            "pair": make_query(tables, ["p.k = t.k", "p.s = t.s"]),
            "text": make_query(tables, ["p.s = t.s"]),
            "band": make_query(tables, filters=(Filter(band),)),
            "both": make_query(tables, ["p.k = t.k"], filters=(Filter(band),)),
            "cross": make_query(tables),
        }
        self.rows: list[Row] = []
        self.scratch = Scratch(batch_rows)
        self.graphs = {name: make_graph(query) for name, query in queries.items()}
        self.stem = SteM(self.graphs["key"].relations[1])
        self.probes = {
            name: Probe(graph, self.stem, 1, Signature(1), Route(Signature(3)))
            for name, graph in self.graphs.items()
        }

    @rule(rows=ROWS)
    def build(self, rows: list[Row]) -> None:
        self.stem.build(block_of(rows))
        self.rows += rows

    @rule(rows=ROWS, copies=st.integers(1, 6))
    def build_many_duplicates(self, rows: list[Row], copies: int) -> None:
        self.build(rows * copies)

    @rule(
        name=st.sampled_from(["key", "pair", "text", "band", "both", "cross"]),
        rows=ROWS.filter(bool),
        share=st.floats(0, 1),
    )
    def probe(self, name: str, rows: list[Row], share: float) -> None:
        limit = round(share * len(self.rows))
        block = block_of(rows)
        graph = self.graphs[name]
        places = [block, self.stem.store]
        origin = Origin(0, places, (0, limit), -1, self.stem.store, {"p": 0, "t": 1})
        batch = RoutedBatch(Route(Signature(1)), origin, [None, None], len(rows))
        step = self.probes[name]
        step.prepare(self.scratch)
        first, more = step.run(batch, self.scratch)
        found = [] if first is None else [first]
        found += [] if more is None else list(more)
        assert all(piece.n_rows > 0 for piece in found)
        pairs = []
        for piece in found:
            own, other = piece.ids
            assert own is not None
            assert other is not None
            pairs += list(zip(own.tolist(), other.tolist(), strict=True))
        expected = [
            (i, j)
            for i, mine in enumerate(rows)
            for j, theirs in enumerate(self.rows[:limit])
            if self.joins(name, mine, theirs)
        ]
        assert sorted(pairs) == expected
        assert len(graph.roles) == 2

    def joins(self, name: str, mine: Row, theirs: Row) -> bool:
        key = naive.equal_keys(mine[:1], theirs[:1])
        text = naive.equal_keys(mine[1:2], theirs[1:2])
        band = mine[2] is not None and theirs[2] is not None and mine[2] <= theirs[2]
        return {
            "key": key,
            "pair": key and text,
            "text": text,
            "band": band,
            "both": key and band,
            "cross": True,
        }[name]

    @invariant()
    def stored_rows_are_the_rows_built(self) -> None:
        if hasattr(self, "stem"):
            assert self.stem.store.n_rows == len(self.rows)


TestSteM = SteMMachine.TestCase
TestSteM.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
