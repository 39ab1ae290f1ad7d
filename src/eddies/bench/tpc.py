"""TPC-H and TPC-DS: tables made by their generators, and the texts, in any order of sources.

The 22 TPC-H texts are in the folder `tpch`, in Spark's dialect. `with_sources_in_order` writes the
same query with another FROM list, and nothing else changed: what an optimizer without statistics
makes of that list is what the benchmarks want to see.

`WORST_ORDER` and `BEST_ORDER` were found by trying all orders without cross products on counts of
the joined prefixes: the worst has the largest sum of intermediate results when joins are done in
the order of the text, as Spark does them without statistics, and the best has the smallest. In Q5
the worst order joins suppliers and customers of one nation, each with each.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import sqlglot
from sqlglot import exp

from eddies.bench.storage import Files, made_once
from eddies.errors import SourceError

__all__ = [
    "BEST_ORDER",
    "TPCH_NAMES",
    "WORST_ORDER",
    "n_joined_sources",
    "n_read_sources",
    "tpcds_files",
    "tpch_files",
    "tpch_text",
    "with_sources_in_order",
]

TPCH_NAMES = tuple(f"q{number:02}" for number in range(1, 23))

WORST_ORDER = {
    "q02": ("supplier", "partsupp", "nation", "region", "part"),
    "q03": ("customer", "orders", "lineitem"),
    "q05": ("lineitem", "supplier", "customer", "nation", "region", "orders"),
    "q07": ("supplier", "n1", "n2", "customer", "orders", "lineitem"),
    "q08": ("supplier", "lineitem", "n2", "orders", "customer", "n1", "region", "part"),
    "q09": ("supplier", "lineitem", "partsupp", "orders", "nation", "part"),
    "q10": ("orders", "lineitem", "customer", "nation"),
    "q11": ("partsupp", "supplier", "nation"),
    "q18": ("orders", "lineitem", "customer"),
    "q21": ("supplier", "l1", "orders", "nation"),
}
BEST_ORDER = {
    "q02": ("part", "partsupp", "supplier", "nation", "region"),
    "q03": ("orders", "lineitem", "customer"),
    "q05": ("customer", "orders", "lineitem", "supplier", "nation", "region"),
    "q07": ("n1", "n2", "supplier", "lineitem", "orders", "customer"),
    "q08": ("part", "lineitem", "orders", "customer", "n1", "region", "supplier", "n2"),
    "q09": ("part", "lineitem", "supplier", "partsupp", "orders", "nation"),
    "q10": ("customer", "orders", "nation", "lineitem"),
    "q11": ("supplier", "nation", "partsupp"),
    "q18": ("customer", "orders", "lineitem"),
    "q21": ("supplier", "nation", "l1", "orders"),
}

GENERATOR_TIMEOUT_S = 1800


def tpch_files(data_folder: Path, scale: float) -> Files:
    """The eight tables at this scale factor; made by `tpchgen-cli` if they are not there."""

    def make(folder: Path) -> None:
        _generate("tpchgen-cli", "parquet", f"-s{scale:g}", f"--output-dir={folder}")

    return made_once(data_folder / f"tpch-sf{scale:g}", make)


def tpcds_files(data_folder: Path, scale: float, tables: Sequence[str]) -> Files:
    """The given tables of TPC-DS; made by `tpcgen-cli` if they are not there."""

    def make(folder: Path) -> None:
        _generate(
            "tpcgen-cli",
            "tpcds",
            "parquet",
            f"-s{scale:g}",
            f"--tables={','.join(tables)}",
            f"--output-dir={folder}",
        )

    return made_once(data_folder / f"tpcds-sf{scale:g}", make)


def tpch_text(name: str) -> str:
    """The text of `q01` to `q22`."""
    return (resources.files("eddies.bench") / "tpch" / f"{name}.sql").read_text()


def n_joined_sources(sql: str) -> int:
    """The length of the longest FROM list, that is, of the largest inner join.

    >>> n_joined_sources("SELECT 1 FROM a, b WHERE a.x IN (SELECT c.x FROM c)")
    2
    """
    return max(1 + len(select.args.get("joins") or ()) for select in _selects(sql))


def n_read_sources(sql: str) -> int:
    """How often the text names a table, subqueries included.

    >>> n_read_sources("SELECT 1 FROM a, b WHERE a.x IN (SELECT c.x FROM c)")
    3
    """
    tree = sqlglot.parse_one(sql, read="spark")
    named = {cte.alias for cte in tree.find_all(exp.CTE)}
    return sum(table.name not in named for table in tree.find_all(exp.Table))


def with_sources_in_order(sql: str, order: Sequence[str]) -> str:
    """The text with the FROM list that holds exactly these aliases put in this order.

    >>> with_sources_in_order("SELECT 1 FROM a, b AS x, c", ("c", "a", "x"))
    'SELECT 1 FROM c, a, b AS x'
    """
    tree = sqlglot.parse_one(sql, read="spark")
    for select in tree.find_all(exp.Select):
        sources = _from_list(select)
        if sources is not None and set(sources) == set(order):
            first, *rest = (sources[alias] for alias in order)
            select.set(_FROM, exp.From(this=first))
            select.set("joins", [exp.Join(this=source) for source in rest])
            return tree.sql(dialect="spark")
    raise ValueError(f"no FROM list holds exactly {', '.join(order)}")


_FROM = "from_"


def _from_list(select: exp.Select) -> dict[str, exp.Expression] | None:
    """Sources by alias, if the select has a plain list of them."""
    joins = select.args.get("joins") or []
    if _FROM not in select.args or any(join.args.get("on") or join.side for join in joins):
        return None
    sources = [select.args[_FROM].this, *(join.this for join in joins)]
    return {source.alias_or_name: source for source in sources}


def _selects(sql: str) -> list[exp.Select]:
    return list(sqlglot.parse_one(sql, read="spark").find_all(exp.Select))


def _generate(program: str, *arguments: str) -> None:
    path = Path(sysconfig.get_path("scripts")) / program
    if not path.exists():
        raise SourceError(f"{program} makes the tables and is missing: pip install {program}")
    done = subprocess.run(
        [str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=GENERATOR_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SourceError(f"{program} failed with code {done.returncode}:\n{done.stderr[-2000:]}")
