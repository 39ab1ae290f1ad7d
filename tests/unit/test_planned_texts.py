"""Plans of texts are kept by what they follow from, and only so many."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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


class Held:
    """A key that lets others run whenever a dictionary looks at it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        time.sleep(0)
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.number == other.number


def test_many_threads_ask_while_plans_are_forgotten() -> None:
    """Half of the keys have room: what one thread has just found, another may be forgetting."""
    n_threads, n_times, n_keys = 4, 400, 4
    texts = PlannedTexts(most=n_keys // 2)
    begin = threading.Barrier(n_threads)

    def ask(seed: int) -> list[str | None]:
        rng = random.Random(seed)
        begin.wait()
        wrong = []
        for _ in range(n_times):
            number = rng.randrange(n_keys)
            found = texts.plan(Held(number), lambda number=number: made(number)).above  # type: ignore[misc]
            if found != f"SELECT {number}":
                wrong.append(found)
        return wrong

    with ThreadPoolExecutor(n_threads) as pool:
        assert [*pool.map(ask, range(n_threads))] == [[]] * n_threads
    assert len(texts) == n_keys // 2
