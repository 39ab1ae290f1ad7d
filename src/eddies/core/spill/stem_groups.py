"""Partitions of SteMs as partition groups, so that the same flush policies serve them.

A group is one partition of one relation: its A side is what is stored, its B side the tuples that came
to probe it, which are not kept. An interval lasts from one flush to the next. Counting is sampled: one
probe in a few, and of that some tuples, are looked at, so that the statistics cost next to nothing.

Two quantities of the paper are not counted but follow from what is: matches are taken as local
output, and `unique` is set such that the expected matches of a group are those observed. A match
counts as much at one SteM as at another: routes change, so there is no operator "above".

Before anything has probed, no statistic tells groups apart. Then partitions of which a part is on disk
already go first, and after them those with the highest numbers, in every relation: what stays are
whole partitions, the same ones everywhere, and tuples that meet only these need not wait. And more goes
at once than was asked for: nobody has missed it yet, and what stays is copied by every flush.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eddies.core.spill.estimators import Ewma
from eddies.core.spill.flush_policies import FlushPolicy
from eddies.core.spill.groups import GroupTable, Victim
from eddies.core.spill.partitions import Partitions
from eddies.core.spill.resident import Resident

__all__ = ["ProbeCounts", "choose_partitions"]

Values = npt.NDArray[np.float64]
SAMPLED_RUNS = 4  # one probe in so many is looked at
SAMPLED_TUPLES = 2048
_ALPHA = 0.5
_UNASKED_SHARE = 0.75  # of what is in memory that one flush writes while nobody has probed


class ProbeCounts:
    """Probes and matches of one relation by partition, since the last flush and as statistics."""

    def __init__(self, n_partitions: int) -> None:
        self._n_partitions = n_partitions
        self._n_runs = 0
        self._probes = np.zeros(n_partitions)
        self._matches = np.zeros(n_partitions)
        self._estimators = (Ewma(_ALPHA), Ewma(_ALPHA))
        self._n_arrived = 0

    def is_sampled(self) -> bool:
        """Whether to look at the probe that is about to run."""
        self._n_runs += 1
        return self._n_runs % SAMPLED_RUNS == 1

    def saw_probes(self, partitions: Partitions | None, n: int) -> None:
        """`n` tuples probe; `partitions` are those of a sample (None: they may need any)."""
        if partitions is None or not partitions.shape[0]:
            self._probes += n / self._n_partitions
        else:
            counts = np.bincount(partitions, minlength=self._n_partitions)
            self._probes += counts * (n / partitions.shape[0])

    def saw_matches(self, partitions: Partitions, n: int) -> None:
        """`n` matches were found; `partitions` are those of a sample of them."""
        if partitions.shape[0]:
            counts = np.bincount(partitions, minlength=self._n_partitions)
            self._matches += counts * (n / partitions.shape[0])

    def fold(self, n_arrived: int) -> tuple[Values, Values, float]:
        """A flush is due: statistics of probes and matches, and rows that came meanwhile."""
        came = float(n_arrived - self._n_arrived)
        self._n_arrived = n_arrived
        probes = self._estimators[0].fold(self._probes)
        matches = self._estimators[1].fold(self._matches)
        self._probes[:] = 0.0
        self._matches[:] = 0.0
        return probes, matches, came


def choose_partitions(
    residents: Sequence[Resident],
    counts: Sequence[ProbeCounts],
    policy: FlushPolicy,
    n_bytes: float,
) -> list[Victim]:
    """Partitions (operator = relation, group = partition) to flush, to free about `n_bytes`."""
    held = [resident.rows_by_partition() for resident in residents]
    folded = [
        count.fold(resident.n_arrived) for count, resident in zip(counts, residents, strict=True)
    ]
    row_bytes = [max(1.0, r.n_bytes_ahead / max(1, r.n_rows)) for r in residents]
    if not any(probes.any() for probes, _, _ in folded):
        in_memory = sum(float(h.sum()) * b for h, b in zip(held, row_bytes, strict=True))
        return _in_order(residents, held, row_bytes, max(n_bytes, _UNASKED_SHARE * in_memory))
    numbers = range(len(residents))
    if policy.is_local:
        numbers = range(*_largest(held, row_bytes))
    table = _table(numbers, held, folded, row_bytes)
    return policy.choose(table, n_bytes)


def _largest(held: Sequence[npt.NDArray[np.int64]], row_bytes: Sequence[float]) -> tuple[int, int]:
    """The range of one: the relation that takes most memory."""
    sizes = [float(h.sum()) * b for h, b in zip(held, row_bytes, strict=True)]
    number = int(np.argmax(sizes))
    return number, number + 1


def _in_order(
    residents: Sequence[Resident],
    held: Sequence[npt.NDArray[np.int64]],
    row_bytes: Sequence[float],
    n_bytes: float,
) -> list[Victim]:
    waiting = [
        (not resident.flushed.is_on_disk[partition], -partition, number)
        for number, resident in enumerate(residents)
        for partition in np.flatnonzero(held[number])
    ]
    victims = []
    for _, partition, number in sorted(waiting):
        if n_bytes <= 0:
            break
        victims.append(Victim(number, -int(partition)))
        n_bytes -= float(held[number][-partition]) * row_bytes[number]
    return victims


def _table(
    numbers: Sequence[int],
    held: Sequence[npt.NDArray[np.int64]],
    folded: Sequence[tuple[Values, Values, float]],
    row_bytes: Sequence[float],
) -> GroupTable:
    n_partitions = len(held[0])
    probes = np.concatenate([folded[number][0] for number in numbers])
    matches = np.concatenate([folded[number][1] for number in numbers])
    size = np.concatenate([held[number] for number in numbers])
    came = np.repeat([folded[number][2] / n_partitions for number in numbers], n_partitions)
    n = len(size)
    return GroupTable(
        operator=np.repeat(np.array(numbers), n_partitions),
        group=np.tile(np.arange(n_partitions), len(numbers)),
        size_a=size,
        size_b=np.zeros(n, dtype=np.int64),
        bytes_a=np.repeat([row_bytes[number] for number in numbers], n_partitions),
        bytes_b=np.ones(n),
        input_a=came,
        input_b=probes,
        input_total=float(came.sum() + probes.sum()),
        unique=size * probes / np.maximum(matches, 1.0),
        local=matches,
        globally=matches,
        is_root=np.zeros(n, dtype=np.bool_),
    )
