"""What flush policies see: one row for every partition group of every operator (ER, Table 1).

A partition group j of a join is the pair (A_j, B_j) of the partitions of its two inputs. Under SteMs a
group is one partition of one relation: A is what is stored, B the tuples that came to probe it and
were not kept. All statistics are vectors over the groups, so that scoring thousands of groups is a few
operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BOTH", "GroupTable", "Victim"]

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

ONLY_A, ONLY_B, BOTH = "A", "B", "AB"


@dataclass(frozen=True, slots=True)
class Victim:
    """A group to flush, and which of its sides."""

    operator: int
    group: int
    sides: str = BOTH


@dataclass(slots=True)
class GroupTable:
    """Groups of all operators. Sizes and `unique` are exact; inputs and outputs are estimates.

    `size_a`, `size_b`    tuples in memory now (prtSize)
    `bytes_a`, `bytes_b`  bytes of one tuple (tupSize)
    `input_a`, `input_b`  tuples received in an interval (prtInput)
    `input_total`         the same over the whole plan (input_tot)
    `unique`              different join values seen so far
    `local`, `globally`   tuples sent on, and query results contributed to, in an interval (obsLoc,
                          obsGlo)
    `is_root`             whether the operator's output is the query's
    """

    operator: Counts
    group: Counts
    size_a: Counts
    size_b: Counts
    bytes_a: Values
    bytes_b: Values
    input_a: Values
    input_b: Values
    input_total: float
    unique: Values
    local: Values
    globally: Values
    is_root: npt.NDArray[np.bool_]

    @property
    def size(self) -> Counts:
        """Tuples of both sides (grpSize)."""
        return self.size_a + self.size_b

    @property
    def n_bytes(self) -> Values:
        """Bytes of both sides."""
        return self.size_a * self.bytes_a + self.size_b * self.bytes_b

    def contribution(self) -> Values:
        """obsGlo / obsLoc: which share of a group's output becomes query results.

        At the root it is 1. Where a group has sent nothing on, the share of its whole operator is
        taken, and where that is unknown too, 1 (ER-20).
        """
        n_operators = int(self.operator.max()) + 1 if len(self.operator) else 0
        locally = np.bincount(self.operator, self.local, n_operators)
        globally = np.bincount(self.operator, self.globally, n_operators)
        overall = np.where(locally > 0, globally / np.maximum(locally, 1e-300), 1.0)
        own = self.globally / np.maximum(self.local, 1e-300)
        share = np.where(self.local > 0, own, overall[self.operator])
        return np.where(self.is_root, 1.0, share)
