"""Every kind of SteM gives the same bag: only the time at which rows go on differs."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.state.list_index import LONGEST_LIST, ListIndex
from eddies.core.state.sorted_runs import SortedRuns
from eddies.core.state_modes.bounced import BouncedMode
from eddies.errors import OptionError
from tests.support.bag import assert_same_bag
from tests.support.driving import Oracle, drive, random_options
from tests.support.random_queries import make_case
from tests.support.small import batches, drained, make_query

KINDS = ("list", "grace", "hybrid", "sort")
TABLES = {
    "r": pa.table({"k": [i * 7 % 100 for i in range(300)], "n": range(300)}),
    "s": pa.table({"k": [i * 3 % 110 for i in range(200)], "m": range(200)}),
}
QUERY = make_query(TABLES, ["r.k = s.k"])


@pytest.mark.parametrize("stem", KINDS)
def test_random_queries(stem):
    oracle = Oracle()
    for seed in range(15):
        case, expected = oracle.bounded(make_case(seed))
        rng = random.Random(f"stems {seed}")
        found = drive(case.query, case.tables, rng, random_options(rng, stem=stem))
        assert_same_bag(found, expected, (stem, case))


def pushed(stem: str, *, end: bool) -> Eddy:
    eddy = Eddy(QUERY, Options(stem=stem))
    eddy.push("r", batches(TABLES["r"])[0])
    eddy.end("r")
    eddy.push("s", batches(TABLES["s"])[0])
    if end:
        eddy.end("s")
    return eddy


def test_grace_gives_rows_back_when_the_relation_has_ended():
    eddy = pushed("grace", end=False)
    assert drained(eddy).num_rows == 0
    assert isinstance(eddy.mode, BouncedMode)
    assert eddy.mode.n_held_rows == 200
    eddy.end("s")
    assert drained(eddy).num_rows == drained(pushed("hash", end=True)).num_rows > 0


def test_hybrid_gives_some_rows_back_at_once():
    eddy = pushed("hybrid", end=False)
    n_early = drained(eddy).num_rows
    eddy.end("s")
    n_all = drained(pushed("hash", end=True)).num_rows
    assert 0 < n_early < n_all
    assert n_early + drained(eddy).num_rows == n_all


def test_sort_gives_results_in_the_order_of_keys():
    eddy = pushed("sort", end=True)
    keys = drained(eddy).column("s_k").to_pylist()
    assert keys == sorted(keys)
    (index,) = eddy.stems[0]._hash.values() or (None,)
    assert index is None or isinstance(index, SortedRuns)


def test_a_list_becomes_a_hash_table_when_it_grows():
    eddy = Eddy(QUERY, Options(stem="list"))
    n_found = 0
    for start in range(0, 300, 20):
        eddy.push("r", batches(TABLES["r"].slice(start, 20))[0])
        if start < 200:
            eddy.push("s", batches(TABLES["s"].slice(start, 20))[0])
        n_found += drained(eddy).num_rows
        (index,) = eddy.stems[0]._hash.values()
        assert isinstance(index, ListIndex)
        assert index.is_list == (index.n_rows <= LONGEST_LIST)
    assert not index.is_list
    assert n_found == drained(pushed("hash", end=True)).num_rows


def test_combinations_that_make_no_sense_are_refused():
    with pytest.raises(OptionError, match="unknown stem"):
        Options(stem="tree")
    with pytest.raises(OptionError, match="state='stems'"):
        Options(stem="grace", state="joins")
    with pytest.raises(OptionError, match="memory"):
        Options(stem="sort", memory="1MB")
