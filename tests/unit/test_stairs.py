"""STAIRs: the paper's worked examples, the state after a migration, and what is refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.lineage import Signature
from eddies.core.options import Options
from eddies.core.stairs.expansion import Expansion
from eddies.core.stairs.operations import is_connected
from eddies.core.stairs.plan import Form, Planner, World
from eddies.core.stairs.pool import Pool
from eddies.core.state.columns import column_of
from eddies.core.state.keys import key_words
from eddies.core.state.rows import Block, RowStore
from eddies.core.state.scratch import Scratch
from eddies.errors import StateError
from tests.support.bag import bag_of
from tests.support.small import make_query
from tests.support.stairs import held, stairs_of, violations_of_a, violations_of_b

R, S, T = 1, 2, 4
R_A, S_A, S_B, T_B = "R.a", "S.a", "S.b", "T.b"


class Chain:
    """R ⋈_a S ⋈_b T with rows put in one by one; S goes to the join named first."""

    def __init__(self, first: str = "join:R-S", state: str = "static") -> None:
        schema = {
            "R": pa.schema([("id", pa.int64()), ("a", pa.int64())]),
            "S": pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]),
            "T": pa.schema([("id", pa.int64()), ("b", pa.int64())]),
        }
        self.schema = schema
        tables = {name: s.empty_table() for name, s in schema.items()}
        query = make_query(tables, ["R.a = S.a", "S.b = T.b"], output=["R.id", "S.id", "T.id"])
        other = "join:S-T" if first == "join:R-S" else "join:R-S"
        self.eddy = Eddy(query, Options(state=state, order=(first, other), batch_rows=4))
        self.stairs = stairs_of(self.eddy)
        self.scratch = Scratch(64)
        self.found: list[tuple[object, ...]] = []
        for stair in self.stairs.all_stairs():
            stair.materialise()

    def push(self, name: str, *rows: tuple[int, ...]) -> list[tuple[object, ...]]:
        columns = list(zip(*rows, strict=True))
        batch = pa.record_batch(
            [pa.array(c, pa.int64()) for c in columns], schema=self.schema[name]
        )
        self.eddy.push(name, batch)
        new = []
        while (out := self.eddy.poll()) is not None:
            new += list(bag_of(out).elements())
        self.found += new
        return new

    def stair(self, name: str):
        return next(s for s in self.stairs.all_stairs() if s.name == name)

    def demote(self, name: str, sources: int, to: int) -> None:
        self.stairs.demote(self.stair(name), Signature(sources), to, self.scratch)

    def promote(self, name: str, sources: int, to: str) -> None:
        self.stairs.promote(self.stair(name), Signature(sources), self.stair(to), self.scratch)

    def check(self) -> None:
        assert not violations_of_b(self.stairs)
        assert not violations_of_a(self.stairs)


def test_dual_routing_inserts_and_probes_in_one_step():
    chain = Chain()
    chain.push("R", (0, 1))
    chain.push("S", (0, 1, 7))
    assert held(chain.stairs) == {R_A: ["r0"], S_A: ["s0"], S_B: ["r0s0"], T_B: []}
    assert chain.push("T", (0, 7)) == [(0, 0, 0)]
    chain.check()


def test_worked_example_demotion():
    """ST-9: demotion(S.b, r1s1, s1) turns r1s1 in S.b into s1."""
    chain = Chain()
    chain.push("R", (0, 1))
    chain.push("S", (0, 1, 7))
    chain.demote(S_B, R | S, S)
    assert held(chain.stairs) == {R_A: ["r0"], S_A: ["s0"], S_B: ["s0"], T_B: []}
    chain.check()


def test_worked_example_promotion():
    """ST-9: promotion(S.b, s3, S.a) puts s3 into S.a, and r1s3 and r2s3 into S.b."""
    chain = Chain(first="join:S-T")
    chain.push("R", (0, 1), (1, 1), (2, 5))
    chain.push("S", (0, 1, 7))
    assert held(chain.stairs)[S_B] == ["s0"]
    chain.promote(S_B, S, S_A)
    assert held(chain.stairs) == {
        R_A: ["r0", "r1", "r2"],
        S_A: ["s0"],
        S_B: ["r0s0", "r1s0"],
        T_B: [],
    }
    chain.check()


def test_promotion_without_match_moves_the_tuple():
    chain = Chain(first="join:S-T")
    chain.push("S", (0, 1, 7))
    chain.promote(S_B, S, S_A)
    assert held(chain.stairs) == {R_A: [], S_A: ["s0"], S_B: [], T_B: []}


def test_migration_leaves_the_state_of_the_other_order():
    """ST-14: R.a = R, S.b = S, T.b = T, S.a = S ⋈ T; several r·s collapse into one s."""
    rows = {
        "R": [(0, 1), (1, 1), (2, 2)],
        "S": [(0, 1, 7), (1, 1, 8), (2, 2, 7), (3, 9, 9)],
        "T": [(0, 7), (1, 7), (2, 8)],
    }
    chain, other = Chain(), Chain(first="join:S-T")
    for name in ("R", "S", "T"):
        chain.push(name, *rows[name])
        other.push(name, *rows[name])
    assert held(chain.stairs)[S_B] == ["r0s0", "r0s1", "r1s0", "r1s1", "r2s2"]
    chain.demote(S_B, R | S, S)
    assert held(chain.stairs)[S_B] == ["s0", "s1", "s2"]
    chain.promote(S_A, S, S_B)
    assert held(chain.stairs) == held(other.stairs)
    assert held(chain.stairs)[S_A] == ["s0t0", "s0t1", "s1t2", "s2t0", "s2t1"]
    assert held(chain.stairs)[S_B] == ["s0", "s1", "s2", "s3"]
    chain.check()
    assert (
        sorted(chain.push("R", (3, 2)))
        == sorted(other.push("R", (3, 2)))
        == [
            (3, 2, 0),
            (3, 2, 1),
        ]
    )


def test_a_form_on_demand_expands_the_rows_that_are_asked_for():
    chain = Chain(first="join:S-T")
    chain.push("S", (0, 1, 7), (1, 1, 8), (2, 2, 7), *((n, n, 7) for n in range(3, 30)))
    chain.push("T", (0, 7), (1, 7))
    stair = chain.stair(S_A)
    for each in chain.stairs.all_stairs():
        chain.stairs.demote_to_rows(each)
    planner = Planner(chain.stairs.tree, 3)
    form = Form(stair.source, stair.edge.number, S | T)
    world = World([1.0] * 3, [1.0] * 2, chain.stairs.tree)
    stair.hold_on_demand(S | T, Expansion(chain.stairs, planner, form, world))
    bare = [f"s{n}" for n in range(2, 30)]
    assert sorted(chain.push("R", (0, 1))) == [(0, 0, 0), (0, 0, 1)]
    assert sorted(held(chain.stairs)[S_A]) == sorted(["s0t0", "s0t1", *bare])  # s1 has no match
    assert chain.push("T", (2, 7)) == [(0, 0, 2)]
    assert sorted(held(chain.stairs)[S_A]) == sorted(["s0t0", "s0t1", "s0t2", *bare])
    assert chain.push("T", (3, 8)) == [(0, 1, 3)]  # s1 is expanded, to nothing so far
    chain.check()
    chain.demote(S_A, S | T, S)
    assert sorted(held(chain.stairs)[S_A]) == sorted(["s0", "s1", *bare])
    assert len(chain.push("R", (1, 1), (2, 2))) == 4 + 3
    chain.check()
    assert len(chain.push("R", *((n, n) for n in range(3, 30)))) == 27 * 3
    assert stair.form == S | T
    assert not any(len(name) == 2 for name in held(chain.stairs)[S_A]), "nobody is bare any more"


def counter_example(enforces: bool) -> Chain:
    """ST-26, from R.a={r0}, S.a={s0}, S.b={r0s0} after demotion(S.b, r0s0, s0)."""
    chain = Chain()
    chain.stairs.history.enforces = enforces
    chain.push("R", (0, 1))
    chain.push("S", (0, 1, 7))
    chain.demote(S_B, R | S, S)
    chain.push("T", (0, 7))
    chain.push("R", (1, 1))
    return chain


def test_invariant_b_is_enforced_on_insertion():
    chain = counter_example(enforces=True)
    assert held(chain.stairs)[S_A] == ["s0"]
    assert sorted(chain.found) == [(0, 0, 0), (1, 0, 0)]
    chain.check()


def test_without_enforcement_on_insertion_the_paper_repeats_a_result():
    chain = counter_example(enforces=False)
    assert held(chain.stairs)[S_A] == ["s0", "s0t0"]
    assert sorted(chain.found) == [(0, 0, 0), (1, 0, 0), (1, 0, 0)]
    assert violations_of_b(chain.stairs)


def test_a_stair_can_become_a_stem_and_back():
    chain = Chain()
    chain.push("R", (0, 1))
    chain.push("S", (0, 1, 7), (1, 2, 7))
    for name in (S_A, S_B):
        chain.stairs.demote_to_rows(chain.stair(name))
    state = {R_A: ["r0"], S_A: ["s0", "s1"], S_B: ["s0", "s1"], T_B: []}
    assert held(chain.stairs) == state
    chain.stair(S_B).materialise()
    assert held(chain.stairs) == state
    chain.check()
    assert chain.push("T", (0, 7)) == [(0, 0, 0)]
    assert chain.push("R", (1, 2)) == [(1, 1, 0)]


def test_a_stair_nobody_will_probe_holds_nothing():
    chain = Chain()
    chain.push("R", (0, 1))
    chain.push("S", (0, 1, 7))
    chain.eddy.end("T")
    chain.push("S", (1, 1, 8))
    assert held(chain.stairs)[S_B] == []
    assert held(chain.stairs)[S_A] == ["s0", "s1"]


@pytest.mark.parametrize("to", [R, T, R | T])
def test_a_demotion_must_keep_a_connected_part_with_the_own_row(to):
    chain = Chain(first="join:S-T")
    chain.push("S", (0, 1, 7))
    chain.push("T", (0, 7))
    with pytest.raises(StateError, match="connected"):
        chain.demote(S_A, S | T, to)
    assert held(chain.stairs)[S_A] == ["s0t0"]


def test_a_promotion_needs_another_join_to_a_source_it_lacks():
    chain = Chain(first="join:S-T")
    chain.push("S", (0, 1, 7))
    chain.push("T", (0, 7))
    for stair, sources, to in ((S_A, S | T, S_B), (S_A, S | T, S_A), (S_B, S, T_B)):
        with pytest.raises(StateError, match="cannot be promoted"):
            chain.promote(stair, sources, to)
    with pytest.raises(StateError, match="holds no tuples"):
        chain.promote(S_A, S, S_B)


def test_connected_parts_of_a_chain():
    tree = Chain().stairs.tree
    assert [mask for mask in range(1, 8) if not is_connected(tree, mask)] == [R | T]
    assert not is_connected(tree, 0)


def test_a_pool_reads_keys_through_its_rows():
    """Keys that are only hashed are compared where they are stored: with the rows of their source."""
    schema = pa.schema([("word", pa.string())])
    store = RowStore("S", schema)
    words = pa.array(["same", "other", None, "same"])
    store.append(Block.from_arrow({"word": words}, 4))
    pool = Pool(Signature(R | S), 1, store, ["word"])
    pool.append({0: as_ids(7, 8, 9, 7), 1: as_ids(3, 1, 2, 0)}, 4)  # same, other, NULL, same
    assert not pool.is_exact
    assert pool.ids(0, as_ids(2, 0)).tolist() == [9, 7]
    probing = [(column_of(pa.array(["other", "same"])), None)]
    scratch = Scratch(64)
    pool.index.catch_up(scratch)
    found, _ = pool.index.probe(key_words(probing)[0], pool.n_rows, scratch)
    pairs = zip(scratch.positions[:found].tolist(), scratch.rows[:found].tolist(), strict=True)
    assert sorted(pairs) == [(0, 1), (1, 0), (1, 3)]
    # What a collision of hashes would give: each pair of the two keys and the four tuples.
    positions, rows = as_ids(0, 0, 0, 1, 1, 1), as_ids(0, 1, 3, 0, 1, 3)
    n = pool.verify(positions, rows, 6, probing)
    assert list(zip(positions[:n], rows[:n], strict=True)) == [(0, 1), (1, 0), (1, 3)]


def test_a_pool_finds_tuples_by_their_rows():
    store = RowStore("S", pa.schema([("a", pa.int64())]))
    store.append(Block.from_arrow({"a": pa.array([5, 6])}, 2))
    pool = Pool(Signature(R | S | T), 1, store, ["a"])
    n = 9000  # more than there is room for at first
    numbers = np.arange(n, dtype=np.int32)
    pool.append({0: numbers, 1: numbers % 2, 2: numbers // 2}, n)
    asked = {0: as_ids(4, 4), 1: as_ids(0, 1), 2: as_ids(2, 2)}
    for mask, expected in ((R | S | T, [(0, 4)]), (R | S, [(0, 4)]), (R, [(0, 4), (1, 4)])):
        positions, rows = pool.agreeing(asked, mask, Scratch(64))
        assert sorted(zip(positions.tolist(), rows.tolist(), strict=True)) == expected
    pool.kill(as_ids(4))
    assert pool.agreeing(asked, R, Scratch(64))[0].shape[0] == 0


def as_ids(*rows: int) -> npt.NDArray[np.int32]:
    return np.array(rows, dtype=np.int32)
