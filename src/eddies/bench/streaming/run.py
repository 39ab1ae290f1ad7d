"""`eddies bench streaming`, shown: what was measured, and the claims.

The exit code tells about answers, never about speed: 0 if all results came once, 1 if not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from eddies.bench.claims import Claim, verdicts, wide_console
from eddies.bench.streaming.early import Early, run_early
from eddies.bench.streaming.epochs import (
    SETTINGS,
    EpochRun,
    median_s,
    rows_a_second,
    run_epochs,
)
from eddies.bench.streaming.windows import WindowRun, run_windows
from eddies.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CASES", "main"]

CASES = ("epochs", "rate", "early", "windows")
FULL_MINUTES = 10.0
FULL_ARRIVAL_S = 60.0
ROWS_PER_S = 25_000.0  # of each of four sources
RATE_S = 60.0  # that the sustained rate is measured for
RATE_ROWS_PER_S = 250_000  # of each source, at most, in those seconds
WARM_UP_ROWS = 20_000
# At most.
EPOCH_S = 0.5
GROWTH = 1.3
FIRST_RESULT_S = 2.0
MEMORY_GROWTH = 1.1
# At least.
RATE = 300_000.0
SHARE_DELIVERED = 0.5

Report = dict[str, object]


def main(
    cases: tuple[str, ...] = (),
    *,
    minutes: float = FULL_MINUTES,
    arrival_s: float = FULL_ARRIVAL_S,
    json_path: Path | None = None,
    console: Console | None = None,
) -> int:
    """Measure `cases` (all if none is named). Claims are judged for full lengths only."""
    for case in cases:
        if case not in CASES:
            raise OptionError(f"there is no case {case!r}; choose from {', '.join(CASES)}")
    if not minutes > 0 or not arrival_s > 0:
        raise OptionError("--minutes and --arrival-s must be above 0")
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise OptionError(f"--json {json_path}: there is no folder {json_path.absolute().parent}")
    console = console or wide_console()
    bench = _Bench(console, minutes * 60, arrival_s)
    with _spark() as spark:
        with console.status("warming up"):
            run_epochs(spark, 60.0, None, WARM_UP_ROWS)
        for case in CASES:
            if not cases or case in cases:
                bench.measure(case, spark)
                if json_path is not None:  # after every case: an interrupted run keeps what it has
                    json_path.write_text(json.dumps(bench.report, indent=2) + "\n")
    console.print(bench.table)
    is_judged = minutes >= FULL_MINUTES and arrival_s >= FULL_ARRIVAL_S
    console.print(verdicts(bench.claims, is_judged=is_judged))
    for text in bench.wrong:
        console.print(text, style="bold red", markup=False)
    if not bench.wrong:
        console.print("All results came, each once.")
    return 1 if bench.wrong else 0


@contextmanager
def _spark() -> Iterator[SparkSession]:
    import eddies

    spark = eddies.session(**SETTINGS)
    try:
        yield spark
    finally:
        spark.stop()


class _Bench:
    """What has been measured so far."""

    def __init__(self, console: Console, run_s: float, arrival_s: float) -> None:
        self._console = console
        self._run_s, self._arrival_s = run_s, arrival_s
        self.claims: list[Claim] = []
        self.report: dict[str, Report] = {}
        self.wrong: list[str] = []
        self.table = Table(title="Streaming", title_justify="left")
        for heading, justify in (("case", "left"), ("what", "left"), ("measured", "right")):
            self.table.add_column(heading, justify=justify)  # type: ignore[arg-type]

    def measure(self, case: str, spark: SparkSession) -> None:
        """Run one case and keep its figures and claims."""
        with self._console.status(case) as status:

            def look(text: str) -> None:
                status.update(f"{case}: {text}")

            figures, claims = getattr(self, f"_{case}")(spark, look)
        self.report[case] = {name.replace(" ", "_"): figure for name, figure in figures.items()}
        self.claims += claims
        for name, figure in figures.items():
            shown = f"{figure:,.3f}" if isinstance(figure, float) else f"{figure:,}"
            self.table.add_row(case, name, shown)
        said = ", ".join(f"{claim.what} {claim.measured:.2f}" for claim in claims)
        self._console.print(f"{case}: {said}", markup=False)

    def _epochs(
        self, spark: SparkSession, look: Callable[[str], None]
    ) -> tuple[Report, list[Claim]]:
        n_rows = int(self._run_s * ROWS_PER_S)
        run = run_epochs(spark, 10 * self._run_s, ROWS_PER_S, n_rows, look)
        self._check("epochs", run)
        part_s = min(60.0, self._run_s / 3)
        last_s = run.epochs[-1].began_s
        first, last = median_s(run.epochs, 0, part_s), median_s(run.epochs, last_s - part_s)
        middle = median_s(run.epochs)
        figures: Report = {
            "epochs": len(run.epochs),
            "rows read": run.n_read,
            "rows stored at the end": run.n_stored,
            "results": run.found.n_rows,
            "median epoch s": middle,
            "median epoch s first minute": first,
            "median epoch s last minute": last,
        }
        for name in run.epochs[-1].parts_s:
            parts = [epoch.parts_s.get(name, 0.0) for epoch in run.epochs]
            figures[f"median {name} s"] = median(parts)
        return figures, [
            Claim("epochs", "median epoch, s", middle, EPOCH_S),
            Claim("epochs", "median of last minute / first minute", last / first, GROWTH),
        ]

    def _rate(self, spark: SparkSession, look: Callable[[str], None]) -> tuple[Report, list[Claim]]:
        seconds = min(RATE_S, self._run_s)
        run = run_epochs(spark, seconds, None, int(seconds * RATE_ROWS_PER_S), look)
        self._check("rate", run)
        rate = rows_a_second(run.epochs)
        figures: Report = {
            "epochs": len(run.epochs),
            "rows read": run.n_read,
            "rows stored at the end": run.n_stored,
            "median epoch s": median_s(run.epochs),
            "rows a second": rate,
        }
        return figures, [Claim("rate", "rows a second, in all", rate, RATE, at_least=True)]

    def _early(
        self, spark: SparkSession, look: Callable[[str], None]
    ) -> tuple[Report, list[Claim]]:
        early: Early = run_early(spark, self._arrival_s, look)
        if early.wrong is not None:
            self.wrong.append(f"early: the answer differs from DuckDB's: {early.wrong}")
        figures: Report = {
            "results": len(early.possible_s),
            "first result exists after s": float(early.possible_s[0]),
            "first result comes after s": float(early.delivered_s[0]),
            "three quarters exist after s": early.three_quarters_s,
            "share delivered by then": early.share_delivered,
            "median lateness s": early.median_late_s,
        }
        return figures, [
            Claim("early", "first result after it exists, s", early.first_late_s, FIRST_RESULT_S),
            Claim(
                "early",
                "share delivered when 75 % exist",
                early.share_delivered,
                SHARE_DELIVERED,
                at_least=True,
            ),
        ]

    def _windows(
        self, spark: SparkSession, look: Callable[[str], None]
    ) -> tuple[Report, list[Claim]]:
        run: WindowRun = run_windows(spark, self._run_s, look)
        if run.wrong is not None:
            self.wrong.append(f"windows: the answer differs from DuckDB's: {run.wrong}")
        part_s = min(60.0, self._run_s / 4)
        end_s = run.memory[-1][0]
        second = run.memory_bytes(part_s, 2 * part_s)
        last = run.memory_bytes(end_s - part_s, end_s)
        figures: Report = {
            "epochs": len(run.epochs),
            "median epoch s": median_s(run.epochs),
            "results": run.n_rows,
            "rows stored at the end": run.n_stored,
            "keepers second minute MiB": second / 2**20,
            "keepers last minute MiB": last / 2**20,
        }
        return figures, [
            Claim("windows", "memory of last minute / second minute", last / second, MEMORY_GROWTH)
        ]

    def _check(self, case: str, run: EpochRun) -> None:
        if not run.is_right:
            self.wrong.append(f"{case}: found {run.found}, but the rows read give {run.right}")
