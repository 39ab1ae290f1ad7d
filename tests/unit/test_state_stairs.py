"""state="stairs" and "auto": what is held, when, within which memory, and who decides."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.clock import VirtualClock
from eddies.core.eddy import Eddy
from eddies.core.events import Migrated
from eddies.core.join_tree import make_join_tree
from eddies.core.lineage import Signature
from eddies.core.live import EVERYTHING
from eddies.core.options import Options
from eddies.core.policies.base import Candidate, Fork
from eddies.core.route import RouteTable, Way
from eddies.core.stairs.expansion import Expansion
from eddies.core.stairs.migration import Migration
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Form, Planner, World
from eddies.core.stairs.regions import Leaf, Split, choices, learn
from eddies.core.stairs.repeats import Repeats
from eddies.core.stairs.statistics import matches
from eddies.core.state_modes.auto import LOOK, AutoMode
from eddies.core.state_modes.stairs import StairsMode
from eddies.core.state_modes.stems import StemsMode
from eddies.errors import OptionError
from tests.support.small import Recorder, batches, drained, make_query
from tests.support.stairs import stairs_of

R, S, T = 1, 2, 4
SIDES = {"R": "a", "S": "ab", "T": "b"}


def tables(n: int = 4000, seed: int = 0) -> dict[str, pa.Table]:
    """R joins S ten times over; few S rows have a partner in T."""
    rng = np.random.default_rng(seed)
    return {
        "R": pa.table({"a": rng.integers(0, n // 10, n)}),
        "S": pa.table({"a": rng.integers(0, n // 10, n), "b": rng.integers(0, 20 * n, n)}),
        "T": pa.table({"b": rng.integers(0, 20 * n, n)}),
    }


def start(options: Options, data: dict[str, pa.Table], **settings) -> Eddy:
    return Eddy(make_query(data, ["R.a = S.a", "S.b = T.b"]), options, **settings)


def feed(eddy: Eddy, data: dict[str, pa.Table], names: str, rows: int = 500) -> list[pa.Table]:
    """Push the named relations in turns and poll after every batch."""
    waiting = {name: batches(data[name], rows) for name in names}
    found = []
    while any(waiting.values()):
        for name, pieces in waiting.items():
            if pieces:
                eddy.push(name, pieces.pop(0))
                found.append(drained(eddy))
    return found


def finished(eddy: Eddy, names: str) -> pa.Table:
    for name in names:
        eddy.end(name)
    rest = drained(eddy)
    assert eddy.is_done
    return rest


def n_rows(found: list[pa.Table]) -> int:
    return sum(table.num_rows for table in found)


def test_a_migration_is_named_in_an_event():
    data, recorder = tables(), Recorder()
    eddy = start(Options(state="stairs"), data, events=recorder)
    feed(eddy, data, "RST")
    finished(eddy, "RST")
    (event,) = recorder.of(Migrated)
    assert event.forms == "S.a=S⋈T"


def test_a_stair_holds_what_it_says():
    data = tables()
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RST")
    assert isinstance(eddy.mode, StairsMode)
    (held,) = eddy.mode._held
    assert held == Form(1, 0, S | T)
    stair = stairs_of(eddy).stair(1, 0)
    n_joined = matches(
        data["S"]["b"].to_numpy().astype(np.uint64), data["T"]["b"].to_numpy().astype(np.uint64)
    ).sum()
    assert stair.n_live == n_joined


def test_only_parts_of_forms_carry_ids_that_nobody_else_asks_for():
    """S⋈T is held, so its rows keep their ids; R⋈S is stored nowhere, and goes on by T's key alone."""
    data = tables()
    query = make_query(data, ["R.a = S.a", "S.b = T.b"], output=["S.b"])
    eddy = Eddy(query, Options(state="stairs"))
    mode = eddy.mode
    assert isinstance(mode, StairsMode)
    assert mode.live(Signature(R | S)) == EVERYTHING, "nothing is decided yet"
    found = feed(eddy, data, "RST")
    assert {form.mask for form in mode._held} == {S | T}
    assert mode.live(Signature(S | T)) == mode.live(Signature(T)) == EVERYTHING
    assert mode.live(Signature(R | S)) & (R | S) == S
    found.append(finished(eddy, "RST"))
    expected = Eddy(query, Options(state="stems"))
    assert n_rows(found) == n_rows([*feed(expected, data, "RST"), finished(expected, "RST")])


def test_between_looks_most_batches_ask_nothing_of_the_state(monkeypatch):
    """Rows that match much are handled often, so it takes few of them until the next look."""
    asked = []
    resume = StairsMode.resume
    monkeypatch.setattr(StairsMode, "resume", lambda self: asked.append(self) or resume(self))
    rng, n = np.random.default_rng(0), 4000
    few, many = rng.integers(0, 40, (2, n)), rng.integers(0, n, (2, n))
    data = {
        "R": pa.table({"a": few[0]}),
        "S": pa.table({"a": few[1], "b": many[0]}),
        "T": pa.table({"b": many[1]}),
    }
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RST", rows=50)
    assert len(asked) < 20, "of 240 batches"


def test_no_migration_when_little_is_to_come():
    """The host said how many rows there are, and almost all have come when the last source begins."""
    data, recorder = tables(), Recorder()
    sizes = {"R": 2, "S": 4000, "T": 4000}
    eddy = start(Options(state="stairs"), data, events=recorder, expected_rows=sizes)
    few = data | {"R": data["R"].slice(0, 2)}
    feed(eddy, few, "ST")
    eddy.end("S")
    eddy.end("T")
    feed(eddy, few, "R")
    finished(eddy, "R")
    assert not recorder.of(Migrated)


def test_waiting_tuples_are_promoted_while_a_source_is_late():
    """Query scrambling: after a second without news, a poll builds S⋈T before R begins."""
    data, recorder, clock = tables(), Recorder(), VirtualClock()
    eddy = start(Options(state="stairs"), data, events=recorder, clock=clock)
    feed(eddy, data, "ST")
    assert eddy.poll() is None
    assert not recorder.of(Migrated), "not late yet"
    clock.advance_ns(10**9)
    assert eddy.poll() is None
    (event,) = recorder.of(Migrated)
    assert event.forms == "S.a=S⋈T"
    found = feed(eddy, data, "R")
    found.append(finished(eddy, "RST"))
    alone = start(Options(state="stems"), data)
    expected = feed(alone, data, "STR")
    expected.append(finished(alone, "RST"))
    assert n_rows(found) == n_rows(expected)


@pytest.mark.parametrize("first", ["C", "CD"])
def test_neighbours_may_both_be_late(first):
    """A join of which nothing has come on either side was never sampled."""
    numbers = pa.array(range(1000))
    columns = {"C": "x", "D": "xy", "A": "yz", "B": "zw", "E": "w"}
    data = {name: pa.table(dict.fromkeys(keys, numbers)) for name, keys in columns.items()}
    clock = VirtualClock()
    query = make_query(data, ["C.x = D.x", "D.y = A.y", "A.z = B.z", "B.w = E.w"])
    eddy = Eddy(query, Options(state="stairs"), clock=clock)
    feed(eddy, data, first)
    for _ in range(3):
        clock.advance_ns(10**9)
        assert eddy.poll() is None
        eddy.use_silence()
    found = feed(eddy, data, "".join(name for name in data if name not in first))
    found.append(finished(eddy, "CDABE"))
    assert n_rows(found) == 1000


def test_a_form_on_demand_that_finds_no_room_loses_nothing():
    """Its STAIR shows rows again, by an index of its own: the SteM has four others already."""
    n = 20
    rows = pa.array(range(n))
    columns = {"S": "abcde", "P": "a", "Q": "c", "U": "d", "V": "e", "X": "ab"}
    data = {name: pa.table(dict.fromkeys(keys, rows)) for name, keys in columns.items()}
    joins = ["S.a = P.a", "S.c = Q.c", "S.d = U.d", "S.e = V.e", "S.a = X.a", "S.b = X.b"]
    eddy = Eddy(make_query(data, joins), Options(state="stairs", migration="never"))
    assert n_rows(feed(eddy, data, "SPQUV")) == 0
    ids = {role.name: role.source_id for role in eddy.graph.roles}
    stairs = stairs_of(eddy)
    edge = next(e for e in stairs.tree.edges if {e.left, e.right} == {ids["S"], ids["X"]})
    form = Form(ids["S"], edge.number, 1 << ids["S"] | 1 << ids["Q"])
    planner = Planner(stairs.tree, len(ids))
    world = World([float(n)] * len(ids), [1 / n] * len(stairs.tree.edges), stairs.tree)
    stair = stairs.stair(ids["S"], edge.number)
    stair.hold_on_demand(form.mask, Expansion(stairs, planner, form, world))
    stairs.history.allowance = 100
    few = {"X": data["X"].slice(0, 15)}
    assert n_rows(feed(eddy, few, "X")) == 15
    assert stair.is_view
    assert stairs.history.n_demoted == 1


@pytest.mark.parametrize("extra", [0, 20_000, 200_000, 100_000_000])
def test_intermediates_stay_within_the_budget(extra):
    """With no room beyond the rows, memory is that of SteMs; with some, it is never exceeded."""
    n = 20_000
    rng = np.random.default_rng(1)
    data = {
        "R": pa.table({"a": rng.integers(0, n // 20, n)}),
        "S": pa.table({"a": rng.integers(0, n // 20, n), "b": rng.integers(0, n, n)}),
        "T": pa.table({"b": rng.integers(0, n, n)}),
    }
    plain = start(Options(state="stairs", migration="never"), data)
    feed(plain, data, "RST", 2000)
    rows = sum(plain.memory().values())
    budget = rows * 3 // 2 + extra
    eddy = start(Options(state="stairs", migration="greedy", memory=budget), data)
    waiting = {name: batches(data[name], 2000) for name in "RST"}
    most = 0
    while any(waiting.values()):
        for name, pieces in waiting.items():
            eddy.push(name, pieces.pop(0))
            drained(eddy)
            most = max(most, sum(join.n_bytes for join in eddy.mode.kept.joins))
            assert sum(eddy.memory().values()) <= budget
    assert most <= max(0, budget - rows)
    held = sum(join.n_bytes for join in eddy.mode.kept.joins)
    assert (held > 0) == (extra == 100_000_000)
    assert extra or held == 0, "the footprint of SteMs"
    finished(eddy, "RST")


def test_auto_begins_with_stems_and_keeps_them_for_a_star_that_streams():
    rng = np.random.default_rng(0)
    n = 2000
    data = {
        "f": pa.table({"x": rng.integers(0, 50, n), "y": rng.integers(0, 50, n)}),
        "d": pa.table({"x": np.arange(50)}),
        "e": pa.table({"y": np.arange(50)}),
    }
    eddy = Eddy(make_query(data, ["f.x = d.x", "f.y = e.y"]))
    assert isinstance(eddy.mode, AutoMode)
    for name in ("d", "e", "f"):
        for batch in batches(data[name], 100):
            eddy.push(name, batch)
            drained(eddy)
        eddy.end(name)
    drained(eddy)
    assert eddy.mode.stairs is None
    assert eddy.progress().sources[0].n_stored == 0


def auto_mode(eddy: Eddy) -> AutoMode:
    assert isinstance(eddy.mode, AutoMode)
    return eddy.mode


def test_auto_turns_to_stairs_when_sources_arrive_in_turns():
    """Rows of R find ten rows of S each, which look for T again and again."""
    data = tables(10_000)
    eddy = start(Options(), data)
    found = feed(eddy, data, "RST")
    stairs = auto_mode(eddy).stairs
    assert stairs is not None
    assert stairs._held
    found.append(finished(eddy, "RST"))
    alone = start(Options(state="stems"), data)
    expected = [*feed(alone, data, "RST"), finished(alone, "RST")]
    assert n_rows(found) == n_rows(expected)


def test_auto_does_not_look_where_nothing_is_done_again():
    """Every row has one partner in each relation: to keep pairs would save nobody anything."""
    names = [f"t{i}" for i in range(5)]
    data = {name: pa.table({"x": np.arange(10_000)}) for name in names}
    eddy = Eddy(make_query(data, [f"t0.x = {name}.x" for name in names[1:]]))
    for pieces in zip(*(batches(data[name], 1000) for name in names), strict=True):
        for name, piece in zip(names, pieces, strict=True):
            eddy.push(name, piece)
            drained(eddy)
    mode = auto_mode(eddy)
    assert sum(table.n_handled for table in mode._tables) > 10 * LOOK, "there were glances"
    assert mode._made is None, "and no look"


@pytest.mark.parametrize("n_batches", [5, 7])
def test_auto_looks_before_the_first_result_if_a_relation_is_late(n_batches):
    data = tables(5000 * n_batches)
    eddy = start(Options(), data)
    for name in "RS":
        for piece in batches(data[name], 5000)[: n_batches // 2 + (name == "S")]:
            eddy.push(name, piece)
            drained(eddy)
    assert auto_mode(eddy).stairs is None
    eddy.push("T", batches(data["T"], 100)[0])
    assert (auto_mode(eddy).stairs is not None) == (n_batches == 7)


def test_auto_looks_before_rows_of_the_last_relation_multiply():
    """R and S have ended, and T reaches R through S only: what is kept of both may spare much."""
    n = 3000
    data = {
        "R": pa.table({"a": np.arange(n) % 100}),
        "S": pa.table({"a": np.arange(n) % 200, "b": np.arange(n) % 100}),
        "T": pa.table({"b": np.arange(n) % 150}),
    }
    for name, looks in (("T", True), ("S", False)):  # from S on, both others are one step away
        eddy = start(Options(), data)
        for other in "RST":
            if other != name:
                eddy.push(other, batches(data[other], n)[0])
                eddy.end(other)
        eddy.push(name, batches(data[name], 10)[0])
        drained(eddy)
        assert (auto_mode(eddy)._made is not None) == looks


def test_what_is_done_again_is_what_asks_more_often_than_it_has_rows():
    """Rows of S ask for T when they come, and again for each row of R that finds them."""
    repeats = Repeats(make_join_tree(start(Options(), tables(10)).graph), 3)
    table = RouteTable(lambda route, table: (None, []))
    routes = []
    for sources, target, n_in, n_out in (
        (R, S, 100, 400),
        (S, T, 50, 5),
        (R | S, T, 400, 40),
    ):
        route = table.route(Signature(sources))
        candidate = Candidate(target.bit_length() - 1, "stem", "probe")
        route.fork = Fork(0, route.signature, (candidate,), (Signature(sources | target),))
        route.ways = [Way(route.fork, 0, None)]
        route.ways[0].n_in, route.ways[0].n_out = n_in, n_out
        routes.append(route)
    assert repeats.n_tuples(routes, [100, 450, 0]) == 0
    # S asked 450 times and found 45: for 400 of its 450 questions it is the first time.
    assert repeats.n_tuples(routes, [100, 400, 0]) == 50 * 495 // 450
    # R asks for S: of 100 questions half are new, and so are their answers.
    assert repeats.n_tuples(routes, [50, 450, 0]) == 250


@pytest.mark.parametrize("options", [Options(threads=2), Options(policy="lottery")])
def test_auto_is_stems_where_stairs_cannot_serve(options):
    assert isinstance(start(options, tables(10)).mode, StemsMode)


def test_unknown_migration_is_refused():
    with pytest.raises(OptionError, match="unknown migration 'eager'"):
        Options(migration="eager")


def test_forms_of_the_best_tree():
    data = tables(10)
    tree = stairs_of(start(Options(state="joins"), data)).tree
    planner = Planner(tree, 3)
    assert planner.best_tree({R | S: 5.0, S | T: 1.0}) == {Form(1, 0, S | T)}
    assert planner.best_tree({R | S: 1.0, S | T: 5.0}) == {Form(1, 1, R | S)}
    world = World([100.0, 100.0, 100.0], [0.1, 0.001], tree)
    rows_only = planner.routing(frozenset(), world)
    assert rows_only.join(S) == 1  # T first: it matches less
    held = planner.routing(frozenset({Form(1, 0, S | T)}), world)
    assert held.cost(R) < rows_only.cost(R)
    assert held.join(S | T) == 0  # where the form is held


def test_a_view_that_nobody_probes_needs_no_index():
    """S is complete, R and T go on. Where S's STAIR holds R⋈S, rows of T find R rows there, and nobody
    looks R up: to hold R⋈S saves an entry of an index for each R row.
    """
    tree = stairs_of(start(Options(state="joins"), tables(10))).tree
    planner = Planner(tree, 3)
    now = World([100.0, 100.0, 100.0], [0.0, 0.0], tree)
    rows_only, joined = frozenset(), frozenset([Form(1, 1, R | S)])
    assert set(planner.routing(rows_only, now).views(T)) == {(1, 1), (0, 0)}
    assert set(planner.routing(joined, now).views(T)) == set()

    def cost(forms, behind):
        to_come = [100.0, 0.0, 100.0]
        outlook = Outlook(planner, now, to_come, [0.0, 0.0], rows_only, S, R | S | T, behind)
        (found,) = outlook.costs(forms)
        return found

    # 200 rows probe S and match nothing; R and T are indexed for whom might have matched.
    assert cost(rows_only, {}) == 200 + 200
    assert cost(joined, {}) == 200 + 100
    # Rows of R that came while nobody looked them up would have to be indexed, too.
    assert cost(rows_only, {(0, 0): 70}) == 200 + 200 + 70
    assert cost(joined, {(0, 0): 70}) == 200 + 100


def test_a_form_without_room_must_promise_more_next_time():
    data = tables()
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RST")
    mode = eddy.mode
    assert isinstance(mode, StairsMode)
    (form,) = mode._held
    assert mode.migration_policy._dropped == {}
    stairs_of(eddy).history.allowance = 0
    mode.still_until = 0.0  # as it would be with a budget
    eddy.push("S", batches(data["S"], 500)[0])  # finds no room: the STAIR becomes a view
    drained(eddy)
    assert not mode._held
    assert mode.migration_policy._dropped == {form.mask: 1}


def held_and_policy(eddy: Eddy) -> tuple[StairsMode, Form, dict[int, int]]:
    mode = eddy.mode
    assert isinstance(mode, StairsMode)
    (form,) = mode._held
    return mode, form, mode.migration_policy._dropped


def test_a_form_dropped_by_a_migration_is_counted_once(monkeypatch):
    """The policy knows what it dropped; that a STAIR becomes a view meanwhile is no news of it."""
    data = tables()
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RST")
    mode, form, dropped = held_and_policy(eddy)
    monkeypatch.setattr(Migration, "stage", lambda *_: False)  # there is always more to do
    mode.migration_policy.gave_up(frozenset({form}))
    mode._move_to(frozenset({Form(1, 1, R | S)}), mode._outlook(), at_once=True)
    assert mode._migration is not None
    stairs_of(eddy).history.n_demoted += 1
    mode.at_safe_point()
    assert dropped == {form.mask: 1}


def test_a_form_that_loses_its_room_during_a_migration_is_counted_once(monkeypatch):
    data, is_over = tables(), [False]
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RST")
    monkeypatch.setattr(Migration, "stage", lambda *_: is_over[0])
    mode, form, dropped = held_and_policy(eddy)
    stairs = stairs_of(eddy)
    mode._migration = Migration(stairs, mode._planner, mode._held, mode._held, mode._outlook().now)
    stairs.history.allowance = 0
    eddy.push("S", batches(data["S"], 500)[0])
    drained(eddy)
    is_over[0] = True
    mode.at_safe_point()
    assert mode._migration is None, "it has ended"
    assert not mode._held
    assert dropped == {form.mask: 1}


@pytest.mark.parametrize("pays", [False, True])
def test_dead_ends_are_removed_before_stairs_are_thought_of_for_the_last_relation(
    monkeypatch, pays
):
    """Once, whether STAIRs pay or not, which its first rows tell."""
    data, removed = tables(), []
    eddy = start(Options(state="auto"), data)
    mode = eddy.mode
    assert isinstance(mode, AutoMode)
    monkeypatch.setattr(mode._stems_mode, "before_last", lambda *told: removed.append(told))
    monkeypatch.setattr(mode._stems_mode, "may_multiply", lambda _: True)
    for name in "RS":
        feed(eddy, data, name)
        eddy.end(name)
    monkeypatch.setattr(StairsMode, "would_pay", lambda _: pays)
    assert removed == [], "T has not begun"
    found = feed(eddy, data, "T")
    assert removed == [(2, 500)]  # what waits
    assert (mode.stairs is not None) == pays
    found.append(finished(eddy, "T"))
    alone = start(Options(state="stems"), data)
    expected = feed(alone, data, "RST")
    assert n_rows(found) == n_rows([*expected, finished(alone, "RST")])


def test_stairs_that_were_made_before_dead_ends_were_removed_are_made_again():
    """They knew rows by ids, and these have changed."""
    n = 6000
    data = {
        "R": pa.table({"a": np.arange(n) % 300}),
        "S": pa.table({"a": np.arange(n) % 600, "b": np.arange(n) % 500}),
        "T": pa.table({"b": np.arange(n) % 150}),
    }
    expected = start(Options(state="stems"), data)
    rows = [*feed(expected, data, "RST"), finished(expected, "RST")]
    eddy = start(Options(), data)
    mode = auto_mode(eddy)
    found = feed(eddy, data, "RS")
    early = mode._stairs_mode()
    for name in "RS":
        eddy.end(name)
    found += feed(eddy, data, "T")
    assert any(stem.generation for stem in mode._stems), "half of S has no partner in R"
    assert mode._made is not early
    mode._switch()
    found.append(finished(eddy, "T"))
    assert n_rows(found) == n_rows(rows)


def test_samples_of_two_sides_come_from_different_places():
    """Row by row the sides are equal: from the same places, all of one sample would match the other."""
    n = 100_000
    numbers = pa.array(range(n))
    data = {name: pa.table(dict.fromkeys(keys, numbers)) for name, keys in SIDES.items()}
    eddy = start(Options(state="stairs"), data)
    for name in "RST":
        eddy.push(name, data[name].combine_chunks().to_batches()[0])
    assert isinstance(eddy.mode, StairsMode)
    edge = eddy.mode.tree.edges[0]
    assert eddy.mode.statistics.sampled(edge) == pytest.approx(1 / n, rel=0.7)


def test_rows_that_are_the_last_are_routed_by_samples():
    """T comes in one batch and has ended by the time it is routed: nothing is worth keeping any more,
    but samples are taken once, for the way it is routed.
    """
    data = tables()
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RS", rows=4000)
    for name in "RS":
        eddy.end(name)
    eddy.push("T", batches(data["T"], 4000)[0])
    finished(eddy, "T")
    assert isinstance(eddy.mode, StairsMode)
    assert eddy.mode.n_looks == 1


def test_stairs_begin_with_the_look_that_called_for_them(monkeypatch):
    """It is not repeated at the next safe point, when hardly a row more has come."""
    data, looks = tables(10_000), []
    monkeypatch.setattr(StairsMode, "_look", looks.append)
    eddy = start(Options(), data)
    mode = auto_mode(eddy)
    waiting = {name: batches(data[name], 500) for name in "RST"}
    while mode.stairs is None:
        for name in "RST":
            eddy.push(name, waiting[name].pop(0))
            drained(eddy)
    assert isinstance(mode.stairs, StairsMode)
    assert mode.stairs._held
    assert not looks


def test_what_has_ended_is_closed_when_its_last_rows_have_been_routed():
    """And only then: rows that wait still look for others."""
    data = tables()
    eddy = start(Options(state="stairs"), data)
    feed(eddy, data, "RST", rows=1000)
    mode = eddy.mode
    assert isinstance(mode, StairsMode)
    mode._taken[0] += 1  # as if another row of R waited
    eddy.end("R")
    mode.at_safe_point()
    assert not mode._closed
    mode._taken[0] -= 1
    mode.at_safe_point()
    assert mode._closed == 0b001


def test_looks_are_apart_by_the_work_they_look_at():
    """A policy with a long stride is asked less often, whatever the growth."""
    data, n_looks = tables(), []
    for stride in (0.0, 20_000.0):
        eddy = start(Options(state="stairs"), data)
        eddy.mode.migration_policy.stride = stride
        feed(eddy, data, "RST", rows=100)
        n_looks.append(eddy.mode.n_looks)
    assert n_looks[1] < n_looks[0] / 2


def test_regions_are_told_by_the_value_that_separates_them():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 100, 600)
    noise = rng.integers(0, 100, 600)
    costs = np.where((kind < 40)[:, None], [[5.0, 0.0]], [[0.0, 5.0]])
    regions = learn({"noise": noise, "kind": kind}, costs)
    assert isinstance(regions, Split)
    assert (regions.name, regions.left, regions.right) == ("kind", Leaf(1), Leaf(0))
    chosen = choices(regions, {"noise": noise, "kind": kind}, 600)
    assert costs[np.arange(600), chosen].sum() == 0


def test_without_parts_there_is_one_leaf():
    rng = np.random.default_rng(0)
    costs = np.ones((600, 2)) * [1.0, 3.0]
    assert learn({"x": rng.integers(0, 9, 600)}, costs) == Leaf(0)
