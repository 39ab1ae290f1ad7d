"""The shapes: queries that are quick in a good order and hopeless in a bad one.

Texts use what all engines understand, so that all of them get the same one. Every text names the
sources in an order that is bad without statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from eddies.bench import tpc
from eddies.bench.data import Tables
from eddies.bench.storage import Files, made_once, write_tables
from eddies.bench.torture import data, film

__all__ = ["SHAPES", "Shape"]

# Scale factors of the TPC data at full size.
TPCH_SCALE = 5.0
TPCDS_SCALE = 5.0
# The text of Q72 reads these.
Q72_TABLES = (
    "catalog_sales",
    "inventory",
    "warehouse",
    "item",
    "customer_demographics",
    "household_demographics",
    "date_dim",
    "promotion",
    "catalog_returns",
)
Q72 = """
SELECT i_item_desc, w_warehouse_name, d1.d_week_seq AS week,
       sum(CASE WHEN p_promo_sk IS NULL THEN 1 ELSE 0 END) AS no_promo,
       sum(CASE WHEN p_promo_sk IS NOT NULL THEN 1 ELSE 0 END) AS promo, count(*) AS total_cnt
FROM catalog_sales
JOIN inventory ON cs_item_sk = inv_item_sk
JOIN warehouse ON w_warehouse_sk = inv_warehouse_sk
JOIN item ON i_item_sk = cs_item_sk
JOIN customer_demographics ON cs_bill_cdemo_sk = cd_demo_sk
JOIN household_demographics ON cs_bill_hdemo_sk = hd_demo_sk
JOIN date_dim d1 ON cs_sold_date_sk = d1.d_date_sk
JOIN date_dim d2 ON inv_date_sk = d2.d_date_sk
JOIN date_dim d3 ON cs_ship_date_sk = d3.d_date_sk
LEFT JOIN promotion ON cs_promo_sk = p_promo_sk
LEFT JOIN catalog_returns ON cr_item_sk = cs_item_sk AND cr_order_number = cs_order_number
WHERE d1.d_week_seq = d2.d_week_seq AND inv_quantity_on_hand < cs_quantity
  AND d3.d_date > d1.d_date + INTERVAL '5' DAY AND hd_buy_potential = '>10000' AND d1.d_year = 1999
  AND cd_marital_status = 'D'
GROUP BY i_item_desc, w_warehouse_name, d1.d_week_seq
ORDER BY total_cnt DESC, i_item_desc NULLS LAST, w_warehouse_name NULLS LAST, week
LIMIT 100"""
Q5 = """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem, supplier, customer, nation, region, orders
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
  AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'ASIA' AND o_orderdate >= date '1994-01-01' AND o_orderdate < date '1995-01-01'
GROUP BY n_name
ORDER BY revenue DESC"""


@dataclass(frozen=True, slots=True)
class Shape:
    """One query; `files` makes its tables at a scale (1.0: full size) in a data folder, once.

    `reference_sql` asks the same in a way that DuckDB answers, where it cannot answer `sql` in time.
    """

    name: str
    title: str
    sql: str
    files: Callable[[Path, float], Files]
    reference_sql: str | None = None


def _count_and_sum(values: str, rest: str) -> str:
    return f"SELECT count(*) AS n, sum({values}) AS s FROM {rest}"


def _chain_text() -> str:
    aliases = [f"t{link}" for link in range(data.CHAIN_JOINS + 1)]
    edges = [f"{left}.b = {right}.a" for left, right in pairwise(aliases)]
    return _count_and_sum(
        f"{aliases[0]}.v + {aliases[-1]}.v", f"{', '.join(aliases)} WHERE {' AND '.join(edges)}"
    )


def _generated(name: str, make: Callable[[float], Tables]) -> Callable[[Path, float], Files]:
    def files(data_folder: Path, scale: float) -> Files:
        folder = data_folder / f"torture-{name}-{scale:g}"
        return made_once(folder, lambda unfinished: write_tables(make(scale), unfinished))

    return files


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "chain8_empty",
            "chain of eight many-to-many joins, the last edge empty",
            _chain_text(),
            _generated("chain", data.many_to_many_chain),
        ),
        Shape(
            "tpch_q5_worst",
            f"TPC-H Q5 in its worst text order, scale factor {TPCH_SCALE:g}",
            Q5,
            lambda folder, scale: tpc.tpch_files(folder, TPCH_SCALE * scale),
        ),
        Shape(
            "tpcds_q72",
            f"TPC-DS Q72, scale factor {TPCDS_SCALE:g}",
            Q72,
            lambda folder, scale: tpc.tpcds_files(folder, TPCDS_SCALE * scale, Q72_TABLES),
        ),
        *(
            Shape(
                name,
                f"film database, join of {name.removeprefix('film')}, correlated",
                sql.strip(),
                _generated("film", film.film_database),
            )
            for name, sql in film.FILM_QUERIES.items()
        ),
        Shape(
            "fan_out_shift",
            "fan-out of two joins swaps halfway",
            _count_and_sum(
                "f.v + a.v + b.v",
                "f, a, b WHERE f.k1 = a.k AND f.k2 = b.k AND f.t1 < a.t AND f.t2 < b.t",
            ),
            _generated("fan_out", data.shifting_fan_out),
        ),
        Shape(
            "triangle",
            "triangles in a graph with hubs",
            _count_and_sum(
                "e1.v + e2.v + e3.v",
                "e AS e1, e AS e2, e AS e3 WHERE e1.b = e2.a AND e2.b = e3.a AND e3.b = e1.a",
            ),
            _generated("hubs", data.hub_graph),
        ),
        Shape(
            "four_cycle",
            "cycles of four edges in a graph with hubs",
            _count_and_sum(
                "e1.v + e2.v + e3.v + e4.v",
                "e AS e1, e AS e2, e AS e3, e AS e4 "
                "WHERE e1.b = e2.a AND e2.b = e3.a AND e3.b = e4.a AND e4.b = e1.a",
            ),
            _generated("small_hubs", data.small_hub_graph),
        ),
        Shape(
            "three_sources",
            "one predicate over three sources: a.x = b.y + c.z",
            _count_and_sum("a.v + b.v + c.v", "a, b, c WHERE a.x = b.y + c.z"),
            _generated("sum_of_two", data.sum_of_two),
            _count_and_sum(
                "a.v + bc.v",
                "(SELECT b.y + c.z AS x, b.v + c.v AS v FROM b, c) AS bc JOIN a ON a.x = bc.x",
            ),
        ),
        Shape(
            "opaque",
            "only function predicates",
            _count_and_sum(
                "u.v + w.v + x.v + y.v",
                "u, w, x, y WHERE substring(u.s, 3, 5) = substring(w.s, 3, 5) "
                "AND lower(w.t) = lower(x.t) AND abs(x.z) = abs(y.z) "
                "AND length(u.s) > 3 AND substring(x.t, 1, 1) = 'q'",
            ),
            _generated("opaque", data.opaque),
        ),
        Shape(
            "one_row_middle",
            "a one-row source in the middle of a many-to-many chain",
            _count_and_sum(
                "l0.v + l1.v + l2.v + one.v + r0.v",
                "l0, l1, l2, one, r0 "
                "WHERE l0.b = l1.a AND l1.b = l2.a AND l2.b = one.a AND one.b = r0.a",
            ),
            _generated("one_row", data.one_row_in_the_middle),
        ),
        Shape(
            "self_less",
            "self-join of intervals with <",
            _count_and_sum(
                "x.v + y.v", "i AS x, i AS y WHERE x.start < y.start AND y.start < x.finish"
            ),
            _generated("intervals", data.intervals),
        ),
        Shape(
            "group_by_explosion",
            "join of 300 M results under a group-by",
            "SELECT r.g AS g, count(*) AS n, sum(r.v + s.v) AS s FROM r, s WHERE r.k = s.k "
            "GROUP BY r.g",
            _generated("exploding_pair", data.exploding_pair),
        ),
    )
}
