"""`eddies bench core`: the eddy alone beside DuckDB and Polars, on Arrow tables in this process.

Every case runs all engines in one run, in turns (`timing`), checks that all answers are equal, and
sets the measured ratios beside the ones we claim. Only ratios mean something on another machine.

The exit code tells about answers, never about speed: 0 if all agree, 1 if any differ.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eddies.bench.cases import CASES, Case
from eddies.bench.claims import claims_of, verdicts
from eddies.bench.measure import BEST_TEXT, Measured, measure
from eddies.errors import OptionError

__all__ = ["MIN_REPEAT", "main"]

MIN_REPEAT = 5  # a median of fewer runs moves by more than the claims' margins on a shared machine
FULL_SCALE = 1.0
QUICK_SCALE = 0.05


def main(
    cases: Sequence[str] = (),
    repeat: int = MIN_REPEAT,
    json_path: Path | None = None,
    *,
    quick: bool = False,
    scale: float | None = None,
    console: Console | None = None,
) -> int:
    """Measure `cases` (all of them if none is named) and show the ratios.

    `quick` takes a twentieth of the rows, to see that everything runs: claims are not judged then.
    `scale` sets the size freely, for tests.
    """
    chosen = _chosen(cases)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise OptionError(f"--json {json_path}: there is no folder {json_path.absolute().parent}")
    console = console or Console(highlight=False)
    if repeat < MIN_REPEAT:
        console.print(f"Medians need at least {MIN_REPEAT} runs: {repeat} raised to {MIN_REPEAT}.")
        repeat = MIN_REPEAT
    if scale is None:
        scale = QUICK_SCALE if quick else FULL_SCALE
    if scale != FULL_SCALE:
        console.print(f"Tables have {scale:g} of their full size; claims are made for full size.")
    done: list[Measured] = []
    for case in chosen:
        done.append(_measure_aloud(case, repeat, scale, console))
        if json_path is not None:  # after every case: an interrupted run keeps what it has
            report = {measured.case.name: as_json(measured) for measured in done}
            json_path.write_text(json.dumps(report, indent=2) + "\n")
    claims = [claim for measured in done for claim in claims_of(measured)]
    console.print(_figures(done), verdicts(claims, is_judged=scale >= FULL_SCALE))
    return _report_answers(done, console)


def as_json(measured: Measured) -> dict[str, object]:
    """Seconds as `<name>_s`; the answer; and whatever else the case asks for."""
    report: dict[str, object] = {
        f"{name}_s": seconds for name, seconds in measured.median_s_by_name.items()
    }
    if measured.case.best_text is not None:
        report["us_worst_text_s"] = measured.median_s_by_name["us"]
    if measured.best_fixed_s is not None:
        report["us_best_order_s"] = measured.best_fixed_s
        report["us_fixed_s"] = measured.fixed_s_by_order
    if measured.memory is not None:
        report |= asdict(measured.memory)
    report["answers"] = [list(answer) for answer in measured.names_by_answer]
    report["claims"] = [asdict(claim) | {"held": claim.held} for claim in claims_of(measured)]
    return report


def _chosen(names: Sequence[str]) -> list[Case]:
    for name in names:
        if name not in CASES:
            raise OptionError(f"there is no case {name!r}; choose from {', '.join(CASES)}")
    return [case for name, case in CASES.items() if not names or name in names]


def _measure_aloud(case: Case, repeat: int, scale: float, console: Console) -> Measured:
    heading = f"{case.name}: {case.title}"
    with console.status(heading) as status:
        measured = measure(case, repeat, scale, lambda name: status.update(f"{heading} ({name})"))
    ratio = measured.median_s_by_name["us"] / measured.median_s_by_name["duckdb1"]
    console.print(f"{heading}: us / DuckDB {ratio:.2f}", markup=False)
    return measured


def _figures(done: Sequence[Measured]) -> Table:
    table = Table(title="Medians in seconds by threads, and ratios of them", title_justify="left")
    table.add_column("case", no_wrap=True)
    for name in ("us\n1", "us\n2", "DuckDB\n1", "DuckDB\n2", "Polars"):
        table.add_column(name, justify="right")
    for name in ("us 1 /\nDuckDB 1", "us 2 /\nDuckDB 2", "us 2 /\nPolars"):
        table.add_column(name, justify="right")
    for measured in done:
        median_s = measured.median_s_by_name
        for suffix in ("", BEST_TEXT):
            if f"us{suffix}" in median_s:
                table.add_row(*_figures_row(measured.case.name, median_s, suffix))
    return table


def _figures_row(case: str, median_s: dict[str, float], suffix: str) -> list[str]:
    def seconds(name: str) -> str:
        return f"{median_s[name + suffix]:.3f}" if name + suffix in median_s else ""

    def ratio(ours: str, theirs: str) -> str:
        if ours + suffix not in median_s:
            return ""
        return f"{median_s[ours + suffix] / median_s[theirs + suffix]:.2f}"

    return [
        f"{case} best" if suffix else case,
        *(seconds(name) for name in ("us", "us2", "duckdb1", "duckdb2", "polars")),
        ratio("us", "duckdb1"),
        ratio("us2", "duckdb2"),
        ratio("us2", "polars"),
    ]


def _report_answers(done: Sequence[Measured], console: Console) -> int:
    wrong = [measured for measured in done if not measured.agrees]
    for measured in wrong:
        console.print(f"Case {measured.case.name}: the answers differ.", style="bold red")
        for answer, names in measured.names_by_answer.items():
            console.print(f"  {answer}: {', '.join(names)}", markup=False)
    if not wrong:
        console.print("All engines gave the same answers in every run.")
    return 1 if wrong else 0
