"""A symmetric hash join in partition groups, parts of which are on (simulated) disk (ER-1 to ER-6).

Each side keeps its tuples in groups by key. A tuple probes the other side's tuples in memory and is
stored. A flush takes groups out of memory; a merge joins what is on disk of one group.

Exactly once, for any flush policy, even one that takes a single side: the operator counts its
batches, and a tuple is in memory from the count at which it came to the count at which it was
flushed. Two tuples met in memory if and only if these intervals overlap. On disk, a merge joins all
pairs of a group that have not met, and marks the tuples: pairs of marked tuples have met. (Where both
sides are always flushed together, this is the rule of the paper: runs with different numbers are
joined, merged runs count as one.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddies.core.kernels.chains import count_chains, follow_chains, link_rows

__all__ = ["JoinOperator", "JoinSide", "Tuples"]

Rows = npt.NDArray[np.int32]
_STAYS = 2**62
_FIRST_ROOM = 1024


class Tuples:
    """A batch: join keys and, for every source spanned, row ids (a column each)."""

    __slots__ = ("ids", "keys")

    def __init__(self, keys: Rows, ids: Rows) -> None:
        self.keys = keys
        self.ids = ids

    def __len__(self) -> int:
        return int(self.keys.shape[0])


class JoinSide:
    """The tuples that came by one input. They keep their place; `head` finds those in memory."""

    def __init__(self, n_keys: int, n_groups: int, width: int) -> None:
        self.width = width  # sources that its tuples span
        self.n = 0
        self.keys: Rows = np.empty(_FIRST_ROOM, dtype=np.int32)
        self.ids: Rows = np.empty((_FIRST_ROOM, width), dtype=np.int32)
        self.came = np.empty(_FIRST_ROOM, dtype=np.int64)
        self.left = np.empty(_FIRST_ROOM, dtype=np.int64)
        self.is_merged = np.zeros(_FIRST_ROOM, dtype=np.bool_)
        self._behind: Rows = np.empty(_FIRST_ROOM, dtype=np.int32)
        self._head: Rows = np.full(n_keys, -1, dtype=np.int32)
        self._n_groups = n_groups
        self._resident: list[list[Rows]] = [[] for _ in range(n_groups)]
        self._on_disk: list[list[Rows]] = [[] for _ in range(n_groups)]
        self.size = np.zeros(n_groups, dtype=np.int64)
        self.disk_size = np.zeros(n_groups, dtype=np.int64)
        self.n_runs = np.zeros(
            n_groups, dtype=np.int64
        )  # on disk of each group; merged ones are one
        self.n_ever = np.zeros(n_groups, dtype=np.int64)

    def insert(self, tuples: Tuples, count: int, groups: Rows) -> None:
        first, last = self.n, self.n + len(tuples)
        self._reserve(last)
        self.keys[first:last] = tuples.keys
        self.ids[first:last] = tuples.ids
        self.came[first:last] = count
        self.left[first:last] = _STAYS
        link_rows(tuples.keys, first, self._head, self._behind)
        self.n = last
        rows = np.arange(first, last, dtype=np.int32)
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        bounds = np.flatnonzero(np.diff(ordered)) + 1
        for piece in np.split(order, bounds):
            if len(piece):
                self._resident[groups[piece[0]]].append(rows[piece])
        counts = np.bincount(groups, minlength=self._n_groups)
        self.size += counts
        self.n_ever += counts

    def _reserve(self, n: int) -> None:
        room = self.keys.shape[0]
        if n <= room:
            return
        room = max(n, 2 * room)
        for name in ("keys", "ids", "came", "left", "is_merged", "_behind"):
            old = getattr(self, name)
            grown = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
            grown[: old.shape[0]] = old
            setattr(self, name, grown)

    def probe(self, keys: Rows) -> tuple[Rows, Rows]:
        """Positions in `keys`, and the rows in memory that each finds."""
        n = count_chains(keys, self._head, self._behind)
        positions, rows = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        follow_chains(keys, self._head, self._behind, positions, rows)
        return positions, rows

    def flush(self, group: int, count: int) -> int:
        """Take a group out of memory; returns how many tuples."""
        if not self._resident[group]:
            return 0
        rows = np.concatenate(self._resident[group])
        self._resident[group] = []
        self._on_disk[group].append(rows)
        self.left[rows] = count
        self._head[group :: self._n_groups] = -1
        self.size[group] = 0
        self.disk_size[group] += len(rows)
        self.n_runs[group] += 1
        return len(rows)

    def in_memory(self, group: int) -> Rows:
        """The rows of a group that are in memory."""
        pieces = self._resident[group]
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0] if pieces else np.empty(0, dtype=np.int32)

    def on_disk(self, group: int) -> Rows:
        """The flushed rows of a group."""
        pieces = self._on_disk[group]
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0] if pieces else np.empty(0, dtype=np.int32)


class JoinOperator:
    """A join of two inputs, 0 (A) and 1 (B). The group of a key is its remainder."""

    def __init__(self, number: int, n_keys: int, n_groups: int, widths: tuple[int, int]) -> None:
        self.number = number
        self.n_groups = n_groups
        self.sides = [JoinSide(n_keys, n_groups, width) for width in widths]
        self._count = 0
        self._is_seen = np.zeros(n_keys, dtype=np.bool_)
        self.unique = np.zeros(n_groups, dtype=np.float64)
        self.input = [np.zeros(n_groups), np.zeros(n_groups)]
        self.local = np.zeros(n_groups)
        self.globally = np.zeros(n_groups)
        self.disk_results = np.zeros(n_groups)
        self.sent_in_memory = 0.0  # tuples sent on in this interval that memory gave, not a merge;
        self.given_in_memory = 0.0  # query results that came of them

    def groups_of(self, keys: Rows) -> Rows:
        groups: Rows = keys % np.int32(self.n_groups)
        return groups

    def take(self, side: int, tuples: Tuples) -> Tuples:
        """Join a batch that arrived by `side` with what is in memory, and store it."""
        self._count += 1
        groups = self.groups_of(tuples.keys)
        self.input[side] += np.bincount(groups, minlength=self.n_groups)
        new = np.unique(tuples.keys[~self._is_seen[tuples.keys]])
        self._is_seen[new] = True
        self.unique += np.bincount(self.groups_of(new), minlength=self.n_groups)
        other = self.sides[1 - side]
        positions, rows = other.probe(tuples.keys)
        self.sides[side].insert(tuples, self._count, groups)
        mine, theirs = tuples.ids[positions], other.ids[rows]
        ids = np.hstack([mine, theirs] if side == 0 else [theirs, mine])
        self.sent_in_memory += len(positions)
        return self._sent(Tuples(tuples.keys[positions], ids))

    def _sent(self, tuples: Tuples) -> Tuples:
        if len(tuples):
            groups = self.groups_of(tuples.keys)
            self.local += np.bincount(groups, minlength=self.n_groups)
        return tuples

    def flush(self, group: int, sides: str) -> int:
        """Take a group (or one side of it) out of memory; returns how many tuples."""
        a, b = self.sides
        found = 0
        for letter, own, other in (("A", a, b), ("B", b, a)):
            if letter in sides:
                found += _n_not_met(own, other, group)
        self._count += 1
        self.disk_results[group] += found / max(self.unique[group], 1.0)
        n = a.flush(group, self._count) if "A" in sides else 0
        return n + (b.flush(group, self._count) if "B" in sides else 0)

    def merge(self, group: int) -> Tuples:
        """Join what is on disk of a group and has not met, and mark it as merged."""
        a, b = self.sides
        rows_a, rows_b = a.on_disk(group), b.on_disk(group)
        self.disk_results[group] = 0.0
        a.n_runs[group] = b.n_runs[group] = 1
        order = np.argsort(b.keys[rows_b], kind="stable")
        sorted_b = rows_b[order]
        keys_b = b.keys[sorted_b]
        low = np.searchsorted(keys_b, a.keys[rows_a], side="left")
        n_each = np.searchsorted(keys_b, a.keys[rows_a], side="right") - low
        of_a = np.repeat(rows_a, n_each)
        starts = np.cumsum(n_each) - n_each
        within = np.arange(len(of_a)) - np.repeat(starts, n_each)
        of_b = sorted_b[np.repeat(low, n_each) + within]
        came = np.maximum(a.came[of_a], b.came[of_b])
        met = (came < np.minimum(a.left[of_a], b.left[of_b])) | (
            a.is_merged[of_a] & b.is_merged[of_b]
        )
        a.is_merged[rows_a] = True
        b.is_merged[rows_b] = True
        of_a, of_b = of_a[~met], of_b[~met]
        return self._sent(Tuples(a.keys[of_a], np.hstack([a.ids[of_a], b.ids[of_b]])))

    def has_unmerged(self, group: int) -> bool:
        """Whether a merge of the group may find anything."""
        a, b = self.sides
        rows_a, rows_b = a.on_disk(group), b.on_disk(group)
        if not (len(rows_a) and len(rows_b)):
            return False
        return not (a.is_merged[rows_a].all() and b.is_merged[rows_b].all())


def _n_not_met(own: JoinSide, other: JoinSide, group: int) -> int:
    """Pairs of a tuple of `own` in memory and one of `other` on disk that was gone when it came.

    Where both sides are always flushed together these are all pairs, as in the paper (ER-25). Where one
    side goes alone, most pairs have met already, and would be read again in vain.
    """
    came = own.came[own.in_memory(group)]
    left = np.sort(other.left[other.on_disk(group)])
    return int(np.searchsorted(left, came, side="right").sum())
