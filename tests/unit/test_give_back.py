"""Memory that was freed goes back to the system when the process holds more than it may."""

from __future__ import annotations

import pytest

from eddies.core.spill import give_back
from eddies.core.spill.give_back import GiveBack

BUDGET = 1000
BEFORE = 5000


@pytest.mark.parametrize(
    ("grown_by", "at_once", "in_passing"),
    [(0, 0, 0), (1000, 0, 0), (1001, 1, 0), (1200, 1, 0), (1201, 1, 1)],
)
def test_two_thresholds(monkeypatch, grown_by, at_once, in_passing):
    """Above the budget when much was freed, above 1.2 times the budget in passing."""
    held, trimmed = [BEFORE], []
    monkeypatch.setattr(give_back, "_resident_bytes", lambda: held[0])
    monkeypatch.setattr(give_back, "_TRIM", trimmed.append)
    giving = GiveBack(BUDGET, 4)
    held[0] = BEFORE + grown_by
    giving()
    assert len(trimmed) == at_once
    trimmed.clear()
    giving.if_urgent()
    assert len(trimmed) == in_passing


def test_where_nobody_knows_what_is_held_everything_goes_back(monkeypatch):
    trimmed: list[int] = []
    monkeypatch.setattr(give_back, "_resident_bytes", lambda: None)
    monkeypatch.setattr(give_back, "_TRIM", trimmed.append)
    giving = GiveBack(BUDGET, 4)
    giving.if_urgent()
    assert trimmed == [0]
