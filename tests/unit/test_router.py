"""The loop: when a policy is asked, what it is told, and what happens to what it says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddies.core.clock import VirtualClock
from eddies.core.eddy import Eddy
from eddies.core.events import Reoptimized, Routed
from eddies.core.graph import Graph
from eddies.core.modules.stem import Probe, SteM
from eddies.core.options import Options
from eddies.core.policies import Decision, Fork
from tests.support.bag import assert_same_bag
from tests.support.small import Recorder, answer, batches, drained, make_query

FACT = pa.table({"x": [i % 3 for i in range(20)], "y": [i % 4 for i in range(20)], "n": range(20)})
TABLES = {
    "b": pa.table({"x": [0, 1, 1]}),
    "c": pa.table({"y": [0, 2, 2, 3]}),
    "f": FACT,
}
QUERY = make_query(TABLES, ["f.x = b.x", "f.y = c.y"])


class Scripted:
    """Says what it is told to say, in turn, and remembers everything."""

    is_surprised = False
    news_ns = None
    diverts = False

    def __init__(
        self, *decisions: Decision, every_batch: bool = False, has_news: bool = True
    ) -> None:
        self.every_batch = every_batch
        self.has_news = has_news
        self.decisions = decisions or (Decision(0),)
        self.asked: list[Fork] = []
        self.told: list[tuple[int, int, int, int]] = []
        self.n_reoptimized = 0

    def choose(self, fork: Fork) -> Decision:
        self.asked.append(fork)
        return self.decisions[(len(self.asked) - 1) % len(self.decisions)]

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        self.told.append((fork.signature.sources, choice, n_in, n_out))

    def reoptimize(self) -> bool:
        self.n_reoptimized += 1
        return not self.has_news


def last_streams_by(policy: Scripted, log: Recorder | None = None, **options: int) -> pa.Table:
    """The dimensions first; then the fact table, never stored, in batches of five."""
    settings = Options(**{"batch_rows": 5, "reoptimize_every": 1000} | options)
    eddy = Eddy(QUERY, settings, policy=policy, events=log, clock=VirtualClock())
    for name in ("b", "c"):
        eddy.push(name, batches(TABLES[name])[0])
        eddy.end(name)
    assert eddy.poll() is None
    policy.asked.clear()
    policy.told.clear()
    eddy.push("f", batches(FACT)[0])
    eddy.end("f")
    return drained(eddy)


def expected() -> pa.Table:
    return answer(QUERY, TABLES)


def test_one_decision_serves_all_batches_until_reoptimization() -> None:
    policy = Scripted()
    assert_same_bag(last_streams_by(policy), expected())
    assert len(policy.asked) == 1


def test_every_batch_asks_every_time() -> None:
    policy = Scripted(every_batch=True)
    assert_same_bag(last_streams_by(policy), expected())
    assert len(policy.asked) == 4


def test_with_one_way_to_go_nobody_is_asked_but_all_is_told() -> None:
    policy = Scripted()
    last_streams_by(policy)
    assert {fork.signature.sources for fork in policy.asked} == {0b100}
    assert {sources for sources, *_ in policy.told} == {0b100, 0b101}


def test_a_batch_is_split_where_a_decision_ends() -> None:
    policy = Scripted(Decision(0, 3), Decision(1, 4))
    assert_same_bag(last_streams_by(policy), expected())
    first = [
        (choice, n_in) for sources, choice, n_in, _ in policy.told if sources == 0b100 and n_in
    ]
    # Batches of 5, decisions for 3 and 4 rows in turn: each piece obeys the decision in force, and the
    # two rows that are left of the second do not cut the next batch.
    assert first == [(0, 3), (1, 2)] * 4


def test_a_decision_holds_for_several_batches_that_fit() -> None:
    policy = Scripted(Decision(0, 12), Decision(1, 12))
    assert_same_bag(last_streams_by(policy), expected())
    first = [
        (choice, n_in) for sources, choice, n_in, _ in policy.told if sources == 0b100 and n_in
    ]
    assert first == [(0, 5), (0, 5), (1, 5), (1, 5)]


@pytest.mark.parametrize("n_rows", [0, -3])
def test_a_decision_for_no_rows_still_moves_on(n_rows: int) -> None:
    policy = Scripted(Decision(0, n_rows), Decision(1, n_rows))
    assert_same_bag(last_streams_by(policy), expected())


def test_safe_points_come_between_base_batches() -> None:
    policy = Scripted()
    log = Recorder()
    last_streams_by(policy, log, reoptimize_every=10)
    assert policy.n_reoptimized == len(log.of(Reoptimized)) == 1
    assert [event.n_driver_rows for event in log.of(Reoptimized)] == [10]


def test_decisions_end_at_a_safe_point() -> None:
    policy = Scripted(Decision(0), Decision(1))
    last_streams_by(policy, reoptimize_every=10)
    choices = [choice for sources, choice, *_ in policy.told if sources == 0b100]
    assert choices == [0, 0, 1, 1]


def test_decisions_stay_in_force_if_the_policy_has_no_news() -> None:
    policy = Scripted(Decision(0), Decision(1), has_news=False)
    assert_same_bag(last_streams_by(policy, reoptimize_every=10), expected())
    assert policy.n_reoptimized == 1
    assert len(policy.asked) == 1


@pytest.mark.parametrize(
    ("keys", "n_found", "first"),
    [
        ([0, 1, 2, 3], 0, [2, 2, 1]),  # nobody said that there may be more
        ([0, 1, 2, 3], 5, [5]),  # keys are unique: five rows find five at most
        ([0, 1, 2, 3], 4, [4, 1]),
        ([0, 0, 0, 1], 9, [3, 2]),  # two rows are copies: a row may find three
        ([0, 0, 0, 1], 100, [5]),
    ],
)
def test_more_rows_are_sent_if_no_more_can_come_of_them(
    keys: list[int], n_found: int, first: list[int]
) -> None:
    tables = {
        "b": pa.table({"x": keys}),
        "c": pa.table({"y": [0, 1]}),
        "f": pa.table({"x": [0, 1, 2, 3, 4], "y": [0, 1, 0, 1, 0]}),
    }
    policy = Scripted(Decision(0, 2, n_found))
    eddy = Eddy(make_query(tables, ["f.x = b.x", "f.y = c.y"]), Options(), policy=policy)
    for name in "bcf":
        eddy.push(name, batches(tables[name])[0])
        eddy.end(name)
    drained(eddy)
    told = [n_in for sources, _, n_in, _ in policy.told if sources == 0b100 and n_in]
    assert told == first


@pytest.mark.parametrize("n_copies", [1, 2])
def test_the_default_policy_cuts_a_small_batch_only_where_rows_may_multiply(n_copies: int) -> None:
    """Trials of three modules in slices took longer than a batch of 10,000 rows."""
    n = 10_000
    keys = list(range(n)) * n_copies
    tables = {name: pa.table({"x": keys}) for name in "abc"} | {"f": pa.table({"x": range(n)})}
    log = Recorder()
    eddy = Eddy(make_query(tables, [f"f.x = {name}.x" for name in "abc"]), events=log)
    for name in "abcf":
        eddy.push(name, batches(tables[name])[0])
        eddy.end(name)
    drained(eddy)
    runs = [event.n_in for event in log.of(Routed) if event.signature.sources == 0b1000]
    if n_copies == 1:
        assert runs == [n]
        assert len(log.of(Routed)) == 3
    else:
        assert runs[0] <= 32, "how many rows each finds is not known yet"
        assert sum(runs) == n


class Patient(Scripted):
    """Is told in sums, and remembers how much was known when it was asked."""

    news_ns = 0  # type: ignore[assignment]

    def __init__(self, *decisions: Decision) -> None:
        super().__init__(*decisions)
        self.n_runs: list[int] = []
        self.known: list[int] = []

    def choose(self, fork: Fork) -> Decision:
        self.known.append(sum(n_in for sources, _, n_in, _ in self.told if sources == 0b100))
        return super().choose(fork)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        super().observe(fork, choice, n_in, n_out, elapsed_ns)
        self.n_runs.append(n_runs)


def test_runs_are_told_in_sums() -> None:
    policy = Patient()
    policy.news_ns = 10**12  # type: ignore[assignment]
    assert_same_bag(last_streams_by(policy, reoptimize_every=5), expected())
    assert policy.told == []
    assert policy.n_reoptimized == 0, "there was nothing to tell"
    policy = Patient()
    assert_same_bag(last_streams_by(policy, reoptimize_every=10), expected())
    assert policy.told[0] == (0b100, 0, 10, policy.told[0][3])
    assert policy.n_runs[0] == 2


def test_a_policy_that_is_asked_knows_everything() -> None:
    policy = Patient(Decision(0, 5), Decision(1, 5))
    assert_same_bag(last_streams_by(policy), expected())
    assert policy.known[-3:] == [5, 10, 15]


def test_what_is_told_is_what_is_logged() -> None:
    log = Recorder()
    policy = Scripted(Decision(0, 2), Decision(1, 1))
    last_streams_by(policy, log)
    logged = [(e.signature.sources, e.n_in, e.n_out) for e in log.of(Routed)]
    told = [(sources, n_in, n_out) for sources, _, n_in, n_out in policy.told]
    assert logged[-len(told) :] == told


def test_the_rest_of_a_paused_probe_counts_no_row_twice() -> None:
    n = 500
    tables = {"a": pa.table({"x": [1] * n}), "b": pa.table({"x": [1] * 10})}
    query = make_query(tables, ["a.x = b.x"])
    log = Recorder()
    found = answer(query, tables, Options(batch_rows=64), events=log)
    assert found.num_rows == 10 * n
    routed = [event for event in log.of(Routed) if event.module == "stem:a"]
    assert sum(event.n_in for event in routed) == 10
    assert sum(event.n_out for event in routed) == 10 * n
    assert len(routed) > 1


def test_an_error_says_where_it_happened() -> None:
    class Wrong(Scripted):
        def observe(self, *told: object) -> None:
            raise RuntimeError("policy bug")

    eddy = Eddy(QUERY, policy=Wrong())
    for name, table in TABLES.items():
        eddy.push(name, batches(table)[0])
    with pytest.raises(RuntimeError, match="policy bug"):
        drained(eddy)


def test_pieces_stay_small_however_deep_the_route() -> None:
    """Every probe may quadruple a batch; without a bound, five of them make it a thousand times
    as large, and the buffers with it.
    """
    tables = {"a0": pa.table({"x": [1] * 16})}
    tables |= {f"a{i}": pa.table({"x": [1] * 6}) for i in range(1, 6)}
    on = [f"a0.x = a{i}.x" for i in range(1, 6)]
    log = Recorder()
    eddy = Eddy(make_query(tables, on, output=["a0.x"]), Options(batch_rows=16), events=log)
    for name in reversed(tables):
        eddy.push(name, batches(tables[name])[0])
        eddy.end(name)
    assert drained(eddy).num_rows == 16 * 6**5
    assert max(event.n_in for event in log.of(Routed)) <= 16
    assert max(event.n_out for event in log.of(Routed)) <= 16 * 4 + 1


class TakenAway(VirtualClock):
    """A machine on which a second passes whenever somebody looks, of which a thread gets nothing."""

    def now_ns(self) -> int:
        self.advance_ns(10**9)
        return super().now_ns()

    def worked_ns(self) -> int:
        return 0


@pytest.mark.parametrize(("n_rows", "is_dear"), [(10_000, False), (100, True)])
def test_a_long_probe_costs_what_the_thread_computed(n_rows: int, is_dear: bool) -> None:
    """Whoever takes the processor away does not make a module look dear."""
    tables = {"b": pa.table({"x": [0, 1]}), "f": pa.table({"x": pa.array([0] * n_rows)})}
    log = Recorder()
    eddy = Eddy(make_query(tables, ["f.x = b.x"]), events=log, clock=TakenAway())
    for name in ("b", "f"):
        eddy.push(name, batches(tables[name])[0])
        eddy.end(name)
    assert drained(eddy).num_rows == n_rows
    (routed,) = [e for e in log.events if isinstance(e, Routed) and e.n_in == n_rows]
    assert (routed.elapsed_ns > 0) is is_dear


class Glanced(VirtualClock):
    """Counts how often it is asked; every look at the work done by a thread takes a microsecond."""

    n_looks = 0

    def now_ns(self) -> int:
        self.n_looks += 1
        return super().now_ns()

    def worked_ns(self) -> int:
        self.n_looks += 1
        self.advance_ns(1000)
        return super().worked_ns()


class Settled(Patient):
    """Wants to hear of runs after so much work, and stands by what it decided."""

    news_ns = 10**12  # type: ignore[assignment]


def streamed(
    policy: Scripted, n_batches: int, *, fan_out: int = 1, late: int = 0, every: int = 4
) -> tuple[Eddy, Glanced, pa.Table]:
    """Four rows a batch, half of which have partners in b, and all in c. From batch `late` on, all have
    `fan_out` partners in b.
    """
    tables = {
        "b": pa.table({"x": [0, 1] + [9] * fan_out}),
        "c": pa.table({"y": [0, 1, 2, 3]}),
    }
    early = pa.table({"x": [0, 1, 5, 6], "y": [0, 1, 2, 3]})
    later = pa.table({"x": [9] * 4, "y": [0, 1, 2, 3]})
    query = make_query(tables | {"f": early}, ["f.x = b.x", "f.y = c.y"])
    clock = Glanced()
    settings = Options(batch_rows=64, reoptimize_every=every, state="stems")
    eddy = Eddy(query, settings, policy=policy, clock=clock)
    for name, table in tables.items():
        eddy.push(name, batches(table)[0])
        eddy.end(name)
    assert eddy.poll() is None
    clock.n_looks = 0
    found = []
    for number in range(n_batches):
        eddy.push("f", batches(later if late and number >= late else early)[0])
        found.append(drained(eddy))
    return eddy, clock, pa.concat_tables(found)


def test_batches_that_take_the_same_path_are_rarely_timed() -> None:
    _, clock, found = streamed(Settled(), 320)
    assert found.num_rows == 640
    # Two probes a batch, each timed at its begin and end, would be 1,280 looks.
    assert clock.n_looks < 100


def test_what_went_along_a_path_is_counted_and_told_like_all_else() -> None:
    policy = Settled()
    eddy, _, _ = streamed(policy, 320)
    shares = {share.signature.sources: share for share in eddy.progress().routes if share.n_in}
    counts = {s: (share.n_in, share.n_out, share.n_batches) for s, share in shares.items()}
    assert counts == {0b100: (1280, 640, 320), 0b101: (640, 640, 320)}
    assert eddy.progress().n_driver_rows == 1280
    assert eddy._routers[0].table.n_handled == 1280 + 640 + 640 + 640
    eddy._routers[0]._tell()
    told = [sum(t[2] for t in policy.told if t[0] == sources) for sources in shares]
    assert sorted(told) == [640, 1280]
    assert sum(policy.n_runs) == 640


def test_runs_that_are_not_timed_count_as_much_as_the_last_that_was() -> None:
    eddy, _, _ = streamed(Settled(), 320)
    # From the second batch of a path on, one of 32 is timed, and each run takes a microsecond.
    for share in eddy.progress().routes:
        if share.n_in:
            assert share.ns == pytest.approx(1000 * 320, rel=0.15)


def test_who_waits_for_something_to_be_found_out_is_told_of_every_run() -> None:
    policy = Settled()
    policy.news_ns = 0  # type: ignore[assignment]
    _, clock, _ = streamed(policy, 32)
    assert clock.n_looks >= 2 * 2 * 32


def test_a_path_ends_with_the_decisions_on_it() -> None:
    policy = Settled(Decision(0, 40), Decision(1, 40))
    _, _, found = streamed(policy, 100)
    assert found.num_rows == 200
    assert len(policy.asked) == 10, "each decision was for forty rows, on a path or not"


@pytest.mark.parametrize("fan_out", [2, 500])
def test_rows_that_multiply_leave_the_path(fan_out: int) -> None:
    policy = Settled(Decision(0, 1000))
    eddy, _, found = streamed(policy, 40, fan_out=fan_out, late=20)
    assert found.num_rows == 2 * 20 + 4 * fan_out * 20
    (share,) = [s for s in eddy.progress().routes if s.signature.sources == 0b100 and s.n_in]
    assert (share.n_in, share.n_out) == (160, found.num_rows)
    if fan_out == 500:
        assert len(policy.asked) > 1, "so many matches call for a new decision about a few rows"
    else:
        assert len(policy.asked) == 1


def test_steps_of_ways_that_are_not_taken_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    plain = Probe.__init__

    def noted(self: Probe, graph: Graph, stem: SteM, *others: object) -> None:
        made.append(stem.name)
        plain(self, graph, stem, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Probe, "__init__", noted)
    _, _, found = streamed(Settled(Decision(1)), 1)
    assert found.num_rows == 2
    assert sorted(made) == ["stem:b", "stem:c"], "f goes to c and then to b, never to b first"
