"""The kernels that weigh forms agree with plain recursion, on random trees, sizes and forms."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.graph import make_graph
from eddies.core.join_tree import make_join_tree
from eddies.core.stairs.outlook import Outlook
from eddies.core.stairs.plan import Planner, World
from tests.support import naive
from tests.support.small import make_query


def random_planner(rng: random.Random) -> Planner:
    n = rng.randint(3, 6)
    pairs = [(rng.randrange(i), i) for i in range(1, n)]
    columns = [[f"k{j}" for j, pair in enumerate(pairs) if i in pair] for i in range(n)]
    numbers = pa.array([1])
    tables = {f"r{i}": pa.table(dict.fromkeys(columns[i], numbers)) for i in range(n)}
    joins = [f"r{a}.k{j} = r{b}.k{j}" for j, (a, b) in enumerate(pairs)]
    return Planner(make_join_tree(make_graph(make_query(tables, joins))), n)


@pytest.mark.parametrize("seed", range(150))
def test_costs_of_forms(seed: int) -> None:
    rng = random.Random(seed)
    planner = random_planner(rng)
    edges = planner.tree.edges
    n = len(edges) + 1
    rows = [10 ** rng.uniform(0, 4) for _ in range(n)]
    selectivity = [10 ** rng.uniform(-4, 0) for _ in edges]
    listed = [(e.left, e.right, s) for e, s in zip(edges, selectivity, strict=True)]
    world = World(rows, selectivity, planner.tree)
    sizes = planner.sizes(world)
    for mask in planner.sets():
        size = naive.joined_size(mask, rows, listed)
        assert sizes[planner.number(mask)] == pytest.approx(size)
        assert world.size(mask) == pytest.approx(size)

    weight = {mask: rng.random() for mask in planner.sets()}
    tree = planner.best_tree(weight)
    least = naive.lightest_nodes(planner.all_sources, listed, weight)
    assert sum(weight[form.mask] for form in tree) == pytest.approx(least)

    to_come = [rng.choice((0.0, 1.0, 100.0)) for _ in rows]
    behind = {(s, e.number): rng.randrange(50) for e in edges for s in (e.left, e.right)}
    certain = planner.all_sources
    outlook = Outlook(
        planner, world, to_come, selectivity, frozenset(), 0, certain=certain, behind=behind
    )
    choices = list(planner.subsets(tree))
    outlook.consider(choices)
    for forms in choices:
        expected, views = 0.0, []
        for stretch in outlook.stretches:
            probed = set()
            for source, n_rows in enumerate(stretch.n_rows):
                if n_rows:
                    cost, met = naive.cheapest_way(
                        1 << source, stretch.world.rows, listed, sorted(forms)
                    )
                    expected += n_rows * cost
                    probed |= met
            expected += sum(stretch.n_rows[source] for source, _ in probed)
            views.append(probed)
        expected += sum(behind[view] for view in views[0])
        (found,) = outlook.costs(forms)
        assert found == pytest.approx(expected)
        routing = planner.routing(forms, world)
        for source in range(n):
            cost, _ = naive.cheapest_way(1 << source, rows, listed, sorted(forms))
            assert routing.cost(1 << source) == pytest.approx(cost)
    assert np.isfinite(sizes).all()
