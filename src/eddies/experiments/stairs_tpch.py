"""A predicate that misleads (STAIRs, section 5.2: Figure 7), on TPC-H.

    SELECT count(*) FROM customer, orders, lineitem
    WHERE c_custkey = o_custkey AND o_orderkey = l_orderkey
      AND c_nationkey = 1 AND c_acctbal > 9000 AND l_shipdate > DATE '1996-01-01'

Lineitem arrives by ship date, so for more than half of the run its predicate lets nothing through and
O-L looks like the better join for orders. All sources arrive at rates proportional to their sizes.

*Late decisions* (Figure 7 ii). Nobody may change its mind before a set share of orders has come: until
then orders go to O-L, and STAIRs hold what that means. Afterwards EddyJoins route by cumulative
selectivity, and STAIRs migrate greedily.

Time is counted in tuples handled; the pictures show seconds beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from eddies.bench.storage import default_data_folder
from eddies.bench.tpc import tpch_files
from eddies.core.expr import Call, Column, Literal
from eddies.core.policies.base import Decision, Fork
from eddies.core.policies.cumulative import CumulativePolicy
from eddies.core.query import Aggregate, Aggregation, Equality, Query, Selection, Source
from eddies.core.stairs.migration import Greedy
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Form, Forms
from eddies.experiments.stairs_runs import CONTENDERS, Feed, Run, arrivals, run_feed
from eddies.observe.claims import Check, Claim, Experiment, Figure, Finding, Panel, Series

__all__ = ["EXPERIMENTS", "run_tpch"]

SCALE_FACTOR = 0.1
CO, OL = "join:customer-orders", "join:orders-lineitem"
BEST, WORST = "SHJ, C-O first", "SHJ, O-L first"
SHARES = (0.0, 0.2, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.97)
ORDERS = 1  # source numbers, as in the text of the query
_INT = pa.int64()


def make_tpch(scale_factor: float = SCALE_FACTOR, folder: Path | None = None) -> tuple[Query, Feed]:
    """The query and its rows as they arrive; tables are generated once, into a cache folder."""
    files = tpch_files(folder or default_data_folder(), scale_factor)
    wanted = {
        "customer": ["c_custkey", "c_nationkey", "c_acctbal"],
        "orders": ["o_orderkey", "o_custkey"],
        "lineitem": ["l_orderkey", "l_shipdate"],
    }
    tables = {}
    for name, columns in wanted.items():
        table = parquet.read_table(files[name], columns=columns)
        for position, text in enumerate(columns):
            if text.endswith("key"):
                table = table.set_column(position, text, pc.cast(table[text], _INT))
            elif text == "c_acctbal":
                cents = pc.cast(
                    pc.multiply(pc.cast(table[text], pa.float64()), 100.0), _INT, safe=False
                )
                table = table.set_column(position, text, cents)
        tables[name] = table
    tables["lineitem"] = tables["lineitem"].sort_by("l_shipdate")

    def column(name: str) -> Column:
        return Column({"c": "customer", "o": "orders", "l": "lineitem"}[name[0]], name)

    shipped = Literal(_days("1996-01-01"), pa.date32())
    query = Query(
        tuple(Source(name, name, table.schema) for name, table in tables.items()),
        (
            Selection(Call("eq", (column("c_nationkey"), Literal(1, _INT)))),
            Selection(Call("gt", (column("c_acctbal"), Literal(900_000, _INT)))),
            Selection(Call("gt", (column("l_shipdate"), shipped))),
        ),
        (
            Equality(column("c_custkey"), column("o_custkey"), _INT),
            Equality(column("o_orderkey"), column("l_orderkey"), _INT),
        ),
        aggregation=None,
        output=(),
    )
    rates = {name: float(table.num_rows) for name, table in tables.items()}
    return query, arrivals(tables, rates)


def _days(text: str) -> object:
    import datetime

    return datetime.date.fromisoformat(text)


def counted(query: Query) -> Query:
    """The same question, asking for counts."""
    from dataclasses import replace

    aggregates = (
        Aggregate("n", "count_star", None, _INT),
        Aggregate("s", "sum", Column("orders", "o_orderkey"), _INT),
    )
    return replace(query, aggregation=Aggregation((), aggregates))


class _LateJoins(CumulativePolicy):
    """Orders go to O-L until `may_change` says otherwise."""

    def __init__(self, may_change: Callable[[], bool]) -> None:
        super().__init__()
        self._may_change = may_change

    def choose(self, fork: Fork) -> Decision:
        if not self._may_change():
            for i, candidate in enumerate(fork.candidates):
                if candidate.name == OL and fork.signature.sources == 1 << ORDERS:
                    return Decision(i)
        return super().choose(fork)


class _LateStairs(Greedy):
    """Holds O ⋈ L at O.o_custkey until `may_change` says otherwise."""

    def __init__(self, may_change: Callable[[], bool]) -> None:
        self._may_change = may_change

    def decide(self, outlook: Outlook) -> Forms:
        if not self._may_change():
            join = next(e.number for e in outlook.planner.tree.edges if e.name == CO)
            return frozenset({Form(ORDERS, join, 0b110)})
        return super().decide(outlook)


def _late(query: Query, feed: Feed, n_orders: int, share: float) -> tuple[Run, Run]:
    """EddyJoins and STAIRs that may not decide anew before a share of orders has come."""
    runs = []
    for is_stairs in (False, True):
        arrived: dict[str, int] = {}

        def may_change(seen: Mapping[str, int] = arrived) -> bool:
            return seen.get("orders", 0) >= share * n_orders

        if is_stairs:
            runs.append(
                run_feed(
                    query,
                    feed,
                    arrived=arrived,
                    state="stairs",
                    migration="greedy",
                    migration_policy=_LateStairs(may_change),
                )
            )
        else:
            runs.append(
                run_feed(
                    query,
                    feed,
                    arrived=arrived,
                    state="joins",
                    policy_object=_LateJoins(may_change),
                )
            )
    return runs[0], runs[1]


def run_tpch(scale_factor: float = SCALE_FACTOR, folder: Path | None = None) -> Finding:
    """Figure 7, all three parts."""
    plain, feed = make_tpch(scale_factor, folder)
    query = counted(plain)
    n_orders = sum(batch.num_rows for name, batch in feed if name == "orders")
    contenders = {
        BEST: {"state": "static", "order": (CO, OL)},
        WORST: {"state": "static", "order": (OL, CO)},
        **{name: CONTENDERS[name] for name in ("EddyJoins", "SteMs", "STAIRs, greedy", "STAIRs")},
    }
    runs = {name: run_feed(query, feed, **options) for name, options in contenders.items()}
    if len({(run.n_results, run.checksum) for run in runs.values()}) > 1:
        raise AssertionError("any order, same bag: the contenders disagree")
    traced = {
        name: run_feed(plain_results(plain), feed, trace=True, **options)
        for name, options in contenders.items()
    }
    late = {share: _late(query, feed, n_orders, share) for share in SHARES}
    claims = (
        _claim_cost(runs),
        _claim_switch(runs, n_orders),
        _claim_late(late, runs),
        _claim_early_results(traced),
    )
    return Finding(claims, _figures(runs, late, traced))


def plain_results(query: Query) -> Query:
    """The same question, asking for the rows themselves."""
    from dataclasses import replace

    from eddies.core.query import Output

    return replace(query, output=(Output("o", Column("orders", "o_orderkey"), _INT),))


def _claim_cost(runs: Mapping[str, Run]) -> Claim:
    checks = []
    for name in ("STAIRs, greedy", "STAIRs"):
        cost = runs[name].handled
        checks += [
            Check(f"{name} / best static plan", cost / runs[BEST].handled, high=1.15),
            Check(f"{name} / EddyJoins", cost / runs["EddyJoins"].handled, high=1.0, strict=True),
            Check(f"{name} / SteMs", cost / runs["SteMs"].handled, high=1.0, strict=True),
        ]
    return Claim("ST-X1", "STAIRs cost almost as little as the right plan", tuple(checks))


def _claim_switch(runs: Mapping[str, Run], n_orders: int) -> Claim:
    """Of cost-aware STAIRs. The greedy ones decide on the first few lineitem rows and then again."""
    run = runs["STAIRs"]
    shares = [moved["orders"] / n_orders for moved in run.moved_at]
    checks = (
        Check("migrations", len(run.migrations), 1, 1),
        *(Check("orders read then", share, 0.45, 0.65) for share in shares),
    )
    return Claim("ST-X2", "one migration, when the predicate begins to let rows through", checks)


def _claim_late(late: Mapping[float, tuple[Run, Run]], runs: Mapping[str, Run]) -> Claim:
    stairs = {share: pair[1].handled for share, pair in late.items()}
    joins = {share: pair[0].handled for share, pair in late.items()}
    early = [stairs[share] for share in SHARES if share <= 0.55]
    moved = late[0.55][1]
    n_moved = sum(migration.n_handled for migration in moved.migrations)
    checks = (
        Check("flat up to 55 %: highest / lowest", max(early) / min(early), high=1.05),
        Check("share of migration at 55 %", n_moved / moved.handled, 0.02, 0.12),
        *(
            Check(f"STAIRs / EddyJoins at {share:.0%}", stairs[share] / joins[share], high=1.0)
            for share in SHARES
            if 0.5 <= share <= 0.9
        ),
    )
    return Claim("ST-X3", "migrating late costs more and gains less", checks)


def _claim_early_results(traced: Mapping[str, Run]) -> Claim:
    half = {name: _handled_at(run, 0.5) for name, run in traced.items()}
    checks = tuple(
        check
        for name in ("STAIRs, greedy", "STAIRs")
        for check in (
            Check(f"half of the results, {name} / best plan", half[name] / half[BEST], high=1.15),
            *(
                Check(
                    f"the same, {name} / {other}", half[name] / half[other], high=1.0, strict=True
                )
                for other in (WORST, "EddyJoins", "SteMs")
            ),
        )
    )
    return Claim("ST-X4", "results come almost as early as with the right plan", checks)


def _handled_at(run: Run, share: float) -> float:
    """Tuples handled when a share of the results was out."""
    wanted = share * run.outputs[-1][2]
    return float(next(handled for handled, _, n_results in run.outputs if n_results >= wanted))


def _figures(
    runs: Mapping[str, Run], late: Mapping[float, tuple[Run, Run]], traced: Mapping[str, Run]
) -> tuple[Figure, ...]:
    names = list(runs)
    bars = (
        Panel(
            "cost of the query",
            "",
            "tuples handled",
            (Series("tuples", names, [float(runs[n].handled) for n in names]),),
            kind="bars",
        ),
        Panel(
            "the same in time",
            "",
            "processor time (s)",
            (Series("seconds", names, [runs[n].seconds for n in names]),),
            kind="bars",
        ),
    )
    percent = [100 * share for share in late]
    lines = Panel(
        "no decision before so many orders",
        "orders read before a change is allowed (%)",
        "tuples handled",
        (
            Series("EddyJoins", percent, [float(pair[0].handled) for pair in late.values()]),
            Series("STAIRs, greedy", percent, [float(pair[1].handled) for pair in late.values()]),
        ),
        marks={"best static plan": float(runs[BEST].handled)},
    )
    progress = Panel(
        "results over time",
        "tuples handled",
        "results",
        tuple(
            Series(
                name, [float(h) for h, _, _ in run.outputs], [float(n) for _, _, n in run.outputs]
            )
            for name, run in traced.items()
        ),
    )
    rows = tuple(
        {
            "technique": name,
            "handled": run.handled,
            "seconds": round(run.seconds, 3),
            "results": run.n_results,
            "migrations": len(run.migrations),
        }
        for name, run in runs.items()
    )
    late_rows = tuple(
        {"share": share, "EddyJoins": pair[0].handled, "STAIRs": pair[1].handled}
        for share, pair in late.items()
    )
    title = "STAIRs, Figure 7: a predicate that misleads (TPC-H)"
    return (
        Figure("ST-X1", title, bars, rows),
        Figure("ST-X3", title, (lines,), late_rows),
        Figure("ST-X4", title, (progress,), ()),
    )


EXPERIMENTS = (Experiment("misled", "stairs", ("ST-X1", "ST-X2", "ST-X3", "ST-X4"), run_tpch),)
