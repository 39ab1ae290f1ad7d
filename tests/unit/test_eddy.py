"""The eddy's verbs: push, end and poll in any order, counting to the end, and failing for good."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.events import Built, Finished, Routed, SourceEnded
from eddies.core.exactly_once import NoRule
from eddies.core.expr import Call, Literal
from eddies.core.lineage import Signature
from eddies.core.options import Options, StateMode
from eddies.core.policies import POLICIES
from eddies.core.query import Equality, Filter, Output, Query, Selection, UserFunction
from eddies.errors import (
    EvaluationError,
    MemoryBudgetError,
    OptionError,
    SourceError,
)
from tests.support.bag import assert_same_bag
from tests.support.small import Recorder, answer, batches, col, drained, make_query

LEFT = pa.table({"x": [1, 2, 2, None, 3], "v": [10, 20, 21, 30, 40]})
RIGHT = pa.table({"y": [2, 2, 3, 4, None], "w": [1, 2, 3, 4, 5]})
TABLES = {"a": LEFT, "b": RIGHT}
JOINED = pa.table(
    {
        "a_x": [2, 2, 2, 2, 3],
        "a_v": [20, 20, 21, 21, 40],
        "b_y": [2, 2, 2, 2, 3],
        "b_w": [1, 2, 1, 2, 3],
    }
)
QUERY = make_query(TABLES, ["a.x = b.y"])


def test_results_come_as_soon_as_both_parts_are_there() -> None:
    eddy = Eddy(QUERY)
    eddy.push("a", batches(LEFT)[0])
    assert eddy.poll() is None
    eddy.push("b", batches(RIGHT.slice(0, 1))[0])
    assert drained(eddy).num_rows == 2
    eddy.push("b", batches(RIGHT.slice(1))[0])
    assert drained(eddy).num_rows == 3
    assert not eddy.is_done
    eddy.end("a")
    assert eddy.poll() is None
    assert not eddy.is_done
    eddy.end("b")
    assert eddy.poll() is None
    assert eddy.is_done
    assert eddy.poll() is None


def test_done_only_when_the_last_result_is_taken() -> None:
    eddy = Eddy(QUERY)
    for name, table in TABLES.items():
        eddy.push(name, batches(table)[0])
        eddy.end(name)
    assert eddy.n_in_flight == 1, "the first relation had nothing to match and need not be routed"
    assert not eddy.is_done
    assert drained(eddy).num_rows == 5
    assert eddy.is_done
    assert eddy.n_in_flight == 0


@pytest.mark.parametrize("rows", [1, 2, None])
@pytest.mark.parametrize("batch_rows", [1, 2, 7, 1009])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_gives_the_same_bag(policy: str, batch_rows: int, rows: int | None) -> None:
    order = ("a", "b") if policy == "static" else ()
    options = Options(policy=policy, order=order, batch_rows=batch_rows, reoptimize_every=2)
    assert_same_bag(answer(QUERY, TABLES, options, rows=rows), JOINED)


def test_relations_without_rows() -> None:
    empty = {"a": LEFT.slice(0, 0), "b": RIGHT}
    assert answer(QUERY, empty).num_rows == 0
    assert answer(QUERY, {"a": LEFT.slice(0, 0), "b": RIGHT.slice(0, 0)}).num_rows == 0


def test_an_empty_relation_spares_the_last_one_all_work() -> None:
    """Nothing can match: the rows that stream by are not routed, and no function is called."""
    looked: list[int] = []

    def look(value: int) -> bool:
        looked.append(value)
        return True

    query = make_query(
        TABLES,
        ["a.x = b.y"],
        selections=(Selection(Call("look", (col("a.v"),)), expensive=True),),
        functions=(UserFunction("look", look, pa.bool_()),),
    )
    eddy = Eddy(query, Options(policy="static", order=("select:look(a.v)", "a", "b")))
    eddy.end("b")
    eddy.push("a", batches(LEFT)[0])
    eddy.end("a")
    assert drained(eddy).num_rows == 0
    assert eddy.is_done
    assert looked == []
    assert eddy.progress().n_driver_rows == 0


def test_a_query_that_can_have_no_result_reads_nothing() -> None:
    never = make_query(TABLES, ["a.x = b.y"], never=True)
    assert answer(never, TABLES).num_rows == 0


def test_one_source_alone() -> None:
    query = make_query(
        {"a": LEFT}, selections=(Selection(Call("gt", (col("a.v"), Literal(20, pa.int64())))),)
    )
    assert_same_bag(
        answer(query, {"a": LEFT}), pa.table({"a_x": [2, None, 3], "a_v": [21, 30, 40]})
    )


def test_no_output_columns_still_count_rows() -> None:
    query = make_query(TABLES, ["a.x = b.y"], output=())
    eddy = Eddy(query)
    for name, table in TABLES.items():
        eddy.push(name, batches(table)[0])
        eddy.end(name)
    n_rows = 0
    while (rows := eddy.poll()) is not None:
        n_rows += rows.num_rows
    assert n_rows == 5


def test_a_role_name_stands_for_its_relation() -> None:
    query = make_query({"t": LEFT}, ["p.x = q.x"], roles={"p": "t", "q": "t"})
    eddy = Eddy(query)
    eddy.push("p", batches(LEFT)[0])
    eddy.end("t")
    assert drained(eddy).num_rows == 1 + 4 + 1


def test_a_column_equal_to_two_columns_of_another_source() -> None:
    """The second column of a source in a key class becomes a selection of that source."""
    tables = {"a": pa.table({"x": [1, 2]}), "b": pa.table({"y": [1, 2, 2], "z": [1, 2, 3]})}
    query = make_query(tables, ["a.x = b.y", "a.x = b.z"])
    found = answer(query, tables)
    assert_same_bag(found, pa.table({"a_x": [1, 2], "b_y": [1, 2], "b_z": [1, 2]}))


@pytest.mark.parametrize("type_", [pa.uint64(), pa.uint8(), pa.binary(), pa.decimal128(38, 4)])
def test_two_equal_columns_of_any_key_type(type_: pa.DataType) -> None:
    one, two = ([b"1"], [b"2"]) if pa.types.is_binary(type_) else ([1], [2])
    tables = {
        "a": pa.table({"x": pa.array(one, type_)}),
        "b": pa.table({"y": pa.array(one + one, type_), "z": pa.array(one + two, type_)}),
    }
    assert answer(make_query(tables, ["a.x = b.y", "a.x = b.z"]), tables).num_rows == 1


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_a_band_of_floats_is_wide_enough_for_rounding(type_: pa.DataType) -> None:
    """The sum in the comparison rounds; the range of the sorted index must not be narrower."""
    values = pa.array([0.0, 0.1, 0.2, 0.3, 1.1, 1.2, 16777216.0, float("inf"), float("nan")], type_)
    tables = {"a": pa.table({"x": values}), "b": pa.table({"x": values})}
    width = Literal(0.1, type_)
    above = Call("le", (col("a.x"), Call("add", (col("b.x"), width))))
    below = Call("ge", (col("a.x"), Call("subtract", (col("b.x"), width))))
    narrow = make_query(tables, filters=(Filter(Call("and", (above, below))),))
    # Not a comparison as such: no index can help, all pairs are checked.
    plain = make_query(
        tables, filters=(Filter(Call("not", (Call("not", (Call("and", (above, below)),)),))),)
    )
    assert_same_bag(answer(narrow, tables), answer(plain, tables))


def test_a_band_of_floats_that_overflow_to_infinity() -> None:
    values = pa.array([1.7e308, 1e308, -1.7e308, float("inf"), float("-inf"), float("nan"), 0.0])
    tables = {"a": pa.table({"x": values}), "b": pa.table({"x": values})}
    for function in ("add", "subtract"):
        for comparison in ("le", "ge"):
            shifted = Call(function, (col("b.x"), Literal(1e308, pa.float64())))
            predicate = Call(comparison, (col("a.x"), shifted))
            narrow = make_query(tables, filters=(Filter(predicate),))
            plain = make_query(tables, filters=(Filter(Call("not", (Call("not", (predicate,)),))),))
            assert_same_bag(answer(narrow, tables), answer(plain, tables), (function, comparison))


def test_more_key_sets_than_indexes() -> None:
    """A probe that finds too many indexes uses one on fewer columns, and must check the others."""
    names = ["k0", "k1", "k2", "k3", "k4"]
    rng = random.Random(3)
    hub = pa.table({n: [rng.choice(["a", "b", None]) for _ in range(40)] for n in names})
    tables = {"h": hub}
    on = []
    for i, name in enumerate(names):
        # Only short strings of one length: nothing but their bytes tells them apart.
        tables[f"s{i}"] = pa.table({name: ["a", "b", None], "id": [0, 1, 2], "c": [1, 1, 1]})
        on += [f"h.{name} = s{i}.{name}"] + ([f"s0.c = s{i}.c"] if i else [])
    query = make_query(tables, on, output=[f"s{i}.id" for i in range(len(names))])
    expected = [
        tuple("ab".index(row[name]) for name in names)
        for row in hub.to_pylist()
        if None not in row.values()
    ]
    columns = list(zip(*expected, strict=True))
    wanted = pa.table({f"s{i}_id": list(column) for i, column in enumerate(columns)})
    # Routed at random, every set of s's gets together before it probes h, with as many columns.
    for seed in range(10):
        options = Options(policy="random", seed=seed, batch_rows=2)
        assert_same_bag(answer(query, tables, options), wanted, f"seed {seed}")


@pytest.mark.parametrize("roles", [{"p": "t"}, {"p": "t", "q": "t"}])
def test_a_selection_sees_only_rows_that_passed_those_before_it(roles: dict[str, str]) -> None:
    """`x <> 0 AND 6 div x > 1 AND id <> 2` divides by no zero, in one role or among several."""
    table = pa.table({"x": [1, 0, 2, 3, 6, 0, 1], "id": range(7)})
    quotient = Call("int_divide", (Literal(6, pa.int64()), col("p.x")))
    selections = (
        Selection(Call("ne", (col("p.x"), Literal(0, pa.int64())))),
        Selection(Call("gt", (quotient, Literal(1, pa.int64())))),
        Selection(Call("ne", (col("p.id"), Literal(2, pa.int64())))),
    )
    on = ["p.id = q.id"] if len(roles) > 1 else []
    query = make_query({"t": table}, on, roles, ["p.id"], selections=selections)
    for rows in (1, 3, None):
        assert_same_bag(answer(query, {"t": table}, rows=rows), pa.table({"p_id": [0, 3, 6]}))


# Wrong use and bad input


def test_unknown_relation_is_named() -> None:
    eddy = Eddy(QUERY)
    with pytest.raises(SourceError, match="no relation 'c'; it reads a, b"):
        eddy.push("c", batches(LEFT)[0])
    with pytest.raises(SourceError, match="no relation 'c'"):
        eddy.end("c")


def test_nothing_after_the_end() -> None:
    eddy = Eddy(QUERY)
    eddy.end("a")
    with pytest.raises(SourceError, match="'a' has ended"):
        eddy.push("a", batches(LEFT)[0])
    with pytest.raises(SourceError, match="'a' has ended"):
        eddy.end("a")


def test_missing_column_is_named() -> None:
    eddy = Eddy(QUERY)
    with pytest.raises(SourceError, match="batch of 'a' lacks column 'v'; it has x"):
        eddy.push("a", batches(LEFT.select(["x"]))[0])


def test_wrong_type_is_named() -> None:
    eddy = Eddy(QUERY)
    wrong = pa.table({"x": ["one"], "v": [1]})
    with pytest.raises(SourceError, match="column 'x' of 'a' came as string, expected int64"):
        eddy.push("a", batches(wrong)[0])


def test_a_type_that_can_be_converted_is() -> None:
    left = pa.table({"x": LEFT["x"].cast(pa.int8()), "v": LEFT["v"].dictionary_encode()})
    assert_same_bag(answer(QUERY, {"a": left, "b": RIGHT}), JOINED)


def test_bad_input_of_the_last_relation_is_found_when_polled() -> None:
    eddy = Eddy(QUERY)
    eddy.end("b")
    eddy.push("a", batches(LEFT.select(["x"]))[0])
    with pytest.raises(SourceError, match="lacks column 'v'"):
        eddy.poll()


def test_a_failed_push_fails_the_eddy() -> None:
    """Two of three pieces were stored: an answer from what is there would be wrong."""
    text = pa.table({"x": ["1", "2", "no number"], "v": [10, 20, 21]})
    eddy = Eddy(QUERY, Options(batch_rows=1))
    with pytest.raises(SourceError, match="expected int64") as failure:
        eddy.push("a", batches(text)[0])
    for use in (eddy.poll, lambda: eddy.end("a"), lambda: eddy.push("b", batches(RIGHT)[0])):
        with pytest.raises(SourceError) as again:
            use()
        assert again.value is failure.value


def _failing(value: int) -> bool:
    raise RuntimeError(f"cannot look at {value}")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failed_poll_raises_the_same_error_again(threads: int) -> None:
    query = make_query(
        TABLES,
        ["a.x = b.y"],
        selections=(Selection(Call("look", (col("a.v"),)), expensive=True),),
        functions=(UserFunction("look", _failing, pa.bool_()),),
    )
    eddy = Eddy(query, Options(threads=threads))
    eddy.push("b", batches(RIGHT)[0])
    eddy.end("b")
    eddy.push("a", batches(LEFT)[0])
    with pytest.raises(EvaluationError, match=r"look.*cannot look at") as failure:
        eddy.poll()
    for use in (eddy.poll, lambda: eddy.end("a")):
        with pytest.raises(EvaluationError) as again:
            use()
        assert again.value is failure.value


@pytest.mark.parametrize("threads", [1, 2])
def test_a_closed_eddy_refuses_every_verb_and_is_not_done(threads: int) -> None:
    """The answer is truncated and the memory given back: neither may be used."""
    n = 20_000
    tables = {"a": pa.table({"x": [1] * n}), "b": pa.table({"y": [1] * 10})}
    eddy = Eddy(make_query(tables, ["a.x = b.y"]), Options(batch_rows=1000, threads=threads))
    eddy.push("b", batches(tables["b"])[0])
    eddy.end("b")
    eddy.push("a", batches(tables["a"])[0])
    assert eddy.poll() is not None
    eddy.close()
    assert eddy.n_in_flight == 0
    more = batches(tables["a"])[0]
    for use in (eddy.poll, lambda: eddy.end("a"), lambda: eddy.push("a", more)):
        with pytest.raises(SourceError, match="this eddy was closed"):
            use()
    eddy.close()
    assert not eddy.is_done


def test_closing_after_the_end_leaves_it_done() -> None:
    eddy = Eddy(QUERY)
    for name, table in TABLES.items():
        eddy.push(name, batches(table)[0])
        eddy.end(name)
    assert drained(eddy).num_rows == 5
    eddy.close()
    assert eddy.is_done


@pytest.mark.parametrize("state", ["auto", "stems"])
@pytest.mark.parametrize("policy", ["auto", "rank"])
def test_state_goes_with_its_last_user_not_with_the_next_garbage_collection(
    policy: str, state: StateMode
) -> None:
    tables = TABLES | {"c": pa.table({"z": [2, 3]})}
    query = make_query(tables, ["a.x = b.y", "b.y = c.z"])
    gc.collect()
    gc.disable()
    try:
        eddy = Eddy(query, Options(policy=policy, state=state))
        for name, table in tables.items():
            eddy.push(name, batches(table)[0])
            eddy.end(name)
        assert drained(eddy).num_rows == 5
        held = [weakref.ref(thing) for thing in (eddy, eddy.mode, *eddy.stems)]
        held += [weakref.ref(router) for router in eddy._routers]
        del eddy
        assert [ref() for ref in held if ref() is not None] == []
    finally:
        gc.enable()


def test_memory_budget_names_what_is_held_and_stays_exceeded() -> None:
    """Only with access methods; everything else spills."""
    eddy = Eddy(QUERY, Options(memory="1KB"), access={})
    large = pa.table({"x": range(1000), "v": range(1000)})
    with pytest.raises(MemoryBudgetError, match=r"allows 1,024 \(.*stem:a .*allow more memory"):
        eddy.push("a", batches(large)[0])
    with pytest.raises(MemoryBudgetError):
        eddy.poll()


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_leave_memory_when_an_index_would_not_fit(threads: int) -> None:
    n = 50_000
    tables = {"a": pa.table({"x": range(n)}), "b": pa.table({"y": range(n)})}
    query = make_query(tables, ["a.x = b.y"])
    stored = Eddy(query, Options(threads=threads))
    stored.push("b", batches(tables["b"])[0])
    budget = sum(stored.memory().values()) + 1000
    eddy = Eddy(query, Options(memory=budget, threads=threads))
    eddy.push("b", batches(tables["b"])[0])
    eddy.end("b")
    eddy.push("a", batches(tables["a"])[0])
    eddy.end("a")
    assert drained(eddy).num_rows == n
    assert eddy.mode.n_flushes > 0  # type: ignore[attr-defined]


def test_a_budget_that_suffices_changes_nothing() -> None:
    assert_same_bag(answer(QUERY, TABLES, Options(memory="1MB")), JOINED)


def test_order_must_name_modules() -> None:
    with pytest.raises(OptionError, match="order names 'nobody'"):
        Eddy(QUERY, Options(policy="static", order=("nobody",)))


def test_order_must_name_every_module_but_the_driver() -> None:
    tables = {"a": LEFT, "b": RIGHT, "c": RIGHT}
    costly = Selection(Call("gt", (col("a.v"), Literal(20, pa.int64()))), expensive=True)
    query = make_query(tables, ["a.x = b.y", "a.x = c.y"], selections=(costly,))
    select = Eddy(query).graph.optionals[0].name
    for order in (("stem:b", "c", select), ("c", "b", select.partition(":")[2], "a")):
        Eddy(query, Options(policy="static", order=order))
    with pytest.raises(OptionError, match="does not say when to visit module 'stem:a'"):
        Eddy(query, Options(policy="static", order=("b", select)))
    with pytest.raises(OptionError, match="does not say when to visit module 'select:"):
        Eddy(query, Options(policy="static", order=("a", "b", "c")))
    with pytest.raises(OptionError, match=r"'a', which is no module of this query.*join:a-b"):
        Eddy(QUERY, Options(policy="static", state="joins", order=("a", "b")))


# Several threads


def test_joins_are_not_for_several_threads() -> None:
    with pytest.raises(OptionError, match=r"threads=2 with state='joins'.*use threads=1"):
        Eddy(QUERY, Options(threads=2, state="joins"))


MANY = {"a": pa.table({"x": [1] * 1000}), "b": pa.table({"y": [1] * 1000})}


def _streaming(n_batches: int) -> Eddy:
    """Two threads, and so many results that they cannot all wait to be read."""
    query = make_query(MANY, ["a.x = b.y"], output=["a.x"])
    eddy = Eddy(query, Options(threads=2, batch_rows=1000))
    eddy.push("b", batches(MANY["b"])[0])
    eddy.end("b")
    for _ in range(n_batches):
        eddy.push("a", batches(MANY["a"])[0])
    eddy.end("a")
    return eddy


def test_threads_pause_while_results_are_unread() -> None:
    eddy = _streaming(4)
    n_rows, most_ready = 0, 0
    while (rows := eddy.poll()) is not None:
        n_rows += rows.num_rows
        time.sleep(0.001)
        most_ready = max(most_ready, eddy.output.n_ready)
    assert n_rows == 4 * 1000 * 1000
    assert 0 < most_ready <= 64 + 2, "each of the two threads may finish what it is at"
    assert eddy.is_done


def test_the_last_piece_is_divided_among_threads() -> None:
    """Otherwise one thread works at it while the others have nothing to do."""
    tables = {"a": pa.table({"x": range(60_000)}), "b": pa.table({"y": range(0, 60_000, 2)})}
    events = Recorder()
    query = make_query(tables, ["a.x = b.y"], output=["a.x"])
    eddy = Eddy(query, Options(threads=2), events=events)
    eddy.push("b", batches(tables["b"])[0])
    eddy.end("b")
    eddy.push("a", batches(tables["a"])[0])
    eddy.end("a")
    assert sorted(drained(eddy)[0].to_pylist()) == list(range(0, 60_000, 2))
    sizes = [event.n_arrived for event in events.of(Built) if event.source == "a"]
    assert sum(sizes) == 60_000
    assert 16_384 <= max(sizes) <= 30_000


def _name_of_thread(value: int) -> bool:
    time.sleep(0.001)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("not my day")
    return True


def test_whoever_polls_is_one_of_the_crew() -> None:
    """Three threads: the one that polls and two others."""

    class Names:
        def __init__(self) -> None:
            self.names: set[str] = set()

        def emit(self, event: object) -> None:
            if isinstance(event, Routed):
                self.names.add(threading.current_thread().name)
                time.sleep(0.001)

    sink = Names()
    eddy = Eddy(QUERY, Options(threads=3, batch_rows=2), events=sink)
    eddy.push("b", batches(RIGHT)[0])
    eddy.end("b")
    for _ in range(30):
        eddy.push("a", batches(LEFT)[0])
    eddy.end("a")
    assert drained(eddy).num_rows == 30 * JOINED.num_rows
    assert eddy.is_done
    assert threading.current_thread().name in sink.names
    assert len(sink.names) == 3


def test_an_error_of_another_thread_ends_the_polling_one() -> None:
    """It looks after the others between two pieces, not only when none is left."""
    n = 2000
    tables = {"a": pa.table({"x": range(n)}), "b": pa.table({"y": range(n)})}
    query = make_query(
        tables,
        ["a.x = b.y"],
        selections=(Selection(Call("name", (col("a.x"),)), expensive=True),),
        functions=(UserFunction("name", _name_of_thread, pa.bool_()),),
    )
    eddy = Eddy(query, Options(threads=2, batch_rows=10))
    eddy.push("b", batches(tables["b"])[0])
    eddy.end("b")
    eddy.push("a", batches(tables["a"])[0])
    eddy.end("a")
    with pytest.raises(EvaluationError, match="not my day"):
        drained(eddy)
    assert sum(router.n_driver_rows for router in eddy._routers) < n


def test_a_sink_may_ask_for_progress_on_any_thread() -> None:
    class Asking:
        def __init__(self) -> None:
            self.n_probes: list[int] = []
            self.threads: set[str] = set()

        def emit(self, event: object) -> None:
            if isinstance(event, Routed):
                self.n_probes.append(eddy.progress().n_probes)
                self.threads.add(threading.current_thread().name)
                time.sleep(0.001)

    sink = Asking()
    rows = {name: pa.table({"k": [i % 7 for i in range(70)]}) for name in "abcd"}
    query = make_query(rows, ["a.k = b.k", "a.k = c.k", "a.k = d.k"], output=[])
    eddy = Eddy(query, Options(policy="random", threads=2, batch_rows=10), events=sink)
    for name in "bcda":
        eddy.push(name, batches(rows[name])[0])
        eddy.end(name)
    n_rows = 0
    while (found := eddy.poll()) is not None:
        n_rows += found.num_rows
    assert n_rows == 7 * 10**4
    assert len(sink.threads) == 2
    assert max(sink.n_probes) <= eddy.progress().n_probes


def test_closing_an_eddy_whose_threads_paused() -> None:
    eddy = _streaming(8)
    assert eddy.poll() is not None
    deadline = time.monotonic() + 20
    while eddy.output.n_ready < 63 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert eddy.output.n_ready >= 63, "64, and one was polled"
    eddy.close()
    assert eddy.output.n_ready <= 64 + 2
    assert eddy.n_in_flight == 0
    assert not eddy.is_done


# Counting


@pytest.mark.parametrize("batch_rows", [1, 2, 1009])
def test_counters_agree_with_the_event_log(batch_rows: int) -> None:
    """*Conservation*: what went in and came out of every module is the same in both accounts."""
    rng = random.Random(5)
    tables = {
        name: pa.table({"k": [rng.randrange(4) for _ in range(30)], "id": range(30)})
        for name in "abc"
    }
    query = make_query(
        tables,
        ["a.k = b.k", "b.k = c.k"],
        selections=(Selection(Call("lt", (col("a.id"), Literal(20, pa.int64()))), expensive=True),),
    )
    log = Recorder()
    eddy = Eddy(query, Options(policy="random", batch_rows=batch_rows), events=log)
    for name, table in tables.items():
        for piece in batches(table, 11):
            eddy.push(name, piece)
        eddy.end(name)
    n_stored = {source.name: source.n_stored for source in eddy.progress().sources}
    found = drained(eddy)
    progress = eddy.progress()
    totals: dict[tuple[object, str], list[int]] = {}
    for event in log.of(Routed):
        sums = totals.setdefault((event.signature, event.module), [0, 0])
        sums[0] += event.n_in
        sums[1] += event.n_out
    assert totals == {
        (share.signature, share.module): [share.n_in, share.n_out]
        for share in progress.routes
        if share.n_batches
    }
    assert progress.n_probes == sum(event.n_in for event in log.of(Routed))
    assert sum(event.n_arrived for event in log.of(Built)) == 90
    assert [(e.source, e.n_rows) for e in log.of(SourceEnded)] == [("a", 30), ("b", 30), ("c", 30)]
    assert [event.n_rows for event in log.of(Finished)] == [found.num_rows]
    by_name = {source.name: source for source in progress.sources}
    for name in tables:
        kept = sum(e.n_rows for e in log.of(Built) if e.source == name and e.stored)
        assert n_stored[name] == kept
        assert by_name[name].n_arrived == 30
        assert by_name[name].is_ended
    assert progress.n_driver_rows == 30, "rows that come before the last relation match nothing"
    # Flow: what enters a signature is what came back from the modules that lead to it.
    entered: dict[object, int] = {}
    left: dict[object, int] = {}
    for share in progress.routes:
        entered[share.signature] = entered.get(share.signature, 0) + share.n_in
        to = _after(share.signature, share.module)
        left[to] = left.get(to, 0) + share.n_out
    for signature, n_in in entered.items():
        if signature.sources.bit_count() > 1:
            assert n_in == left[signature]
    assert left[Signature(0b111, 1)] == found.num_rows


def _after(signature: Signature, module: str) -> Signature:
    if module.startswith("select:"):
        return Signature(signature.sources, signature.done | 1)
    source = "abc".index(module.removeprefix("stem:"))
    return Signature(signature.sources | 1 << source, signature.done)


def test_the_last_relation_is_not_stored() -> None:
    log = Recorder()
    eddy = Eddy(QUERY, events=log)
    eddy.push("b", batches(RIGHT)[0])
    eddy.end("b")
    eddy.push("a", batches(LEFT)[0])
    assert_same_bag(drained(eddy), JOINED)
    assert eddy.progress().sources[0].n_stored == 0
    assert eddy.progress().sources[1].n_stored == 5
    eddy.end("a")
    assert eddy.poll() is None
    assert [(event.source, event.stored) for event in log.of(Built)] == [("b", True), ("a", False)]


def test_without_stamps_results_are_duplicated() -> None:
    found = answer(QUERY, TABLES, stamps=NoRule())
    assert found.num_rows == 2 * JOINED.num_rows


def test_a_relation_in_three_roles_meets_itself_once() -> None:
    table = pa.table({"x": [1, 1, 2], "id": [0, 1, 2]})
    roles = {"p": "t", "q": "t", "r": "t"}
    query = make_query({"t": table}, ["p.x = q.x", "q.x = r.x"], roles, ["p.id", "q.id", "r.id"])
    expected = [(p, q, r) for p in (0, 1) for q in (0, 1) for r in (0, 1)] + [(2, 2, 2)]
    columns = list(zip(*expected, strict=True))
    wanted = pa.table({f"{n}_id": list(c) for n, c in zip("pqr", columns, strict=True)})
    for rows in (1, 2, 3):
        assert_same_bag(answer(query, {"t": table}, rows=rows), wanted)


def test_expression_keys_are_computed_once_for_all_roles() -> None:
    table = pa.table({"x": [1, 2, 3]})
    one = Literal(1, pa.int64())
    base = make_query({"t": table}, roles={"p": "t", "q": "t"})
    query = Query(
        sources=base.sources,
        equalities=(Equality(Call("add", (col("p.x"), one)), col("q.x"), pa.int64()),),
        output=(Output("p", col("p.x"), pa.int64()), Output("q", col("q.x"), pa.int64())),
    )
    assert_same_bag(answer(query, {"t": table}), pa.table({"p": [1, 2], "q": [2, 3]}))


def test_results_outlive_the_eddy_and_the_memory_it_gave_back() -> None:
    """Large arrays are used again by the next query; results must not lie in them."""
    n = 200_000
    first = {
        "a": pa.table({"x": range(n), "s": [f"text {i}" for i in range(n)]}),
        "b": pa.table({"y": range(0, n, 100)}),
    }
    second = {"a": pa.table({"x": [-1] * n, "s": ["other"] * n}), "b": pa.table({"y": [-2]})}
    for rows in (None, 50_000):
        found = answer(make_query(first, ["a.x = b.y"]), first, rows=rows)
        answer(make_query(second, ["a.x = b.y"]), second, rows=rows)
        found = found.sort_by("a_x")
        assert found["a_x"].to_pylist() == list(range(0, n, 100))
        assert found["a_s"].to_pylist() == [f"text {i}" for i in range(0, n, 100)]
