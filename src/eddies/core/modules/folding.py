"""Folding: matches that are only counted and added up are not made.

A join that explodes under a group-by makes a tuple for each pair, only for it to be added to a total.
If the last probe of a route leads to an aggregation of counts and sums of integers, the matches of a
row need not be told apart: how many there are, and the sum of their columns, say as much. The SteM
keeps both by key (`state.fold`), and a probe gives back one row for each row that finds something, with
its weight. An eddy whose policy sends what multiplies last then pays for rows, not for pairs.

The totals are the same, by arithmetic: over n matches with values s, `sum(r + s)` is `n * r + sum(s)`.
Where a number might not fit its type on either way, matches are made one by one, so that errors are
those of the query.

A fold is not for nothing: all rows of the store are looked up, and again when more have come. So it is
made when as many matches were made one by one, or are about to be; where rows keep coming, each must
be worth twice as much as the one before (`Worth`). Averages over keys say little where keys are skewed:
how many matches there are is seen on the first rows.

Invariant: a fold stands for all rows of its store, so it is used only by a batch that may match all of
them (`exactly_once`).

Known limitations: not for other aggregates, decimals, NULLs, predicates over several sources that only
the last one completes, keys that are hashed, nor where rows are spilled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from eddies.core.batch import Ids, RoutedBatch
from eddies.core.expr import Column, Expr, columns_of
from eddies.core.graph import Graph
from eddies.core.modules.integer_chain import IntegerChain, integers
from eddies.core.route import Route
from eddies.core.state.fold import Fold, Integers
from eddies.core.state.hash_index import HashIndex

__all__ = ["TRIED_ROWS", "Folded", "Folding", "Worth"]

TRIED_ROWS = 1024  # are looked up first, to see how many matches there are
_FAN_OUT = 2  # matches of a row, on average, from which on folding pays
_BOUND = 1 << 62


class Folded(NamedTuple):
    """What the rows of a batch stand for: so many results each, and the sum over these of each
    aggregate's argument (None: of count(*)).
    """

    weights: Integers
    sums: list[Integers | None]


class Worth:
    """Whether folding pays, as far as the look-ups of one probe tell."""

    __slots__ = ("_n_asked", "_n_found", "_n_since", "_times")

    def __init__(self) -> None:
        self._n_asked = self._n_found = 0  # rows, and their matches
        self._n_since = 0  # matches since a fold was last made for them
        self._times = 1  # as much as a fold costs it must be worth, if more rows may come

    @property
    def is_known(self) -> bool:
        """Whether enough rows were looked up to tell."""
        return self._n_asked >= TRIED_ROWS

    def saw(self, n_asked: int, n_found: int) -> None:
        """So many rows were looked up, which have so many matches."""
        self._n_asked += n_asked
        self._n_found += n_found
        self._n_since += n_found

    def of(self, index: HashIndex, n_rows: int, n_to_fold: int, is_last: bool) -> bool:
        """Whether to fold the matches of `n_rows` rows, if `n_to_fold` of the store must be folded for
        that; `is_last` says that no more will come there.
        """
        if self._n_asked:
            fan_out = self._n_found / self._n_asked
        else:
            fan_out = index.n_entered / max(1, index.n_keys)
        if fan_out < _FAN_OUT:
            return False
        if not n_to_fold:
            return True
        times = 1 if is_last else self._times
        if self._n_since + n_rows * fan_out < times * n_to_fold:
            return False
        self._n_since = 0
        self._times *= 2
        return True


class _Sum(NamedTuple):
    """A sum's argument: columns of other sources, and those of the folded one."""

    others: tuple[Column, ...]
    own: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Folding:
    """How the aggregates of a query are computed over folded rows of the source `target`."""

    target: int
    arguments: tuple[_Sum | None, ...]  # of each aggregate; None: count(*)
    columns: tuple[str, ...]  # of the target that are added up

    @classmethod
    def of(cls, graph: Graph, target: int, keys: Sequence[str]) -> Self | None:
        """For a last probe of `target` by `keys`; None if matches have to be told apart."""
        aggregation, name = graph.query.aggregation, graph.roles[target].name
        if aggregation is None:
            return None
        for group in aggregation.groups:
            own = {c.name for c in columns_of(group.expr) if c.source == name}
            if not own <= set(keys):
                return None
            if own and not _is_told_by_key(group.expr, graph.relation_of(target).stored, own):
                return None
        arguments: list[_Sum | None] = []
        for aggregate in aggregation.aggregates:
            if aggregate.function == "count_star":
                arguments.append(None)
                continue
            chain = None if aggregate.arg is None else IntegerChain.of(aggregate.arg)
            if aggregate.function != "sum" or chain is None:
                return None
            others = tuple(c for c in chain.columns if c.source != name)
            arguments.append(_Sum(others, tuple(c.name for c in chain.columns if c.source == name)))
        added = dict.fromkeys(c for argument in arguments if argument for c in argument.own)
        return cls(target, tuple(arguments), tuple(added))

    def apply(
        self, batch: RoutedBatch, to: Route, positions: Ids, rows: Ids, fold: Fold
    ) -> RoutedBatch | None:
        """The rows at `positions`, each with all rows of the key whose newest is `rows[i]`; None if a
        number might not fit.
        """
        joined = batch.joined(to, self.target, positions, rows)
        weights = fold.counts[rows]
        sums = [
            None if a is None else _sums(a, joined, rows, weights, fold) for a in self.arguments
        ]
        if any(s is None and a is not None for s, a in zip(sums, self.arguments, strict=True)):
            return None
        joined.folded = Folded(weights, sums)
        return joined


def _is_told_by_key(group: Expr, stored: pa.Schema, own: set[str]) -> bool:
    """Whether rows with the same key are in the same group. Zeros of both signs are one key and one
    group, but what is made of them need not be.
    """
    if isinstance(group, Column):
        return True
    return not any(pa.types.is_floating(stored.field(name).type) for name in own)


def _sums(
    argument: _Sum, batch: RoutedBatch, rows: Ids, weights: Integers, fold: Fold
) -> Integers | None:
    """Of each row, the argument's sum over the results it stands for."""
    bound = sum(fold.largest[name] for name in argument.own)
    total: Integers = np.zeros(rows.shape[0], dtype=np.int64)
    for column in argument.others:
        values = integers(batch, column)
        if values is None:
            return None
        bound += max(-int(values.min(initial=0)), int(values.max(initial=0)))
        if bound * fold.most >= _BOUND:  # then no sum on the way is beyond its type, either
            return None
        total += values
    if bound * fold.most >= _BOUND:
        return None
    total *= weights
    for name in argument.own:
        total += fold.sums[name][rows]
    return total
