"""Access modules piece by piece: who asks, what is covered, what is asked again, what comes first."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.access import Access, IndexAccess, LookupReply, LookupRequest
from eddies.core.access.binding import plan_access
from eddies.core.access.choice import EarliestAnswer
from eddies.core.access.dispatch import Dispatcher, KeyQueue
from eddies.core.access.eot import Eots
from eddies.core.access.key_table import NO_KEY, UNKNOWN
from eddies.core.clock import VirtualClock
from eddies.core.eddy import Eddy
from eddies.core.expr import Call, Literal
from eddies.core.graph import make_graph
from eddies.core.lineage import Signature
from eddies.core.options import Options
from eddies.core.partial import PartialAnswer
from eddies.core.state.columns import column_of
from eddies.errors import OptionError, SourceError, UnreachableError
from eddies.experiments.access_cases import index_on
from eddies.hosts import local
from eddies.hosts.access import AccessRun
from eddies.hosts.lookups import Fate, VirtualLookups
from eddies.sources import Simulated
from eddies.sources.inline import InlineSource
from tests.support.bag import assert_same_bag
from tests.support.small import col, make_query

R = pa.table({"a": [1, 2, 3], "b": [1, 2, 3]})
TABLES = {"r": R, "s": R, "t": R}


def nothing(keys: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=R.schema)


def index(*bind: str, **settings: object) -> IndexAccess:
    return IndexAccess(f"by {bind}", bind, nothing, **settings)


def plan(on: list[str], **access: Access):
    graph = make_graph(make_query(TABLES, on))
    return plan_access(graph, [access.get(relation.name, Access()) for relation in graph.relations])


# Binding


def test_a_chain_of_indexes_is_reached_one_by_one():
    found = plan(
        ["r.a = s.a", "s.b = t.b"], s=Access((), (index("a"),)), t=Access((), (index("b"),))
    )
    assert found.can_reach(0b001, 1)
    assert not found.can_reach(0b001, 2)
    assert found.can_reach(0b010, 2)


def test_a_source_nobody_can_bind_is_refused_with_the_columns_that_are_missing():
    with pytest.raises(UnreachableError, match=r"source 's' cannot be reached.*s\.b"):
        plan(["r.a = s.a", "s.a = t.a"], s=Access((), (index("b"),)))


def test_sources_that_only_bind_each_other_are_refused():
    with pytest.raises(UnreachableError, match="cannot be reached itself"):
        plan(["r.a = s.a", "s.b = t.b"], s=Access((), (index("b"),)), t=Access((), (index("b"),)))


def test_a_stuck_driver_on_a_tree_may_probe_what_is_there():
    found = plan(["r.a = s.a", "s.b = t.b"], s=Access((), (index("a"),)))
    assert found.is_tree
    assert [move.target for move in found.moves(Signature(0b100))] == [1]


def test_an_index_that_two_sources_bind_together_is_reached_by_a_product():
    found = plan(["r.a = s.a", "s.b = t.b"], s=Access((), (index("a", "b"),)))
    (move,) = found.moves(Signature(0b001))
    assert move.target == 2
    assert move.cross


# EOTs


def test_eots_cover_keys_once_they_are_answered():
    eots = Eots("s", pa.schema([("x", pa.int64()), ("y", pa.string())]))
    x, y = pa.array([1, 1, 2, None]), pa.array(["long enough to hash"] * 4)
    side = [(column_of(x), None), (column_of(y), None)]
    assert eots.find(side).tolist() == [UNKNOWN, UNKNOWN, UNKNOWN, NO_KEY]
    ids = eots.want(side, np.array([0, 1, 2], dtype=np.int32))
    assert ids.tolist() == [0, 1], "each key once"
    assert eots.covered(eots.find(side)).tolist() == [False, False, False, True]
    eots.cover(ids[:1])
    assert eots.covered(eots.find(side)).tolist() == [True, True, False, True]


# Dispatch


class Manual:
    """Look-ups that are answered when the test says so."""

    def __init__(self, *, keeps_at_hand: bool = False) -> None:
        self.keeps_at_hand = keeps_at_hand
        self.started: list[LookupRequest] = []
        self.ready: list[LookupReply] = []

    def start(self, request: LookupRequest) -> None:
        self.started.append(request)

    def began_ns(self, request: LookupRequest) -> int | None:
        is_at_hand = self.keeps_at_hand and request in self.started[request.index.concurrency :]
        return None if is_at_hand else request.issued_ns

    def recall(self, relation: str, index: IndexAccess) -> list[int]:
        waiting = [request for request in self.started if self.began_ns(request) is None]
        self.started = [request for request in self.started if request not in waiting]
        return [request.number for request in waiting]

    def replies(self) -> list[LookupReply]:
        ready, self.ready = self.ready, []
        return ready

    def abandon(self, request: LookupRequest) -> None:
        pass

    def next_reply_ns(self) -> int | None:
        return None

    def wait(self, until_ns: int | None) -> None:
        pass

    def close(self) -> None:
        pass


def dispatcher(
    *indexes: IndexAccess, n_keys: int
) -> tuple[Dispatcher, KeyQueue, Manual, VirtualClock]:
    import random

    eots = Eots("s", pa.schema([("a", pa.int64())]))
    side = [(column_of(pa.array(range(n_keys))), None)]
    queue = KeyQueue(0, "s", 0, eots, indexes)
    manual, clock = Manual(), VirtualClock()
    made = Dispatcher([queue], manual, EarliestAnswer(random.Random(0)), clock, None)
    made.want(queue, eots.want(side, np.arange(n_keys, dtype=np.int32)))
    return made, queue, manual, clock


def test_limits_are_full_while_keys_wait():
    made, queue, manual, _ = dispatcher(index("a", concurrency=3, keys_per_lookup=2), n_keys=10)
    made.pump([False])
    assert [len(request.keys) for request in manual.started] == [2, 2, 2]
    manual.ready.append(LookupReply(manual.started[0].number, nothing(None)))
    assert len(list(made.answers([False]))) == 1
    made.pump([False])
    assert len(manual.started) == 4
    assert queue.n_waiting == 2


def test_calls_at_hand_come_back_when_one_fails():
    """An index that works well is given calls ahead; after a failure they wait with the rest."""
    made, queue, manual, _ = dispatcher(index("a", concurrency=2), n_keys=9)
    manual.keeps_at_hand = True
    made.pump([False])
    assert len(manual.started) == 2, "nothing ahead before it has answered"
    first = manual.started.pop(0)
    manual.ready.append(LookupReply(first.number, nothing(None)))
    assert len(list(made.answers([False]))) == 1
    made.pump([False])
    assert len(manual.started) == 4, "two under way, two at hand"
    manual.ready.append(LookupReply(manual.started[0].number, None, "down"))
    assert list(made.answers([False])) == []
    assert [request.number for request in manual.started] == [2, 3]
    assert queue.n_waiting == 9 - 1 - 1, "all but the one answered and the one under way"
    assert queue.indexes[0].n_out == made.n_calls == 1


def test_a_failed_call_is_repeated_after_pauses_that_double():
    made, _, manual, clock = dispatcher(index("a", retries=2, backoff_s=1.0), n_keys=1)
    moments = []
    for pause_s in (0.0, 1.0, 2.0):
        clock.advance_ns(int(pause_s * 1e9))
        made.pump([False])
        moments.append(clock.now_ns() / 1e9)
        assert len(manual.started) == len(moments)
        manual.ready.append(LookupReply(manual.started[-1].number, None, "down"))
        if len(moments) < 3:
            list(made.answers([False]))
    assert moments == [0.0, 1.0, 3.0]
    with pytest.raises(SourceError, match=r"3 attempts .* at last: down"):
        list(made.answers([False]))


def test_keys_nobody_answers_are_left_to_a_scan():
    made, queue, manual, _ = dispatcher(index("a", retries=0), n_keys=1)
    made.pump([True])
    manual.ready.append(LookupReply(manual.started[0].number, None, "down"))
    assert list(made.answers([True])) == []
    assert queue.n_pending == 0
    made.ask_again(0)
    assert queue.n_pending == 1


def test_the_answer_of_a_call_that_was_given_up_is_ignored():
    made, _, manual, clock = dispatcher(index("a", timeout_s=1.0, backoff_s=0.0), n_keys=1)
    made.pump([False])
    clock.advance_ns(1_000_000_000)
    made.pump([False])
    late, again = manual.started
    manual.ready += [
        LookupReply(late.number, nothing(None)),
        LookupReply(again.number, nothing(None)),
    ]
    assert len(list(made.answers([False]))) == 1


def test_policies_know_what_look_ups_cost():
    """t drops almost every row and costs nothing; s is looked up. So t goes first, and few ask."""
    n_rows = 4000
    r = pa.table({"a": range(n_rows), "b": range(n_rows)})
    s = pa.table({"a": range(n_rows)})
    t = pa.table({"b": range(0, n_rows, 100)})
    clock = VirtualClock()
    query = make_query({"r": r, "s": s, "t": t}, ["r.a = s.a", "r.b = t.b"], output=["r.a"])
    access = {"s": Access((), (index_on("a", s, ("a",), concurrency=4),))}
    scans = {"t": {"scan": Simulated(t)}, "r": {"scan": Simulated(r, delay_s=1, batch_rows=20)}}
    run = AccessRun(
        query,
        {},
        Options(policy="rank", batch_rows=20),
        clock=clock,
        lookups=VirtualLookups(clock, lambda request: Fate(0.02)),
        access={"r": Access(), "t": Access(), **access},
        scans=scans,
    )
    assert run.table().num_rows == 40
    n_asked = sum(q.eots.n_keys for q in run.eddy.access.lookups.queues.values())
    assert n_asked < n_rows / 4


# Preferences and partial results

ORDERS = pa.table({"id": range(60), "user": [i % 20 for i in range(60)]})
USERS = pa.table({"uid": range(20), "land": ["PE" if i == 13 else "DE" for i in range(20)]})
TEXT = "SELECT o.id, u.land FROM orders o, users u WHERE o.user = u.uid"


def answered(prefer: str | None) -> tuple[pa.Table, list[int]]:
    order: list[int] = []

    def lookup(keys: pa.RecordBatch) -> pa.Table:
        order.extend(keys.column("uid").to_pylist())
        return USERS.filter(pa.compute.is_in(USERS["uid"], keys.column("uid")))

    users = InlineSource(USERS[:0]).index(on=["uid"], lookup=lookup)
    users = type(users)(users.label, users.schema, (), users.indexes)
    options = Options(prefer=prefer, batch_rows=1000)
    return local.sql(TEXT, {"orders": ORDERS, "users": users}, options), order


def test_what_is_preferred_is_asked_for_first_and_the_answer_is_the_same():
    plain, _ = answered(None)
    found, order = answered("o.user = 13")
    assert_same_bag(found, plain)
    assert order[0] == 13


@pytest.mark.parametrize("text", ["o.user = u.uid", "x.a = 1", "user = 3"])
def test_a_preference_must_be_about_one_source(text):
    with pytest.raises(OptionError, match="one source"):
        answered(text)


def test_a_preference_can_change_while_the_query_runs():
    r = pa.table({"k": range(40)})
    clock = VirtualClock()
    asked: list[int] = []

    def fate(request: LookupRequest) -> Fate:
        asked.extend(request.keys.column(0).to_pylist())
        return Fate(1.0)

    s = pa.table({"k": range(40)})
    access = {"s": Access((), (index_on("k", s, ("k",), concurrency=1, timeout_s=1e4),))}
    query = make_query({"r": r, "s": s}, ["r.k = s.k"], output=["r.k"])
    run = AccessRun(
        query, {"r": r}, clock=clock, access=access, lookups=VirtualLookups(clock, fate)
    )
    n_rows = 0
    for batch in run:
        n_rows += batch.num_rows
        if n_rows == 5:
            run.eddy.prefer(Call("ge", (col("r.k"), Literal(35, pa.int64()))))
    assert n_rows == 40
    assert sorted(asked[6:11]) == [35, 36, 37, 38, 39]
    assert Counter(asked) == Counter(range(40))


def test_partial_rows_tell_what_is_known_without_a_source():
    tables = {"r": R, "s": R, "t": R}
    query = make_query(tables, ["r.a = s.a", "s.b = t.b"], output=["r.a", "s.b", "t.a"])
    eddy = Eddy(query, Options(partial=True))
    partial = PartialAnswer(eddy, "t")
    for name in ("r", "s"):
        eddy.push(name, R.to_batches()[0])
    told = partial.poll()
    assert told is not None
    assert sorted(told.to_pydict()["r_a"]) == [1, 2, 3]
    assert told.to_pydict()["t_a"] == [None] * 3
    assert set(told.to_pydict()["missing"]) == {"t"}
    assert partial.poll() is None
    for name in tables:
        if name == "t":
            eddy.push(name, R.to_batches()[0])
        eddy.end(name)
    exact = eddy.poll()
    assert exact is not None
    assert exact.num_rows == 3


def test_without_the_middle_there_are_no_partial_rows():
    query = make_query(TABLES, ["r.a = s.a", "s.b = t.b"])
    eddy = Eddy(query, Options(partial=True))
    assert not PartialAnswer(eddy, "s").is_possible
    with pytest.raises(OptionError, match="partial=True"):
        PartialAnswer(Eddy(query), "t")


def test_scans_that_are_late_do_not_hold_up_look_ups():
    """The scan of t has not begun; s is asked for all the same."""
    clock = VirtualClock()
    access = {"s": Access(("scan",), (index_on("a", R, ("a",)),))}
    scans = {
        "r": {"scan": Simulated(R)},
        "s": {"scan": Simulated(R, delay_s=100)},
    }
    tables = {"r": R, "s": R}
    query = make_query(tables, ["r.a = s.a"])
    lookups = VirtualLookups(clock, lambda request: Fate(1.0))
    run = AccessRun(
        query, {}, clock=clock, lookups=lookups, access={"r": Access(), **access}, scans=scans
    )
    first = next(iter(run))
    assert clock.now_ns() == 1_000_000_000
    assert first.num_rows == 3


def test_a_scan_is_not_read_to_its_end_when_look_ups_have_brought_all_that_matters():
    """Three rows of r, an index, and a scan that takes an hour."""
    r = pa.table({"a": [5, 700, 5000]})
    s = pa.table({"a": range(3600)})
    clock = VirtualClock()
    query = make_query({"r": r, "s": s}, ["r.a = s.a"])
    run = AccessRun(
        query,
        {},
        clock=clock,
        lookups=VirtualLookups(clock, lambda request: Fate(0.5)),
        access={"r": Access(), "s": Access(("scan",), (index_on("a", s, ("a",)),), ("a",))},
        scans={
            "r": {"scan": Simulated(r)},
            "s": {"scan": Simulated(s, rows_per_s=1, batch_rows=1)},
        },
    )
    assert run.table().num_rows == 2
    assert clock.now_ns() < 5e9
