"""Fair timing on a noisy machine: contestants take turns, and medians are compared.

Whatever disturbs a shared machine lasts for seconds. If one engine ran all its repetitions before
the next began, a disturbance would hit one of them alone; taking turns spreads it over all. The
order within a turn rotates, so that nobody is always the first or the last.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Answer", "Contestant", "Timing", "take_turns"]

Answer = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contestant:
    """`run` is timed and gives the answer; `prepare` sets the engine up before it, untimed."""

    name: str
    run: Callable[[], Answer]
    prepare: Callable[[], None] | None = None


@dataclass(slots=True)
class Timing:
    """What one contestant took and answered, the warm-up's answers included."""

    seconds: list[float] = field(default_factory=list)
    answers: set[Answer] = field(default_factory=set)
    is_retired: bool = False

    @property
    def median_s(self) -> float:
        """The median of the timed runs."""
        return statistics.median(self.seconds)


def take_turns(
    contestants: Sequence[Contestant],
    n_turns: int,
    on_run: Callable[[str], None] = lambda name: None,
    patience_s: float = math.inf,
) -> dict[str, Timing]:
    """Warm every contestant up once, then time `n_turns` runs of each, in turns.

    `on_run` is told who runs next, warm-ups included. Who takes longer than `patience_s` in a run
    does not run again; if that was the warm-up, it counts: what a warm-up adds is little beside it.
    """
    timing_by_name = {contestant.name: Timing() for contestant in contestants}
    gc.collect()
    gc.freeze()  # what is here already, compiled kernels above all, need not be walked every time
    try:
        for turn in range(n_turns + 1):
            start = turn % max(1, len(contestants))
            for contestant in (*contestants[start:], *contestants[:start]):
                timing = timing_by_name[contestant.name]
                if timing.is_retired:
                    continue
                on_run(contestant.name)
                seconds, answer = _timed(contestant)
                timing.answers.add(answer)
                timing.is_retired = seconds > patience_s
                if turn > 0 or timing.is_retired:
                    timing.seconds.append(seconds)
    finally:
        gc.unfreeze()
    return timing_by_name


def _timed(contestant: Contestant) -> tuple[float, Answer]:
    if contestant.prepare is not None:
        contestant.prepare()
    gc.collect()
    started = time.perf_counter()
    answer = contestant.run()
    return time.perf_counter() - started, answer
