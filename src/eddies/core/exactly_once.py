"""Exactly once: every result is produced by the part that was stored last, and by no other.

Each base batch is stored under the next value of one counter. What it may match is whatever was
stored before it: since row ids count arrivals, "stored before" is a *limit* per source, and a probe
accepts a row only if its id is below the limit of the row's source. A joined batch descends from one
base batch (its *driver*) and keeps the driver's limits, however long it waits and whichever way it
goes. Take the parts of a result: the one stored last finds all others below its limits; any other
part, as a driver, does not find the one stored last. So each result appears once (SteMs, section 3.1:
TimeStamp, at the granularity of batches).

Self-joins. A stored row serves every role of its relation, and the batch that brings it drives once
for each role. Rows of that same batch must then meet each other exactly once: the driver in role i
accepts rows of its own batch only in roles with a higher number than i (SteM-31). So its limit is the
store's length after the batch for higher roles, and before it for lower ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eddies.core.graph import Graph

__all__ = ["NO_LIMIT", "EarlierOnly", "NoRule", "StampRule", "can_match"]

NO_LIMIT = 2**31 - 1


class StampRule(Protocol):
    """Decides the limits of a driver."""

    def limits(
        self, graph: Graph, driver: int, lengths_before: Sequence[int], lengths_after: Sequence[int]
    ) -> tuple[int, ...]:
        """For each source the first row id that the driver's batch must not match.

        `lengths_before` and `lengths_after` are the lengths of the relations' stores just before and
        just after the driver's batch was stored.
        """
        ...


def can_match(limits: Sequence[int], driver: int, sources: int = -1) -> bool:
    """Whether a driver can produce any result: some row of every other source was stored before it.
    `sources` are those that its results span.

    If not, it need not be routed at all: later rows will find it where it is stored (SteM-32).
    """
    if 0 not in limits:
        return True
    return all(
        limit > 0
        for source, limit in enumerate(limits)
        if source != driver and sources >> source & 1
    )


class EarlierOnly:
    """The rule. See the module docstring."""

    def limits(
        self, graph: Graph, driver: int, lengths_before: Sequence[int], lengths_after: Sequence[int]
    ) -> tuple[int, ...]:
        if len(graph.roles) == len(
            lengths_before
        ):  # no self-join: only the driver's store has grown
            return tuple(lengths_before)
        return tuple(
            lengths_after[role.relation]
            if role.source_id > driver
            else lengths_before[role.relation]
            for role in graph.roles
        )


class NoRule:
    """No rule at all: everything stored may match. Wrong on purpose; shows that the rule is needed."""

    def limits(
        self, graph: Graph, driver: int, lengths_before: Sequence[int], lengths_after: Sequence[int]
    ) -> tuple[int, ...]:
        return (NO_LIMIT,) * len(graph.roles)
