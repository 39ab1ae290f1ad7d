"""Tuples that must wait for rows on disk wait in one order, and these are read once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddies.core.options import Options
from eddies.core.policies.random import RandomPolicy
from eddies.core.query import Query, UserFunction
from eddies.core.spill.key_filter import FilterRoom, KeyFilter
from eddies.core.spill.partitions import partitions_of, slices_by_partition
from eddies.core.spill.runs import FlushedRows
from eddies.core.state_modes.base import Resumed
from eddies.core.state_modes.spilling import SpillingStems
from eddies.hosts import local
from eddies.sql import plan
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle

N = 20_000
TEXT = "SELECT f.v, a.x, b.y, c.z FROM f, a, b, c WHERE f.a = a.k AND f.b = b.k AND f.c = c.k"


def star(seed: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    found = {"f": {name: rng.integers(0, 2 * N, 3 * N) for name in "abc"} | {"v": np.arange(3 * N)}}
    for name, value in zip("abc", "xyz", strict=True):
        found[name] = {"k": rng.permutation(2 * N)[:N], value: np.arange(N)}
    return {name: pa.table(columns) for name, columns in found.items()}


def query_of(tables: dict[str, pa.Table]) -> Query:
    schemas = {name: table.schema for name, table in tables.items()}
    return plan(TEXT, schemas, aggregate=True).blocks[0].query


@pytest.mark.parametrize("seed", range(3))
def test_rows_on_disk_are_read_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = star(seed)
    n_read: dict[str, int] = {}
    load = FlushedRows._loaded

    def counting(self: FlushedRows, pieces: list[object]) -> object:
        rows = sum(piece.segment.n_rows for piece in pieces)  # type: ignore[attr-defined]
        n_read[self.relation.name] = n_read.get(self.relation.name, 0) + rows
        return load(self, pieces)  # type: ignore[arg-type]

    monkeypatch.setattr(FlushedRows, "_loaded", counting)
    options = Options(memory="600KB", spill_dir=str(tmp_path), batch_rows=4096)
    run = local.run(query_of(tables), tables, options)
    assert_same_bag(run.table(), Oracle().answer(TEXT, tables))
    assert isinstance(run.eddy.mode, SpillingStems)
    assert run.eddy.mode.n_ever_waited > 1000
    assert n_read.keys() == {"a", "b", "c"}
    assert all(rows <= N for rows in n_read.values()), "not even one row is read twice"


def states_at_cleanup(
    text: str, tables: dict[str, pa.Table], options: Options, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, tuple[int, int]]]:
    """Bytes of filters and rows in memory of each relation, whenever one is to be answered. The answer
    must be right.
    """
    states = []
    answer = SpillingStems._answer

    def watched(self: SpillingStems, relation: int) -> Iterator[Resumed]:
        states.append(
            {
                resident.flushed.relation.name: (
                    sum(one.n_bytes for one in resident.flushed.filters.values()),
                    resident.n_rows,
                )
                for resident in self.residents
            }
        )
        return answer(self, relation)

    monkeypatch.setattr(SpillingStems, "_answer", watched)
    schemas = {name: table.schema for name, table in tables.items()}
    run = local.run(plan(text, schemas).blocks[0].query, tables, options)
    assert_same_bag(run.table(), Oracle().answer(text, tables))
    return states


def test_filters_go_when_all_waiting_tuples_have_been_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(memory="600KB", spill_dir=str(tmp_path), batch_rows=4096)
    found = states_at_cleanup(TEXT, star(4), options, monkeypatch)
    assert {n_bytes for state in found for n_bytes, _ in state.values()} == {0}


def test_filters_stay_for_keys_that_are_yet_to_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for a has no key of b yet, but will, and most of b is somewhere else."""
    options = Options(memory="600KB", spill_dir=str(tmp_path), batch_rows=4096)
    text = "SELECT f.v, a.x, b.y FROM f, a, b WHERE f.a = a.k AND a.x = b.k"
    first, *_ = states_at_cleanup(text, star(4), options, monkeypatch)
    assert first["f"][0] == 0
    assert first["b"][0] > 0


def test_few_rows_that_are_left_in_memory_go_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(memory="200KB", spill_dir=str(tmp_path), batch_rows=4096)
    found = states_at_cleanup(TEXT, star(4), options, monkeypatch)
    assert all(n == 0 or n >= N // 10 for state in found for _, n in state.values())
    assert any(n == 0 for state in found for _, n in state.values())


def test_what_multiplies_waits_last(tmp_path: Path) -> None:
    """Of two relations on disk the one with five rows a key is asked behind the one with half a row."""
    rng = np.random.default_rng(5)
    many = {"k": np.repeat(np.arange(N // 5), 5), "x": np.arange(N)}
    few = {"k": rng.permutation(N)[: N // 2], "y": np.arange(N // 2)}
    keys = {"a": rng.integers(0, N // 5, 3 * N), "b": rng.integers(0, N, 3 * N)}
    fact = keys | {"v": np.arange(3 * N)}
    tables = {"f": pa.table(fact), "a": pa.table(many), "b": pa.table(few)}
    text = "SELECT f.v, a.x, b.y FROM f, a, b WHERE f.a = a.k AND f.b = b.k"
    schemas = {name: table.schema for name, table in tables.items()}
    query = plan(text, schemas).blocks[0].query
    options = Options(memory="600KB", spill_dir=str(tmp_path), batch_rows=1024)
    run = local.run(query, tables, options)
    assert_same_bag(run.table(), Oracle().answer(text, tables))
    mode = run.eddy.mode
    assert isinstance(mode, SpillingStems)
    source_ids = {role.name: role.source_id for role in run.eddy.graph.roles}
    assert mode.order.rank(source_ids["b"]) < mode.order.rank(source_ids["a"])
    assert mode.n_ever_waited < 1.3 * 3 * N, "not one for each of five matches"


def test_predicates_come_before_waiting(tmp_path: Path) -> None:
    """Rather than write all rows, apply a predicate that keeps one in sixty-four."""
    tables = star(9)

    def keeps_few(values: pa.Array) -> pa.Array:
        time.sleep(0.0001)
        return pc.equal(pc.bit_wise_and(values, pa.scalar(63, values.type)), 0)

    function = UserFunction("keeps_few", keeps_few, pa.bool_(), arrow=True)
    text = f"{TEXT} AND keeps_few(f.v)"
    schemas = {name: table.schema for name, table in tables.items()}
    query = plan(text, schemas, [function]).blocks[0].query
    options = Options(memory="600KB", spill_dir=str(tmp_path), batch_rows=4096)
    run = local.run(query, tables, options)
    found = run.table()
    expected = Oracle().answer(f"{TEXT} AND f.v % 64 = 0", tables)
    assert_same_bag(found, expected)
    mode = run.eddy.mode
    assert isinstance(mode, SpillingStems)
    assert mode.n_ever_waited < N // 4, "a twelfth of the rows, three times"


def test_a_policy_that_is_given_decides_alone(tmp_path: Path) -> None:
    tables = star(2)
    given = RandomPolicy(random.Random(1))
    options = Options(memory="600KB", spill_dir=str(tmp_path), batch_rows=4096)
    run = local.run(query_of(tables), tables, options, policy=given)
    assert run.eddy._routers[0].policy is given
    assert_same_bag(run.table(), Oracle().answer(TEXT, tables))


def test_a_filter_for_the_rows_expected_is_one_layer() -> None:
    keys = np.arange(100_000, dtype=np.uint64) * np.uint64(7919)
    for expected, n_layers in ((100_000, 1), (0, 5)):
        made = KeyFilter(FilterRoom(1 << 20), expected)
        for start in range(0, 100_000, 5_000):
            made.add(keys[start : start + 5_000])
        assert len(made._layers) == n_layers
        found = made.passing(keys + np.uint64(1))
        assert found is not None
        assert found.shape[0] < 0.07 * n_layers * 100_000
        everything = made.passing(keys)
        assert everything is not None
        assert everything.tolist() == list(range(100_000))


def test_a_filter_without_room_lets_more_pass_and_never_loses_a_key() -> None:
    rng = random.Random(3)
    for n_keys in (3_000, 30_000, 300_000):
        room = FilterRoom(20_000)
        made = KeyFilter(room)
        keys = np.arange(n_keys, dtype=np.uint64) * np.uint64(7919)
        start = 0
        while start < n_keys:
            stop = start + rng.randrange(1, n_keys)
            made.add(keys[start:stop])
            start = stop
        assert made.n_bytes <= 20_000
        found = made.passing(keys)
        assert found is None or found.tolist() == list(range(n_keys))


@pytest.mark.parametrize("n_partitions", [1, 8, 64, 256])
def test_slices_hold_the_rows_of_a_partition_in_their_order(n_partitions: int) -> None:
    words = np.random.default_rng(1).integers(0, 1 << 40, 5_000).astype(np.uint64)
    partitions = partitions_of(words, n_partitions)
    order, starts = slices_by_partition(partitions, n_partitions)
    assert order.tolist() == np.argsort(partitions, kind="stable").tolist()
    assert np.diff(starts).tolist() == np.bincount(partitions, minlength=n_partitions).tolist()
