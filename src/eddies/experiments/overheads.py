"""What routing costs (An initial study of overheads of eddies, 2004: Figures 5, 6 and 7). Real time.

Every plan of these queries costs the same, so an eddy can gain nothing: what it takes longer than the
same modules in a fixed order is the price of deciding, measuring and remembering. E(k) is an eddy
that renews all decisions every k rows; it cuts batches to k rows, and so does the fixed plan it is
compared with, so that the ratio shows routing and not the size of batches. The policy is the study's
rank ordering; the last claim also runs the default policy, over SteMs and with the default state.

Ratios are medians over interleaved repetitions, of processor time. With k below 100 fewer rows are
used: a row then costs so much that the ratio is clear.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from eddies.experiments.wisconsin import (
    Timed,
    Workload,
    index_join,
    run_base,
    run_eddy,
    run_fixed,
    selections,
    star_join,
)
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "run_overheads"]

POLICY, DEFAULT_POLICY = "rank", "auto"
INTERVALS = (1, 10, 100, 1000, 10_000)
SECONDS = 0.6  # of measuring for each query and k, roughly
FEWEST, MOST = 3, 25  # repetitions

Make = Callable[[int, int], Workload]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of the study: `make(rows, k)`, its size, and how many results it has.

    `n_timed` rows are enough to time it: a delay of 100 us would take seconds on all rows.
    """

    name: str
    family: str
    make: Make
    n_rows: int
    n_timed: int
    n_results: int
    intervals: tuple[int, ...] = INTERVALS

    def rows_for(self, k: int) -> int:
        """Fewer rows where every row costs much."""
        return min(self.n_timed, {1: 300, 10: 2000}.get(k, self.n_timed))


@dataclass(frozen=True, slots=True)
class _Measured:
    """Medians for one query and one k."""

    query: _Query
    k: int
    n_rows: int
    fixed_us: float  # per row
    eddy_us: float
    over_fixed: float
    over_base: float
    auto_over_fixed: float
    default_over_fixed: float  # the default policy and the default state
    deciding: float  # part of the eddy's time, as it counts itself
    auto_deciding: float


def _queries(scale: int) -> list[_Query]:
    tenk, hundredk = 10_000 // scale, 100_000 // scale
    found = [_Query("No-Delay", "selections", selections, tenk, tenk, tenk, INTERVALS[:4])]
    for micros, n_timed in ((0, tenk), (10, 2000 // scale), (100, 1000 // scale)):

        def delayed(n_rows: int, k: int, micros: int = micros) -> Workload:
            return selections(n_rows, k, micros)

        found.append(
            _Query(f"Delay-{micros}", "selections", delayed, tenk, n_timed, tenk, INTERVALS[1:4])
        )
    for everything, word in ((False, "Count"), (True, "All")):
        for n in (3, 4, 5):

            def star(n_rows: int, k: int, n: int = n, everything: bool = everything) -> Workload:
                return star_join(n, n_rows, k, everything=everything)

            found.append(_Query(f"Select-{word}-{n}", "hash", star, tenk, tenk, tenk))
    for modulus in (10, 1000):
        for n in (3, 4, 5):

            def index(n_rows: int, k: int, n: int = n, modulus: int = modulus) -> Workload:
                return index_join(n, modulus, n_rows, k, n_indexed=hundredk)

            found.append(
                _Query(f"{n}-{modulus}", "index", index, hundredk, hundredk, hundredk // modulus)
            )
    return found


def _measure(query: _Query, k: int, *, base: bool, auto: bool) -> _Measured:
    """Run the contenders in turns and compare each with its neighbour in time."""
    n_rows = query.rows_for(k)
    work = query.make(n_rows, k)
    runs: dict[str, Callable[[], Timed]] = {
        "fixed": lambda: run_fixed(work),
        "eddy": lambda: run_eddy(work, POLICY, k),
    }
    if base:
        runs["base"] = lambda: run_base(work)
    if auto:
        runs["auto"] = lambda: run_eddy(work, DEFAULT_POLICY, k)
        runs["default"] = lambda: run_eddy(work, DEFAULT_POLICY, k, "auto")
    found: dict[str, list[Timed]] = {name: [] for name in runs}
    answer: pa.Table | None = None
    spent = 0.0
    n_runs = 0
    while n_runs < FEWEST or (spent < SECONDS and n_runs < MOST):
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        names = list(runs)
        first = n_runs % len(names)  # whoever comes first after a collection pays for fresh memory
        for name in names[first:] + names[:first]:
            timed = runs[name]()
            found[name].append(timed)
            answer = answer if answer is not None else timed.answer
            _check_same(query, k, name, timed.answer, answer)
        spent += time.perf_counter() - started
        gc.enable()
        n_runs += 1

    def over(name: str, other: str) -> float:
        if name not in found or other not in found:
            return math.nan
        pairs = zip(found[name], found[other], strict=True)
        return statistics.median(a.seconds / b.seconds for a, b in pairs)

    return _Measured(
        query,
        k,
        n_rows,
        1e6 * statistics.median(t.seconds for t in found["fixed"]) / n_rows,
        1e6 * statistics.median(t.seconds for t in found["eddy"]) / n_rows,
        over("eddy", "fixed"),
        over("eddy", "base"),
        over("auto", "fixed"),
        over("default", "fixed"),
        _deciding(found["eddy"]),
        _deciding(found.get("auto", [])),
    )


def _deciding(runs: list[Timed]) -> float:
    parts = [t.progress.ns_deciding / 1e9 / t.seconds for t in runs if t.progress is not None]
    return statistics.median(parts) if parts else math.nan


def _check_same(query: _Query, k: int, name: str, found: pa.Table, expected: pa.Table) -> None:
    """Any order, same bag."""
    if found.num_rows > 1:
        key = found.column_names[0]  # unique2: a key of the answer
        found, expected = found.sort_by(key), expected.sort_by(key)
    if not found.equals(expected):
        raise AssertionError(f"any order, same bag: {query.name}, k={k}: {name} differs")


def run_overheads(scale: int = 1) -> Finding:
    """All queries at all k; `scale` divides the sizes of the tables."""
    queries = _queries(scale)
    measured = [
        _measure(
            query,
            k,
            base=query.family == "selections",
            auto=k >= 1000 and query.family != "selections",
        )
        for query in queries
        for k in query.intervals
    ]
    claims = (
        _claim_no_delay(measured),
        _claim_delay(measured),
        _claim_hash(measured),
        _claim_relations(measured),
        _claim_index(measured),
        _claim_answers(queries),
        _claim_overall(measured),
        _claim_routing(measured),
    )
    return Finding(claims, _figures(measured))


def _of(measured: Iterable[_Measured], *families: str, least: int = 0) -> list[_Measured]:
    return [m for m in measured if m.query.family in families and m.k >= least]


def _named(measured: Iterable[_Measured], name: str, least: int = 0) -> list[_Measured]:
    return [m for m in measured if m.query.name == name and m.k >= least]


def _geometric_mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(list(values))


def _claim_no_delay(measured: list[_Measured]) -> Claim:
    at_one, *others = _named(measured, "No-Delay")
    worst = max(m.over_base for m in others)
    checks = (
        Check("No-Delay: E(k) / plain loop, worst of k >= 10", worst, high=2.3),
        Check("No-Delay: E(1) / plain loop, over that worst", at_one.over_base / worst, 1.0),
    )
    return Claim("OV-X1", "three nearly free predicates as modules", checks)


def _claim_delay(measured: list[_Measured]) -> Claim:
    worst = {x: max(m.over_base for m in _named(measured, f"Delay-{x}", 10)) for x in (0, 10, 100)}
    bounds = {0: 1.5, 10: 1.10, 100: 1.03}
    checks = [
        Check(f"Delay-{x}: E(k) / plain loop, worst of k >= 10", worst[x], high=bounds[x])
        for x in bounds
    ]
    checks.append(Check("Delay-10 / Delay-0", worst[10] / worst[0], high=1.0))
    checks.append(Check("Delay-100 / Delay-10", worst[100] / worst[10], high=1.0))
    return Claim("OV-X2", "overhead vanishes as predicates cost something", tuple(checks))


def _claim_hash(measured: list[_Measured]) -> Claim:
    hashed = _of(measured, "hash", least=100)
    worst = max(hashed, key=lambda m: m.over_fixed)
    what = f"hash joins: E(k) / fixed plan, worst of k >= 100 ({worst.query.name}, k={worst.k})"
    checks = [Check(what, worst.over_fixed, high=1.10)]
    slower = [
        _at(measured, m.query, 1).eddy_us / m.eddy_us for m in _of(measured, "hash") if m.k == 10
    ]
    checks.append(Check("E(1) / E(10), time a row, least of six", min(slower), low=1.2))
    return Claim("OV-X3", "an eddy over hash joins costs what the joins cost", tuple(checks))


def _at(measured: list[_Measured], query: _Query, k: int) -> _Measured:
    return next(m for m in measured if m.query is query and m.k == k)


def _claim_relations(measured: list[_Measured]) -> Claim:
    def mean(n: int, k: int) -> float:
        found = [m for m in _of(measured, "hash") if m.k == k and m.query.name.endswith(f"-{n}")]
        return _geometric_mean(m.over_fixed for m in found)

    grown = (mean(5, 1) - 1) / (mean(3, 1) - 1)
    most = max(m.over_fixed for m in _of(measured, "hash") if m.k == 100)
    checks = (
        Check("overhead of E(1), five relations over three", grown, low=1.0, strict=True),
        Check("E(100) / fixed plan, worst of six", most, high=1.10),
    )
    return Claim("OV-X4", "overhead and the number of relations", checks)


def _claim_index(measured: list[_Measured]) -> Claim:
    worst = max(_of(measured, "index", least=100), key=lambda m: m.over_fixed)
    what = f"index joins: E(k) / fixed plan, worst of k >= 100 ({worst.query.name}, k={worst.k})"
    return Claim("OV-X5", "index joins", (Check(what, worst.over_fixed, high=1.10),))


def _claim_answers(queries: list[_Query]) -> Claim:
    """Every measured run was compared with the fixed plan; here the counts at full size."""
    checks = []
    for query in queries:
        table = run_eddy(query.make(query.n_rows, 1000), POLICY, 1000).answer
        found = table.column(0)[0].as_py() if table.num_columns == 1 else table.num_rows
        what = f"{query.name}: results over those expected"
        checks.append(Check(what, found / query.n_results, 1.0, 1.0))
    return Claim("OV-X6", "the same answers at any k, and the right number of rows", tuple(checks))


def _claim_overall(measured: list[_Measured]) -> Claim:
    ratios = [m.over_fixed for m in measured if m.k == 1000]
    what = f"E(1000) / same modules in a fixed order, geometric mean of {len(ratios)} queries"
    return Claim("OV-X7", "overall", (Check(what, _geometric_mean(ratios), high=1.10),))


def _claim_routing(measured: list[_Measured]) -> Claim:
    """The project's own bar: at most 5 % over the join queries, from k = 1,000 on. The default policy
    is measured twice: over SteMs, the modules of the fixed plan, and with the default state, which also
    watches whether STAIRs would pay.
    """
    joins = _of(measured, "hash", "index", least=1000)
    checks = []
    for policy, ratios in (
        (POLICY, [m.over_fixed for m in joins]),
        (DEFAULT_POLICY, [m.auto_over_fixed for m in joins]),
        (f"{DEFAULT_POLICY}, default state", [m.default_over_fixed for m in joins]),
    ):
        mean = _geometric_mean(ratios)
        checks.append(Check(f"{policy}: E(k) / fixed, geometric mean, k >= 1000", mean, high=1.05))
        checks.append(Check(f"{policy}: worst (for information)", max(ratios)))
    deciding = statistics.median(m.deciding for m in joins)
    auto_deciding = statistics.median(m.auto_deciding for m in joins)
    checks.append(Check(f"{POLICY}: time deciding, median part (for information)", deciding))
    checks.append(
        Check(f"{DEFAULT_POLICY}: time deciding, median part (for information)", auto_deciding)
    )
    return Claim("OV-ROUTING", "routing costs at most 5 % over twelve joins", tuple(checks))


def _figures(measured: list[_Measured]) -> tuple[Figure, ...]:
    rows = tuple(
        {
            "query": m.query.name,
            "k": m.k,
            "rows": m.n_rows,
            "fixed plan (us a row)": m.fixed_us,
            "eddy (us a row)": m.eddy_us,
            "eddy / fixed plan": m.over_fixed,
            "eddy / plain loop": m.over_base,
            "default policy / fixed plan": m.auto_over_fixed,
            "default policy and state / fixed plan": m.default_over_fixed,
            "part of time deciding": m.deciding,
            "part of time deciding, default policy": m.auto_deciding,
        }
        for m in measured
    )
    titles = {
        "selections": ("OV-X1", "Overheads, Figure 5: three selections", "eddy / plain loop"),
        "hash": ("OV-X3", "Overheads, Figure 6: hash joins", "eddy / fixed plan of the same joins"),
        "index": (
            "OV-X5",
            "Overheads, Figure 7: index joins",
            "eddy / fixed plan of the same look-ups",
        ),
    }
    figures = []
    for family, (name, title, y_label) in titles.items():
        found = _of(measured, family)
        names = list(dict.fromkeys(m.query.name for m in found))
        series = tuple(
            Series(f"E({k})", names, [_ratio(found, n, k) for n in names])
            for k in INTERVALS
            if any(m.k == k for m in found)
        )
        marks = {"no overhead": 1.0} | ({} if family == "selections" else {"bound": 1.10})
        panel = Panel("processor time", "", y_label, series, kind="bars", marks=marks)
        chosen = tuple(row for row, m in zip(rows, measured, strict=True) if m in found)
        figures.append(Figure(name, title, (panel,), chosen))
    return tuple(figures)


def _ratio(found: list[_Measured], name: str, k: int) -> float:
    for m in found:
        if m.query.name == name and m.k == k:
            return m.over_base if m.query.family == "selections" else m.over_fixed
    return math.nan


EXPERIMENTS = (
    Experiment(
        "overheads",
        "overheads",
        ("OV-X1", "OV-X2", "OV-X3", "OV-X4", "OV-X5", "OV-X6", "OV-X7", "OV-ROUTING"),
        run_overheads,
    ),
)
