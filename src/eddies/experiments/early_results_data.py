"""Inputs and runs of the experiments on early results (ER-33 and the set-up before it).

Data. What the paper says: 300,000 rows a source, keys "uniformly distributed" in a range, where "each
join key bucket is assigned to a source with equal probability", so that of the M buckets of an input
only X overlap at an operator. So a bucket is one of the partition groups; each source has a random half
of them (`PRESENT`), and its rows draw their keys from these, again and again. With K keys in all, n
joins give about `ROWS * (ROWS / K) ** n` results, however many buckets a source has. The range of the
paper, 600,000, gives 37,500 for three joins, too few for "the first 100,000"; ER-33 asks for ROWS / K
(`DENSITY`) of 0.8 to 1. It is 1 here, 300,000 results, because those 100,000 are "early query
feedback" and their figures do not show cleanup: they should be as small a part of all as can be. The
number of buckets is not given; with 512 seven sources are almost sure to have some in common.

Scale. One row here stands for ten of the paper's: 30,000 rows a source, "the first 10,000 results" for
100,000 (1,500 for 15,000), and costs a row ten times those of a machine of that time: 20 us to probe
and store a tuple, 10 us a result, 150 us to read a tuple back and 50 us to write it, 10 ms a seek. A
flush is one write ("when the percentage is very low, flushes occur often, causing delays"); a merge
needs a seek for each run of its group's longer side (many small ones are "less beneficial to the
disk-merge phase"). Costs are not in the paper; they are what they were before the data was made so.

Arrivals. A bursty source sends 1,000 rows at once and then pauses; pauses follow a Pareto
distribution (shape 1.5, cut at 60 times the shortest), scaled so that the source takes 300 s. A
steady one sends evenly and is done after 150 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from eddies.core.spill.pipeline import Pipeline
from eddies.core.spill.plan_run import Arrivals, Costs, Outcome, Settings

__all__ = ["ALGORITHMS", "OURS", "PRINTED", "Setup", "faults", "first", "run", "sources"]

ROWS = 30_000
DENSITY = 1.0
PRESENT = 0.5
N_GROUPS = 512
COSTS = Costs(tuple_s=2e-4, result_s=1e-4, read_s=1.5e-3, write_s=5e-4, seek_s=1e-2)
BURSTY_S, STEADY_S = 300.0, 150.0
BURST_ROWS, PACKET_ROWS = 1000, 50
BUSY_SHARE = 0.2
PARETO_SHAPE, LONGEST = 1.5, 60.0
SEED = 3

OURS = "AGF+SM, by group"
PRINTED = "AGF+SM, as printed"
ALGORITHMS: dict[str, dict[str, object]] = {
    OURS: {
        "flush": "adaptive-global",
        "disk_phase": "manager",
        "skip_hopeless": True,
        "cascade": True,
        "exact_bytes": True,
        "rebuild": True,
    },
    PRINTED: {"flush": "adaptive-global", "disk_phase": "manager"},
    "AGF only": {"flush": "adaptive-global", "disk_phase": "none"},
    "SM only": {"flush": "largest", "disk_phase": "manager"},
    "state-spill": {"flush": "state-spill", "disk_phase": "none", "clean_up": "plan"},
    "RPJ": {"flush": "rpj", "disk_phase": "local"},
    "HMJ": {"flush": "hmj", "disk_phase": "local"},
}


@dataclass(frozen=True, slots=True)
class Setup:
    """One cell of the experiments. `bursty` says it of each source; there is a join fewer."""

    bursty: tuple[bool, ...] = (True,) * 4
    memory_share: float = 0.10
    flush_share: float = 0.05
    seed: int = SEED


def first(n_paper: int) -> int:
    """The first `n_paper` results of the paper, at this scale."""
    return n_paper // 10


def sources(setup: Setup) -> tuple[list[Arrivals], int]:
    """The sources of a set-up, and the number of keys."""
    rng = np.random.default_rng(setup.seed)
    n_keys = int(ROWS / DENSITY)
    found = []
    for is_bursty in setup.bursty:
        has = np.zeros(N_GROUPS, dtype=np.bool_)
        has[rng.permutation(N_GROUPS)[: round(N_GROUPS * PRESENT)]] = True
        own = np.flatnonzero(has[np.arange(n_keys) % N_GROUPS]).astype(np.int32)
        keys = own[rng.integers(0, len(own), ROWS)]
        found.append(Arrivals(_moments(ROWS, is_bursty, rng), keys))
    return found, n_keys


def _moments(n: int, is_bursty: bool, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    n_bursts = -(-n // BURST_ROWS)
    total = BURSTY_S if is_bursty else STEADY_S
    pauses = np.minimum(rng.pareto(PARETO_SHAPE, n_bursts) + 1, LONGEST)
    if not is_bursty:
        pauses = np.ones(n_bursts)
    pauses *= total * (1 - BUSY_SHARE) / pauses.sum()
    one_burst = total * BUSY_SHARE / n_bursts
    starts = np.cumsum(pauses) - pauses[0] + np.arange(n_bursts) * one_burst
    if not is_bursty:
        one_burst = total / n_bursts
        starts = np.arange(n_bursts) * one_burst
    within = np.arange(BURST_ROWS) // PACKET_ROWS * PACKET_ROWS / BURST_ROWS * one_burst
    moments: npt.NDArray[np.float64] = (starts[:, None] + within[None, :]).ravel()[:n]
    return moments


@cache
def run(algorithm: str, setup: Setup) -> Outcome:
    """One run; the same one is made once."""
    arrivals, n_keys = sources(setup)
    total = sum(len(source.keys) for source in arrivals)
    settings = Settings(
        memory_tuples=setup.memory_share * total,
        flush_share=setup.flush_share,
        n_groups=N_GROUPS,
        costs=COSTS,
    )
    settings = replace(settings, **ALGORITHMS[algorithm])  # type: ignore[arg-type]
    outcome = Pipeline(arrivals, n_keys, settings).run()
    _CHECKED.append((algorithm, setup, faults(outcome, arrivals)))
    return outcome


_CHECKED: list[tuple[str, Setup, int]] = []


def checked_runs() -> list[tuple[str, Setup, int]]:
    """All runs so far, with the number of results missing from or too many in each."""
    return list(_CHECKED)


def faults(outcome: Outcome, arrivals: list[Arrivals]) -> int:
    """Results that are missing, wrong or there twice."""
    found = np.concatenate(outcome.results) if outcome.results else np.empty((0, len(arrivals)))
    keys = [source.keys[found[:, i].astype(np.intp)] for i, source in enumerate(arrivals)]
    wrong = int(sum((other != keys[0]).sum() for other in keys[1:]))
    duplicates = len(found) - len(np.unique(found, axis=0))
    n_keys = 1 + max(int(source.keys.max()) for source in arrivals)
    counts = [np.bincount(source.keys, minlength=n_keys) for source in arrivals]
    n_right = int(np.prod(np.stack(counts), axis=0).sum())
    return wrong + duplicates + abs(n_right - (len(found) - duplicates))
