"""Which groups to write to disk: the policies of the paper and those it is compared with.

A policy sees statistics (`groups`) and gives victims, worst first, that make at least the wanted
bytes free. It touches no rows. What each heeds (ER-8):

    adaptive-global  contribution to the query's results, arrivals, and data: results expected for each
                     tuple held, over all operators
    state-spill      contribution only: results contributed so far for each tuple held
    hmj              arrivals only, operator by operator: the largest group that improves the balance
                     between the operator's two inputs (hash-merge join)
    rpj              arrivals and data, operator by operator: the single partition that the next
                     arrivals are least likely to match (rate-based progressive join)
    largest          the largest group (XJoin)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from eddies.core.spill.groups import ONLY_A, ONLY_B, GroupTable, Victim
from eddies.errors import OptionError

__all__ = ["FLUSH_POLICIES", "FlushName", "FlushPolicy", "expected_results", "make_flush_policy"]

Values = npt.NDArray[np.float64]
FlushName = Literal["adaptive-global", "state-spill", "hmj", "rpj", "largest"]
FLUSH_POLICIES: tuple[FlushName, ...] = (
    "adaptive-global",
    "state-spill",
    "hmj",
    "rpj",
    "largest",
)


class FlushPolicy(Protocol):
    """`is_local` policies are asked about one operator at a time, the one that exceeds its share."""

    is_local: bool

    def choose(self, groups: GroupTable, n_bytes: float) -> list[Victim]:
        """Victims that free at least `n_bytes`, or all there are."""
        ...


def expected_results(groups: GroupTable, n_bytes: float) -> Values:
    """Results of the query expected of each group before the next flush (ER-15 to ER-17).

    Until the next flush `n_bytes` will come in. They are distributed as the last ones were.
    """
    total = groups.input_total
    share = n_bytes / total if total > 0 else 0.0
    input_a = share * groups.input_a / groups.bytes_a
    input_b = share * groups.input_b / groups.bytes_b
    unique = np.maximum(groups.unique, 1.0)
    of_held_a = groups.size_a * input_b / unique
    of_held_b = groups.size_b * input_a / unique
    of_new = input_a * input_b / unique
    results: Values = (of_held_a + of_held_b + of_new) * groups.contribution()
    return results


def _until(groups: GroupTable, order: Iterable[int], n_bytes: float) -> list[Victim]:
    """The groups in `order` that have tuples, until `n_bytes` are freed."""
    sizes, freed = groups.n_bytes, 0.0
    victims = []
    for i in order:
        if freed >= n_bytes:
            break
        if sizes[i] > 0:
            victims.append(Victim(int(groups.operator[i]), int(groups.group[i])))
            freed += float(sizes[i])
    return victims


def _by_score(groups: GroupTable, score: Values) -> npt.NDArray[np.intp]:
    """Lowest score first; equal ones by size, the larger first (ER-20)."""
    return np.lexsort((-groups.size, score))


class AdaptiveGlobalFlush:
    """Results expected for each tuple held, lowest first (ER-18)."""

    is_local = False

    def choose(self, groups: GroupTable, n_bytes: float) -> list[Victim]:
        score = expected_results(groups, n_bytes) / np.maximum(groups.size, 1)
        return _until(groups, _by_score(groups, score), n_bytes)


class StateSpill:
    """Results contributed in the last interval for each tuple held, lowest first."""

    is_local = False

    def choose(self, groups: GroupTable, n_bytes: float) -> list[Victim]:
        score = groups.globally / np.maximum(groups.size, 1)
        return _until(groups, _by_score(groups, score), n_bytes)


class Largest:
    """The largest groups."""

    is_local = False

    def choose(self, groups: GroupTable, n_bytes: float) -> list[Victim]:
        return _until(groups, np.argsort(-groups.n_bytes, kind="stable"), n_bytes)


class HashMergeFlush:
    """Keeps the two inputs of an operator balanced; among groups that help, the largest."""

    is_local = True

    def choose(self, groups: GroupTable, n_bytes: float) -> list[Victim]:
        surplus = int(groups.size_a.sum() - groups.size_b.sum())
        size_a, size_b = groups.size_a.copy(), groups.size_b.copy()
        victims: list[Victim] = []
        freed = 0.0
        sizes = groups.n_bytes.copy()
        while freed < n_bytes and sizes.any():
            lean = size_a - size_b
            helps = (lean >= 0) if surplus >= 0 else (lean <= 0)
            candidates = np.where(helps & (sizes > 0), sizes, -1.0)
            if candidates.max() <= 0:
                candidates = sizes
            worst = int(candidates.argmax())
            victims.append(Victim(int(groups.operator[worst]), int(groups.group[worst])))
            freed += float(sizes[worst])
            surplus -= int(lean[worst])
            sizes[worst] = 0.0
        return victims


class RateBasedFlush:
    """One partition at a time: the one whose tuples the next arrivals are least likely to match."""

    is_local = True

    def choose(self, groups: GroupTable, n_bytes: float) -> list[Victim]:
        unique = np.maximum(groups.unique, 1.0)
        score = np.concatenate([groups.input_b / unique, groups.input_a / unique])
        held = np.concatenate([groups.size_a * groups.bytes_a, groups.size_b * groups.bytes_b])
        n = len(groups.operator)
        victims: list[Victim] = []
        freed = 0.0
        for i in np.lexsort((-held, score)):
            if freed >= n_bytes:
                break
            if held[i] > 0:
                side = ONLY_A if i < n else ONLY_B
                row = int(i) % n
                victims.append(Victim(int(groups.operator[row]), int(groups.group[row]), side))
                freed += float(held[i])
        return victims


def make_flush_policy(name: str) -> FlushPolicy:
    """A policy by its name."""
    policies: dict[str, type[FlushPolicy]] = {
        "adaptive-global": AdaptiveGlobalFlush,
        "state-spill": StateSpill,
        "hmj": HashMergeFlush,
        "rpj": RateBasedFlush,
        "largest": Largest,
    }
    if name not in policies:
        raise OptionError(f"unknown flush policy {name!r}; choose one of {', '.join(policies)}")
    return policies[name]()
