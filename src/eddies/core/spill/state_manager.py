"""The state manager: when an operator should join flushed data instead of what arrives (ER-22 to 31).

Operators are looked at from the root down. At each the best disk group is compared with what the
operator yields in memory, both in query results a second; the first operator whose disk is worth more
merges that one group. Everything below it waits, for what it sent up would only have to be buffered;
everything above goes on, to take what the merge finds.

How fast the disk is read is not tuned by hand but measured: `DiskSpeed` follows what merges took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Direction", "DiskSpeed", "OperatorView", "State", "StateManager", "disk_results"]


class State(Enum):
    """What an operator does."""

    IN_MEMORY = "in memory"
    ON_DISK = "on disk"
    BLOCKED = "blocked"


def disk_results(
    disk_a: float, disk_b: float, held_a: float, held_b: float, unique: float
) -> float:
    """Local results that flushing (held_a, held_b) adds to a merge with what is on disk (ER-25).

    >>> disk_results(300, 60, 140, 10, 5)
    2280.0
    """
    return (disk_a * held_b + disk_b * held_a) / max(unique, 1.0)


class DiskSpeed:
    """Tuples read from disk in a second, as merges found it; `guess` until there was one."""

    def __init__(self, guess: float) -> None:
        self._guess = guess
        self._n_tuples = 0.0
        self._seconds = 0.0

    def saw(self, n_tuples: float, seconds: float) -> None:
        """A merge read `n_tuples` in `seconds`. Older merges count less."""
        self._n_tuples = 0.8 * self._n_tuples + n_tuples
        self._seconds = 0.8 * self._seconds + seconds

    @property
    def tuples_per_second(self) -> float:
        return self._n_tuples / self._seconds if self._seconds > 0 else self._guess


@dataclass(frozen=True, slots=True)
class OperatorView:
    """What the state manager sees of an operator.

    `memory_throughput`  query results a second it contributes to while joining in memory
    `disk_throughput`    for each of its disk groups query results for each tuple read (ER-27)
    `disk_sizes`         tuples in each of its disk groups
    `input_rate`         tuples a second that arrive at it and at the operators below
    `below`              numbers of the operators below it
    """

    memory_throughput: float
    disk_throughput: Sequence[float]
    disk_sizes: Sequence[float]
    input_rate: float
    below: frozenset[int]


@dataclass(frozen=True, slots=True)
class Direction:
    """What all operators should do; `group` of `operator` is merged, if any is."""

    states: tuple[State, ...]
    operator: int = -1
    group: int = -1


class StateManager:
    """Chooses states. `buffer_tuples` is how many arrivals can wait while operators are blocked."""

    def __init__(self, disk: DiskSpeed, buffer_tuples: float) -> None:
        self._disk = disk
        self._buffer_tuples = buffer_tuples

    def direct(self, operators: Sequence[OperatorView], top_down: Sequence[int]) -> Direction:
        """The states of all operators. `top_down` gives their numbers, the root's first."""
        for number in top_down:
            operator = operators[number]
            if not len(operator.disk_throughput):
                continue
            group = max(
                range(len(operator.disk_throughput)), key=operator.disk_throughput.__getitem__
            )
            results_per_second = operator.disk_throughput[group] * self._disk.tuples_per_second
            if results_per_second > operator.memory_throughput and self._has_room(operator, group):
                return Direction(self._states(operators, number), number, group)
        return Direction((State.IN_MEMORY,) * len(operators))

    def _has_room(self, operator: OperatorView, group: int) -> bool:
        """Whether what arrives during the merge fits into the buffers (ER-29)."""
        seconds = operator.disk_sizes[group] / self._disk.tuples_per_second
        return operator.input_rate * seconds < self._buffer_tuples

    def _states(self, operators: Sequence[OperatorView], on_disk: int) -> tuple[State, ...]:
        states = [State.IN_MEMORY] * len(operators)
        for number in operators[on_disk].below:
            states[number] = State.BLOCKED
        states[on_disk] = State.ON_DISK
        return tuple(states)
