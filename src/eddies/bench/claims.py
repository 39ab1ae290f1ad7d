"""The claims of a case beside what was measured."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from eddies.bench.measure import BEST_TEXT, Measured

__all__ = ["Claim", "claims_of", "verdicts", "wide_console"]

FILE_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Claim:
    """`measured` must not be above `limit`, or, with `at_least`, not below it."""

    case: str
    what: str
    measured: float
    limit: float
    at_least: bool = False

    @property
    def held(self) -> bool:
        """Whether the measurement bears the claim out.

        >>> Claim("a", "time of us / DuckDB", 0.31, 0.50).held
        True
        >>> Claim("a", "speed-up of two threads", 1.5, 1.6, at_least=True).held
        False
        """
        if self.at_least:
            return self.measured >= self.limit
        return self.measured <= self.limit


def claims_of(measured: Measured) -> list[Claim]:
    """Every claim that the case makes."""
    case, median_s = measured.case, measured.median_s_by_name
    claims = []
    if case.at_most is not None:
        ratio = median_s["us"] / median_s["duckdb1"]
        claims.append(Claim(case.name, "us / DuckDB, one thread each", ratio, case.at_most))
    if case.text_at_most is not None:
        ratio = median_s["us"] / median_s[f"us{BEST_TEXT}"]
        claims.append(Claim(case.name, "us, worst / best text order", ratio, case.text_at_most))
    if case.fixed_at_most is not None and measured.best_fixed_s is not None:
        ratio = median_s["us"] / measured.best_fixed_s
        claims.append(Claim(case.name, "us / own best fixed order", ratio, case.fixed_at_most))
    if case.threads_at_least is not None:
        speed_up = median_s["us"] / median_s["us2"]
        claims.append(
            Claim(case.name, "speed-up of two threads", speed_up, case.threads_at_least, True)
        )
    if case.memory_at_most is not None and measured.memory is not None:
        ratio = measured.memory.peak_bytes / measured.memory.needed_bytes
        claims.append(
            Claim(case.name, "peak memory / input and result", ratio, case.memory_at_most)
        )
    return claims


def wide_console() -> Console:
    """A console on which the tables fit, also when the output goes to a file."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)


def verdicts(claims: Sequence[Claim], *, is_judged: bool) -> Table:
    """Every claim beside its measurement; held or not, unless sizes are not the claimed ones."""
    table = Table(title="Claims", title_justify="left")
    for name in ("case", "ratio", "measured", "claimed", ""):
        table.add_column(name, justify="right" if name in ("measured", "claimed") else "left")
    for claim in claims:
        verdict = "held" if claim.held else "not held"
        table.add_row(
            claim.case,
            claim.what,
            f"{claim.measured:.2f}",
            f"{'>=' if claim.at_least else '<='} {claim.limit:.2f}",
            verdict if is_judged else "not judged",
        )
    return table
