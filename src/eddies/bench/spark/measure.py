"""One case: the engines take turns, and their answers are compared with DuckDB's as bags.

An engine that fails or is cancelled does not stop the others: what happened is kept in words. A
cancelled query counts with the time limit, which its true time is above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from eddies.bench.answers import Row, difference, plain_rows
from eddies.bench.spark.cases import Case
from eddies.bench.spark.engines import Ask, OutOfTimeError
from eddies.bench.timing import Answer, Contestant, take_turns

__all__ = ["US_BEST", "Measured", "measure"]

US_BEST = "us_best"
# Who takes longer has one run: others need not wait, and a median of such times would move little.
PATIENCE_S = 30.0

OnRun = Callable[[str], None]


@dataclass(slots=True)
class Measured:
    """Medians in seconds, and what went wrong, by contestant.

    is_bound    cancelled: the true time is above the one given.
    failures    the engine gave no answer.
    differences the answer is not DuckDB's (or, where DuckDB does not take part, the first one's).
    """

    case: Case
    median_s_by_name: dict[str, float]
    is_bound: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether everybody who was not cancelled answered, and alike."""
        return not self.failures and not self.differences

    def ratio(self, above: str, below: str) -> float | None:
        """Time of one over time of the other, if both have one."""
        times = self.median_s_by_name
        return times[above] / times[below] if above in times and below in times else None


def measure(
    case: Case,
    ask_by_engine: dict[str, Ask],
    n_turns: int,
    on_run: OnRun = lambda name: None,
) -> Measured:
    """Run `case` on every engine once to warm up and `n_turns` times in turns."""
    questions = {name: (ask, case.sql) for name, ask in ask_by_engine.items()}
    if case.best_sql is not None and "us" in ask_by_engine:
        questions[US_BEST] = (ask_by_engine["us"], case.best_sql)
    measured = Measured(case, {})
    answer_by_name: dict[str, pa.Table] = {}

    def contestant(name: str, ask: Ask, sql: str) -> Contestant:
        def run() -> Answer:
            if name in measured.failures:
                return ()
            try:
                answer_by_name[name] = ask(sql)
            except OutOfTimeError:
                measured.is_bound.add(name)
            except Exception as error:  # noqa: BLE001 - whatever an engine raises is its result
                measured.failures[name] = f"{type(error).__name__}: {_cause(str(error))}"
            return ()

        return Contestant(name, run)

    contestants = [contestant(name, ask, sql) for name, (ask, sql) in questions.items()]
    timing_by_name = take_turns(contestants, n_turns, on_run, PATIENCE_S)
    for name, timing in timing_by_name.items():
        if name not in measured.failures:
            measured.median_s_by_name[name] = timing.median_s
    measured.differences = _differences(
        {name: plain_rows(answer) for name, answer in answer_by_name.items()}
    )
    return measured


def _cause(text: str) -> str:
    """What was wrong in the first place, in the long text of an error that came through Java."""
    first_line = text.partition("\n")[0]
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    return f"{first_line} {causes[-1]}" if causes else text


def _differences(rows_by_name: dict[str, list[Row]]) -> dict[str, str]:
    if not rows_by_name:
        return {}
    reference = "duckdb2" if "duckdb2" in rows_by_name else next(iter(rows_by_name))
    found = {name: difference(rows, rows_by_name[reference]) for name, rows in rows_by_name.items()}
    return {name: f"{text} (of {reference})" for name, text in found.items() if text is not None}
