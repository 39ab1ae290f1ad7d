"""Do we show what the eddies paper shows? Virtual time and fixed seeds: the same on every machine."""

from __future__ import annotations

import pytest

from eddies.experiments.delays import run_delays
from eddies.experiments.external_indexes import (
    run_changing_costs,
    run_changing_selectivities,
    run_one_switch,
)
from eddies.experiments.joins import run_joins
from eddies.experiments.selections import run_jeopardy, run_selections
from eddies.observe.claims import Claim

RUNS = (
    run_selections,
    run_jeopardy,
    run_joins,
    run_one_switch,
    run_changing_costs,
    run_changing_selectivities,
    run_delays,
)


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    return {claim.name: claim for run in RUNS for claim in run().claims}


def failed(claim: Claim) -> dict[str, tuple[float, str]]:
    return {check.what: (check.value, check.bound) for check in claim.checks if not check.held}


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8, 9, 10, 11])
def test_claim_holds(claims, number):
    assert not failed(claims[f"ED-X{number}"])


def test_index_join_lottery_misses_its_bound_by_little(claims):
    """ED-X5 does not hold: 1.155 against 1.15 at the worst index cost. See docs/figures.md."""
    (missed,) = failed(claims["ED-X5"]).values()
    assert 1.15 < missed[0] < 1.17


def test_only_the_eddy_profits_from_a_late_s(claims):
    """ED-X12 does not hold: static plans are 9 to 10 s later, the eddy less. See docs/figures.md."""
    missed = failed(claims["ED-X12"])
    assert list(missed) == ["seconds later, eddy"]
    assert 7.0 < missed["seconds later, eddy"][0] < 9.0
