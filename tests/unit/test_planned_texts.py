"""Plans of texts are kept by what they follow from, and only so many."""

from __future__ import annotations

from eddies.spark.planned_texts import PlannedTexts
from eddies.sql import SqlPlan


def made(number: int, may_be_kept: bool = True) -> tuple[SqlPlan, bool]:
    return SqlPlan((), f"SELECT {number}"), may_be_kept


def test_a_plan_is_made_once() -> None:
    texts = PlannedTexts()
    first = texts.plan("a", lambda: made(1))
    assert texts.plan("a", lambda: made(2)) is first
    assert texts.plan("b", lambda: made(3)).above == "SELECT 3"


def test_a_plan_that_may_not_be_kept_is_made_again() -> None:
    texts = PlannedTexts()
    texts.plan("a", lambda: made(1, may_be_kept=False))
    assert texts.plan("a", lambda: made(2)).above == "SELECT 2"


def test_plans_that_were_used_last_are_kept() -> None:
    texts = PlannedTexts(most=2)
    for number, key in enumerate(["a", "b", "a", "c"]):
        texts.plan(key, lambda number=number: made(number))  # type: ignore[misc]
    assert len(texts) == 2
    assert texts.plan("a", lambda: made(9)).above == "SELECT 0"
    assert texts.plan("b", lambda: made(9)).above == "SELECT 9"
