"""A delayed source (Eddies, section 4.4: Figures 12 and 13): where the original eddy fails.

    SELECT * FROM R, S, T WHERE R.a = S.a AND S.b = T.b      -- R-S 100 %, S-T 20 % of S

R begins 10 s late. Until then the join R-S takes S rows and returns nothing: a perfect filter, as
far as tickets can tell. It attracts S rows and stores them, and they must leave through it when R
comes, in the worse order. With SteMs an S row is stored once, whatever it probes, so an early
mistake binds nothing; the same run is made with them, against both of *their* static orders.

The machine is calibrated by what the paper says of this run. When R begins, 43.5 % of S were seen:
sources deliver 3,480 rows/s. If S instead of R is late, every plan is simply about 10 s later:
storing R and T beforehand must be almost free, so the cost of a join lies in the matches it makes
(0.02 ms for a row that comes, 1 ms for a match). A cost by row cannot give both statements.

Known limitation: SteMs remove the dependence on early routing, not the cost of the delay. An R row
must meet S before it can meet T, so all S rows that came before R are joined R-S first, as R comes;
only a module that keeps S-T results (a STAIR) avoids that.
"""

from __future__ import annotations

import random

from eddies.core.policies.base import RoutingPolicy
from eddies.core.policies.lottery_window import LotteryWindowPolicy
from eddies.experiments.joins import HASH_BY_MATCH, MS_NS, ROOMY_QUEUES, RS, ST, Joins, make_joins
from eddies.experiments.machine import Recorder, assert_same_answer
from eddies.hosts.machine import Scan
from eddies.hosts.queued import QueuedRun
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "run_delays"]

DELAY_S = 10.0
ROWS_PER_S = 0.435 * 80_000 / DELAY_S
RS_FIRST, ST_FIRST, EDDY = "R-S first", "S-T first", "eddy"
STEM_ORDERS = {RS_FIRST: ("stem:R", "stem:T", "stem:S"), ST_FIRST: ("stem:T", "stem:R", "stem:S")}
JOIN_ORDERS = {RS_FIRST: (RS, ST), ST_FIRST: (ST, RS)}


def _contest(
    joins: Joins, late: str, delay_s: float, rows_per_s: float, seed: int, *, in_joins: bool
) -> dict[str, tuple[QueuedRun, Recorder]]:
    """Both static orders and the eddy, with the source `late` delayed (nobody if it is empty)."""
    scans = {
        name: Scan(table, rows_per_s, delay_s if name == late else 0.0)
        for name, table in joins.tables.items()
    }
    orders = JOIN_ORDERS if in_joins else STEM_ORDERS
    services = {module: HASH_BY_MATCH for order in orders.values() for module in order}
    # A SteM stores a row when it arrives; a join stores it as a part of its visit.
    build_ns = 0.0 if in_joins else 0.02 * MS_NS
    runs = {}
    for contender in (RS_FIRST, ST_FIRST, EDDY):
        order = orders.get(contender, ())
        policy: RoutingPolicy | None = None
        if not order:
            policy = LotteryWindowPolicy(random.Random(seed))
        runs[contender] = joins.run(
            policy,
            ROOMY_QUEUES,
            services,
            order,
            scans=scans,
            state_in_joins=in_joins,
            build_ns=build_ns,
        )
    for run, _ in runs.values():
        assert_same_answer(run, runs[RS_FIRST][0])
    return runs


def run_delays(scale: int = 1, seed: int = 0) -> Finding:
    """Figures 12 and 13; `scale` divides tables, rates stay, so the delay shrinks as well."""
    joins = make_joins(1.0, 0.2, scale=scale, seed=seed)
    delay_s = DELAY_S / scale
    settings = (joins, delay_s, ROWS_PER_S, seed)

    def contest(late: str, *, in_joins: bool = True) -> dict[str, tuple[QueuedRun, Recorder]]:
        joins_, delay_s_, rate, seed_ = settings
        return _contest(joins_, late, delay_s_, rate, seed_, in_joins=in_joins)

    on_time, r_late, s_late = contest(""), contest("R"), contest("S")
    stems = contest("R", in_joins=False)
    assert_same_answer(stems[EDDY][0], r_late[EDDY][0])
    by_case = {
        "no delay": on_time,
        "R late": r_late,
        "S late": s_late,
        "R late, SteMs": stems,
    }
    seconds = {
        case: {name: run.elapsed_s for name, (run, _) in runs.items()}
        for case, runs in by_case.items()
    }
    early = r_late[EDDY][1].share(RS, before_ns=delay_s * 1e9)
    claims = (
        _claim_r_late(seconds["R late"], seconds["R late, SteMs"], early),
        _claim_s_late(seconds["no delay"], seconds["S late"], delay_s),
    )
    return Finding(claims, _figures(by_case, seconds))


def _claim_r_late(joins: dict[str, float], stems: dict[str, float], early: float) -> Claim:
    best, worst = (choose(joins[RS_FIRST], joins[ST_FIRST]) for choose in (min, max))
    best_stems = min(stems[RS_FIRST], stems[ST_FIRST])
    checks = (
        Check("S rows stored in R-S before R began", early, low=0.5, strict=True),
        Check("eddy / best static order, joins", joins[EDDY] / best, low=1.0, strict=True),
        Check("eddy / worst static order, joins", joins[EDDY] / worst, high=1.0, strict=True),
        Check("eddy / best static order, SteMs", stems[EDDY] / best_stems, high=1.10),
    )
    text = "a delayed source misleads an eddy over joins; SteMs are not bound by it"
    return Claim("ED-X11", text, checks)


def _claim_s_late(on_time: dict[str, float], late: dict[str, float], delay_s: float) -> Claim:
    checks = tuple(
        Check(f"seconds later, {name}", late[name] - on_time[name], delay_s - 1, delay_s + 1)
        for name in (EDDY, RS_FIRST, ST_FIRST)
    )
    return Claim("ED-X12", "if S is late, every plan is that much later", checks)


def _figures(
    by_case: dict[str, dict[str, tuple[QueuedRun, Recorder]]], seconds: dict[str, dict[str, float]]
) -> tuple[Figure, ...]:
    cases = list(seconds)
    bars = tuple(
        Series(name, cases, [seconds[case][name] for case in cases])
        for name in (RS_FIRST, ST_FIRST, EDDY)
    )
    shares = []
    for case, module in (("R late", ST), ("R late, SteMs", "stem:T"), ("no delay", ST)):
        n_routed, share = by_case[case][EDDY][1].cumulative_share(module)
        part = [100 * n / n_routed[-1] for n in n_routed]
        shares.append(Series(case, part, [100 * s for s in share]))
    panels = (
        Panel("a source is 10 s late", "", "completion (s)", bars, kind="bars"),
        Panel(
            "R begins at 43.5 % of S",
            "rows of S seen (%)",
            "S rows so far that met T first (%)",
            tuple(shares),
        ),
    )
    rows = tuple({"case": case} | times for case, times in seconds.items())
    title = "Eddies, Figures 12 and 13: a delayed source"
    return (Figure("ED-X11", title, panels, rows),)


EXPERIMENTS = (Experiment("delays", "eddies", ("ED-X11", "ED-X12"), run_delays),)
