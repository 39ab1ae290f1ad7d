"""Access methods through the local host: threads, mirrors, failures, and what users are told."""

from __future__ import annotations

import threading
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import eddies
from eddies.core.access import Access, IndexAccess
from eddies.core.clock import VirtualClock
from eddies.core.events import (
    LookupFailed,
    MirrorDiffers,
    ScanFailed,
)
from eddies.core.options import Options
from eddies.errors import OptionError, SourceError, UnreachableError
from eddies.experiments.access_cases import Asked, index_on
from eddies.hosts import local
from eddies.hosts.access import AccessRun, MirrorWarning
from eddies.hosts.lookups import Fate, VirtualLookups
from eddies.sources import Simulated
from eddies.sources.inline import InlineSource
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle
from tests.support.small import Recorder, make_query

ORDERS = pa.table(
    {"id": pa.array(range(200)), "user": pa.array([i % 37 for i in range(200)], pa.int64())}
)
USERS = pa.table({"uid": pa.array(range(30)), "name": [f"the name of user {i}" for i in range(30)]})
TEXT = "SELECT o.id, u.name FROM orders o, users u WHERE o.user = u.uid"
TABLES = {"orders": ORDERS, "users": USERS}


def expected() -> pa.Table:
    return Oracle().answer(TEXT, TABLES)


def by_uid(keys: pa.RecordBatch) -> list[dict[str, object]]:
    wanted = set(keys.column("uid").to_pylist())
    return [row for row in USERS.to_pylist() if row["uid"] in wanted]


def test_a_python_function_is_an_index():
    users = eddies.read.lookup(USERS.schema, on=["uid"], lookup=by_uid, keys_per_lookup=5)
    assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())


def test_an_index_beside_a_scan():
    users = InlineSource(USERS).index(on=["uid"], lookup=by_uid)
    assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())


def test_a_look_up_that_fails_is_asked_again():
    n_calls: Counter[int] = Counter()

    def flaky(keys: pa.RecordBatch) -> list[dict[str, object]]:
        (uid,) = keys.column("uid").to_pylist()
        n_calls[uid] += 1
        if n_calls[uid] == 1 and uid % 3 == 0:
            raise ConnectionError("as asked")
        return by_uid(keys)

    log = Recorder()
    users = eddies.read.lookup(USERS.schema, on=["uid"], lookup=flaky, backoff_s=0.001)
    found = local.sql(TEXT, {"orders": ORDERS, "users": users}, events=log)
    assert_same_bag(found, expected())
    assert set(n_calls.values()) == {1, 2}
    assert {event.reason for event in log.of(LookupFailed)} == {"ConnectionError: as asked"}


def test_a_look_up_that_never_works_is_a_clear_error():
    def dead(keys: pa.RecordBatch) -> list[dict[str, object]]:
        raise ConnectionError("nobody there")

    users = eddies.read.lookup(
        USERS.schema, on=["uid"], lookup=dead, retries=1, backoff_s=0.001, name="directory"
    )
    with pytest.raises(SourceError, match=r"'users' could not be looked up by uid.*'directory'"):
        local.sql(TEXT, {"orders": ORDERS, "users": users})


def test_a_look_up_that_hangs_fails_after_its_timeout():
    release = threading.Event()

    def hangs(keys: pa.RecordBatch) -> list[dict[str, object]]:
        release.wait(20)
        return []

    users = eddies.read.lookup(
        USERS.schema, on=["uid"], lookup=hangs, retries=1, timeout_s=0.1, backoff_s=0.01
    )
    started = time.monotonic()
    with pytest.raises(SourceError, match="no answer after"):
        local.sql(TEXT, {"orders": ORDERS, "users": users})
    release.set()
    assert time.monotonic() - started < 5


def test_rows_that_were_not_asked_for_are_refused():
    users = eddies.read.lookup(USERS.schema, on=["uid"], lookup=lambda keys: USERS)
    with pytest.raises(SourceError, match="which it was not asked for"):
        local.sql(TEXT, {"orders": ORDERS, "users": users})


def test_a_source_that_cannot_be_reached_is_refused_before_anything_starts():
    users = eddies.read.lookup(USERS.schema, on=["name"], lookup=by_uid)
    with pytest.raises(UnreachableError, match=r"source 'u' cannot be reached.*u\.name"):
        local.sql(TEXT, {"orders": ORDERS, "users": users})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"keys_per_lookup": True}, "keys_per_lookup"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(OptionError, match=message):
        eddies.read.lookup(USERS.schema, on=["uid"], lookup=by_uid, **settings)


def test_an_index_on_an_unknown_column_is_refused():
    with pytest.raises(SourceError, match="no column 'nope'"):
        InlineSource(USERS).index(on=["nope"], lookup=by_uid)


class Dies(InlineSource):
    """Delivers half of its rows, then fails."""

    def splits(self, where=()):
        whole = super().splits(where)[0]

        class Half:
            n_rows = n_bytes = None

            def read(self, columns, where=(), batch_rows=1):
                rows = list(whole.read(columns, where, 3))
                yield from rows[: len(rows) // 2]
                raise SourceError("connection lost, as asked")

        return [Half()]


def test_a_mirror_takes_over_when_a_scan_dies():
    log = Recorder()
    users = Dies(USERS).mirror(InlineSource(USERS))
    for _ in range(5):
        found = local.sql(TEXT, {"orders": ORDERS, "users": users}, events=log)
        assert_same_bag(found, expected())
    assert all("as asked" in event.reason for event in log.of(ScanFailed))


def test_no_thread_is_left_behind():
    big = pa.table({"uid": pa.array(range(30)), "name": USERS["name"]})
    users = InlineSource(big).mirror(InlineSource(USERS)).index(on=["uid"], lookup=by_uid)
    local.sql(TEXT, {"orders": ORDERS, "users": users}, eddies.Options(batch_rows=2))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [t.name for t in threading.enumerate() if t.name.startswith(("scan", "lookup-"))]
        if not left:
            return
        time.sleep(0.02)
    raise AssertionError(f"threads left: {left}")


def test_an_index_takes_over_when_the_only_scan_dies():
    users = Dies(USERS).index(on=["uid"], lookup=by_uid, concurrency=2)
    assert_same_bag(local.sql(TEXT, {"orders": ORDERS, "users": users}), expected())


def test_without_a_mirror_a_dead_scan_is_a_clear_error():
    with pytest.raises(SourceError, match=r"no scan of 'users' is left.*as asked"):
        local.sql(TEXT, {"orders": ORDERS, "users": Dies(USERS).keyed("uid")})


def test_mirror_splits_go_on_where_the_first_failed():
    """What hosts without competing scans do with mirrors: one after the other."""
    twice = pa.concat_tables([USERS, USERS, USERS.slice(0, 3)])
    (split,) = Dies(twice).mirror(InlineSource(twice)).splits()
    found = pa.Table.from_batches(list(split.read(["name", "uid"])))
    assert_same_bag(found.select(["uid", "name"]), twice)
    (split,) = Dies(twice).mirror(Dies(twice)).splits()
    with pytest.raises(SourceError, match="every mirror failed"):
        list(split.read(["uid"]))


def test_mirrors_must_have_the_same_columns():
    other = pa.table({"uid": pa.array(["1"]), "name": ["x"]})
    with pytest.raises(SourceError, match="column 'uid' has type int64 here and string there"):
        InlineSource(USERS).mirror(InlineSource(other))


def two_scans(one: pa.Table, two: pa.Table, key: tuple[str, ...], **schedule: object) -> AccessRun:
    clock = VirtualClock()
    scans = {
        "users": {
            "one": Simulated(one, batch_rows=2, rows_per_s=10, **schedule),
            "two": Simulated(two, batch_rows=2, rows_per_s=5),
        }
    }
    query = make_query(TABLES, ["orders.user = users.uid"], output=["orders.id", "users.name"])
    access = {"users": Access(("one", "two"), (), key)}
    return AccessRun(
        query, TABLES, clock=clock, access=access, scans=scans, events=Recorder(),
        lookups=VirtualLookups(clock, lambda request: Fate(0.0)),
    )  # fmt: skip


def test_a_mirror_with_other_data_is_reported():
    names = pa.array([f"another name {i}" for i in range(30)])
    run = two_scans(USERS, USERS.set_column(1, "name", names), ("uid",), stall_after=20)
    with pytest.warns(MirrorWarning, match="20 rows of 'users'"):
        found = run.table()
    assert found.num_rows == expected().num_rows
    assert run.eddy.access is not None
    assert sum(run.eddy.access.n_differing) == 20
    events = run.eddy._events.of(MirrorDiffers)
    assert "another name" in events[0].example


def test_a_stalled_mirror_is_replaced():
    run = two_scans(USERS, USERS, (), stall_after=20)
    assert_same_bag(run.table(), expected().rename_columns(["orders_id", "users_name"]))


def test_genuine_duplicates_survive_competing_scans():
    """Bags, not sets: a row that the source holds three times is there three times."""
    users = pa.concat_tables([USERS, USERS.slice(0, 7), USERS.slice(0, 3)])
    run = two_scans(users, users.take(pa.array(range(len(users) - 1, -1, -1))), ())
    wanted = Oracle().answer(TEXT, {"orders": ORDERS, "users": users})
    assert_same_bag(run.table(), wanted.rename_columns(["orders_id", "users_name"]))


def test_partial_rows_are_told_while_a_source_stalls():
    """Orders and lands are joined while users stall; then everything is exact."""
    clock = VirtualClock()
    lands = pa.table({"order": pa.array(range(200)), "land": ["PE"] * 200})
    tables = {**TABLES, "lands": lands}
    on = ["orders.user = users.uid", "orders.id = lands.order"]
    query = make_query(tables, on, output=["orders.id", "lands.land", "users.name"])
    told: list[tuple[int, pa.RecordBatch]] = []
    run = AccessRun(
        query,
        {},
        Options(partial=True),
        clock=clock,
        lookups=VirtualLookups(clock, lambda request: Fate(0.0)),
        access={name: Access() for name in tables},
        scans={
            "orders": {"scan": Simulated(ORDERS)},
            "lands": {"scan": Simulated(lands, rows_per_s=100)},
            "users": {"scan": Simulated(USERS, delay_s=60)},
        },
        on_partial=lambda rows: told.append((clock.now_ns(), rows)),
        partial_after_s=5.0,
    )
    found = run.table()
    assert found.num_rows == expected().num_rows
    assert sum(rows.num_rows for _, rows in told) == 200
    assert all(5e9 <= moment < 60e9 for moment, _ in told)
    rows = told[0][1].to_pydict()
    assert set(rows["users_name"]) == {None}
    assert set(rows["missing"]) == {"users"}
    with pytest.raises(OptionError, match="partial=True"):
        AccessRun(query, tables, on_partial=print)


def probes(n_rows: int, n_keys: int) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(0)
    keys = rng.permutation(np.arange(n_rows) % n_keys)
    return pa.table({"k": keys, "n": np.arange(n_rows)}), pa.table(
        {"k": np.arange(n_keys), "v": np.arange(n_keys) * 10}
    )


def test_each_key_is_asked_once_and_the_limit_is_full_in_virtual_time():
    """100 K probes, 5 % different keys, 20 ms a look-up: as fast as the limit allows, exactly."""
    r, s = probes(100_000, 5_000)
    clock, asked = VirtualClock(), Asked()
    index = index_on("by_k", s, ("k",), asked, concurrency=50)
    lookups = VirtualLookups(clock, lambda request: Fate(0.020))
    query = make_query({"r": r, "s": s}, ["r.k = s.k"], output=["r.n", "s.v"])
    run = AccessRun(
        query, {"r": r}, clock=clock, lookups=lookups, access={"s": Access((), (index,))}
    )
    assert run.table().num_rows == 100_000
    assert len(asked.keys) == len(set(asked.keys)) == 5_000
    assert clock.now_ns() == pytest.approx(5_000 / 50 * 20e6, rel=0.01)


class SlowIndex:
    """Answers after a while, and notes when it was asked for what."""

    def __init__(self, table: pa.Table, seconds: float) -> None:
        self._values = dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
        self._seconds = seconds
        self._lock = threading.Lock()
        self._under_way = 0
        self.most = 0
        self.asked: Counter[int] = Counter()
        self.moments: list[tuple[float, float]] = []

    def __call__(self, keys: pa.RecordBatch) -> list[dict[str, object]]:
        ks = keys.column("k").to_pylist()
        with self._lock:
            self.asked.update(ks)
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        began_s = time.perf_counter()
        time.sleep(self._seconds)
        with self._lock:
            self._under_way -= 1
            self.moments.append((began_s, time.perf_counter()))
        return [{"k": k, "v": self._values[k]} for k in ks]

    @property
    def mean_under_way(self) -> float:
        span_s = max(end for _, end in self.moments) - min(begin for begin, _ in self.moments)
        return sum(end - begin for begin, end in self.moments) / span_s


def test_each_key_is_asked_once_and_the_limit_is_full_on_threads():
    """A busy machine may hold one run up, but not three."""
    r, s = probes(100_000, 5_000)
    limit = 32
    means = []
    while len(means) < 3 and max(means, default=0.0) <= 0.8 * limit:
        slow = SlowIndex(s, 0.040)
        source = eddies.read.lookup(
            s.schema, on=["k"], lookup=slow, concurrency=limit, keys_per_lookup=4
        )
        found = local.sql("SELECT r.n, s.v FROM r, s WHERE r.k = s.k", {"r": r, "s": source})
        assert found.num_rows == 100_000
        assert len(slow.asked) == 5_000
        assert set(slow.asked.values()) == {1}
        assert slow.most == limit
        means.append(slow.mean_under_way)
    assert max(means) > 0.8 * limit, f"{means} of {limit} look-ups under way on average"


def test_indexes_without_anybody_to_carry_look_ups_are_refused():
    query = make_query(TABLES, ["orders.user = users.uid"])
    index = IndexAccess("by_uid", ("uid",), lambda keys: USERS)
    with pytest.raises(OptionError, match="lookups="):
        eddies.core.eddy.Eddy(query, access={"users": Access((), (index,))})
