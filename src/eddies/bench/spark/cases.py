"""What is asked on Spark: TPC-H, the same in bad text orders, a shifting star, skewed joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from eddies.bench import data, tpc
from eddies.bench.data import Tables
from eddies.bench.storage import Files, made_once, write_tables
from eddies.errors import OptionError

__all__ = ["LARGE_SCALE", "Case", "Group", "cases_at", "chosen"]

Group = Literal["tpch", "order", "star", "skew"]

LARGE_SCALE = 10.0  # from here on, only the queries that are claimed at scale factor 10
LARGE_QUERIES = ("q03", "q05", "q07", "q09", "q10")
STAR_RATES = (0.9, 0.7, 0.5, 0.2, 0.05)
# A fact table of 5 M rows with five dimensions of 500 K.
STAR_SCALE = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """One query over one data set.

    sql       the text that every engine gets, in Spark's dialect.
    best_sql  the same query in its best order of text, where the order is the point.
    """

    name: str
    title: str
    group: Group
    data_set: str
    files: Callable[[Path], Files]
    sql: str
    best_sql: str | None = None

    @property
    def n_joined(self) -> int:
        """How many sources the largest inner join has."""
        return tpc.n_joined_sources(self.sql)


def cases_at(scale: float) -> dict[str, Case]:
    """The cases at this scale: the TPC-H scale factor, and the size of the other tables beside 1."""
    names = LARGE_QUERIES if scale >= LARGE_SCALE else tpc.TPCH_NAMES
    cases = [_tpch(name, scale) for name in names]
    if scale < LARGE_SCALE:
        cases += [_worst_order(name, scale) for name in tpc.WORST_ORDER]
        cases += [_star(scale), _skewed_pair(scale), _skewed_chain(scale)]
    return {case.name: case for case in cases}


def chosen(cases: dict[str, Case], patterns: Sequence[str]) -> list[Case]:
    """Those that match any of `patterns` (`q05`, `q*_worst`); all of them if there are none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in cases):
            raise OptionError(f"no case is named {pattern!r}; there are {', '.join(cases)}")
    return [
        case
        for name, case in cases.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _tpch(name: str, scale: float) -> Case:
    return Case(
        name,
        f"TPC-H {name.upper()} at scale factor {scale:g}",
        "tpch",
        f"tpch_sf{_identifier(scale)}",
        lambda folder: tpc.tpch_files(folder, scale),
        tpc.tpch_text(name),
    )


def _worst_order(name: str, scale: float) -> Case:
    text = tpc.tpch_text(name)
    plain = _tpch(name, scale)
    return Case(
        f"{name}_worst",
        f"{plain.title}, sources in the worst order of text",
        "order",
        plain.data_set,
        plain.files,
        tpc.with_sources_in_order(text, tpc.WORST_ORDER[name]),
        tpc.with_sources_in_order(text, tpc.BEST_ORDER[name]),
    )


def _star(scale: float) -> Case:
    numbers = range(len(STAR_RATES))
    sources = ", ".join(f"d{number}" for number in numbers)
    total = " + ".join(f"d{number}.v" for number in numbers)
    keys = " AND ".join(f"f.k{number} = d{number}.k" for number in numbers)
    return _made(
        "star6",
        "star of six, hit rates 90/70/50/20/5 % reversed halfway, worst text order",
        "star",
        scale,
        lambda: data.star_with_rates(STAR_SCALE * scale, STAR_RATES, STAR_RATES[::-1]),
        f"SELECT count(*) AS n, sum(f.v + {total}) AS s FROM f, {sources} WHERE {keys}",
    )


def _skewed_pair(scale: float) -> Case:
    return _made(
        "skew2",
        "two sources of 500 K rows, skewed keys, 150 results for each row",
        "skew",
        scale,
        lambda: data.skewed_pair(scale),
        "SELECT count(*) AS n, sum(r.v + s.v) AS s FROM r, s WHERE r.k = s.k",
    )


def _skewed_chain(scale: float) -> Case:
    return _made(
        "skew3",
        "as skew2, and a third source that keeps a twentieth",
        "skew",
        scale,
        lambda: data.skewed_chain(scale),
        "SELECT count(*) AS n, sum(r.v + s.v + t.v) AS s FROM r, s, t "
        "WHERE r.k = s.k AND s.j = t.j",
    )


def _made(
    name: str, title: str, group: Group, scale: float, make: Callable[[], Tables], sql: str
) -> Case:
    def files(folder: Path) -> Files:
        return made_once(
            folder / f"{name}-{scale:g}", lambda unfinished: write_tables(make(), unfinished)
        )

    return Case(name, title, group, f"{name}_{_identifier(scale)}", files, sql)


def _identifier(scale: float) -> str:
    return f"{scale:g}".replace(".", "_").replace("-", "_")
