"""Parts of the data that want different orders (STAIRs, Figure 9), and a late source (Figure 1).

    SELECT count(*) FROM R, S, T WHERE R.a = S.a AND S.b = T.b

*Regions.* 50,000 rows each, of about 100 bytes. Over the first half of S, by arrival, a row joins five
rows of R and none of T, over the second half the reverse; so the answer is empty, either static order
makes 125,000 intermediate tuples, and an order of its own for each half makes none. In the second run S
is shuffled: arrival says nothing, but the column `kind` of S, which the query only passes on, still
tells the halves apart.

*Regions that `auto` finds.* The same two runs with fifty matches instead of five, and with the options
that nobody has set. A tuple that is kept in parts takes several times as long as one that only probes,
so with five matches parts would cost seconds, and `auto` leaves them alone.

*A late source.* S and T are there when R begins, R joins S expensively. EddyJoins have sent S to R-S,
where nothing came of it; what R then finds are bare S rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from eddies.core.expr import Column
from eddies.core.query import Aggregate, Aggregation, Equality, Query, Source
from eddies.experiments.stairs_runs import CONTENDERS, Feed, Run, arrivals, run_feed
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "run_auto_regions", "run_late_source", "run_regions"]

N_ROWS = 50_000
MATCHES, MANY_MATCHES = 5, 50
_INT = pa.int64()
_PAD = "x" * 76
Options = dict[str, Any]  # of whatever type an option has
RS, ST = "join:R-S", "join:S-T"
STATIC = {"R-S first": (RS, ST), "S-T first": (ST, RS)}
WINDOW: Options = {"state": "stairs", "policy": "cumulative-window"}
CONTENT: Options = {"state": "stairs", "policy": "content"}
Tables = dict[str, pa.Table]


def _query(tables: Tables) -> Query:
    """The chain; the sum reads a column that no predicate mentions."""
    keys = (("R.a", "S.a"), ("S.b", "T.b"))
    equalities = []
    for left, right in keys:
        sides = [Column(*text.split(".")) for text in (left, right)]
        equalities.append(Equality(sides[0], sides[1], _INT))
    aggregates = (
        Aggregate("n", "count_star", None, _INT),
        Aggregate("s", "sum", Column("S", "kind"), _INT),
    )
    return Query(
        tuple(Source(name, name, table.schema) for name, table in tables.items()),
        equalities=tuple(equalities),
        aggregation=Aggregation((), aggregates),
    )


def make_regions(
    n_rows: int = N_ROWS, *, shuffled: bool = False, seed: int = 0, matches: int = MATCHES
) -> Tables:
    """R, S and T; values of matching keys are scattered over all rows of R and T."""
    rng = np.random.default_rng(seed)
    half = n_rows // 2
    n_keys = half // matches
    inner = np.repeat(np.arange(n_keys), matches)  # each key so many times
    misses = n_rows + np.arange(n_rows)  # keys that occur nowhere else
    a = np.concatenate([rng.permutation(inner), misses[:half]])
    b = np.concatenate([2 * n_rows + misses[:half], rng.permutation(inner)])
    kind = np.concatenate([rng.integers(0, 50, half), rng.integers(50, 100, half)])
    order = rng.permutation(n_rows) if shuffled else np.arange(n_rows)
    one = np.concatenate([rng.permutation(inner), 5 * n_rows + misses[:half]])
    other = np.concatenate([rng.permutation(inner), 7 * n_rows + misses[:half]])
    pad = pa.array([_PAD] * n_rows)
    return {
        "R": pa.table({"a": rng.permutation(one), "pad": pad}),
        "S": pa.table({"a": a[order], "b": b[order], "kind": kind[order], "pad": pad}),
        "T": pa.table({"b": rng.permutation(other), "pad": pad}),
    }


def _contest(tables: Tables, contenders: dict[str, Options], feed: Feed) -> dict[str, Run]:
    query = _query(tables)
    runs = {name: run_feed(query, feed, **options) for name, options in contenders.items()}
    answers = {(run.n_results, run.checksum) for run in runs.values()}
    if len(answers) > 1:
        raise AssertionError(f"any order, same bag: the contenders disagree: {answers}")
    return runs


def run_regions(scale: int = 1, seed: int = 0) -> Finding:
    """Figure 9, and the same data shuffled."""
    n_rows = N_ROWS // scale
    found: dict[str, dict[str, Run]] = {}
    for title, shuffled in (("by arrival", False), ("shuffled", True)):
        tables = make_regions(n_rows, shuffled=shuffled, seed=seed)
        rates = dict.fromkeys(tables, 1.0)
        contenders: dict[str, Options] = {
            name: {"state": "static", "order": order} for name, order in STATIC.items()
        }
        contenders["EddyJoins, window"] = {"state": "joins", "policy": "cumulative-window"}
        contenders["SteMs"] = CONTENDERS["SteMs"]
        contenders["STAIRs, window"] = WINDOW
        contenders["STAIRs, content"] = CONTENT
        found[title] = _contest(tables, contenders, arrivals(tables, rates))
    plain, shuffled_runs = found["by arrival"], found["shuffled"]
    best = {title: min(runs[name].handled for name in STATIC) for title, runs in found.items()}
    whole = MATCHES * (n_rows // 2)
    checks = (
        Check(
            "intermediates / those of a static order",
            plain["STAIRs, window"].intermediates / whole,
            high=0.20,
        ),
        Check(
            "tuples / best static order",
            plain["STAIRs, window"].handled / best["by arrival"],
            high=0.7,
        ),
        Check(
            "STAIRs / EddyJoins",
            plain["STAIRs, window"].handled / plain["EddyJoins, window"].handled,
            high=1.0,
        ),
        Check(
            "intermediates of the better static order",
            min(plain[name].intermediates for name in STATIC) / whole,
            low=0.95,
            high=1.05,
        ),
    )
    content = (
        Check(
            "content, by arrival: tuples / best static order",
            plain["STAIRs, content"].handled / best["by arrival"],
            high=0.7,
        ),
        Check(
            "content, shuffled: tuples / best static order",
            shuffled_runs["STAIRs, content"].handled / best["shuffled"],
            high=0.8,
        ),
    )
    claims = (
        Claim("ST-X6", "adaptive schemes beat every static order on partitioned data", checks),
        Claim("ST-CONTENT", "content-based routing finds the parts that arrival hides", content),
    )
    return Finding(claims, (_regions_figure(found),))


def run_auto_regions(scale: int = 1, seed: int = 0) -> Finding:
    """Parts that are worth seconds, and nobody says that they are there."""
    checks = []
    for title, shuffled, bound in (("by arrival", False, 0.7), ("shuffled", True, 0.8)):
        tables = make_regions(N_ROWS // scale, shuffled=shuffled, seed=seed, matches=MANY_MATCHES)
        contenders: dict[str, Options] = {
            name: {"state": "static", "order": order} for name, order in STATIC.items()
        }
        contenders |= {name: CONTENDERS[name] for name in ("SteMs", "auto")}
        runs = _contest(tables, contenders, arrivals(tables, dict.fromkeys(tables, 1.0)))
        auto, others = runs.pop("auto"), runs.values()
        best = min(runs[name].handled for name in STATIC)
        checks.append(
            Check(f"auto, {title}: tuples / best static order", auto.handled / best, high=bound)
        )
        fastest = min(run.seconds for run in others)
        checks.append(
            Check(f"auto, {title}: seconds / fastest other", auto.seconds / fastest, high=1.0)
        )
    claim = Claim("ST-AUTO-REGIONS", "auto turns to parts of the data by itself", tuple(checks))
    return Finding((claim,), ())


def _regions_figure(found: dict[str, dict[str, Run]]) -> Figure:
    names = list(found["by arrival"])
    panels = []
    for label, measure in (
        ("tuples handled", "handled"),
        ("intermediate tuples", "intermediates"),
        ("processor time (s)", "seconds"),
    ):
        series = tuple(
            Series(title, names, [float(getattr(runs[name], measure)) for name in names])
            for title, runs in found.items()
        )
        panels.append(Panel("", "", label, series, kind="bars"))
    rows = tuple(
        {
            "data": title,
            "technique": name,
            "handled": run.handled,
            "intermediates": run.intermediates,
            "seconds": round(run.seconds, 3),
        }
        for title, runs in found.items()
        for name, run in runs.items()
    )
    title = "STAIRs, Figure 9: two halves that want different orders"
    return Figure("ST-X6", title, tuple(panels), rows)


def run_late_source(scale: int = 1, seed: int = 0) -> Finding:
    """Figure 1: R begins when S and T are there."""
    rng = np.random.default_rng(seed)
    n_rows = 20_000 // scale
    pad = pa.array([_PAD] * n_rows)
    tables = {
        "R": pa.table({"a": rng.integers(0, n_rows // 10, n_rows), "pad": pad}),
        "S": pa.table(
            {
                "a": rng.integers(0, n_rows // 10, n_rows),
                "b": rng.integers(0, 20 * n_rows, n_rows),
                "kind": rng.integers(0, 100, n_rows),
                "pad": pad,
            }
        ),
        "T": pa.table({"b": rng.integers(0, 20 * n_rows, n_rows), "pad": pad}),
    }
    feed = arrivals(tables, dict.fromkeys(tables, 1.0), {"R": 1.5 * n_rows})
    names = ("EddyJoins", "SteMs", "STAIRs, greedy", "STAIRs")
    query = _query(tables)
    runs = {name: run_feed(query, feed, keep=True, **CONTENDERS[name]) for name in names}
    bare = {name: _bare(run) for name, run in runs.items()}
    checks = (
        Check("STAIRs: R rows joined with bare S rows", bare["STAIRs"], high=0),
        Check("greedy STAIRs: R rows joined with bare S rows", bare["STAIRs, greedy"], high=0),
        Check("EddyJoins: R rows joined with bare S rows", bare["EddyJoins"], low=0, strict=True),
        Check(
            "intermediates, STAIRs / EddyJoins",
            runs["STAIRs"].intermediates / max(1, runs["EddyJoins"].intermediates),
            high=1.0,
            strict=True,
        ),
        Check("same answer", len({(r.n_results, r.checksum) for r in runs.values()}), 1, 1),
    )
    claim = Claim("ST-X7", "migration frees late rows from where early ones waited", checks)
    bars = Series("intermediate tuples", list(names), [float(runs[n].intermediates) for n in names])
    panel = Panel("R late", "", "intermediate tuples", (bars,), kind="bars")
    rows = tuple(
        {"technique": n, "intermediates": runs[n].intermediates, "handled": runs[n].handled}
        for n in names
    )
    return Finding(
        (claim,), (Figure("ST-X7", "STAIRs, Figure 1: the burden of history", (panel,), rows),)
    )


def _bare(run: Run) -> int:
    """Tuples over R and S alone that were routed on."""
    assert run.eddy is not None
    r_and_s = 0b011
    return sum(
        route.n_in for route in run.eddy.progress().routes if route.signature.sources == r_and_s
    )


EXPERIMENTS = (
    Experiment("regions", "stairs", ("ST-X6", "ST-CONTENT"), run_regions),
    Experiment("auto-regions", "stairs", ("ST-AUTO-REGIONS",), run_auto_regions),
    Experiment("late-source", "stairs", ("ST-X7",), run_late_source),
)
