"""One case from tables to figures: who takes part, and which of a peer's ways counts.

Figures are medians in seconds by name. `us` and `us2` are the eddy with one thread and with two;
`duckdb1`, `duckdb2` and `polars` are the faster of the ways the engine was run, each of which is
kept too (`duckdb1_arrow`, `polars_streaming`, ...).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eddies.bench.cases import Case
from eddies.bench.data import Tables
from eddies.bench.memory import Memory, peak_memory
from eddies.bench.peers import (
    DUCKDB_THREADS,
    DUCKDB_WAYS,
    POLARS_WAYS,
    duckdb_contestants,
    duckdb_databases,
    eddy_contestant,
    polars_contestants,
)
from eddies.bench.timing import Answer, Contestant, Timing, take_turns
from eddies.core.options import Options

__all__ = ["BEST_TEXT", "Measured", "measure"]

BEST_TEXT = "_best_text"
# A first look at every fixed order, enough to tell which ones can be the best.
SURVEY_TURNS = 2
N_FINAL_ORDERS = 2

OnRun = Callable[[str], None]


@dataclass(slots=True)
class Measured:
    """What one case gave. `names_by_answer` has one entry if all contestants agree."""

    case: Case
    names_by_answer: dict[Answer, list[str]]
    median_s_by_name: dict[str, float]
    fixed_s_by_order: dict[str, float] = field(default_factory=dict)
    memory: Memory | None = None

    @property
    def agrees(self) -> bool:
        """Whether every run of every contestant gave the same answer."""
        return len(self.names_by_answer) == 1

    @property
    def best_fixed_s(self) -> float | None:
        """Our time in the best of the fixed orders, where there are any."""
        return min(self.fixed_s_by_order.values(), default=None)


def measure(
    case: Case,
    n_turns: int,
    scale: float = 1.0,
    on_run: OnRun = lambda name: None,
) -> Measured:
    """Make the tables of `case`, run everybody on them `n_turns` times, and check the answers."""
    on_run("making tables")
    tables = case.make(scale)
    survey = take_turns(_fixed_orders(case, tables), min(SURVEY_TURNS, n_turns), on_run)
    finalists = sorted(survey, key=lambda name: survey[name].median_s)[:N_FINAL_ORDERS]
    with duckdb_databases(tables) as databases:
        contestants = [
            *_ours(case, tables),
            *(one for one in _fixed_orders(case, tables) if one.name in finalists),
            *duckdb_contestants(databases, case.text),
            *polars_contestants(tables, case.text),
        ]
        if case.best_text is not None:
            contestants += duckdb_contestants(databases, case.best_text, BEST_TEXT)
            contestants += polars_contestants(tables, case.best_text, BEST_TEXT)
        final = take_turns(contestants, n_turns, on_run)
    median_s = {name: timing.median_s for name, timing in final.items() if name not in survey}
    for suffix in ("", BEST_TEXT) if case.best_text is not None else ("",):
        median_s |= _fastest_ways(median_s, suffix)
    # An order that reached the final counts with its final, better founded median.
    fixed = {**survey, **{name: final[name] for name in finalists}}
    measured = Measured(
        case,
        _names_by_answer([survey, final]),
        median_s,
        {name: timing.median_s for name, timing in fixed.items()},
    )
    if case.memory_at_most is not None:
        on_run("peak memory")
        measured.memory = peak_memory(case, tables)
    return measured


def _ours(case: Case, tables: Tables) -> list[Contestant]:
    ours = [
        eddy_contestant("us", case, tables, case.text, Options()),
        eddy_contestant("us2", case, tables, case.text, Options(threads=2)),
    ]
    if case.best_text is not None:
        ours.append(eddy_contestant(f"us{BEST_TEXT}", case, tables, case.best_text, Options()))
    return ours


def _fixed_orders(case: Case, tables: Tables) -> list[Contestant]:
    """Our eddy held to each order, named after it: `d0,d1,d2,d3`."""
    return [
        eddy_contestant(
            ",".join(order), case, tables, case.text, Options(policy="static", order=order)
        )
        for order in case.fixed_orders
    ]


def _fastest_ways(median_s: dict[str, float], suffix: str) -> dict[str, float]:
    ways_by_name = {
        f"duckdb{n_threads}": [f"duckdb{n_threads}_{way}" for way in DUCKDB_WAYS]
        for n_threads in DUCKDB_THREADS
    }
    ways_by_name["polars"] = [f"polars_{way}" for way in POLARS_WAYS]
    return {
        name + suffix: min(median_s[way + suffix] for way in ways)
        for name, ways in ways_by_name.items()
    }


def _names_by_answer(rounds: list[dict[str, Timing]]) -> dict[Answer, list[str]]:
    found: dict[Answer, dict[str, None]] = {}
    for timing_by_name in rounds:
        for name, timing in timing_by_name.items():
            for answer in timing.answers:
                found.setdefault(answer, {})[name] = None
    return {answer: list(names) for answer, names in found.items()}
