"""What the demo shows: the trace of all eddies, summed up by tenths of the input, as it grows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table
from rich.text import Text

from eddies.demo.star import DIMENSIONS

__all__ = ["N_STEPS", "Trace", "routing_table"]

N_STEPS = 10  # tenths of the input
_BAR_WIDTH = 20  # the table fits 80 columns
_COLORS = ("cyan", "magenta", "yellow", "green")
_SIGNS = "█▓▒░"  # differ without colours too


@dataclass(slots=True)
class Trace:
    """Sums over the files that `Reporter`s write; `read` takes in what is new in them."""

    first_probes: list[Counter[str]] = field(
        default_factory=lambda: [Counter() for _ in range(N_STEPS)]
    )
    n_sales: int = 0
    n_probes: int = 0
    n_results: int = 0
    first_result_at: float | None = None
    _n_read_by_path: Counter[Path] = field(default_factory=Counter)

    def read(self, folder: Path) -> None:
        """Take in the complete lines that were written to `folder` since the last call."""
        for path in sorted(folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._n_read_by_path[path])
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._add(line)
                    self._n_read_by_path[path] += len(line)

    def _add(self, line: bytes) -> None:
        told = json.loads(line)
        step = min(int(told["position"] * N_STEPS), N_STEPS - 1)
        self.first_probes[step].update(told["first_probes"])
        self.n_sales += told["n_sales"]
        self.n_probes += told["n_probes"]
        self.n_results += told["n_results"]
        if told["n_results"] > 0 and (
            self.first_result_at is None or told["at"] < self.first_result_at
        ):
            self.first_result_at = told["at"]


def routing_table(trace: Trace) -> Table:
    """For each tenth of the input: which dimension the sales were sent to first."""
    table = Table(
        title="Where the eddies send sales first, by tenth of the input",
        title_style="bold",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("input", justify="right", no_wrap=True)
    table.add_column("share of the sales", no_wrap=True)
    for dimension, color, sign in zip(DIMENSIONS, _COLORS, _SIGNS, strict=True):
        header = Text(f"{sign} {dimension.table}", style=color)
        table.add_column(header, justify="right", no_wrap=True)
    for step, counts in enumerate(trace.first_probes):
        n_rows = counts.total()
        shares = [counts[d.table] / n_rows if n_rows else 0.0 for d in DIMENSIONS]
        table.add_row(
            f"{100 * (step + 1) // N_STEPS} %",
            _bar(shares),
            *(f"{share:.0%}" if n_rows else "" for share in shares),
        )
    return table


def _bar(shares: list[float]) -> Text:
    bar = Text()
    drawn, so_far = 0, 0.0
    for share, color, sign in zip(shares, _COLORS, _SIGNS, strict=True):
        so_far += share
        width = round(so_far * _BAR_WIDTH) - drawn
        bar.append(sign * width, style=color)
        drawn += width
    return bar
