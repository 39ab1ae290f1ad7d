"""Random set-ups (section 5.3 of STAIRs): Wisconsin-like tables, paths and stars, random arrivals.

Twenty tables, five each of 1,000, 10,000, 50,000 and 100,000 rows (divided by `scale`). A query joins
four or five of them in a path or a star. For every join a number of matches is drawn uniformly from 0
to 10: so many rows of the second table match a row of the first on average. Every table has a predicate
that keeps all rows or a random share of 10 to 100 %. Arrival rates differ by up to ten, half of the
sources begin late.

Set-ups in which the answer or the randomly chosen static plan would be larger than `MOST_TUPLES` are
drawn again: sizes are counted exactly before anything is run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.core.expr import Call, Column, Literal
from eddies.core.graph import make_graph
from eddies.core.join_tree import JoinTree, make_join_tree
from eddies.core.lineage import bits
from eddies.core.query import Aggregate, Aggregation, Equality, Query, Selection, Source
from eddies.core.stairs.plan import Planner
from eddies.experiments.stairs_runs import Feed, arrivals

__all__ = ["SIZES", "SetUp", "exact_sizes", "make_setup"]

SIZES = (1_000, 10_000, 50_000, 100_000)
MOST_TUPLES = 40  # of an answer or an intermediate result, times the rows of all tables
_INT = pa.int64()


@dataclass(frozen=True, slots=True)
class SetUp:
    """A query, how its rows arrive, a random static plan and the best one."""

    seed: int
    shape: str
    query: Query
    tables: dict[str, pa.Table]
    feed: Feed
    random_order: tuple[str, ...]
    best_order: tuple[str, ...]
    sizes: dict[int, float]


def make_setup(seed: int, scale: int = 1) -> SetUp:
    """The set-up of this number."""
    rng = random.Random(f"setup {seed}")
    while True:
        setup = _draw(seed, rng, scale)
        if setup is not None:
            return setup


def _draw(seed: int, rng: random.Random, scale: int) -> SetUp | None:
    n = rng.choice((4, 5))
    shape = rng.choice(("path", "star"))
    pool = [size for size in SIZES for _ in range(5)]
    sizes = [max(20, size // scale) for size in rng.sample(pool, n)]
    pairs = [(i - 1, i) if shape == "path" else (0, i) for i in range(1, n)]
    values = np.random.default_rng(rng.randrange(1 << 31))
    names = [f"w{i}" for i in range(n)]
    columns: list[dict[str, npt.NDArray[np.int64]]] = [{} for _ in range(n)]
    equalities = []
    for left, right in pairs:
        n_matches = rng.uniform(0.0, 10.0)
        domain = max(1, round(sizes[right] / max(n_matches, 0.05)))
        for i in (left, right):
            columns[i][f"k{left}{right}"] = values.integers(0, domain, sizes[i])
        key = f"k{left}{right}"
        equalities.append(Equality(Column(names[left], key), Column(names[right], key), _INT))
    shares = [rng.choice((1.0, rng.uniform(0.1, 1.0))) for _ in range(n)]
    for i in range(n):
        columns[i]["p"] = values.integers(0, 1000, sizes[i])
    tables = {name: pa.table(columns[i]) for i, name in enumerate(names)}
    query = Query(
        tuple(Source(name, name, table.schema) for name, table in tables.items()),
        tuple(
            Selection(Call("lt", (Column(name, "p"), Literal(round(1000 * share), _INT))))
            for name, share in zip(names, shares, strict=True)
        ),
        tuple(equalities),
        aggregation=Aggregation(
            (),
            (
                Aggregate("n", "count_star", None, _INT),
                Aggregate("s", "sum", Column(names[0], "p"), _INT),
            ),
        ),
    )
    kept = [
        {c: v[columns[i]["p"] < round(1000 * shares[i])] for c, v in columns[i].items()}
        for i in range(n)
    ]
    exact = exact_sizes(query, kept)
    tree = make_join_tree(make_graph(query))
    planner = Planner(tree, n)
    order = [edge.name for edge in tree.edges]
    rng.shuffle(order)
    limit = MOST_TUPLES * sum(sizes)
    if exact[planner.all_sources] > limit or max(_nodes(planner, exact, order)) > limit:
        return None
    best = _order_of(planner, exact)
    rates = {name: 10 ** rng.uniform(0.0, 1.0) for name in names}
    spans = {name: table.num_rows / rates[name] for name, table in tables.items()}
    delays = {
        name: rng.choice((0.0, rng.uniform(0.0, 0.5 * max(spans.values())))) for name in names
    }
    feed = arrivals(tables, rates, delays, max(50, 1000 // scale))
    return SetUp(seed, shape, query, tables, feed, tuple(order), best, exact)


def _nodes(planner: Planner, sizes: dict[int, float], order: list[str]) -> list[float]:
    """Sizes of the inner nodes of the static plan that an order of joins means."""
    parts = [1 << s for s in bits(planner.all_sources)]
    found = [0.0]
    edges = {edge.name: edge for edge in planner.tree.edges}
    for name in order:
        edge = edges[name]
        left, right = (next(p for p in parts if p >> s & 1) for s in (edge.left, edge.right))
        parts = [p for p in parts if p not in (left, right)] + [left | right]
        if left | right != planner.all_sources:
            found.append(sizes[left | right])
    return found


def _order_of(planner: Planner, sizes: dict[int, float]) -> tuple[str, ...]:
    """The static plan with the fewest intermediate tuples, as an order of joins."""
    forms = planner.best_tree({mask: sizes[mask] for mask in planner.sets()})
    nodes = sorted([*(f.mask for f in forms), planner.all_sources], key=lambda m: m.bit_count())
    order: list[str] = []
    for node in nodes:
        for edge in planner.tree.edges:
            inside = node >> edge.left & 1 and node >> edge.right & 1
            if inside and edge.name not in order:
                order.append(edge.name)
    return tuple(order)


def exact_sizes(query: Query, columns: list[dict[str, npt.NDArray[np.int64]]]) -> dict[int, float]:
    """Exact sizes of the joins of all connected sets of sources of a query whose joins are a tree.

    Rows are weighted with the matches found so far, from the leaves of the set to its root.
    """
    graph = make_graph(query)
    tree = make_join_tree(graph)
    planner = Planner(tree, len(graph.roles))
    sizes: dict[int, float] = {}
    for mask in (
        *(1 << s for s in bits(planner.all_sources)),
        *planner.sets(),
        planner.all_sources,
    ):
        root = bits(mask)[0]
        weights = _weights(tree, columns, mask, root, -1)
        sizes[mask] = float(weights.sum())
    return sizes


def _weights(
    tree: JoinTree,
    columns: list[dict[str, npt.NDArray[np.int64]]],
    mask: int,
    source: int,
    parent: int,
) -> npt.NDArray[np.float64]:
    """For each row of `source` the tuples of the part of `mask` below it."""
    weights = np.ones(len(next(iter(columns[source].values()))))
    for edge in tree.edges:
        if edge.number == parent or source not in (edge.left, edge.right):
            continue
        other = edge.other(source)
        if not mask >> other & 1:
            continue
        side = 0 if source == edge.left else 1
        below = _weights(tree, columns, mask, other, edge.number)
        own, theirs = columns[source][edge.keys[0][side]], columns[other][edge.keys[0][1 - side]]
        by_key = np.bincount(theirs, weights=below, minlength=int(own.max(initial=0)) + 1)
        weights *= by_key[own]
    return weights
