"""The experiments with STAIRs, small: answers agree, claims that do not depend on size hold."""

from __future__ import annotations

import duckdb
import pytest

from eddies.experiments.stairs_random import NAMES, run_setup
from eddies.experiments.stairs_regions import run_auto_regions, run_late_source, run_regions
from eddies.experiments.stairs_runs import CONTENDERS, _Watch, run_feed, time_feed
from eddies.experiments.stairs_setups import exact_sizes, make_setup


@pytest.mark.parametrize("seed", range(6))
def test_all_contenders_agree_on_a_random_setup(seed):
    runs = run_setup(make_setup(seed, scale=50))
    assert set(runs) == set(NAMES)


def test_seconds_are_those_of_runs_that_nobody_watches(monkeypatch):
    told = []
    monkeypatch.setattr(_Watch, "emit", lambda _, event: told.append(event))
    setup = make_setup(0, scale=50)
    assert time_feed(setup.query, setup.feed, **CONTENDERS["auto"]) > 0
    assert not told
    run_feed(setup.query, setup.feed, **CONTENDERS["auto"])
    assert told


def test_a_form_can_be_built_from_beyond_a_join_that_is_closed():
    """w4 has ended, so nobody probes what w0 holds for it; a form that is built from w4 still must."""
    setup = make_setup(108, scale=4)
    run = run_feed(setup.query, setup.feed, **CONTENDERS["STAIRs, greedy"])
    assert run.n_results == round(setup.sizes[max(setup.sizes)])


def test_sizes_are_exact():
    setup = make_setup(3, scale=50)
    connection = duckdb.connect()
    kept = []
    for name, table in setup.tables.items():
        share = next(s for s in setup.query.selections if s.expr.args[0].source == name)
        connection.register("t", table)
        rows = connection.sql(
            f"SELECT * FROM t WHERE p < {share.expr.args[1].value}"
        ).to_arrow_table()
        kept.append(rows)
        connection.unregister("t")
    names = list(setup.tables)
    for name, rows in zip(names, kept, strict=True):
        connection.register(name, rows)
    on = " AND ".join(
        f"{e.left.source}.{e.left.name} = {e.right.source}.{e.right.name}"
        for e in setup.query.equalities
    )
    ((n_rows,),) = connection.sql(f"SELECT count(*) FROM {', '.join(names)} WHERE {on}").fetchall()
    columns = [{c: rows[c].to_numpy() for c in rows.column_names} for rows in kept]
    assert exact_sizes(setup.query, columns)[(1 << len(names)) - 1] == n_rows


def test_a_late_source_meets_no_bare_rows():
    (claim,) = run_late_source(scale=5).claims
    assert claim.held, claim.headline


def test_parts_of_the_data_are_found():
    regions, content = run_regions(scale=5).claims
    assert content.held, content.headline
    larger = [check for check in regions.checks if check.what != "STAIRs / EddyJoins"]
    assert all(check.held for check in larger), regions.headline


def test_auto_finds_parts_of_the_data_by_itself():
    (auto,) = run_auto_regions().claims
    tuples = [check for check in auto.checks if "tuples" in check.what]
    assert len(tuples) == 2
    assert all(check.held for check in tuples), auto.headline
