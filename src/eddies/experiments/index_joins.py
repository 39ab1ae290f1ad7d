"""Index joins and hash joins from SteMs (SteMs, section 4: Figures 7 and 8), in virtual time.

    Q1: SELECT * FROM R, S WHERE R.a = S.x          S can only be looked up
    Q4: SELECT * FROM R, T WHERE R.key = T.key      T has an index and a scan

A look-up sleeps for a fixed time, and one is under way at once, as in the paper. What is measured is
when results come out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from eddies.core.access import Access
from eddies.core.clock import VirtualClock
from eddies.core.events import Event, LookupReturned
from eddies.core.options import Options
from eddies.core.query import Query
from eddies.experiments.access_cases import index_on
from eddies.experiments.machine import join_query
from eddies.hosts.access import AccessRun
from eddies.hosts.lookups import Fate, VirtualLookups
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series
from eddies.sources import Simulated

__all__ = ["EXPERIMENTS", "Timeline", "run_access_methods", "run_index_join", "run_timed"]

INDEX_JOIN, STEMS = "index join", "SteMs"
HASH_JOIN, HYBRID = "symmetric hash join", "SteMs with both"
N_ROWS, N_VALUES = 1000, 250
# Q1: 245 look-ups of a second take four minutes; R comes within the first.
Q1_LOOKUP_S, Q1_SCAN_S = 1.0, 60.0
# Q4: R comes within 59 s as in the paper; T, of the same size, takes longer; looking up everything
# takes twice as long as that.
Q4_LOOKUP_S, Q4_R_S, Q4_T_S = 0.2, 59.0, 100.0
EARLY_S = 40.0  # the window of Figure 8 (i)


@dataclass
class Timeline:
    """When results and answers came, in seconds; `asked` are samples (moment, keys asked for)."""

    results_s: list[float] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    lookups_s: list[float] = field(default_factory=list)
    asked: list[tuple[float, int]] = field(default_factory=list)
    n_repeated: int = 0
    n_stored: dict[str, int] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        return self.results_s[-1]

    def n_results(self, moment_s: float) -> int:
        """Results until then."""
        return bisect_right(self.results_s, moment_s)

    def n_lookups(self, moment_s: float) -> int:
        """Answers until then."""
        return bisect_right(self.lookups_s, moment_s)

    def emit(self, event: Event) -> None:
        """Keep answers."""
        if isinstance(event, LookupReturned):
            self.lookups_s += [event.at_ns / 1e9] * event.n_keys


def run_timed(
    query: Query,
    access: Mapping[str, Access],
    scans: Mapping[str, Mapping[str, Simulated]],
    lookup_s: float,
    options: Options | None = None,
    **settings: object,
) -> Timeline:
    """Run to the end; the first output column must be a key of the first source."""
    clock, line = VirtualClock(), Timeline()
    run = AccessRun(
        query,
        {},
        options or Options(),
        clock=clock,
        events=line,
        lookups=VirtualLookups(clock, lambda request: Fate(lookup_s)),
        access=access,
        scans=scans,
        **settings,  # type: ignore[arg-type]
    )
    assert run.eddy.access is not None
    for batch in run:
        moment_s = clock.now_ns() / 1e9
        line.results_s += [moment_s] * batch.num_rows
        line.keys += batch.column(0).to_pylist()
        n_asked = sum(q.eots.n_keys for q in run.eddy.access.lookups.queues.values())
        line.asked.append((moment_s, n_asked))
    line.n_repeated = sum(run.eddy.access.n_repeated)
    relations = zip(run.eddy.graph.relations, run.eddy.stems, strict=True)
    line.n_stored = {relation.name: stem.n_built for relation, stem in relations}
    return line


def _fifo_index_join(
    values: Sequence[int], arrivals_s: Sequence[float], lookup_s: float
) -> Timeline:
    """An index join module: one row after the other, each waits for those before it.

    It has a cache like the SteM, but rows that hit it queue behind rows that do not.
    """
    line, cached, now_s = Timeline(), set(), 0.0
    for key, (value, arrival_s) in enumerate(zip(values, arrivals_s, strict=True)):
        now_s = max(now_s, arrival_s)
        if value not in cached:
            now_s += lookup_s
            cached.add(value)
            line.lookups_s.append(now_s)
        line.results_s.append(now_s)
        line.keys.append(key)
    return line


def _scan(table: pa.Table, seconds: float, **schedule: object) -> Simulated:
    rate = table.num_rows / seconds
    return Simulated(table, batch_rows=1, rows_per_s=rate, **schedule)  # type: ignore[arg-type]


def run_index_join(seed: int = 0) -> Finding:
    """Figure 7: Q1 by an index join module and by SteMs."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, N_VALUES, N_ROWS)
    r = pa.table({"key": np.arange(N_ROWS), "a": values})
    s = pa.table({"x": np.arange(N_VALUES), "y": np.arange(N_VALUES)})
    query = join_query({"R": r, "S": s}, (("R.a", "S.x"),))
    indexes = tuple(
        index_on(f"by {column}", s, (column,), concurrency=1, timeout_s=1e6) for column in "xy"
    )
    stems = run_timed(
        query,
        {"R": Access(), "S": Access((), indexes)},
        {"R": {"scan": _scan(r, Q1_SCAN_S)}},
        Q1_LOOKUP_S,
    )
    arrivals_s = [(i + 1) * Q1_SCAN_S / N_ROWS for i in range(N_ROWS)]
    module = _fifo_index_join(values.tolist(), arrivals_s, Q1_LOOKUP_S)
    assert sorted(stems.keys) == sorted(module.keys), "any order, same bag"

    end_s = max(stems.end_s, module.end_s)
    moments = [end_s * i / 200 for i in range(201)]
    half = module.end_s / 2
    apart = [
        abs(stems.n_lookups(t) - module.n_lookups(t)) / stems.n_lookups(t)
        for t in moments
        if stems.n_lookups(t) >= 20
    ]
    never_below = min(stems.n_results(t) - module.n_results(t) for t in moments)
    answered = _answer_moments(values, stems)
    hits = [k for k in range(N_ROWS) if answered[int(values[k])] <= arrivals_s[k]]
    waits = {
        name: float(np.mean([at[k] - arrivals_s[k] for k in hits]))
        for name, at in ((INDEX_JOIN, _by_key(module)), (STEMS, _by_key(stems)))
    }
    wait_ratio = max(0.0, waits[STEMS]) / waits[INDEX_JOIN]
    claims = (
        Claim(
            "SteM-X1",
            "SteMs give results at a steady rate where an index join starts slowly",
            (
                Check("results, SteMs", len(stems.keys), N_ROWS, N_ROWS),
                Check("completion, SteMs / index join", stems.end_s / module.end_s, 0.9, 1.1),
                Check("share of results at half time, SteMs", stems.n_results(half) / N_ROWS, 0.45),
                Check(
                    "share of results at half time, index join",
                    module.n_results(half) / N_ROWS,
                    high=0.25,
                ),
                Check("least lead of SteMs, results", never_below, 0),
            ),
        ),
        Claim(
            "SteM-X2",
            "both fill their caches at the same rate",
            (
                Check("largest difference of look-ups at any time", max(apart), high=0.05),
                Check("look-ups, SteMs", len(stems.lookups_s), high=N_VALUES),
                Check("look-ups, index join", len(module.lookups_s), high=N_VALUES),
            ),
        ),
        Claim(
            "SteM-X3",
            "rows that hit the cache do not wait behind rows that do not",
            (
                Check("mean wait of hits, SteMs / index join", wait_ratio, high=0.1),
                Check("rows that hit", len(hits), 30),
            ),
        ),
    )
    rows = tuple(
        {
            "seconds": t,
            "results, SteMs": stems.n_results(t),
            "results, index join": module.n_results(t),
            "look-ups, SteMs": stems.n_lookups(t),
            "look-ups, index join": module.n_lookups(t),
        }
        for t in moments
    )
    panels = tuple(
        Panel(
            title,
            "seconds",
            what,
            tuple(
                Series(n, moments, [count(m) for m in moments], dashed=n == INDEX_JOIN)
                for n, count in counts.items()
            ),
        )
        for title, what, counts in (
            ("(i) results", "results", {STEMS: stems.n_results, INDEX_JOIN: module.n_results}),
            ("(ii) look-ups", "look-ups", {STEMS: stems.n_lookups, INDEX_JOIN: module.n_lookups}),
        )
    )
    title = "SteMs, Figure 7: an index join from SteMs"
    return Finding(claims, (Figure("SteM-X1", title, panels, rows),))


def _by_key(line: Timeline) -> dict[int, float]:
    return dict(zip(line.keys, line.results_s, strict=True))


def _answer_moments(values: np.ndarray, line: Timeline) -> dict[int, float]:
    """When each value of R.a was answered: values are asked for in the order of first use."""
    order = list(dict.fromkeys(values.tolist()))
    return dict(zip(order, line.lookups_s, strict=True))


def run_access_methods(seed: int = 0) -> Finding:
    """Figure 8: Q4 by a symmetric hash join, an index join, and SteMs that have both."""
    rng = np.random.default_rng(seed)
    r = pa.table({"key": rng.permutation(N_ROWS)})
    t = pa.table({"key": rng.permutation(N_ROWS)})
    query = join_query({"R": r, "T": t}, (("R.key", "T.key"),))
    index = index_on("by key", t, ("key",), concurrency=1, timeout_s=1e6)
    lines = {}
    for name, access in (
        (HASH_JOIN, Access(key=("key",))),
        (INDEX_JOIN, Access((), (index,), ("key",))),
        (HYBRID, Access(("scan",), (index,), ("key",))),
    ):
        scans = {"R": {"scan": _scan(r, Q4_R_S)}, "T": {"scan": _scan(t, Q4_T_S)}}
        if not access.scans:
            del scans["T"]
        lines[name] = run_timed(query, {"T": access}, scans, Q4_LOOKUP_S, Options(seed=seed))
        assert sorted(lines[name].keys) == list(range(N_ROWS)), "any order, same bag"
    hybrid = lines[HYBRID]

    def ratio(moment_s: float) -> float:
        best = max(lines[HASH_JOIN].n_results(moment_s), lines[INDEX_JOIN].n_results(moment_s))
        return hybrid.n_results(moment_s) / best if best else 1.0

    def leads(moment_s: float) -> bool:
        return lines[INDEX_JOIN].n_results(moment_s) > lines[HASH_JOIN].n_results(moment_s)

    early = [0.5 * i for i in range(2, int(EARLY_S / 0.5) + 1)]
    thirds = [Q4_R_S * i / 3 for i in range(4)]
    shares = [_share_asked(hybrid, a, b) for a, b in pairwise(thirds)]
    end_s = {name: line.end_s for name, line in lines.items()}
    claims = (
        Claim(
            "SteM-X4",
            "early on, SteMs are about as good as the better of two joins",
            (
                Check("SteMs / best other, worst moment early", min(map(ratio, early)), 0.9),
                Check(
                    "index join ahead of hash join at first (s)",
                    max(m for m in early if leads(m)),
                    5.0,
                    EARLY_S - 1,
                ),
            ),
        ),
        Claim(
            "SteM-X5",
            "SteMs end with the better join, and move from the index to the scan",
            (
                Check("completion, SteMs / hash join", end_s[HYBRID] / end_s[HASH_JOIN], high=1.10),
                Check(
                    "completion, SteMs / index join", end_s[HYBRID] / end_s[INDEX_JOIN], high=0.99
                ),
                Check("share of R sent to the index, first third", shares[0], 0.5, strict=True),
                Check("share of R sent to the index, last third", shares[2], 0.0, 0.2, strict=True),
            ),
        ),
    )
    last_s = max(end_s.values())
    moments = [last_s * i / 200 for i in range(201)]
    rows = tuple(
        {"seconds": m, **{n: line.n_results(m) for n, line in lines.items()}} for m in moments
    )

    def panel(title: str, until_s: float) -> Panel:
        shown = [m for m in moments if m <= until_s]
        series = tuple(
            Series(n, shown, [line.n_results(m) for m in shown]) for n, line in lines.items()
        )
        return Panel(title, "seconds", "results", series)

    panels = (panel("(i) the first seconds", EARLY_S), panel("(ii) to the end", last_s))
    title = "SteMs, Figure 8: an index and a scan compete"
    return Finding(claims, (Figure("SteM-X5", title, panels, rows),))


def _share_asked(line: Timeline, start_s: float, stop_s: float) -> float:
    """Keys asked for by the rows of R that came in a period."""

    def n_asked(moment_s: float) -> int:
        before = [n for at_s, n in line.asked if at_s <= moment_s]
        return before[-1] if before else 0

    n_rows = N_ROWS * (stop_s - start_s) / Q4_R_S
    return (n_asked(stop_s) - n_asked(start_s)) / n_rows


EXPERIMENTS = (
    Experiment("stem-index-join", "stems", ("SteM-X1", "SteM-X2", "SteM-X3"), run_index_join),
    Experiment("stem-access-methods", "stems", ("SteM-X4", "SteM-X5"), run_access_methods),
)
