"""When state="auto" gives parts of the data orders of their own, and when it leaves that alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.events import Migrated
from eddies.core.lineage import Signature
from eddies.core.options import Options
from eddies.core.policies.base import Candidate, Fork
from eddies.core.route import RouteTable, Way
from eddies.core.stairs import partitions, search
from eddies.core.stairs.chooser import make_choosers
from eddies.core.stairs.drift import Drift
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.partitions import Lack, Part, Parting, pays, survey
from eddies.core.stairs.plan import Planner, World
from eddies.core.stairs.regions import ARRIVAL, Leaf, Split
from eddies.core.state_modes.auto import AutoMode
from eddies.core.state_modes.regional import RegionalMode
from eddies.core.state_modes.stems import StemsMode
from tests.support.small import Recorder, batches, drained, make_query

ON = ["R.a = S.a", "S.b = T.b"]


@pytest.fixture
def cheap(monkeypatch):
    """Parts are searched for early, and a tuple in parts takes no longer than others, so that few rows
    and matches are enough for parts to pay.
    """
    monkeypatch.setattr(search, "SURVEY", 50_000)
    monkeypatch.setattr(partitions, "_SLOWER", 1.0)


N = 20_000


def data(n: int = N, *, parted: bool = True, sorted_by_kind: bool = False) -> dict[str, pa.Table]:
    """Of S rows one half joins R and not T, the other the reverse, told by `kind`; or, not `parted`,
    every row has as many partners in both.
    """
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 100, n)
    if sorted_by_kind:
        kind.sort()
    keys, missing = rng.integers(0, n // 10, (2, n)), n + rng.integers(0, n, (2, n))
    joins_r = kind < 50 if parted else np.ones(n, dtype=np.bool_)
    joins_t = ~joins_r if parted else joins_r
    held = rng.integers(0, n // 5, (2, n))
    return {
        "R": pa.table({"a": held[0]}),
        "S": pa.table(
            {
                "a": np.where(joins_r, keys[0], missing[0]),
                "b": np.where(joins_t, keys[1], missing[1]),
                "kind": kind,
            }
        ),
        "T": pa.table({"b": held[1]}),
    }


def fed(tables: dict[str, pa.Table], options: Options | None = None, **settings) -> Eddy:
    """An eddy that got all rows in turns."""
    eddy = Eddy(make_query(tables, ON, output=["S.kind"]), options or Options(), **settings)
    pieces = [batches(table, 500) for table in tables.values()]
    for turn in zip(*pieces, strict=True):
        for name, batch in zip(tables, turn, strict=True):
            eddy.push(name, batch)
            drained(eddy)
    return eddy


def is_regional(eddy: Eddy) -> bool:
    assert isinstance(eddy.mode, AutoMode)
    return eddy.mode.is_regional


@pytest.mark.parametrize("sorted_by_kind", [False, True])
def test_auto_turns_to_parts_by_itself(sorted_by_kind, cheap):
    recorder = Recorder()
    eddy = fed(data(sorted_by_kind=sorted_by_kind), events=recorder)
    assert is_regional(eddy)
    assert any(event.forms.startswith("S: (") for event in recorder.of(Migrated))


def test_auto_leaves_data_without_parts_alone():
    assert not is_regional(fed(data(parted=False)))


@pytest.mark.parametrize("options", [Options(threads=2), Options(policy="lottery")])
def test_parts_are_not_searched_for_where_joins_may_not_keep_tuples(options):
    assert isinstance(fed(data(2000), options).mode, StemsMode)


def test_a_small_query_is_not_surveyed():
    eddy = fed(data(2000))
    assert isinstance(eddy.mode, AutoMode)
    assert eddy.mode._search.n_began_at == 0
    assert eddy.mode._search._statistics is None


@pytest.mark.parametrize(("n_intermediate", "is_due"), [(200, False), (350, True)])
def test_few_intermediate_results_are_not_worth_a_survey(n_intermediate, is_due):
    """Parts spare intermediate results only, and must spare three quarters of all work to pay."""
    eddy = Eddy(make_query(data(), ["R.a = S.a", "S.b = T.b"]), Options())
    looking = search.Search(eddy.graph, eddy.stems, 0)
    looking._drift.n_intermediate = n_intermediate
    assert looking.is_due(1000) == is_due
    looking._drift.n_intermediate = 0
    looking._drift.has_drifted, looking._drift.share_lately = True, n_intermediate / 1000
    assert looking.is_due(1000) == is_due, "after a drift, what came lately counts"


def test_what_is_intermediate_lately_is_told_from_what_was_before():
    drift, shares = Drift(), []
    for n_single, n_joined in ((1000, 0), (2000, 500), (3000, 2500)):
        first, second = route(n_single, n_joined), route(n_joined, 0)
        second.fork = Fork(0, Signature(0b110), first.fork.candidates, (Signature(0b111),))
        second.signature = Signature(0b110)
        drift.glance([first, second])
        shares.append(drift.share_lately)
    assert shares == [0.0, 0.25, 0.4]


def test_rows_taken_apart_wait_where_their_part_goes(cheap):
    """Rows that join R only are found through T, where they meet nobody, and the other way round."""
    tables = data()
    mode = fed(tables).mode.stairs
    assert isinstance(mode, RegionalMode)
    by_join = {edge.number: mode.stairs.stair(1, edge.number) for edge in mode.tree.edges}
    kinds = tables["S"]["kind"].to_numpy()
    for join, wanted in ((0, kinds >= 50), (1, kinds < 50)):
        bare = [t.ids[1] for t in by_join[join] if t.signature == Signature(0b010)]
        rows = np.concatenate(bare)
        assert np.mean(wanted[rows]) > 0.95
        assert rows.shape[0] > 0.9 * wanted.sum()


def test_when_no_parts_are_left_stairs_take_over_again(cheap):
    eddy = fed(data())
    mode = eddy.mode
    assert isinstance(mode, AutoMode)
    regional = mode.stairs
    assert isinstance(regional, RegionalMode)
    before = regional.stairs.n_handled + regional.stairs.n_stored
    regional._n_undivided = 99
    drained(eddy)
    assert not mode.is_regional
    assert mode.stairs is not None
    assert mode.stairs.stairs.n_handled >= before, "what was done before still counts"
    assert all(stair.n_live == 0 for stair in regional.stairs.all_stairs())


def surveyed(tables: dict[str, pa.Table], **settings) -> Parting | Lack:
    eddy = fed(tables, Options(state="joins"))
    mode = eddy.mode
    mode.statistics.refresh()
    stores = [stem.store for stem in eddy.stems]
    (chooser,) = make_choosers(eddy.graph, mode.tree, stores, by_content=True).values()
    n_rows = [store.n_rows for store in stores]
    return survey(chooser, n_rows, mode.statistics, np.random.default_rng(1), **settings)


def test_a_survey_tells_parts_and_what_they_match():
    found = surveyed(data())
    assert isinstance(found, Parting)
    assert isinstance(found.regions, Split)
    assert found.regions.name in ("kind", "a", "b")
    for part in found.parts:
        assert 0.4 < part.now < 0.6
        assert 0.4 < part.to_come < 0.6
        assert part.matches[found.joins.index(part.choice)] < 0.5, "it goes where it meets little"
        assert max(part.matches) > 3


def test_what_is_to_come_is_like_the_latest_rows():
    found = surveyed(data(sorted_by_kind=True))
    assert isinstance(found, Parting)
    assert {part.choice: round(part.to_come) for part in found.parts} == {0: 1, 1: 0}


def test_a_survey_says_what_is_missing():
    assert surveyed(data(parted=False)) is Lack.PARTS
    few = data()
    few["T"] = pa.table({"b": few["T"]["b"].to_numpy() + 10 * N})
    assert surveyed(few) is Lack.MATCHES
    assert surveyed(data(400)) is Lack.MATCHES


def outlook_of(n_to_come: float) -> Outlook:
    eddy = Eddy(make_query(data(10), ON), Options(state="stairs"))
    planner = Planner(eddy.mode.tree, 3)
    rows, selectivity = [1e4] * 3, [2.5e-4] * 2
    now = World(rows, selectivity, planner.tree)
    return Outlook(planner, now, [n_to_come] * 3, selectivity, frozenset(), 0, certain=0b111)


def test_parts_pay_if_enough_is_to_come(cheap):
    halves = (Part(0, 0.5, 0.5, (0.0, 5.0)), Part(1, 0.5, 0.5, (5.0, 0.0)))
    parting = Parting(1, Split("kind", 5, Leaf(0), Leaf(1)), (0, 1), halves)
    assert pays(outlook_of(1e5), parting)
    assert not pays(outlook_of(10.0), parting)
    assert not pays(outlook_of(3e4), parting, caution=2.0**8)


def test_a_tuple_in_parts_takes_longer_so_parts_must_spare_several():
    for matches, pay in ((0.2, False), (50.0, True)):
        halves = (Part(0, 0.5, 0.5, (0.0, matches)), Part(1, 0.5, 0.5, (matches, 0.0)))
        parting = Parting(1, Split("kind", 5, Leaf(0), Leaf(1)), (0, 1), halves)
        assert pays(outlook_of(1e5), parting) == pay


def test_parts_that_all_want_the_same_do_not_pay(cheap):
    same = (Part(0, 0.5, 0.5, (0.1, 5.0)), Part(1, 0.5, 0.5, (0.1, 4.0)))
    parting = Parting(1, Split("kind", 5, Leaf(0), Leaf(1)), (0, 1), same)
    assert not pays(outlook_of(1e5), parting)


def route(n_in: int, n_out: int):
    made = RouteTable(lambda *_: (None, [])).route(Signature(0b010))
    made.fork = Fork(0, made.signature, (Candidate(2, "T", "probe"),), (Signature(0b110),))
    way = Way(made.fork, 0, make=None)
    way.n_in, way.n_out = n_in, n_out
    made.ways = [way]
    return made


def test_drift_is_to_find_far_more_than_before():
    drift = Drift()
    found = []
    for n_in, n_out in ((1000, 100), (2000, 220), (3000, 360), (4000, 1400), (5000, 2400)):
        drift.glance([route(n_in, n_out)])
        found.append(drift.has_drifted)
    assert found == [False, False, False, True, False]


def test_rows_that_are_not_stored_belong_to_parts_too():
    """R and T are complete: rows of S only stream, and go where the regions in force say."""
    tables = data(4000)
    eddy = fed(tables, Options(state="stairs", policy="content"))
    chooser = eddy.mode._choosers[1]
    chooser.regions = Split(ARRIVAL, 3999, Leaf(1), Split("kind", 49, Leaf(0), Leaf(1)))
    rows = np.arange(10, dtype=np.int32)
    store = eddy.stems[1].store
    assert chooser.choose(rows).tolist() == [1] * 10
    kinds = store.column("kind").words(rows).view(np.int64)
    streamed = chooser.choose_unstored(store, rows)
    assert streamed.tolist() == (kinds > 49).astype(int).tolist()
