"""`eddies bench spark`, shown: seconds and ratios by case, means by group, and the claims.

The exit code tells about answers, never about speed: 0 if every engine answered, and alike, 1 if not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table

from eddies.bench.claims import verdicts, wide_console
from eddies.bench.spark.cases import LARGE_SCALE, Case, cases_at, chosen
from eddies.bench.spark.claims import claims_of
from eddies.bench.spark.engines import ENGINES, Arena, arena
from eddies.bench.spark.measure import US_BEST, Measured, measure
from eddies.bench.storage import default_data_folder
from eddies.errors import OptionError

__all__ = ["MIN_REPEAT", "main"]

MIN_REPEAT = 3
FULL_SCALE = 1.0
TIME_LIMIT_S = 120.0
RATIOS = (
    ("us /\nSpark", "us", "spark"),
    ("us /\nSpark CBO", "us", "spark_cbo"),
    ("us /\nDuckDB", "us", "duckdb2"),
    ("us worst /\nbest", "us", US_BEST),
)


def main(
    cases: Sequence[str] = (),
    *,
    engines: Sequence[str] = (),
    scale: float = FULL_SCALE,
    repeat: int = MIN_REPEAT,
    exchange: bool = False,
    cache: str | None = None,
    data_folder: Path | None = None,
    json_path: Path | None = None,
    limit_s: float = TIME_LIMIT_S,
    console: Console | None = None,
) -> int:
    """Measure `cases` (names or patterns; all if none) on `engines` (all if none), show the ratios.

    With `cache`, our workers keep decoded columns: what is claimed is about reading files, so
    nothing is judged then.
    """
    selected = chosen(cases_at(scale), cases)
    names = _chosen_engines(engines)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise OptionError(f"--json {json_path}: there is no folder {json_path.absolute().parent}")
    console = console or wide_console()
    if repeat < MIN_REPEAT and scale >= FULL_SCALE:
        console.print(f"Medians need at least {MIN_REPEAT} runs: {repeat} raised to {MIN_REPEAT}.")
        repeat = MIN_REPEAT
    console.print(
        f"Scale {scale:g}, our inputs are {'DataFrames' if exchange else 'paths of Parquet files'}"
        + (f", of which every worker keeps {cache} decoded." if cache else ".")
    )
    folder = data_folder or default_data_folder()
    done: list[Measured] = []
    with arena(limit_s, exchange=exchange, cache=cache) as engines_on_spark:
        for case in selected:
            done.append(
                _measure_aloud(case, engines_on_spark, names, selected, folder, repeat, console)
            )
            if json_path is not None:  # after every case: an interrupted run keeps what it has
                report = {measured.case.name: as_json(measured) for measured in done}
                json_path.write_text(json.dumps(report, indent=2) + "\n")
    console.print(_figures(done))
    is_judged = scale in (FULL_SCALE, LARGE_SCALE) and cache is None
    console.print(verdicts(claims_of(done, scale, exchange=exchange), is_judged=is_judged))
    return _report_answers(done, console)


def as_json(measured: Measured) -> dict[str, object]:
    """Seconds as `<name>_s`, and what went wrong."""
    report: dict[str, object] = {
        f"{name}_s": round(seconds, 4) for name, seconds in measured.median_s_by_name.items()
    }
    report["n_joined"] = measured.case.n_joined
    report["is_bound"] = sorted(measured.is_bound)
    report["failures"] = measured.failures
    report["differences"] = measured.differences
    return report


def _chosen_engines(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in ENGINES:
            raise OptionError(f"there is no engine {name!r}; choose from {', '.join(ENGINES)}")
    return [name for name in ENGINES if not names or name in names]


def _measure_aloud(
    case: Case,
    engines_on_spark: Arena,
    engines: Sequence[str],
    selected: Sequence[Case],
    folder: Path,
    repeat: int,
    console: Console,
) -> Measured:
    with console.status(f"{case.name}: tables") as status:
        files = case.files(folder)
        status.update(f"{case.name}: statistics")
        texts = [other.sql for other in selected if other.data_set == case.data_set]
        asks = engines_on_spark.ask_by_engine(case.data_set, files, texts, engines)
        measured = measure(
            case, asks, repeat, lambda name: status.update(f"{case.name}: {case.title} ({name})")
        )
    figures = [
        f"{name} {'> ' if name in measured.is_bound else ''}{seconds:.2f} s"
        for name, seconds in measured.median_s_by_name.items()
    ]
    figures += [f"{name} failed" for name in measured.failures]
    console.print(f"{case.name}: {', '.join(figures)}", markup=False)
    return measured


def _figures(done: Sequence[Measured]) -> Table:
    table = Table(title="Medians in seconds, and ratios of them", title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("joined\nsources", justify="right")
    names = [*ENGINES, US_BEST]
    headings = ("us", "Spark", "Spark\nCBO", "DuckDB\n2", "us, best\norder")
    for heading in headings:
        table.add_column(heading, justify="right")
    for heading, _, _ in RATIOS:
        table.add_column(heading, justify="right")
    for group in dict.fromkeys(measured.case.group for measured in done):
        members = [measured for measured in done if measured.case.group == group]
        for measured in members:
            table.add_row(
                measured.case.name,
                str(measured.case.n_joined),
                *(_seconds(measured, name) for name in names),
                *(_ratio([measured], above, below) for _, above, below in RATIOS),
            )
        table.add_row(
            f"{group}, mean",
            "",
            *("" for _ in names),
            *(_ratio(members, above, below) for _, above, below in RATIOS),
            end_section=True,
            style="bold",
        )
    return table


def _seconds(measured: Measured, name: str) -> str:
    if name in measured.failures:
        return "failed"
    if name not in measured.median_s_by_name:
        return ""
    bound = ">" if name in measured.is_bound else ""
    return f"{bound}{measured.median_s_by_name[name]:.2f}"


def _ratio(members: Iterable[Measured], above: str, below: str) -> str:
    ratios = [measured.ratio(above, below) for measured in members]
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{geometric_mean(known):.2f}" if known else ""


def _report_answers(done: Sequence[Measured], console: Console) -> int:
    for measured in done:
        name = measured.case.name
        for engine, text in measured.failures.items():
            console.print(
                f"{name}: {engine} gave no answer: {text[:500]}", style="red", markup=False
            )
        for engine, text in measured.differences.items():
            console.print(f"{name}: {engine} differs: {text}", style="bold red", markup=False)
    if all(measured.is_right for measured in done):
        console.print("All engines gave the same answers.")
        return 0
    return 1
