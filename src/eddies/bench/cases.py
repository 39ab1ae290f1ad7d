"""What is joined, in how many spellings, and what is claimed about it.

A `JoinText` is one way to write a query: a first source and joins, in the order of the text. SQL
engines get it as SQL, Polars as a chain of lazy joins, so that all of them see the same order.
Every query asks for `count(*)` and one sum over all value columns: nobody pays for carrying results
away, and nobody can skip a join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

from eddies.bench import data
from eddies.bench.data import Tables

__all__ = ["CASES", "Case", "Join", "JoinText"]


@dataclass(frozen=True, slots=True)
class Join:
    """`JOIN table AS alias ON left = alias.right AND ...`; `on` holds (left, right) pairs."""

    alias: str
    table: str
    on: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JoinText:
    """A query in one order of text; every source has a column `v` that is summed."""

    alias: str
    table: str
    joins: tuple[Join, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The summed columns, as `alias.v`."""
        return tuple(f"{alias}.v" for alias in (self.alias, *(join.alias for join in self.joins)))

    @property
    def sql(self) -> str:
        """The query as every SQL engine gets it.

        >>> JoinText("f", "f", (Join("d", "d", (("f.k", "k"),)),)).sql
        'SELECT count(*) AS n, sum(f.v + d.v) AS s FROM f AS f JOIN d AS d ON f.k = d.k'
        """
        joins = "".join(
            f" JOIN {join.table} AS {join.alias} ON "
            + " AND ".join(f"{left} = {join.alias}.{right}" for left, right in join.on)
            for join in self.joins
        )
        total = " + ".join(self.values)
        return f"SELECT count(*) AS n, sum({total}) AS s FROM {self.table} AS {self.alias}{joins}"


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark.

    text            the query as every engine is measured with it.
    best_text       the same query in its best order of text, where order is the point.
    interleave      our sources arrive in turns, as two streams do.
    fixed_orders    orders in which our own eddy runs without adapting, for comparison.
    at_most         claimed upper bound of our time over DuckDB's, one thread each; None: no claim.
    text_at_most    claimed upper bound of our time in worst over best order of text.
    fixed_at_most   claimed upper bound of our time over our own best fixed order.
    threads_at_least  claimed speed-up of two threads over one.
    memory_at_most  claimed upper bound of peak memory over the bytes of input and result.
    """

    name: str
    title: str
    make: Callable[[float], Tables]
    text: JoinText
    best_text: JoinText | None = None
    interleave: bool = False
    fixed_orders: tuple[tuple[str, ...], ...] = ()
    at_most: float | None = None
    text_at_most: float | None = None
    fixed_at_most: float | None = None
    threads_at_least: float | None = None
    memory_at_most: float | None = None


def _star(numbers: tuple[int, ...]) -> JoinText:
    joins = (Join(f"d{number}", f"d{number}", ((f"f.k{number}", "k"),)) for number in numbers)
    return JoinText("f", "f", tuple(joins))


def _chain(length: int) -> JoinText:
    links = (Join(f"t{i}", f"t{i}", ((f"t{i - 1}.b", "a"),)) for i in range(1, length))
    return JoinText("t0", "t0", tuple(links))


_TRIANGLE = JoinText(
    "e1",
    "e",
    (Join("e2", "e", (("e1.b", "a"),)), Join("e3", "e", (("e2.b", "a"), ("e1.a", "b")))),
)
_WORST = tuple(range(len(data.STAR_HIT_RATES)))  # the least selective first
_BEST = _WORST[::-1]

CASES = {
    case.name: case
    for case in (
        Case(
            "a",
            "10 M fact, two dimensions of 1 M, half hit",
            data.two_dimensions,
            _star((0, 1)),
            at_most=0.50,
            threads_at_least=1.6,
            memory_at_most=2.0,
        ),
        Case(
            "b",
            "star of five, hit rates 90/50/20/5 %, worst text order",
            data.star,
            _star(_WORST),
            best_text=_star(_BEST),
            at_most=0.35,
            text_at_most=1.10,
            threads_at_least=1.6,
        ),
        Case(
            "c",
            "star of five, hit rates reversed halfway",
            data.shifting_star,
            _star(_WORST),
            fixed_orders=tuple(permutations(f"d{number}" for number in _WORST)),
            at_most=0.50,
            fixed_at_most=0.85,
            threads_at_least=1.6,
        ),
        Case(
            "d",
            "two streams of 5 M rows in turns, fan-out 2",
            data.streams,
            JoinText("r", "r", (Join("s", "s", (("r.k", "k"),)),)),
            interleave=True,
            at_most=0.70,
        ),
        Case(
            "e",
            "as a, keys are text of 13 bytes",
            data.two_text_dimensions,
            _star((0, 1)),
            at_most=1.0,
        ),
        Case("f", "triangles in a skewed graph of 1 M edges", data.graph, _TRIANGLE),
        Case(
            "chain12",
            "chain of twelve sources of 100 K rows",
            data.chain,
            _chain(data.CHAIN_LENGTH),
        ),
    )
}
