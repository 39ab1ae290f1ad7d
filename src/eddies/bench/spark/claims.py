"""What we claim on Spark, beside what was measured.

Spark SQL in a claim is Spark as it is by default (adaptive execution, no statistics collected). A
query counts as a join of many if one of its FROM lists has at least three sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from eddies.bench.claims import Claim
from eddies.bench.spark.cases import LARGE_SCALE, Group
from eddies.bench.spark.measure import US_BEST, Measured

__all__ = ["MANY_SOURCES", "claims_of"]

MANY_SOURCES = 3
# At least so many times faster than Spark SQL, in geometric mean.
FASTER_THAN_SPARK = 2.5
FASTER_THAN_SPARK_WORST_ORDER = 5.0
# At most so many times as long.
SLOWEST_TO_SPARK = 1.1
WORST_TO_BEST_ORDER = 1.15
TO_DUCKDB = 5.0
TO_DUCKDB_LARGE = 2.0
EXCHANGE_TO_SPARK = 1.0


def claims_of(done: Sequence[Measured], scale: float, *, exchange: bool = False) -> list[Claim]:
    """Every claim for which there is a measurement. With `exchange` our inputs were DataFrames."""
    tpch = _of(done, "tpch")
    many = [measured for measured in tpch if measured.case.n_joined >= MANY_SOURCES]
    many_named = f"TPC-H, {MANY_SOURCES} sources or more"
    if exchange:
        return _mean(
            f"{many_named}, DataFrames",
            "us / Spark SQL, mean",
            _ratios(many, "us", "spark"),
            EXCHANGE_TO_SPARK,
        )
    if scale >= LARGE_SCALE:
        named = "TPC-H, " + ", ".join(measured.case.name for measured in tpch)
        return _mean(
            named, "us / DuckDB, 2 threads, mean", _ratios(tpch, "us", "duckdb2"), TO_DUCKDB_LARGE
        )
    worst = _of(done, "order")
    return [
        *_mean(
            many_named,
            "Spark SQL / us, mean",
            _ratios(many, "spark", "us"),
            FASTER_THAN_SPARK,
            at_least=True,
        ),
        *_largest(
            many_named, "us / Spark SQL, largest", _ratios(many, "us", "spark"), SLOWEST_TO_SPARK
        ),
        *_mean(
            "worst text order",
            "Spark SQL / us, mean",
            _ratios(worst, "spark", "us"),
            FASTER_THAN_SPARK_WORST_ORDER,
            at_least=True,
        ),
        *_largest(
            "worst text order",
            "us, worst / best order, largest",
            _ratios(worst, "us", US_BEST),
            WORST_TO_BEST_ORDER,
        ),
        *_mean(
            f"TPC-H, {len(tpch)} queries",
            "us / DuckDB, 2 threads, mean",
            _ratios(tpch, "us", "duckdb2"),
            TO_DUCKDB,
        ),
    ]


def _of(done: Iterable[Measured], group: Group) -> list[Measured]:
    return [measured for measured in done if measured.case.group == group]


def _ratios(done: Iterable[Measured], above: str, below: str) -> dict[str, float]:
    ratios = {measured.case.name: measured.ratio(above, below) for measured in done}
    return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def _mean(
    case: str, what: str, ratios: dict[str, float], limit: float, *, at_least: bool = False
) -> list[Claim]:
    if not ratios:
        return []
    return [Claim(case, what, geometric_mean(ratios.values()), limit, at_least)]


def _largest(case: str, what: str, ratios: dict[str, float], limit: float) -> list[Claim]:
    if not ratios:
        return []
    name = max(ratios, key=lambda name: ratios[name])
    return [Claim(case, f"{what} ({name})", ratios[name], limit)]
