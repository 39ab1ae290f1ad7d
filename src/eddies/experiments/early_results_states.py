"""Worked numbers of the paper on early results, and what its state manager chooses (ER-X9 to X11)."""

from __future__ import annotations

import numpy as np

from eddies.core.spill.estimators import Average, Estimator, Ewma, Recent
from eddies.core.spill.flush_policies import expected_results
from eddies.core.spill.groups import GroupTable
from eddies.core.spill.pipeline import Pipeline
from eddies.core.spill.plan_run import Arrivals, Outcome, Settings
from eddies.core.spill.state_manager import (
    DiskSpeed,
    OperatorView,
    State,
    StateManager,
    disk_results,
)
from eddies.experiments.early_results_data import COSTS
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "figure_3", "figure_4"]

OBSERVED = (50, 100, 70, 60)  # Figure 4, in the order of time


def figure_3() -> GroupTable:
    """Group 2 of JoinAB in Figure 3, as if alone; the ratio of global to local output is 0.5."""
    one = np.ones(1)
    return GroupTable(
        operator=np.zeros(1, dtype=np.int64),
        group=np.full(1, 2, dtype=np.int64),
        size_a=np.array([100]),
        size_b=np.array([15]),
        bytes_a=10 * one,
        bytes_b=8 * one,
        input_a=6 * one,
        input_b=4 * one,
        input_total=100.0,
        unique=5 * one,
        local=2 * one,
        globally=1 * one,
        is_root=np.zeros(1, dtype=np.bool_),
    )


def figure_4(estimator: Estimator) -> float:
    """What an estimator makes of the observations of Figure 4."""
    value = 0.0
    for observed in OBSERVED:
        value = float(estimator.fold(np.array([float(observed)]))[0])
    return value


def _exactly(what: str, value: float, wanted: float) -> Check:
    return Check(what, value, wanted, wanted)


def _worked_numbers() -> Finding:
    table = figure_3()
    results = float(expected_results(table, 2000.0)[0])
    claim = Claim(
        "ER-X9",
        "The worked numbers of Figures 3, 4 and 5(b).",
        (
            _exactly("expected results of group 2", round(results, 6), 130),
            _exactly("score of group 2, rounded", round(results / 115, 3), 1.130),
            _exactly("Recent", figure_4(Recent()), 60),
            _exactly("Average of three, rounded", round(figure_4(Average(3))), 77),
            _exactly("EWMA with alpha 0.2, rounded", round(figure_4(Ewma(0.2))), 63),
            _exactly("results on disk of group 1", disk_results(300, 60, 140, 10, 5), 2280),
            _exactly("the same a tuple, rounded", round(2280 / (300 + 60), 2), 6.33),
        ),
    )
    return Finding((claim,), ())


def four_joins(best: int) -> tuple[OperatorView, ...]:
    """Four joins of which only number `best` has a disk group worth merging (-1: none)."""
    return tuple(
        OperatorView(
            memory_throughput=100.0,
            disk_throughput=[0.5, 2.0 if number == best else 0.1],
            disk_sizes=[100.0, 100.0],
            input_rate=10.0,
            below=frozenset(range(number)),
        )
        for number in range(4)
    )


def _chosen_states() -> Finding:
    manager = StateManager(DiskSpeed(100.0), buffer_tuples=1000.0)
    chosen = manager.direct(four_joins(2), (3, 2, 1, 0))
    none = manager.direct(four_joins(-1), (3, 2, 1, 0))
    wanted = (State.BLOCKED, State.BLOCKED, State.ON_DISK, State.IN_MEMORY)
    claim = Claim(
        "ER-X10",
        "Third of four joins best on disk: it merges, the one above goes on, those below wait.",
        (
            _exactly("states as wanted", float(chosen.states == wanted), 1),
            _exactly("group chosen", chosen.group, 1),
            _exactly("all in memory without a candidate", len(set(none.states)), 1),
            _exactly("... and that is", float(none.states[0] is State.IN_MEMORY), 1),
        ),
    )
    return Finding((claim,), ())


def silent_upper_inputs() -> Outcome:
    """A and B keep sending; C and D sent everything in the first 40 s and say nothing for 260 s."""
    rng = np.random.default_rng(5)
    n = 8000
    sources = []
    for number in range(4):
        moments = np.linspace(0, 300 if number < 2 else 40, n)
        moments = np.floor(moments / 0.5) * 0.5
        sources.append(Arrivals(moments, rng.permutation(n).astype(np.int32)))
    settings = Settings(memory_tuples=0.1 * 4 * n, n_groups=20, costs=COSTS)
    return Pipeline(sources, n, settings).run()


def _silent_inputs() -> Finding:
    outcome = silent_upper_inputs()
    upper = [d for d in outcome.directions if d.operator >= 1]
    in_silence = outcome.results_at(300.0) - outcome.results_at(60.0)
    claim = Claim(
        "ER-X11",
        "A and B send, C and D are silent: the manager merges at an upper join, results flow.",
        (
            Check("merges at upper joins", len(upper), 1),
            Check("results while C and D are silent", in_silence, 1),
        ),
    )
    step = max(1, len(outcome.counts) // 300)
    series = Series("AGF+SM, as printed", outcome.moments[::step], outcome.counts[::step])
    panel = Panel("C and D silent from 40 s on", "time (s)", "results", (series,))
    rows = tuple(
        {"operator": d.operator + 1, "group": d.group, "states": [s.value for s in d.states]}
        for d in outcome.directions
    )
    return Finding((claim,), (Figure("er-silent-inputs", "Silent inputs", (panel,), rows),))


EXPERIMENTS = (
    Experiment("er-worked-numbers", "early-results", ("ER-X9",), _worked_numbers),
    Experiment("er-states", "early-results", ("ER-X10",), _chosen_states),
    Experiment("er-silent-inputs", "early-results", ("ER-X11",), _silent_inputs),
)
