"""Two external indexes whose speeds change (Eddies, section 4.4: Figures 10 and 11).

    SELECT * FROM R, A, B WHERE R.a = A.k AND R.b = B.k

R is scanned; A and B are looked up one row after another, each look-up sleeping for a declared
time. An index join is then a selection on R, and the question is which index to ask first. The
speeds swap while the query runs; the eddy's lottery forgets by windows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddies.core.events import Event, Routed
from eddies.core.policies.lottery_window import LotteryWindowPolicy
from eddies.core.query import Query
from eddies.experiments.machine import Recorder, assert_same_answer, join_query
from eddies.hosts.machine import Limits, Moment, Scan, Service
from eddies.hosts.queued import QueuedRun
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "run_changing_costs", "run_changing_selectivities", "run_one_switch"]

A_FIRST, B_FIRST, EDDY = "A before B", "B before A", "eddy"
SECOND_NS = 1e9
UNIT_NS = 1e6  # of the experiments in cost units
# One switch: the buffer holds the rows that passed the fast index and wait for the slow one (290 in
# the paper), and few rows wait at an index, since one that turns slow keeps them for 5 s each.
ONE_SWITCH_LIMITS = Limits(buffer_rows=1000, queue_rows=4)
# Toggled: no more rows in flight than a queue holds, so that the lottery is what decides.
TOGGLED_LIMITS = Limits(buffer_rows=20, queue_rows=20)


@dataclass(frozen=True, slots=True)
class _World:
    """A scan of R and indexes on A and B."""

    query: Query
    scan: Scan
    indexes: dict[str, pa.Table]

    def run(
        self,
        contender: str,
        services: dict[str, Service],
        limits: Limits,
        recorder: _Lookups,
        seed: int,
    ) -> QueuedRun:
        order = {A_FIRST: ("stem:A", "stem:B"), B_FIRST: ("stem:B", "stem:A")}.get(contender, ())
        policy = None if order else LotteryWindowPolicy(random.Random(seed))
        return QueuedRun(
            self.query,
            {"R": self.scan},
            services,
            limits,
            policy,
            order=order,
            indexes=self.indexes,
            events=recorder,
        ).run()


class _Lookups(Recorder):
    """Also remembers when each index was asked, and what it cost."""

    def __init__(self) -> None:
        super().__init__(0)
        self.all: list[Routed] = []

    def emit(self, event: Event) -> None:
        """Keep look-ups, and where rows went first."""
        super().emit(event)
        if isinstance(event, Routed):
            self.all.append(event)


def _world(keys: dict[str, np.ndarray], rows_per_s: float | None = None) -> _World:
    """R with the keys given; an index holds the key 1 only, so that a key of 1 has one match."""
    scanned = pa.table({name: pa.array(values, pa.int64()) for name, values in keys.items()})
    one = pa.table({"k": pa.array([1], pa.int64())})
    tables = {"R": scanned, "A": one, "B": one}
    query = join_query(tables, (("R.a", "A.k"), ("R.b", "B.k")))
    return _World(query, Scan(scanned, rows_per_s), {"A": one, "B": one})


def _matching(rng: np.random.Generator, n_rows: int, n_values: int) -> np.ndarray:
    """Keys of which one in `n_values` has a match."""
    return rng.integers(1, n_values + 1, n_rows)


def run_one_switch(n_rows: int = 30_000, switch_s: float = 30.0, seed: int = 0) -> Finding:
    """Figure 10: A is fast, then slow; B is slow, then fast."""
    rng = np.random.default_rng(seed)
    keys = {"a": _matching(rng, n_rows, 100), "b": _matching(rng, n_rows, 100)}
    # 29,000 of 30,000 rows are read before the switch, as in the paper.
    world = _world(keys, n_rows * 29 / 30 / switch_s)
    slow_ns = 5 * SECOND_NS

    def costs(slow_first: bool) -> Callable[[Moment], float]:
        return lambda moment: slow_ns * ((moment.now_ns < switch_s * SECOND_NS) == slow_first)

    services = {
        "stem:A": Service(costs(slow_first=False), sleeps=True),
        "stem:B": Service(costs(slow_first=True), sleeps=True),
    }
    seconds, slow_late, first_early, rows = {}, {}, {}, []
    reference: QueuedRun | None = None
    for contender in (A_FIRST, B_FIRST, EDDY):
        lookups = _Lookups()
        run = world.run(contender, services, ONE_SWITCH_LIMITS, lookups, seed)
        reference = reference or run
        assert_same_answer(run, reference)
        late = [e for e in lookups.all if e.at_ns >= switch_s * SECOND_NS]
        seconds[contender] = run.elapsed_s
        slow_late[contender] = sum(e.elapsed_ns > 0 for e in late)
        first_early[contender] = sum(lookups.n_first(before_ns=switch_s * SECOND_NS).values())
        rows.append(
            {
                "plan": contender,
                "seconds": run.elapsed_s,
                "rows started before the switch": first_early[contender],
                "slow look-ups before the switch": sum(e.elapsed_ns > 0 for e in lookups.all)
                - slow_late[contender],
                "slow look-ups after the switch": slow_late[contender],
            }
        )
    better = min(seconds[A_FIRST], seconds[B_FIRST])
    claim = Claim(
        "ED-X8",
        "the eddy is far faster than both static plans when index speeds swap",
        (
            Check("eddy / better static plan", seconds[EDDY] / better, high=0.10),
            Check("slow look-ups of the eddy after the switch", slow_late[EDDY], high=30),
            Check("rows started before the switch, B before A", first_early[B_FIRST], 6, 6),
            Check("slow look-ups after the switch, B before A", slow_late[B_FIRST], 240, 360),
            Check(
                "rows started before the switch, A before B", first_early[A_FIRST], 28_500, 29_500
            ),
            Check("slow look-ups after the switch, A before B", slow_late[A_FIRST], 900, 1100),
        ),
    )
    names = list(seconds)
    panel = Panel(
        "A fast then slow, B slow then fast; switch at 30 s",
        "",
        "completion (s)",
        (Series("time", names, [seconds[name] for name in names]),),
        kind="bars",
        log_y=True,
    )
    title = "Eddies, Figure 10: two external indexes swap speeds"
    return Finding((claim,), (Figure("ED-X8", title, (panel,), tuple(rows)),))


def run_changing_costs(n_rows: int = 4000, n_phases: int = 4, seed: int = 0) -> Finding:
    """Figure 11: costs 1 and 100 are swapped whenever another quarter of R has been read."""
    rng = np.random.default_rng(seed)
    keys = {"a": _matching(rng, n_rows, 10), "b": _matching(rng, n_rows, 10)}
    world = _world(keys)
    phase_rows = n_rows // n_phases

    def costs(odd: int) -> Callable[[Moment], float]:
        def cost_ns(moment: Moment) -> float:
            phase = max(0, moment.n_read - 1) // phase_rows
            return UNIT_NS * (100 if phase % 2 == odd else 1)

        return cost_ns

    services = {
        "stem:A": Service(costs(odd=1), sleeps=True),
        "stem:B": Service(costs(odd=0), sleeps=True),
    }
    units, rows = {}, []
    reference: QueuedRun | None = None
    for contender in (A_FIRST, B_FIRST, EDDY):
        lookups = _Lookups()
        run = world.run(contender, services, TOGGLED_LIMITS, lookups, seed)
        reference = reference or run
        assert_same_answer(run, reference)
        units[contender] = sum(run.busy_s.values()) * 1e9 / UNIT_NS / n_rows
    n_routed, shares = lookups.cumulative_share("stem:A")
    at = {n: shares[n_routed.index(n)] for n in range(phase_rows, n_rows + 1, phase_rows)}
    rows = [{"rows routed": n, "share A first": s} for n, s in zip(n_routed, shares, strict=True)]
    bounds = ((0.90, 1.0), (0.45, 0.60), (0.60, 0.75), (0.45, 0.55))
    checks = [
        Check(
            "eddy / better static order, total cost",
            units[EDDY] / min(units[A_FIRST], units[B_FIRST]),
            high=0.35,
        )
    ]
    for (n, share), (low, high) in zip(at.items(), bounds, strict=True):
        checks.append(Check(f"share that asked A first, of the first {n} rows", share, low, high))
    claim = Claim("ED-X9", "the eddy changes its order whenever costs swap", tuple(checks))
    panels = (
        Panel(
            "costs 1 and 100 swap at every quarter",
            "rows of R routed (%)",
            "rows that asked A first (%)",
            (Series("eddy", [100 * n / n_rows for n in n_routed], [100 * s for s in shares]),),
        ),
        Panel(
            "",
            "",
            "total cost (units a row)",
            (Series("cost", list(units), list(units.values())),),
            kind="bars",
        ),
    )
    return Finding(
        (claim,), (Figure("ED-X9", "Eddies, Figure 11: index costs swap", panels, tuple(rows)),)
    )


def run_changing_selectivities(n_rows: int = 4000, n_phases: int = 4, seed: int = 0) -> Finding:
    """Section 4.4: equal costs; each index matches all rows of every other quarter, no others."""
    phase = np.arange(n_rows) // (n_rows // n_phases)
    world = _world({"a": phase % 2, "b": 1 - phase % 2})
    services = {name: Service(UNIT_NS, sleeps=True) for name in ("stem:A", "stem:B")}
    units = {}
    reference: QueuedRun | None = None
    for contender in (A_FIRST, B_FIRST, EDDY):
        run = world.run(contender, services, TOGGLED_LIMITS, _Lookups(), seed)
        reference = reference or run
        assert_same_answer(run, reference)
        units[contender] = sum(run.busy_s.values()) * 1e9 / UNIT_NS / n_rows
    better = min(units[A_FIRST], units[B_FIRST])
    claim = Claim(
        "ED-X10",
        "swapping selectivities gives an adaptive order at most 3/2 over a static one",
        (
            Check("better static order / eddy, total cost", better / units[EDDY], 1.0 + 1e-9, 1.5),
            Check("static order, cost over n*c", better, 1.49, 1.51),
        ),
    )
    panel = Panel(
        "selectivities 0 and 100 % swap at every quarter",
        "",
        "total cost (look-ups a row)",
        (Series("cost", list(units), list(units.values())),),
        kind="bars",
        marks={"ideal": 1.0},
    )
    rows = tuple({"plan": name, "look-ups a row": value} for name, value in units.items())
    title = "Two external indexes swap selectivities"
    return Finding((claim,), (Figure("ED-X10", title, (panel,), rows),))


EXPERIMENTS = (
    Experiment("index-switch", "eddies", ("ED-X8",), run_one_switch),
    Experiment("index-costs", "eddies", ("ED-X9",), run_changing_costs),
    Experiment("index-selectivities", "eddies", ("ED-X10",), run_changing_selectivities),
)
