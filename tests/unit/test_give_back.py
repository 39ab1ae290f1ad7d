"""Memory goes back to the system when the process holds too much, and only then."""

from __future__ import annotations

import pytest

from eddies.core.spill import give_back
from eddies.core.spill.give_back import GiveBack

BUDGET = 1 << 20


def test_memory_is_given_back_above_the_budget_only(monkeypatch: pytest.MonkeyPatch) -> None:
    held = 100 << 20
    n_trims = 0

    def trim(_: int) -> int:
        nonlocal n_trims
        n_trims += 1
        return 1

    monkeypatch.setattr(give_back, "_resident_bytes", lambda: held)
    monkeypatch.setattr(give_back, "_TRIM", trim)
    gives_back = GiveBack(BUDGET, 16)
    for share, n_expected in ((0.5, 0), (1.1, 0), (1.25, 1), (1.1, 1), (3.0, 2)):
        held = (100 << 20) + int(share * BUDGET)
        gives_back()
        assert n_trims == n_expected
    for share, n_expected in ((1.1, 2), (1.25, 3)):
        held = (100 << 20) + int(share * BUDGET)
        gives_back.if_urgent()
        assert n_trims == n_expected


def test_where_nobody_tells_how_much_is_held_it_is_always_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_trims = 0

    def trim(_: int) -> int:
        nonlocal n_trims
        n_trims += 1
        return 1

    monkeypatch.setattr(give_back, "_resident_bytes", lambda: None)
    monkeypatch.setattr(give_back, "_TRIM", trim)
    GiveBack(BUDGET, 16)()
    assert n_trims == 1
