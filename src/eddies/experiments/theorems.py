"""SteMs, theorems 1 and 2: every result once, whatever the access methods, delays and routes.

Thousands of random runs belong to the property tests; here are some, and the two controls that show why
the rules are needed.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from eddies.core.access import Access
from eddies.core.exactly_once import NoRule
from eddies.core.options import Options
from eddies.experiments.access_cases import (
    SHAPES,
    Case,
    drive_access,
    index_on,
    naive_join,
    random_tables,
    run_case,
)
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "run_theorems"]


def run_theorems(n_runs: int = 300, n_controls: int = 60) -> Finding:
    """Theorems 1 and 2: nothing missing, double or wrong; and without the rules, not so."""
    counts = {"results": 0, "missing": 0, "double": 0, "wrong": 0}
    n_valid = seed = 0
    while n_valid < n_runs:
        ran = run_case(seed)
        seed += 1
        if ran is None:
            continue
        n_valid += 1
        for name, n in _differences(*ran).items():
            counts[name] += n
    without_stamps = sum(
        bool(ran and _differences(*ran)["double"])
        for ran in (run_case(number, stamps=NoRule()) for number in range(n_controls))
    )
    without_completion = sum(_triangle_doubles(number) > 0 for number in range(n_controls))
    claim = Claim(
        "SteM-X9",
        "every result once, however access methods and routes fall; the rules are needed for it",
        (
            Check("results missing", counts["missing"], 0, 0),
            Check("results double", counts["double"], 0, 0),
            Check("results wrong", counts["wrong"], 0, 0),
            Check("runs", n_valid, n_runs),
            Check("control: runs with doubles without stamps", without_stamps, 1),
            Check("control: runs with doubles without ProbeCompletion", without_completion, 1),
        ),
    )
    rows = (
        {"what": "runs", "count": n_valid},
        *({"what": name, "count": n} for name, n in counts.items()),
        {"what": f"of {n_controls} without stamps: with doubles", "count": without_stamps},
        {"what": f"of {n_controls} without ProbeCompletion", "count": without_completion},
    )
    shares = [0.0, without_stamps / n_controls, without_completion / n_controls]
    panel = Panel(
        f"{n_valid} random runs; {n_controls} of each control",
        "",
        "runs with double results (share)",
        (Series("share", ["all rules", "no stamps", "no ProbeCompletion"], shares),),
        kind="bars",
    )
    title = "SteMs, theorems 1 and 2, and what happens without the rules"
    return Finding((claim,), (Figure("SteM-X9", title, (panel,), rows),))


def _differences(case: Case, found: pa.Table) -> dict[str, int]:
    bag = Counter(tuple(row.values()) for row in found.to_pylist())
    expected = naive_join(case)
    surplus = bag - expected
    n_double = sum(n for row, n in surplus.items() if row in expected)
    return {
        "results": bag.total(),
        "missing": (expected - bag).total(),
        "double": n_double,
        "wrong": surplus.total() - n_double,
    }


def _triangle_doubles(seed: int) -> int:
    """Doubles on a triangle with a source that can only be looked up, without ProbeCompletion."""
    rng = random.Random(seed)
    roles = {name: name for name in "rst"}
    tables = random_tables(rng, SHAPES["triangle"], roles, keyed=False)
    indexes = (index_on("a", tables["s"], ("a",)), index_on("b", tables["s"], ("b",)))
    case = Case(SHAPES["triangle"], roles, tables, {"s": Access((), indexes)}, {})
    options = Options(policy="random", batch_rows=3, seed=seed)
    found = drive_access(case, rng, options, completes_probes=False)
    return _differences(case, found)["double"]


EXPERIMENTS = (Experiment("stem-theorems", "stems", ("SteM-X9",), run_theorems),)
