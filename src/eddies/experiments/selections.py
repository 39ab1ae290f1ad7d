"""Two expensive selections over one table (Eddies, section 4.1 and 4.2: Figures 4, 5 and 6).

    SELECT * FROM U WHERE s1() AND s2()

Costs are delay units of virtual time, declared; the predicates are real ones over random columns.
First the cost of s1 varies, then its selectivity. Static orders, the naive eddy and the lottery run
on the same simulated machine, with one difference. The naive eddy *is* back-pressure, so its queues
must fill: three times as many rows are in flight as a queue holds. A lottery among modules with
room decides nothing when only one has room, so there no more rows are in flight than one queue
holds; a dashed line shows the lottery with the naive eddy's queues.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from eddies.core.graph import make_graph
from eddies.core.policies.base import Decision, Fork, RoutingPolicy
from eddies.core.policies.lottery import LotteryPolicy
from eddies.core.policies.naive import NaivePolicy
from eddies.experiments.machine import Recorder, assert_same_answer, below, select_query
from eddies.hosts.machine import Limits, Scan, Service
from eddies.hosts.queued import QueuedRun
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "FULL_QUEUES", "ROOMY_QUEUES", "run_jeopardy", "run_selections"]

N_ROWS = 50_000  # of U
UNIT_NS = 1000.0  # one delay unit
FULL_QUEUES = Limits(buffer_rows=120, queue_rows=40, batch_rows=20)
ROOMY_QUEUES = Limits(buffer_rows=40, queue_rows=40, batch_rows=20)
COSTS = tuple(range(1, 10))
SELECTIVITIES = tuple(round(0.1 * i, 1) for i in range(1, 10))
S1_FIRST, S2_FIRST, NAIVE, LOTTERY, LOTTERY_FULL = (
    "s1 before s2",
    "s2 before s1",
    "naive",
    "lottery",
    "lottery, full queues",
)


@dataclass(frozen=True, slots=True)
class Point:
    """Delay units per row of U, and the share of rows that saw s1 first, by contender."""

    x: float
    units: dict[str, float]
    shares: dict[str, float]

    @property
    def best(self) -> float:
        return min(self.units[S1_FIRST], self.units[S2_FIRST])

    @property
    def worst(self) -> float:
        return max(self.units[S1_FIRST], self.units[S2_FIRST])

    def covered(self, contender: str) -> float:
        """How far from the best order to the worst a contender is."""
        return (self.units[contender] - self.best) / (self.worst - self.best)


def _table(n_rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"x1": rng.random(n_rows), "x2": rng.random(n_rows)})


def _measure(
    table: pa.Table, x: float, costs: tuple[float, float], kept: tuple[float, float], seed: int
) -> Point:
    query = select_query(table, (below("u", "x1", kept[0]), below("u", "x2", kept[1])))
    names = [optional.name for optional in make_graph(query).optionals]
    services = {n: Service(c * UNIT_NS) for n, c in zip(names, costs, strict=True)}
    units, shares = {}, {}
    reference: QueuedRun | None = None

    def contender(
        name: str, limits: Limits, policy: RoutingPolicy | None, order: tuple[str, ...] = ()
    ) -> None:
        nonlocal reference
        recorder = Recorder()
        scans = {"u": Scan(table)}
        run = QueuedRun(query, scans, services, limits, policy, order=order, events=recorder).run()
        reference = reference or run
        assert_same_answer(run, reference)
        units[name] = run.elapsed_s * 1e9 / UNIT_NS / table.num_rows
        shares[name] = recorder.share(names[0])

    contender(S1_FIRST, FULL_QUEUES, None, (names[0], names[1]))
    contender(S2_FIRST, FULL_QUEUES, None, (names[1], names[0]))
    contender(NAIVE, FULL_QUEUES, NaivePolicy(random.Random(seed)))
    contender(LOTTERY, ROOMY_QUEUES, LotteryPolicy(random.Random(seed)))
    contender(LOTTERY_FULL, FULL_QUEUES, LotteryPolicy(random.Random(seed)))
    return Point(x, units, shares)


def run_selections(n_rows: int = N_ROWS, seed: int = 0) -> Finding:
    """Figures 4, 5 and 6."""
    table = _table(n_rows, seed)
    by_cost = [_measure(table, c, (c, 5), (0.5, 0.5), seed) for c in COSTS]
    by_kept = [_measure(table, 100 * s, (5, 5), (s, 0.5), seed) for s in SELECTIVITIES]
    claims = (_claim_costs(by_cost), _claim_selectivities(by_kept), _claim_shares(by_cost, by_kept))
    cost_label, kept_label = "cost of s1 (delay units; s2: 5)", "selectivity of s1 (%; s2: 50)"
    figures = (
        _figure("ED-X1", "Eddies, Figure 4: two selections, changing cost", by_cost, cost_label),
        _figure(
            "ED-X2", "Eddies, Figure 5: two selections, changing selectivity", by_kept, kept_label
        ),
        _shares_figure(by_cost, by_kept, cost_label, kept_label),
    )
    return Finding(claims, figures)


def _claim_costs(points: list[Point]) -> Claim:
    checks = [
        Check(
            f"{name} / best order, worst of nine costs",
            max(p.units[name] / p.best for p in points),
            high=1.10,
        )
        for name in (NAIVE, LOTTERY)
    ]
    for p in points:
        c = p.x
        checks.append(
            Check(
                f"s1 before s2 at cost {c:g}, over c+2.5", p.units[S1_FIRST] / (c + 2.5), 0.98, 1.02
            )
        )
        checks.append(
            Check(
                f"s2 before s1 at cost {c:g}, over 5+c/2",
                p.units[S2_FIRST] / (5 + c / 2),
                0.98,
                1.02,
            )
        )
    return Claim(
        "ED-X1", "naive and lottery follow the better order as costs change", tuple(checks)
    )


def _claim_selectivities(points: list[Point]) -> Claim:
    lottery = max(p.units[LOTTERY] / p.best for p in points)
    checks = [Check("lottery / best order, worst of nine selectivities", lottery, high=1.10)]
    for p in (points[0], points[-1]):
        what = f"naive, part of the way from best to worst at {p.x:g} %"
        checks.append(Check(what, p.covered(NAIVE), 0.30, 0.90))
    text = "the lottery follows selectivities; back-pressure does not see them"
    return Claim("ED-X2", text, tuple(checks))


def _claim_shares(by_cost: list[Point], by_kept: list[Point]) -> Claim:
    low, equal, high = by_kept[0], by_kept[len(by_kept) // 2], by_kept[-1]
    steps = [after.shares[LOTTERY] - before.shares[LOTTERY] for before, after in pairwise(by_kept)]
    equal_cost = by_cost[len(by_cost) // 2]
    drift = high.shares[NAIVE] - low.shares[NAIVE]
    checks = (
        Check("lottery share at 10 %", low.shares[LOTTERY], low=0.80),
        Check("lottery share at 90 %", high.shares[LOTTERY], high=0.20),
        Check("naive share with all equal", equal.shares[NAIVE], 0.45, 0.55),
        Check("lottery share with all equal", equal.shares[LOTTERY], 0.45, 0.55),
        Check("naive share with equal costs", equal_cost.shares[NAIVE], 0.45, 0.55),
        Check("lottery share with equal costs", equal_cost.shares[LOTTERY], 0.45, 0.55),
        Check("naive share at 90 % less that at 10 %", drift, low=0.0),
        Check("largest step of the lottery share as selectivity grows", max(steps), high=0.0),
    )
    return Claim("ED-X3", "share of rows that see s1 first", checks)


def _figure(name: str, title: str, points: list[Point], x_label: str) -> Figure:
    xs = [p.x for p in points]
    series = tuple(
        Series(contender, xs, [p.units[contender] for p in points], contender == LOTTERY_FULL)
        for contender in points[0].units
    )
    panel = Panel("50,000 rows", x_label, "time (delay units a row)", series)
    rows = tuple({"x": p.x} | p.units for p in points)
    return Figure(name, title, (panel,), rows)


def _shares_figure(
    by_cost: list[Point], by_kept: list[Point], cost_label: str, kept_label: str
) -> Figure:
    panels = []
    for points, label in ((by_cost, cost_label), (by_kept, kept_label)):
        series = tuple(
            Series(
                name,
                [p.x for p in points],
                [100 * p.shares[name] for p in points],
                name == LOTTERY_FULL,
            )
            for name in (NAIVE, LOTTERY, LOTTERY_FULL)
        )
        panels.append(Panel("", label, "rows that see s1 first (%)", series))
    rows = tuple(
        {"varied": varied, "x": p.x}
        | {name: p.shares[name] for name in (NAIVE, LOTTERY, LOTTERY_FULL)}
        for varied, points in (("cost", by_cost), ("selectivity", by_kept))
        for p in points
    )
    return Figure("ED-X3", "Eddies, Figure 6: who goes first", tuple(panels), rows)


class _Misrouting:
    """Sends a fixed part of new batches to the wrong selection first, spread evenly."""

    every_batch = True
    diverts = False
    is_surprised = False
    news_ns = None

    def __init__(self, right: int, rate: float) -> None:
        self._right = right
        self._rate = rate
        self._due = 0.0

    def choose(self, fork: Fork) -> Decision:
        self._due += self._rate
        wrong = self._due > 1 - 1e-9
        if wrong:
            self._due -= 1
        return Decision(1 - self._right if wrong else self._right)

    def observe(
        self, fork: Fork, choice: int, n_in: int, n_out: int, elapsed_ns: int, n_runs: int = 1
    ) -> None:
        """Nothing is learned."""

    def reoptimize(self) -> None:
        """Nothing changes."""


def run_jeopardy() -> Finding:
    """Section 4.2's formulas: two selections of cost c, a part e of the rows in the wrong order.

    Every batch holds each combination of outcomes equally often, so that the expectation is exact.
    """
    cost = 5.0
    pattern = [(i / 10, j / 10) for i in range(10) for j in range(10)]
    batch = Limits(buffer_rows=len(pattern), queue_rows=len(pattern), batch_rows=len(pattern))
    values = np.array(pattern * 10)
    table = pa.table({"x1": values[:, 0], "x2": values[:, 1]})
    checks, rows, series = [], [], []
    for kept, base, right in ((0.1, 1.1, 0), (0.9, 1.5, 1)):
        # Values are tenths: a limit between two of them decides without rounding.
        query = select_query(table, (below("u", "x1", kept - 0.05), below("u", "x2", 0.45)))
        names = [optional.name for optional in make_graph(query).optionals]
        services = {name: Service(cost * UNIT_NS) for name in names}
        found = []
        for rate in (0.0, 0.1, 0.5, 1.0):
            policy = _Misrouting(right, rate)
            run = QueuedRun(query, {"u": Scan(table)}, services, batch, policy).run()
            units = run.elapsed_s * 1e9 / UNIT_NS / table.num_rows
            formula = base * cost + 0.4 * rate * cost
            what = f"measured less {base}c + 0.4ec at selectivity {kept}, e = {rate}"
            checks.append(Check(what, units - formula, -1e-6, 1e-6))
            rows.append({"selectivity": kept, "e": rate, "measured": units, "formula": formula})
            found.append(units / cost)
        series.append(Series(f"selectivity of s1 {100 * kept:g} %", (0.0, 0.1, 0.5, 1.0), found))
    x_label, y_label = "misrouted part e of the rows", "cost of a row (in c)"
    panel = Panel("selectivity of s2 50 %", x_label, y_label, tuple(series))
    figure = Figure("ED-X4", "Jeopardy: what misrouting costs", (panel,), tuple(rows))
    claim = Claim("ED-X4", "jeopardy formulas are met exactly", tuple(checks))
    return Finding((claim,), (figure,))


EXPERIMENTS = (
    Experiment("selections", "eddies", ("ED-X1", "ED-X2", "ED-X3"), run_selections),
    Experiment("jeopardy", "eddies", ("ED-X4",), run_jeopardy),
)
