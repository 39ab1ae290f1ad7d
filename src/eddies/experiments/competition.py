"""What SteMs promise beyond the printed figures: competition, stalls, preferences.

Claims 2, 3 and 5 of the paper; thresholds are the project's. Virtual time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from eddies.core.access import Access, LookupRequest
from eddies.core.clock import VirtualClock
from eddies.core.expr import Call, Column, Literal
from eddies.core.options import Options
from eddies.core.partial import PartialAnswer
from eddies.core.query import Equality, Output, Query, Source
from eddies.experiments.access_cases import (
    Asked,
    index_on,
)
from eddies.experiments.machine import join_query
from eddies.hosts.access import AccessRun
from eddies.hosts.lookups import Fate, VirtualLookups
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series
from eddies.sources import Simulated

__all__ = [
    "EXPERIMENTS",
    "run_competition",
    "run_preference",
    "run_stalled_triangle",
]

N_KEYS = 600
LOOKUP_S = 0.1
STALLS_AT_S = 5.0


def run_competition(seed: int = 0) -> Finding:
    """Claim 2: two mirrors of one table, by indexes and by scans; one stalls."""
    rng = np.random.default_rng(seed)
    r = pa.table({"key": np.arange(N_KEYS), "a": rng.permutation(N_KEYS)})
    s = pa.table({"x": np.arange(N_KEYS), "v": rng.integers(0, 9, N_KEYS)})
    query = join_query({"R": r, "S": s}, (("R.a", "S.x"),))
    indexes = {kind: _run_indexes(query, r, s, kind) for kind in ("alone", "both", "one stalls")}
    scans = {kind: _run_scans(query, r, s, kind) for kind in ("alone", "both", "one stalls")}
    checks = []
    for way, runs in (("indexes", indexes), ("scans", scans)):
        ratio = runs["one stalls"]["seconds"] / runs["alone"]["seconds"]
        checks += [
            Check(f"{way}: completion with one stalled / healthy alone", ratio, high=1.10),
            Check(f"{way}: results missing or wrong", sum(x["wrong"] for x in runs.values()), 0, 0),
            Check(
                f"{way}: rows stored beyond the table's",
                sum(max(0.0, x["stored"] - N_KEYS) for x in runs.values()),
                0,
                0,
            ),
        ]
    checks += [
        Check("keys asked for twice with one stalled", indexes["one stalls"]["again"], high=0.05),
        Check("keys asked for twice with two healthy", indexes["both"]["again"], high=0.0),
        Check("rows read twice with two healthy scans", scans["both"]["again"], high=0.05),
        Check(
            "completion with two healthy indexes / one",
            indexes["both"]["seconds"] / indexes["alone"]["seconds"],
            high=0.6,
        ),
    ]
    claim = Claim("SteM-X6", "mirrors compete, with almost no work done twice", tuple(checks))
    rows = tuple(
        {"way": way, "mirrors": kind, **found}
        for way, runs in (("indexes", indexes), ("scans", scans))
        for kind, found in runs.items()
    )
    panels = tuple(
        Panel(
            way,
            "",
            "completion (s)",
            (Series("time", list(runs), [x["seconds"] for x in runs.values()]),),
            kind="bars",
        )
        for way, runs in (("two indexes", indexes), ("two scans", scans))
    )
    title = "SteMs, claim 2: competing access methods, one of which stalls"
    return Finding((claim,), (Figure("SteM-X6", title, panels, rows),))


def _run_indexes(query: Query, r: pa.Table, s: pa.Table, kind: str) -> dict[str, float]:
    """Look-ups by one healthy index, by two, or by two of which one falls silent."""
    clock, asked = VirtualClock(), Asked()
    names = ("healthy",) if kind == "alone" else ("healthy", "other")
    indexes = tuple(index_on(n, s, ("x",), asked, concurrency=4) for n in names)
    n_asked: Counter[int] = Counter()

    def fate(request: LookupRequest) -> Fate:
        n_asked.update(request.keys.column(0).to_pylist())
        is_silent = kind == "one stalls" and clock.now_ns() >= STALLS_AT_S * 1e9
        return Fate(None if is_silent and request.index.name == "other" else LOOKUP_S)

    run = AccessRun(
        query,
        {},
        clock=clock,
        lookups=VirtualLookups(clock, fate),
        access={"R": Access(), "S": Access((), indexes)},
        scans={"R": {"scan": Simulated(r, batch_rows=20)}},
    )
    found = _found(run, clock)
    return {**found, "again": sum(n - 1 for n in n_asked.values()) / N_KEYS}


def _run_scans(query: Query, r: pa.Table, s: pa.Table, kind: str) -> dict[str, float]:
    """The same by scans. The one that stalls leads before it does."""
    clock = VirtualClock()
    rate = N_KEYS / 30.0
    scans = {"healthy": Simulated(s, batch_rows=10, rows_per_s=rate)}
    if kind != "alone":
        stall = N_KEYS // 3 if kind == "one stalls" else None
        scans = {
            "other": Simulated(s, batch_rows=10, rows_per_s=2 * rate, stall_after=stall),
            **scans,
        }
    run = AccessRun(
        query,
        {},
        clock=clock,
        lookups=VirtualLookups(clock, lambda request: Fate(LOOKUP_S)),
        access={"R": Access(), "S": Access(tuple(scans))},
        scans={"R": {"scan": Simulated(r, batch_rows=100)}, "S": scans},
    )
    found = _found(run, clock)
    assert run.eddy.access is not None
    return {**found, "again": sum(run.eddy.access.n_repeated) / N_KEYS}


def _found(run: AccessRun, clock: VirtualClock) -> dict[str, float]:
    keys = sorted(key for batch in run for key in batch.column(0).to_pylist())
    wrong = Counter(keys)
    wrong.subtract(range(N_KEYS))
    return {
        "seconds": clock.now_ns() / 1e9,
        "wrong": float(sum(abs(n) for n in wrong.values())),
        "stored": float(run.eddy.stems[1].n_built),
    }


def run_stalled_triangle(seed: int = 0, n_rows: int = 400) -> Finding:
    """Claim 3: a cyclic query, each source stalled in turn, still tells of the other two."""
    rng = np.random.default_rng(seed)
    n_values = 40

    def column() -> np.ndarray:
        return rng.integers(0, n_values, n_rows)

    tables = {
        "R": pa.table({"a": column(), "c": column(), "r": np.arange(n_rows)}),
        "S": pa.table({"a": column(), "b": column(), "s": np.arange(n_rows)}),
        "T": pa.table({"b": column(), "c": column(), "t": np.arange(n_rows)}),
    }
    query = _triangle_query(tables)
    expected = _triangle_answer(tables)
    n_pairs, n_wrong, n_kept = {}, 0, 0
    for late in tables:
        clock = VirtualClock()
        scans = {
            name: {
                "scan": Simulated(
                    table, batch_rows=20, rows_per_s=20, delay_s=60.0 * (name == late)
                )
            }
            for name, table in tables.items()
        }
        run = AccessRun(
            query,
            {},
            Options(partial=True, policy="lottery", seed=seed),
            clock=clock,
            lookups=VirtualLookups(clock, lambda request: Fate(0.0)),
            access={name: Access() for name in tables},
            scans=scans,
        )
        partial = PartialAnswer(run.eddy, late)
        told: Counter[tuple[object, ...]] = Counter()

        def tell(
            partial: PartialAnswer = partial, told: Counter[tuple[object, ...]] = told
        ) -> None:
            while (rows := partial.poll()) is not None:
                told.update(tuple(row.values()) for row in rows.to_pylist())

        found: Counter[tuple[object, ...]] = Counter()
        run.on_wait = lambda: tell() if clock.now_ns() < 60e9 else None  # noqa: B023
        for batch in run:
            found.update(tuple(row.values()) for row in batch.to_pylist())
        n_pairs[late] = float(told.total())
        n_wrong += (found - expected).total() + (expected - found).total()
        n_kept += sum(1 for row in found if not _was_told(row, told, late))
    claim = Claim(
        "SteM-X7",
        "no spanning tree is fixed: whichever source stalls, the others are joined meanwhile",
        (
            Check("fewest partial rows while a source stalls", min(n_pairs.values()), 1),
            Check("results missing, wrong or double at the end", n_wrong, 0, 0),
            Check("results that no partial row had announced", n_kept, 0, 0),
        ),
    )
    rows = tuple({"stalled": name, "partial rows": n} for name, n in n_pairs.items())
    panel = Panel(
        "partial rows told before the stalled source delivers anything",
        "stalled source",
        "rows",
        (Series("partial rows", list(n_pairs), list(n_pairs.values())),),
        kind="bars",
    )
    title = "SteMs, claim 3: a triangle with a stalled source"
    return Finding((claim,), (Figure("SteM-X7", title, (panel,), rows),))


def _was_told(row: tuple[object, ...], told: Counter[tuple[object, ...]], late: str) -> bool:
    place = "RST".index(late)
    partial = tuple(None if i == place else value for i, value in enumerate(row))
    return told[(*partial, late)] > 0


def _triangle_query(tables: Mapping[str, pa.Table]) -> Query:
    pairs = (("R", "a", "S"), ("S", "b", "T"), ("T", "c", "R"))
    return Query(
        tuple(Source(name, name, table.schema) for name, table in tables.items()),
        equalities=tuple(
            Equality(Column(one, name), Column(two, name), pa.int64()) for one, name, two in pairs
        ),
        output=tuple(Output(n.lower(), Column(n, n.lower()), pa.int64()) for n in tables),
    )


def _triangle_answer(tables: Mapping[str, pa.Table]) -> Counter[tuple[object, ...]]:
    rows = tables["R"].join(tables["S"], "a", join_type="inner")
    rows = rows.join(tables["T"], ["b", "c"], join_type="inner")
    return Counter(zip(*(rows[name].to_pylist() for name in "rst"), strict=True))


def run_preference(seed: int = 0, n_rows: int = 500) -> Finding:
    """Claim 5: results the user asks for come earlier; the preference changes half-way."""
    rng = np.random.default_rng(seed)
    r = pa.table(
        {"key": np.arange(n_rows), "a": rng.permutation(n_rows), "group": np.arange(n_rows) % 10}
    )
    s = pa.table({"x": np.arange(n_rows)})
    query = join_query({"R": r, "S": s}, (("R.a", "S.x"),))
    query = Query(
        query.sources,
        equalities=query.equalities,
        output=tuple(Output(n, Column("R", n), pa.int64()) for n in ("key", "group")),
    )
    means, answers, rows = {}, {}, []
    for kind in ("no preference", "group 3, then group 7"):
        clock = VirtualClock()
        index = index_on("by x", s, ("x",), concurrency=1)
        scan_s = {
            "R": {"scan": Simulated(r, batch_rows=50)},
            "S": {"scan": Simulated(s, rows_per_s=2, batch_rows=1)},
        }
        run = AccessRun(
            query,
            {},
            Options(seed=seed),
            clock=clock,
            lookups=VirtualLookups(clock, lambda request: Fate(0.5)),
            access={"R": Access(), "S": Access(("scan",), (index,), ("x",))},
            scans=scan_s,
        )
        if kind != "no preference":
            run.eddy.prefer(_group_is(3))
        times: dict[int, list[float]] = {group: [] for group in range(10)}
        found = []
        has_changed = False
        for batch in run:
            now_s = clock.now_ns() / 1e9
            if kind != "no preference" and now_s >= 40 and not has_changed:
                run.eddy.prefer(_group_is(7))
                has_changed = True
            found += batch.column(0).to_pylist()
            for group in batch.column(1).to_pylist():
                times[group].append(now_s)
        answers[kind] = sorted(found)
        means[kind] = {group: float(np.mean(moments)) for group, moments in times.items()}
        rows += [{"preference": kind, "group": g, "mean second": m} for g, m in means[kind].items()]
    plain, preferring = means.values()
    claim = Claim(
        "SteM-X8",
        "preferred results come earlier, whenever the preference is stated",
        (
            Check(
                "group 3, preferred first: mean time / without", preferring[3] / plain[3], high=0.5
            ),
            Check(
                "group 7, preferred later: mean time / without", preferring[7] / plain[7], high=0.8
            ),
            Check("same answer", float(len(set(map(tuple, answers.values())))), 1, 1),
        ),
    )
    groups = [str(group) for group in range(10)]
    panel = Panel(
        "mean output time by group; group 3 is preferred, from 40 s on group 7",
        "group",
        "seconds",
        tuple(Series(kind, groups, list(found.values())) for kind, found in means.items()),
        kind="bars",
    )
    title = "SteMs, claim 5: interactive reordering"
    return Finding((claim,), (Figure("SteM-X8", title, (panel,), tuple(rows)),))


def _group_is(group: int) -> Call:
    return Call("eq", (Column("R", "group"), Literal(group, pa.int64())))


EXPERIMENTS = (
    Experiment("stem-competition", "stems", ("SteM-X6",), run_competition),
    Experiment("stem-triangle", "stems", ("SteM-X7",), run_stalled_triangle),
    Experiment("stem-preference", "stems", ("SteM-X8",), run_preference),
)
