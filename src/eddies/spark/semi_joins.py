"""Semi-joins: rows of DataFrames that have no partner stay in Spark.

To hand a row from Java to Python costs several times what a look-up of a key costs in Java. So before
a DataFrame is exchanged, Spark drops rows of it whose key another source does not have: a left semi
join with the keys of that source, which are broadcast. A source is thinned out in the same way before
its keys are taken: a condition on nations thins out customers, through them orders, and through these
the order lines (Yannakakis' first pass).

A result row has equal keys in all sources of a key class, so a row without its key in one of them is in
no result: dropping it changes nothing, nor does keeping it. NULL equals nothing. A source that is asked
for matches (EXISTS) may drop rows of those who ask, one that must have none (NOT EXISTS) may not.

`plan_semi_joins` decides from sizes and conditions; it knows nothing of Spark. The keys are computed a
second time, beside the rows themselves, so they are taken only of what gives the same rows again
(`frame_plan`).

Known limitation: nobody knows what share of the rows conditions keep. It is guessed from their form
(`sql.share_kept`), and from the bits that footers of Parquet files give to values (`frame_plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, prod

from eddies.core.graph import Graph
from eddies.spark.spark_hash import comparable

__all__ = ["Member", "Reducer", "plan_semi_joins"]

# Nanoseconds of one core; what matters are their proportions.
_CROSS_VALUE_NS = 110.0  # to its cell, and from Java to Python
_CROSS_ROW_NS = 300.0
_SCAN_NS = 60.0
_BUILD_NS = 100.0
_PROBE_NS = 30.0
_ASK_NS = 20e6  # to plan one more join
# Spark plans what is left of a query again when keys are there: 70 ms in which two cores wait.
_BROADCAST_NS = 140e6
_LONGEST = 4  # sources on a way by which one thins out another: there are many ways in a clique


@dataclass(frozen=True, slots=True)
class Member:
    """What is known of a source.

    `types` are those of its columns, as Spark writes them, `where` the conditions of the query on it
    alone, as Spark SQL. Its conditions, of the query or of its own, keep a share of `kept`. Keys are
    taken only of those that have keys to give: few enough, and the same when they are computed again.
    """

    n_rows: int
    types: Mapping[str, str]
    where: tuple[str, ...]
    kept: float
    has_keys: bool


@dataclass(frozen=True, slots=True)
class Reducer:
    """A source whose keys thin out another one: `on` are columns of the other and its own, which must
    be equal. Its own rows are those `where` all conditions hold, thinned out by `reducers`; `kept` is
    the share of them that is left.
    """

    source: int
    on: tuple[tuple[str, str], ...]
    where: tuple[str, ...]
    reducers: tuple[Reducer, ...]
    kept: float

    @property
    def keys(self) -> Reducer:
        """The same, whoever is thinned out."""
        return replace(self, on=tuple((key, key) for _, key in self.on))


def plan_semi_joins(
    graph: Graph, members: Mapping[int, Member], reduced: set[str]
) -> dict[str, tuple[Reducer, ...]]:
    """By relation, for those of `reduced` for which that pays: the sources that thin them out.

    `members` are sources of the query by number. Keys are broadcast once, whoever asks for them. Those
    that spare most are chosen first, again and again.
    """
    planner = _Planner(graph, members)
    targets = [
        _Target(relation.roles[0], relation.name, len(relation.read.names))
        for relation in graph.relations
        if relation.name in reduced and len(relation.roles) == 1 and relation.roles[0] in members
    ]
    for target in targets:
        planner.open(target)
    while keys := planner.choose(targets):
        planner.use(keys, targets)
    return {t.relation: tuple(sorted(t.chosen, key=planner.n_keys)) for t in targets if t.chosen}


@dataclass(slots=True)
class _Target:
    """A relation of which `n_columns` cross, and the rows that are likely to be left of it."""

    source: int
    relation: str
    n_columns: int
    n_rows: float = 0.0
    candidates: list[Reducer] = field(default_factory=list)
    chosen: list[Reducer] = field(default_factory=list)


class _Planner:
    def __init__(self, graph: Graph, members: Mapping[int, Member]) -> None:
        self._graph = graph
        self._members = members
        self._classes = _classes(graph)
        self._broadcast: set[Reducer] = set()
        asked = [o.exists for o in graph.optionals if o.exists is not None]
        self._refusing = {plan.target for plan in asked if plan.negated or plan.padded}
        self._needs_all = {plan.target for plan in asked if plan.null_aware}

    def open(self, target: _Target) -> None:
        """Find what can thin out `target`."""
        member = self._members[target.source]
        target.n_rows = member.n_rows * member.kept
        if target.source not in self._needs_all:
            path = frozenset((target.source,))
            target.candidates = self._candidates(target.source, path, set(), inf)

    def choose(self, targets: list[_Target]) -> Reducer | None:
        """The keys that spare most, if any do."""
        spared: dict[Reducer, float] = {}
        for target in targets:
            for reducer in target.candidates:
                gain = max(self._spared(target, reducer), 0.0)
                spared[reducer.keys] = spared.get(reducer.keys, 0.0) + gain
        gains = {keys: spared[keys] - self._cost(keys) for keys in spared}
        best = max(gains, key=gains.__getitem__, default=None)
        return None if best is None or gains[best] <= 0 else best

    def use(self, keys: Reducer, targets: list[_Target]) -> None:
        """Ask for `keys` where that pays."""
        self._broadcast |= set(_all_keys(keys))
        for target in targets:
            for reducer in [r for r in target.candidates if r.keys == keys]:
                target.candidates.remove(reducer)
                if self._spared(target, reducer) > 0:
                    target.chosen.append(reducer)
                    target.n_rows *= self._left(target, reducer)

    def n_keys(self, reducer: Reducer) -> float:
        """Keys that are likely to be broadcast; where they are few, they are asked sooner."""
        return self._members[reducer.source].n_rows * reducer.kept

    def _spared(self, target: _Target, reducer: Reducer) -> float:
        """Nanoseconds that are spared when `reducer` is asked for the rows that are left."""
        cross_ns = _CROSS_ROW_NS + target.n_columns * _CROSS_VALUE_NS
        dropped = 1 - self._left(target, reducer)
        return target.n_rows * (dropped * cross_ns - _PROBE_NS) - _ASK_NS

    def _left(self, target: _Target, reducer: Reducer) -> float:
        """The share of the target's rows that have a partner among those that `reducer` keeps: where it
        has several rows for each of the target's, one of them is enough.
        """
        n_own = max(self._members[target.source].n_rows, 1)
        n_partners = max(self._members[reducer.source].n_rows / n_own, 1.0)
        return float(1 - (1 - reducer.kept) ** n_partners)

    def _cost(self, keys: Reducer) -> float:
        """Nanoseconds until keys, and those that thin them out, are where they are asked for."""
        return sum(self._keys_ns(part) for part in set(_all_keys(keys)) - self._broadcast)

    def _keys_ns(self, keys: Reducer) -> float:
        n_rows = self._members[keys.source].n_rows
        return _BROADCAST_NS + n_rows * _SCAN_NS + self.n_keys(keys) * _BUILD_NS

    def _candidates(
        self, source: int, path: frozenset[int], known: set[int], most_rows: float
    ) -> list[Reducer]:
        """Sources of at most so many rows that thin out `source`, not by way of `path`, nor by classes
        that are `known`: whom it thins out in turn has these itself.
        """
        found: list[Reducer] = []
        if len(path) > _LONGEST:
            return found
        own = {number for number, columns in self._classes.items() if source in columns}
        for other in self._members:
            shared = [n for n in own - known if other in self._classes[n]]
            n_rows = self._members[other].n_rows
            if other in path or not shared or n_rows > most_rows or not self._may_reduce(other):
                continue
            on = tuple((self._classes[n][source], self._classes[n][other]) for n in sorted(shared))
            if not all(self._same_type(source, column, other, key) for column, key in on):
                continue
            inner = tuple(self._candidates(other, path | {other}, own, n_rows))
            kept = prod((c.kept for c in inner), start=self._members[other].kept)
            if kept < 1:
                found.append(Reducer(other, on, self._members[other].where, inner, kept))
        return found

    def _may_reduce(self, source: int) -> bool:
        return self._members[source].has_keys and source not in self._refusing

    def _same_type(self, source: int, column: str, other: int, key: str) -> bool:
        return comparable(self._members[source].types[column], self._members[other].types[key])


def _all_keys(reducer: Reducer) -> Iterator[Reducer]:
    """What is broadcast for `reducer`, and for those who thin it out."""
    yield reducer.keys
    for inner in reducer.reducers:
        yield from _all_keys(inner)


def _classes(graph: Graph) -> dict[int, dict[int, str]]:
    """Key classes by number, with the sources that are asked for equal keys: those columns that are
    read, not computed.
    """
    found = {n: dict(c.column_by_source) for n, c in enumerate(graph.classes)}
    for optional in graph.optionals:
        if optional.exists is None:
            continue
        for outer, column, inner in optional.exists.keys:
            number = next((n for n, c in found.items() if c.get(outer) == column), len(found))
            # A class has one column of a source; a second one is compared in the eddy only.
            found.setdefault(number, {outer: column}).setdefault(optional.exists.target, inner)
    return {
        number: {s: c for s, c in columns.items() if c in graph.relation_of(s).read.names}
        for number, columns in found.items()
    }
