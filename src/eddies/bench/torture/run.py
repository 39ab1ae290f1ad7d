"""`eddies bench torture`, shown: who finished, how long it took, and how we rank.

The exit code tells about answers, never about speed: 1 if engines that finished disagree, else 0.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eddies.bench.answers import Row, difference, plain_rows
from eddies.bench.claims import Claim, verdicts, wide_console
from eddies.bench.storage import Files, default_data_folder
from eddies.bench.torture.child import WARM_UP_SCALE
from eddies.bench.torture.engines import ENGINES, OURS, open_engine
from eddies.bench.torture.shapes import SHAPES, Shape
from eddies.bench.torture.watchdog import Limits, Outcome, run_within
from eddies.errors import OptionError

__all__ = ["Tried", "main"]

FULL_SCALE = 1.0
TO_BEST_AT_MOST = 3.0
AMONG_BEST = 2  # first or second
AMONG_BEST_SHARE = 2 / 3


@dataclass(frozen=True, slots=True)
class Tried:
    """A shape and what became of every engine on it."""

    shape: Shape
    outcome_by_engine: dict[str, Outcome]
    reference_rows: list[Row] | None = None

    @property
    def seconds_by_engine(self) -> dict[str, float]:
        """Medians of those that finished, the fastest first."""
        seconds = {
            engine: statistics.median(outcome.seconds)
            for engine, outcome in self.outcome_by_engine.items()
            if outcome.status == "finished"
        }
        return dict(sorted(seconds.items(), key=lambda item: item[1]))

    def beside(self, ours: str) -> dict[str, float]:
        """`seconds_by_engine` of one of ours and of all rivals; we are no rival of ourselves."""
        seconds = self.seconds_by_engine
        return {name: s for name, s in seconds.items() if name == ours or name not in OURS}

    def rank(self, ours: str = "us") -> int | None:
        """Our place, from 1; None if we did not finish."""
        order = list(self.beside(ours))
        return order.index(ours) + 1 if ours in order else None

    @property
    def differences(self) -> list[str]:
        """Sentences on engines whose answer is not the reference's."""
        answers = {
            engine: outcome.rows
            for engine, outcome in self.outcome_by_engine.items()
            if outcome.rows is not None
        }
        if self.reference_rows is not None:
            answers["reference"] = self.reference_rows
        if not answers:
            return []
        known = ("reference", "duckdb_tables", "duckdb_views", *answers)
        reference = next(name for name in known if name in answers)
        found = {name: difference(rows, answers[reference]) for name, rows in answers.items()}
        return [
            f"{name}: {text} (of {reference})" for name, text in found.items() if text is not None
        ]


def main(
    shapes: Sequence[str] = (),
    engines: Sequence[str] = (),
    *,
    data_folder: Path | None = None,
    json_path: Path | None = None,
    scale: float = FULL_SCALE,
    limits: Limits | None = None,
    console: Console | None = None,
) -> int:
    """Try every engine (or `engines`) on every shape (or `shapes`), each in its own process."""
    limits = limits or Limits()
    chosen_shapes = [SHAPES[name] for name in _chosen("shape", shapes, list(SHAPES))]
    chosen_engines = _chosen("engine", engines, list(ENGINES))
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise OptionError(f"--json {json_path}: there is no folder {json_path.absolute().parent}")
    console = console or wide_console()
    console.print(
        f"Each engine and shape in a process of its own, at most {limits.query_s:g} s and "
        f"{limits.memory_bytes / 1e9:g} GB. Timed is the query, reading Parquet included, from files "
        "that the system has in memory; starting the engine and a warm-up on a hundredth of the "
        "tables are not."
    )
    folder = data_folder or default_data_folder()
    done: list[Tried] = []
    for shape in chosen_shapes:
        done.append(_try_aloud(shape, chosen_engines, folder, scale, limits, console))
        if json_path is not None:  # after every shape: an interrupted run keeps what it has
            report = {tried.shape.name: as_json(tried) for tried in done}
            json_path.write_text(json.dumps(report, indent=2) + "\n")
    console.print(_figures(done, chosen_engines))
    for ours in OURS:
        if ours in chosen_engines:
            console.print(verdicts(claims_of(done, ours), is_judged=scale >= FULL_SCALE))
    wrong = [(tried.shape.name, text) for tried in done for text in tried.differences]
    for name, text in wrong:
        console.print(f"{name}: answers differ: {text}", style="bold red", markup=False)
    if not wrong:
        console.print("All engines that finished gave the same answers.")
    return 1 if wrong else 0


def claims_of(done: Sequence[Tried], ours: str = "us") -> list[Claim]:
    """We finish everything, never far from the best, and mostly among the best."""
    name = OURS[ours]
    finished = [tried for tried in done if tried.rank(ours) is not None]
    what = f"shapes finished by {name}"
    claims = [Claim("all shapes", what, len(finished), len(done), at_least=True)]
    for tried in finished:
        seconds = tried.beside(ours)
        ratio = seconds[ours] / next(iter(seconds.values()))
        claims.append(Claim(tried.shape.name, f"{name} / best engine", ratio, TO_BEST_AT_MOST))
    ranks = [tried.rank(ours) for tried in done]
    n_good = sum(rank is not None and rank <= AMONG_BEST for rank in ranks)
    share = n_good / max(1, len(done))
    what = f"{name} first or second, share"
    claims.append(Claim("all shapes", what, share, AMONG_BEST_SHARE, at_least=True))
    return claims


def as_json(tried: Tried) -> dict[str, object]:
    """By engine: status, median and all seconds, peak memory, message."""
    report: dict[str, object] = {
        engine: {
            "status": outcome.status,
            "seconds": tried.seconds_by_engine.get(engine),
            "runs": outcome.seconds,
            "peak_bytes": outcome.peak_bytes,
            "message": outcome.message,
        }
        for engine, outcome in tried.outcome_by_engine.items()
    }
    return report | {"our_rank": tried.rank(), "differences": tried.differences}


def _chosen(what: str, names: Sequence[str], known: list[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise OptionError(f"there is no {what} {name!r}; choose from {', '.join(known)}")
    return [name for name in known if not names or name in names]


def _try_aloud(
    shape: Shape,
    engines: Sequence[str],
    folder: Path,
    scale: float,
    limits: Limits,
    console: Console,
) -> Tried:
    console.print(f"{shape.name}: {shape.title}", markup=False)
    outcome_by_engine: dict[str, Outcome] = {}
    with console.status("making tables") as status:
        for size in (WARM_UP_SCALE * scale, scale):
            _read_once(shape.files(folder, size))
        for engine in engines:
            status.update(f"{shape.name}: {engine}")
            command = [sys.executable, "-m", "eddies.bench.torture.child", engine, shape.name]
            outcome = run_within([*command, str(folder), f"{scale:g}"], limits)
            outcome_by_engine[engine] = outcome
            console.print(f"    {engine}: {_in_words(outcome)}", markup=False)
        status.update(f"{shape.name}: reference")
        return Tried(shape, outcome_by_engine, _reference_rows(shape, shape.files(folder, scale)))


def _read_once(files: Files) -> None:
    """Bring files into the page cache, or else the first engine pays for all."""
    for path in files.values():
        for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if part.is_file():
                with part.open("rb") as file:
                    while file.read(1 << 24):
                        pass


def _reference_rows(shape: Shape, files: Files) -> list[Row] | None:
    if shape.reference_sql is None:
        return None
    return plain_rows(open_engine("duckdb_tables", files)(shape.reference_sql))


def _in_words(outcome: Outcome) -> str:
    peak = f"{outcome.peak_bytes / 1e9:.1f} GB at most"
    if outcome.status == "finished":
        return f"{statistics.median(outcome.seconds):.2f} s, {peak}"
    return f"{outcome.status}, {peak} {outcome.message[:160]}".rstrip()


def _figures(done: Sequence[Tried], engines: Sequence[str]) -> Table:
    table = Table(
        title="Seconds, and in brackets the ratio to the best engine", title_justify="left"
    )
    table.add_column("shape", no_wrap=True)
    for engine in engines:
        table.add_column(engine.replace("_", "\n"), justify="right")
    table.add_column("our\nrank", justify="right")
    for tried in done:
        seconds = tried.seconds_by_engine
        best_s = next(iter(tried.beside("us").values()), next(iter(seconds.values()), 0.0))
        cells = [
            f"{seconds[engine]:.2f} ({seconds[engine] / best_s:.1f})"
            if engine in seconds
            else tried.outcome_by_engine[engine].status
            for engine in engines
        ]
        rank = tried.rank()
        table.add_row(tried.shape.name, *cells, "" if rank is None else str(rank))
    table.add_section()
    n_finished = [
        sum(tried.outcome_by_engine[engine].status == "finished" for tried in done)
        for engine in engines
    ]
    table.add_row("finished", *(f"{n} of {len(done)}" for n in n_finished), "", style="bold")
    return table
