"""Guesses from the form of conditions: shares, and in a sensible order."""

from __future__ import annotations

import pytest

from eddies.sql.share_kept import share_kept

SHARES = {
    "a = 1": 0.1,
    "a <> 1": 0.9,
    "a <=> NULL": 0.1,
    "a IS NOT NULL": 0.9,
    "a IN (1, 2, 3)": 0.3,
    "a IN (1, 2, 3, 4, 5, 6, 7, 8)": 0.5,
    "NOT a IN (1, 2)": 0.8,
    "a BETWEEN 1 AND 2": 0.25,
    "(a = 1 OR b = 2)": 0.19,
    "a = 1 AND b = 2": 0.01,
    "`a b` LIKE '%x'": 1 / 3,
    "f(a)": 1 / 3,
}


@pytest.mark.parametrize("condition", list(SHARES))
def test_share_of_one_condition(condition: str) -> None:
    assert share_kept([condition], {}) == pytest.approx(SHARES[condition])


def test_all_conditions_must_hold() -> None:
    assert share_kept([], {}) == 1.0
    assert share_kept(["a = 1", "b = 2", "c < 3"], {}) == pytest.approx(0.1 * 0.1 / 3)


def test_columns_of_which_more_is_known() -> None:
    equal = {"a b": 0.25, "c": 0.01}
    assert share_kept(["`a b` = 'x'"], equal) == 0.25
    assert share_kept(["'x' <> `a b`"], equal) == 0.75
    assert share_kept(["c IN (1, 2, 3)"], equal) == pytest.approx(0.03)
    assert share_kept(["c = `a b`"], equal) == 0.1
    assert share_kept(["c < 7"], equal) == pytest.approx(1 / 3)
