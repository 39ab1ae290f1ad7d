"""Joins, static plans and STAIRs under a budget: demoted first, then spilled, never failing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.events import Routed
from eddies.core.options import Options
from eddies.core.state_modes.pressed import PressedJoins
from tests.support.bag import assert_same_bag
from tests.support.small import Recorder, answer, batches, make_query

STATES = ("joins", "static", "stairs")
N = 3000
RNG = np.random.default_rng(7)
TABLES = {
    "R": pa.table({"a": RNG.integers(0, N // 3, N), "r": range(N)}),
    "S": pa.table({"a": RNG.integers(0, N // 3, N), "b": RNG.integers(0, N // 2, N)}),
    "T": pa.table({"b": RNG.integers(0, N // 2, N), "c": RNG.integers(0, N, N)}),
    "U": pa.table({"c": RNG.integers(0, N, N), "u": range(N)}),
}
QUERY = make_query(TABLES, ["R.a = S.a", "S.b = T.b", "T.c = U.c"])


def pressed(eddy: Eddy) -> PressedJoins:
    assert isinstance(eddy.mode, PressedJoins)
    return eddy.mode


def polled(eddy: Eddy) -> list[pa.RecordBatch]:
    found = []
    while (rows := eddy.poll()) is not None:
        found.append(rows)
    return found


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("memory", ["150KB", "400KB", "900KB"])
def test_state_stays_within_the_budget_and_rows_leave_it_in_mid_query(
    state: str, memory: str, tmp_path: Path
) -> None:
    options = Options(state=state, memory=memory, spill_dir=str(tmp_path))  # type: ignore[arg-type]
    eddy = Eddy(QUERY, options)
    waiting = {name: batches(table, 100) for name, table in TABLES.items()}
    found: list[pa.RecordBatch] = []
    n_before = 0
    budget = options.memory_bytes
    assert budget is not None
    while any(waiting.values()):
        for name, pieces in waiting.items():
            eddy.push(name, pieces.pop(0))
            found += polled(eddy)
            assert sum(eddy.memory().values()) <= budget
            if not pressed(eddy).is_spilling:
                n_before = eddy.output.n_rows
    for name in TABLES:
        eddy.end(name)
    found += polled(eddy)
    assert pressed(eddy).n_flushes > 0
    assert pressed(eddy).n_ever_waited > 0
    if memory != "150KB":
        assert 0 < n_before < eddy.output.n_rows, "results came before and after the change"
    expected = answer(QUERY, TABLES, Options(state="stems"))
    assert_same_bag(pa.Table.from_batches(found, schema=eddy.output.schema), expected)


def test_intermediate_results_go_before_rows_do() -> None:
    """The base rows are few; what a join makes of them finds no room in the next one."""
    tables = {
        "a": pa.table({"x": [1] * 300}),
        "b": pa.table({"x": [1] * 300, "y": [1] * 300}),
        "c": pa.table({"y": [2]}),
    }
    query = make_query(tables, ["a.x = b.x", "b.y = c.y"])
    order = tuple(Eddy(query, Options(state="joins")).mode.module_names())
    for state in ("joins", "static"):
        options = Options(state=state, policy="static", order=order, memory="200KB")
        eddy = Eddy(query, options)
        for name in "cab":
            eddy.push(name, batches(tables[name])[0])
        assert not polled(eddy)
        assert pressed(eddy).kept.stairs.history.n_demoted > 0
        assert sum(eddy.memory().values()) <= 200 * 1024
        assert pressed(eddy).n_flushes == 0
        eddy.close()


@pytest.mark.parametrize("state", ["joins", "static"])
def test_a_plan_keeps_its_joins_and_their_order(state: str, tmp_path: Path) -> None:
    """After the change tuples still go where the order says, by the names of joins."""
    order = ("join:T-U", "join:S-T", "join:R-S")
    options = Options(
        state=state,  # type: ignore[arg-type]
        policy="static",
        order=order,
        memory="50KB",
        spill_dir=str(tmp_path),
    )
    eddy = Eddy(QUERY, options, events=(recorder := Recorder()))
    for name in "RSTU":
        for batch in batches(TABLES[name], 500):
            eddy.push(name, batch)
    polled(eddy)
    assert pressed(eddy).is_spilling
    assert {event.module for event in recorder.of(Routed)} <= set(order)
    n_before = len(recorder.of(Routed))
    eddy.push("T", batches(TABLES["T"], 500)[0])
    polled(eddy)
    assert recorder.of(Routed)[n_before].module == "join:T-U"
    eddy.close()
