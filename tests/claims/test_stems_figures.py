"""Do we show what the SteMs paper shows? Virtual time and fixed seeds: the same on every machine."""

from __future__ import annotations

import pytest

from eddies.experiments.competition import (
    run_competition,
    run_preference,
    run_stalled_triangle,
)
from eddies.experiments.index_joins import run_access_methods, run_index_join
from eddies.experiments.theorems import run_theorems
from eddies.observe.claims import Claim


def failed(claim: Claim) -> dict[str, tuple[float, str]]:
    return {check.what: (check.value, check.bound) for check in claim.checks if not check.held}


@pytest.mark.parametrize(
    "run",
    [
        run_index_join,
        run_competition,
        run_stalled_triangle,
        run_preference,
        pytest.param(run_access_methods, marks=pytest.mark.slow),
        pytest.param(run_theorems, marks=pytest.mark.slow),
    ],
)
def test_claims_hold(run):
    for claim in run().claims:
        assert not failed(claim), claim.name
