"""What an experiment finds: checks of a paper's claims, and the numbers behind a figure.

A `Claim` is one line of a paper's table of results. It consists of *checks*: a measured value and
the range it must lie in. Bounds come from the papers or were set before anything was measured; a
claim that does not hold is reported with its real value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Check", "Claim", "Experiment", "Figure", "Finding", "Panel", "Series"]

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Check:
    """`value` of `what` must lie between `low` and `high`; strictly, if `strict`."""

    what: str
    value: float
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    @property
    def held(self) -> bool:
        """Whether what was measured agrees."""
        if self.strict:
            return self.low < self.value < self.high
        return self.low <= self.value <= self.high

    @property
    def bound(self) -> str:
        """The range as text.

        >>> Check("ratio", 1.0, high=1.1).bound, Check("share", 0.5, 0.45, 0.55).bound
        ('<= 1.1', '0.45 .. 0.55')
        """
        if self.low == -math.inf and self.high == math.inf:
            return "none"
        less = "<" if self.strict else "<="
        if self.low == -math.inf:
            return f"{less} {self.high:.6g}"
        if self.high == math.inf:
            return f"{less.replace('<', '>')} {self.low:.6g}"
        return f"{self.low:.6g} .. {self.high:.6g}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim by its name in the project's tables, such as "ED-X1"; holds if all checks do."""

    name: str
    text: str
    checks: tuple[Check, ...]

    @property
    def held(self) -> bool:
        """Whether what was measured agrees."""
        return all(check.held for check in self.checks)

    @property
    def headline(self) -> Check:
        """The check to show when there is room for one: one that failed, or the first."""
        return next((check for check in self.checks if not check.held), self.checks[0])

    def as_json(self) -> dict[str, object]:
        """The claim as plain values, with all its checks."""
        shown = self.headline
        return {
            "claim": self.name,
            "held": self.held,
            "value": shown.value,
            "bound": shown.bound,
            "what": shown.what,
            "text": self.text,
            "checks": [
                {"what": c.what, "value": c.value, "bound": c.bound, "held": c.held}
                for c in self.checks
            ],
        }


@dataclass(frozen=True, slots=True)
class Series:
    """One line (or one group of bars) of a panel."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram. Labels carry units; `marks` are horizontal lines by their text."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: Literal["lines", "bars"] = "lines"
    log_y: bool = False
    marks: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture and its numbers; `name` is that of the files, without suffix."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of an experiment."""

    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Something to run: belongs to a paper (`group`) and settles the claims named."""

    name: str
    group: str
    claims: tuple[str, ...]
    run: Callable[[], Finding]
