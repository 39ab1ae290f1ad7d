"""`eddies figures`: run the papers' experiments, write numbers and pictures, check the claims.

    eddies figures                          # everything there is
    eddies figures eddies overheads         # the experiments of these papers
    eddies figures ED-X8 --json found.json  # one claim (and the experiment that settles it)

Every figure becomes NAME.csv and NAME.png in the folder given. A line is printed for each claim.
The exit code is 1 if a claim asked for does not hold.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from eddies.errors import OptionError
from eddies.observe.claims import Claim, Experiment, Figure

__all__ = ["EXPERIMENT_MODULES", "all_experiments", "main"]

EXPERIMENT_MODULES = (
    "eddies.experiments.selections",
    "eddies.experiments.joins",
    "eddies.experiments.external_indexes",
    "eddies.experiments.delays",
    "eddies.experiments.overheads",
    "eddies.experiments.index_joins",
    "eddies.experiments.competition",
    "eddies.experiments.theorems",
    "eddies.experiments.early_results",
    "eddies.experiments.early_results_states",
    "eddies.experiments.early_results_real",
    "eddies.experiments.stairs_tpch",
    "eddies.experiments.stairs_random",
    "eddies.experiments.stairs_regions",
)
"""Modules with a tuple `EXPERIMENTS`. To add a family of experiments, list its module here."""


def all_experiments() -> tuple[Experiment, ...]:
    """Every experiment, in the order of the papers."""
    from importlib import import_module

    found: list[Experiment] = []
    for module in EXPERIMENT_MODULES:
        found.extend(import_module(module).EXPERIMENTS)
    return tuple(found)


def main(names: Sequence[str], out_dir: Path, json_path: Path | None) -> int:
    """Run what `names` select (all if there are none); returns the exit code."""
    wanted = _wanted(names, all_experiments())
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    claims: list[Claim] = []
    for experiment, claim_names in wanted:
        started = time.perf_counter()
        finding = experiment.run()
        elapsed = time.perf_counter() - started
        for figure in finding.figures:
            _write(figure, out_dir)
        asked = [claim for claim in finding.claims if claim.name in claim_names]
        claims += asked
        for claim in asked:
            _say(claim)
        _print(f"    ({experiment.name}: {elapsed:.1f} s)")
    if json_path is not None:
        Path(json_path).write_text(
            json.dumps([claim.as_json() for claim in claims], indent=1) + "\n"
        )
    n_held = sum(claim.held for claim in claims)
    _print(f"{n_held} of {len(claims)} claims held; figures are in {out_dir}")
    return 0 if n_held == len(claims) else 1


def _wanted(
    names: Sequence[str], experiments: Sequence[Experiment]
) -> list[tuple[Experiment, tuple[str, ...]]]:
    """Experiments to run, each with the claims to report.

    A name is that of a paper, an experiment or a claim.
    """
    known = {e.group for e in experiments} | {e.name for e in experiments}
    known |= {claim for e in experiments for claim in e.claims}
    for name in names:
        if name not in known:
            raise OptionError(
                f"there is no figure {name!r}; choose among {', '.join(sorted(known))}"
            )
    wanted = []
    for experiment in experiments:
        claims = experiment.claims
        if names and experiment.group not in names and experiment.name not in names:
            claims = tuple(claim for claim in claims if claim in names)
        if claims:
            wanted.append((experiment, claims))
    return wanted


def _say(claim: Claim) -> None:
    word = "held" if claim.held else "NOT HELD"
    shown = claim.headline
    _print(f"{claim.name:6} {word:8}  {shown.what}: {shown.value:.4g} (bound {shown.bound})")
    for check in claim.checks:
        if not check.held and check is not shown:
            _print(f"{'':6} {'NOT HELD':8}  {check.what}: {check.value:.4g} (bound {check.bound})")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _write(figure: Figure, out_dir: Path) -> None:
    from eddies.observe.plots import draw

    columns = list(dict.fromkeys(name for row in figure.rows for name in row))
    with (out_dir / f"{figure.name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(figure.rows)
    draw(figure, out_dir / f"{figure.name}.png")
