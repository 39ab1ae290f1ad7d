"""Cells: how one join is divided among Spark tasks so that every join is local to a task.

Think of the cells as a box (the HyperCube of Afrati and Ullman, and of Beame, Koutris and Suciu). One
dimension may divide the rows of one relation, its *row split*; every other dimension belongs to a
*key class* (columns that are equal in every result) and divides it by hash. A relation is hashed on
the classes it has and *replicated* over all other dimensions. So the parts of any result row meet in
exactly one cell: each class puts them at one coordinate of its dimension, and the row split at one of
its own. No intermediate result ever leaves its cell.

For a star with small dimensions the best box has one dimension only: split the facts, replicate the
rest. For two large relations it is hashing both. Which box is best follows from sizes and from how a
relation comes: a task that reads a hashed relation from files reads all of it and keeps its part, so
hashing saves building there, not reading; rows that are exchanged by Spark are moved once a copy.

A relation that is only asked for matches (EXISTS, IN) is hashed or replicated like others, so that all
its rows that a tuple can match are where the tuple is; it divides no result by itself. NULL keys are
dropped on the way, as they match nothing: only NOT IN wants to know of them, so it is replicated.

Where files lie in the order of a key, a dimension may divide its class by ranges instead of by hash
(`key_ranges`): then reading is divided, too.

Known limitations: a relation with several roles (a self-join) is replicated as a whole, unless it is
the largest, when each role becomes a relation of its own (`separate_roles`). Derived keys
(`a.x + 1 = b.y`) are not hashed: their relation is replicated over the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

from eddies.core.constraints import is_connected
from eddies.core.graph import Graph, KeyClass
from eddies.core.lineage import bits
from eddies.core.query import Query

__all__ = [
    "CellPlan",
    "Delivery",
    "HashedOn",
    "Parted",
    "RelationSize",
    "box",
    "hashable_columns",
    "plan_cells",
    "separate_roles",
]

# Nanoseconds a row on one core; what matters are their proportions.
_READ_NS_A_BYTE = 2.0
_FILTER_NS = 6.0
_BUILD_NS = 25.0
_PROBE_NS = 25.0
_EXCHANGE_NS = 250.0
_TASK_NS = 5e6
_MOST_BOXES = 20_000
_WORTH_STREAMING = 8  # rows of products for each row that need not be stored
_UNKNOWN_ROWS = 1_000_000

How = Literal["direct", "exchange", "partitions"]


@dataclass(frozen=True, slots=True)
class RelationSize:
    """What is known of a relation before it is read. `n_rows` None: nobody knows.

    Not divisible are the rows of mirrors, whose order differs, and not scanned those that can only be
    looked up. Mirrors of a relation with a `key` are hashed by columns of it at most: so rows with the
    same key meet, and a mirror that differs is noticed.
    """

    n_rows: int | None
    row_bytes: float
    how: Literal["direct", "exchange"]
    is_divisible: bool = True
    is_scanned: bool = True
    key: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        if self.n_rows is None:
            return _UNKNOWN_ROWS if self.is_scanned else 0
        return self.n_rows


@dataclass(frozen=True, slots=True)
class HashedOn:
    """A dimension that divides a relation by the hash of `column`, or by ranges of it between `borders`
    (`key_ranges`).
    """

    column: str
    key_class: int
    dimension: int
    borders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one relation comes to the cells.

    `partitions`: the relation is a DataFrame whose own partitions are the row split; no exchange.
    """

    relation: str
    how: How
    is_split: bool
    hashed: tuple[HashedOn, ...] = ()

    def describe(self) -> str:
        """For people."""
        if self.how == "partitions":
            return "its own partitions"
        parts = ["split by rows"] if self.is_split else []
        parts += [f"{'ranges of' if on.borders else 'hashed on'} {on.column}" for on in self.hashed]
        return f"{' and '.join(parts) or 'replicated'}, {self.how}"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The box: `shares[0]` divides the rows of the split relation, the others key classes."""

    shares: tuple[int, ...]
    deliveries: Mapping[str, Delivery]
    last: str  # the relation that streams by when all others are complete
    ns: float

    @property
    def n_cells(self) -> int:
        return prod(self.shares)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> CellPlan:
        """The plan that `dataclasses.asdict` made these plain values of."""
        deliveries = {
            name: Delivery(
                given["relation"],
                given["how"],
                given["is_split"],
                tuple(
                    HashedOn(**{**on, "borders": tuple(on.get("borders", ()))})
                    for on in given["hashed"]
                ),
            )
            for name, given in values["deliveries"].items()
        }
        return cls(tuple(values["shares"]), deliveries, values["last"], values["ns"])

    def coordinates(self, cell: int) -> tuple[int, ...]:
        """The coordinates of a cell in the box."""
        found = []
        for share in reversed(self.shares):
            cell, coordinate = divmod(cell, share)
            found.append(coordinate)
        return tuple(reversed(found))

    def strides(self) -> tuple[int, ...]:
        """How many cells lie between neighbours along each dimension."""
        return tuple(prod(self.shares[d + 1 :]) for d in range(len(self.shares)))

    def order(self, sizes: Mapping[str, RelationSize]) -> list[str]:
        """Relations in the order in which a cell takes them in: small ones first."""
        first = sorted((n for n in self.deliveries if n != self.last), key=lambda n: sizes[n].rows)
        return [*first, self.last]


def separate_roles(query: Query, sizes: Mapping[str, RelationSize]) -> Query:
    """`query` with a relation for each role of the largest table, if that table has several.

    A row split sends one row to one cell, so two roles cannot share it.
    """
    largest = max(sizes, key=lambda name: sizes[name].rows)
    if sum(source.table == largest for source in query.sources) < 2:
        return query
    sources = tuple(
        replace(source, table=f"{source.table} as {source.name}")
        if source.table == largest
        else source
        for source in query.sources
    )
    return replace(query, sources=sources)


def plan_cells(
    graph: Graph, sizes: Mapping[str, RelationSize], n_slots: int, n_cells: int | None = None
) -> CellPlan:
    """The cheapest box of at most `n_slots` cells, or of `n_cells` if possible when that is given."""
    names = [relation.name for relation in graph.relations]
    roles = {relation.name: len(relation.roles) for relation in graph.relations}
    asked = {r.name for r in graph.relations if all(graph.asked >> role & 1 for role in r.roles)}
    joined = [name for name in names if name not in asked]
    driving = _driving(graph, joined, sizes)
    largest = max(driving, key=lambda name: sizes[name].rows)
    splittable = [name for name in driving if roles[name] == 1 and sizes[name].is_divisible]
    splittable.sort(key=lambda name: -sizes[name].rows)
    hashable = hashable_columns(graph)
    for name, size in sizes.items():
        if size.key:
            hashable[name] = {n: c for n, c in hashable[name].items() if c in size.key}
    divisible = {number for name in joined for number in hashable[name]}
    best: CellPlan | None = None
    for shares in _boxes(1 + len(graph.classes), n_cells or n_slots, n_cells is not None):
        if not _divides(shares, divisible):
            continue
        candidates = splittable[:3] if shares[0] > 1 else [None]
        for split in candidates:
            plan = box(names, sizes, hashable, shares, split, largest, n_slots)
            if best is None or plan.ns < best.ns:
                best = plan
    if best is None:  # no box of just so many cells
        best = box(names, sizes, hashable, (1,) * (1 + len(graph.classes)), None, largest, n_slots)
    return best


def _driving(graph: Graph, names: Sequence[str], sizes: Mapping[str, RelationSize]) -> list[str]:
    """The relations that may stream by last: those from which few products must be made, or not many
    for each row that is not stored.

    That is all of them, except where no predicate leads from one relation to another: with
    `a.x = b.y + c.z` and a large `a`, rows of b and c should meet first and then look for a.
    """
    products = {name: _products(graph, name, sizes) for name in names}
    least = min(products.values())
    return [n for n in names if products[n] <= 2 * least + _WORTH_STREAMING * sizes[n].rows]


def _products(graph: Graph, name: str, sizes: Mapping[str, RelationSize]) -> float:
    """Rows of Cartesian products on the way from a relation, with one match for each predicate."""
    of = {role.source_id: sizes[graph.relations[role.relation].name].rows for role in graph.roles}
    relation = next(r for r in graph.relations if r.name == name)
    spanned, n_rows, n_made = 1 << relation.roles[0], float(sizes[name].rows), 0.0
    while missing := bits(graph.all_sources & ~spanned):
        connected = [source for source in missing if is_connected(graph, spanned, source)]
        source = connected[0] if connected else min(missing, key=of.__getitem__)
        if not connected:
            n_rows *= of[source]
            n_made += n_rows
        spanned |= 1 << source
    return n_made


def _divides(shares: Sequence[int], divisible: set[int]) -> bool:
    """Whether each class with a share divides some relation: results would repeat along it if not."""
    return all(share == 1 or number in divisible for number, share in enumerate(shares[1:]))


def hashable_columns(graph: Graph) -> dict[str, dict[int, str]]:
    """For each relation of one role the classes that one of its own columns belongs to."""
    found: dict[str, dict[int, str]] = {}
    for relation in graph.relations:
        columns = {}
        if len(relation.roles) == 1:
            for number, key_class in enumerate(graph.classes):
                column = key_class.column_by_source.get(relation.roles[0])
                column = column or _asked_column(graph, relation.roles[0], key_class)
                if column is not None and column in relation.read.names:
                    columns[number] = column
        found[relation.name] = columns
    return found


def _asked_column(graph: Graph, source: int, key_class: KeyClass) -> str | None:
    """The column by which a source is asked for rows that are equal in `key_class`."""
    for optional in graph.optionals:
        plan = optional.exists
        if plan is not None and plan.target == source and not plan.null_aware:
            for outer_source, outer, inner in plan.keys:
                if key_class.column_by_source.get(outer_source) == outer:
                    return inner
    return None


def _boxes(n_dimensions: int, n_cells: int, exactly: bool) -> Iterator[tuple[int, ...]]:
    """Shares with a product of at most `n_cells`, or of just that if `exactly`.

    Those with few dimensions come first, so that a limit on their number cuts off the least likely.
    """
    n_given = 0
    for n_used in range(0, min(n_dimensions, 4) + 1):
        for dimensions in _choose(n_dimensions, n_used):
            for factors in _factors(n_used, n_cells):
                if exactly and prod(factors) != n_cells:
                    continue
                shares = [1] * n_dimensions
                for dimension, factor in zip(dimensions, factors, strict=True):
                    shares[dimension] = factor
                yield tuple(shares)
                n_given += 1
                if n_given >= _MOST_BOXES:
                    return
    if n_given == 0:
        yield (1,) * n_dimensions


def _choose(n: int, k: int) -> Iterator[tuple[int, ...]]:
    from itertools import combinations

    yield from combinations(range(n), k)


def _factors(k: int, most: int) -> Iterator[tuple[int, ...]]:
    """`k` factors, each at least 2, with a product of at most `most`."""
    if k == 0:
        yield ()
        return
    for first in range(2, most // 2 ** (k - 1) + 1):
        for rest in _factors(k - 1, most // first):
            yield (first, *rest)


@dataclass(frozen=True, slots=True)
class Parted:
    """Borders of a class that is divided by ranges, and by relation the share of its rows that the cell
    reads which reads most.
    """

    borders: tuple[int, ...]
    read: Mapping[str, float]


def box(
    names: Sequence[str],
    sizes: Mapping[str, RelationSize],
    hashable: Mapping[str, Mapping[int, str]],
    shares: tuple[int, ...],
    split: str | None,
    largest: str,
    n_slots: int,
    parted: Parted | None = None,
) -> CellPlan:
    """The cost of one box: the work of a cell, for each round of cells, plus what is exchanged. With
    `parted`, what has a share is divided by ranges.
    """
    deliveries: dict[str, Delivery] = {}
    cell_ns, exchange_ns = _TASK_NS, 0.0
    n_cells = prod(shares)
    last = split or largest
    for name in names:
        size = sizes[name]
        hashed = tuple(
            HashedOn(column, number, 1 + number, parted.borders if parted is not None else ())
            for number, column in hashable[name].items()
            if shares[1 + number] > 1
        )
        is_split = name == split
        deliveries[name] = Delivery(name, size.how, is_split, hashed)
        kept = size.rows / prod(shares[on.dimension] for on in hashed)
        if is_split:
            kept /= shares[0]
        if parted is not None and hashed:
            kept = size.rows * parted.read[name]
            cell_ns += kept * _READ_NS_A_BYTE * size.row_bytes
        elif size.how == "direct":
            read = size.rows / shares[0] if is_split else size.rows
            cell_ns += read * (_READ_NS_A_BYTE * size.row_bytes + _FILTER_NS * len(hashed))
        else:
            n_copies = n_cells * kept / max(size.rows, 1)
            exchange_ns += size.rows * _EXCHANGE_NS * (0.6 + 0.4 * n_copies)
        cell_ns += kept * (_PROBE_NS if name == last else _BUILD_NS)
    n_rounds = -(-n_cells // n_slots)
    ns = cell_ns * n_rounds + exchange_ns / n_slots
    return CellPlan(shares, deliveries, last, ns)
