"""What goes into a run of a plan under memory pressure, and what comes out of it (see `pipeline`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from eddies.core.spill.estimators import EstimatorName
from eddies.core.spill.join_operator import Rows
from eddies.core.spill.state_manager import Direction

__all__ = ["Arrivals", "CleanUp", "Costs", "DiskPhase", "Outcome", "Settings"]

DiskPhase = Literal["none", "manager", "local"]
CleanUp = Literal["operator", "plan"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The tuples of one source: when each comes (seconds, rising) and its key."""

    moments: npt.NDArray[np.float64]
    keys: Rows


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. Defaults are of the order of the machines of the paper's time."""

    tuple_s: float = 25e-6
    result_s: float = 10e-6
    read_s: float = 60e-6
    write_s: float = 60e-6
    seek_s: float = 10e-3


@dataclass(frozen=True, slots=True)
class Settings:
    """How a plan is run. Memory and buffer in tuples of one source; larger ones count more."""

    memory_tuples: float
    flush: str = "adaptive-global"
    disk_phase: DiskPhase = "manager"
    clean_up: CleanUp = "operator"
    flush_share: float = 0.05
    n_groups: int = 40
    interval_s: float = 5.0
    estimator: EstimatorName = "ewma"
    alpha: float = 0.5
    buffer_share: float = 0.25
    silence_s: float = 0.5
    skip_hopeless: bool = False
    cascade: bool = False
    exact_bytes: bool = False
    rebuild: bool = False
    costs: Costs = Costs()


@dataclass(slots=True)
class Outcome:
    """What a run gave: result counts over time, and what happened."""

    moments: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    results: list[Rows] = field(default_factory=list)
    cleanup_s: float = 0.0
    end_s: float = 0.0
    n_flushes: int = 0
    n_merges: int = 0
    n_early_merges: int = 0
    directions: list[Direction] = field(default_factory=list)

    def time_to(self, n_results: int) -> float:
        """When the first `n_results` were out; infinite if there are fewer."""
        at = int(np.searchsorted(self.counts, n_results))
        return self.moments[at] if at < len(self.moments) else float("inf")

    def results_at(self, moment: float) -> int:
        """How many results were out by then."""
        at = int(np.searchsorted(self.moments, moment, side="right"))
        return self.counts[at - 1] if at else 0
