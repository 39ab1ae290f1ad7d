"""The kernels that weigh forms agree with plain recursion, on random trees, sizes and forms."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp

import numpy as np
import pyarrow as pa
import pytest

from eddies.core.graph import make_graph
from eddies.core.join_tree import make_join_tree
from eddies.core.stairs.menu import Menus
from eddies.core.stairs.migration import CostAware
from eddies.core.stairs.outlook import ENDS, STAKE, Outlook
from eddies.core.stairs.plan import Form, Planner, World
from eddies.core.stairs.shape import shape_of
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


def random_outlook(rng: random.Random, certain: int) -> Outlook:
    planner = random_planner(rng)
    edges = planner.tree.edges
    rows = [10 ** rng.uniform(0, 4) for _ in range(len(edges) + 1)]
    selectivity = [10 ** rng.uniform(-4, 0) for _ in edges]
    to_come = [rng.choice((1.0, 100.0, n)) for n in rows]
    world = World(rows, selectivity, planner.tree)
    held = planner.best_tree({mask: rng.random() for mask in planner.sets()})
    held = frozenset(form for form in held if rng.random() < 0.5)
    ended = rng.randrange(planner.all_sources)
    return Outlook(planner, world, to_come, selectivity, held, ended, certain, handled=1e4)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_to_come(seed: int) -> None:
    """Rows known to come have come at the middle end, others go on; each in the middle of a stretch."""
    rng = random.Random(seed)
    outlook = random_outlook(rng, certain=rng.randrange(7))
    before = 0.0
    for end, stretch in zip(ENDS, outlook.stretches, strict=True):
        middle = (before + end) / 2
        for source, to_come in enumerate(outlook.to_come):
            most = 1.0 if outlook.certain >> source & 1 else 5.0
            n_rows = to_come * (min(end, most) - min(before, most))
            assert stretch.n_rows[source] == pytest.approx(n_rows)
            rows = outlook.now.rows[source] + to_come * min(middle, most)
            assert stretch.world.rows[source] == pytest.approx(rows)
        before = end


@pytest.mark.parametrize("seed", range(60))
def test_prices_of_forms(seed: int) -> None:
    rng = random.Random(seed)
    outlook = random_outlook(rng, certain=0)
    planner, rows = outlook.planner, outlook.now.rows
    edges = planner.tree.edges
    listed = [(e.left, e.right, s) for e, s in zip(edges, outlook.selectivity, strict=True)]
    for form in planner.best_tree({mask: rng.random() for mask in planner.sets()}):
        inside = [s for s in range(len(rows)) if form.mask >> s & 1]
        at_once = min(naive.joined_from(s, form.mask, rows, listed) for s in inside)
        assert outlook.is_cheap(form) == (at_once <= STAKE * outlook.spent)
        if outlook.is_cheap(form):
            assert outlook.prices(form) == pytest.approx([at_once] * len(ENDS))
            continue
        whole = naive.joined_from(form.source, form.mask, rows, listed)
        share, beyond = outlook.selectivity[form.join], planner.beyond(form)
        for end, price in zip(ENDS, outlook.prices(form), strict=True):
            n_probes = sum(end * n for s, n in enumerate(outlook.to_come) if beyond >> s & 1)
            expected = whole * (1 - exp(-n_probes * share)) + min(n_probes, 2.3 / share)
            assert price == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(60))
def test_a_menu_has_all_parts_that_somebody_would_probe(seed: int) -> None:
    rng = random.Random(seed)
    outlook = random_outlook(rng, certain=0)
    planner = outlook.planner
    menus = Menus(planner)
    menu = menus.menu(outlook)
    wholes = [outlook.held]
    now = planner.sizes(outlook.now)
    for stretch in outlook.stretches:
        weight = 3.0 * (planner.sizes(stretch.world) - now) + 2.0 * now
        for form in outlook.held:
            weight[planner.number(form.mask)] -= 2.0 * now[planner.number(form.mask)]
        wholes.append(planner.lightest_tree(weight))
    expected = {
        frozenset(form for form in part if planner.beyond(form) & ~outlook.ended)
        for whole in wholes
        for part in planner.subsets(whole)
    }
    assert menu.choices[0] == outlook.held
    assert set(menu.choices) == expected | {outlook.held}
    assert len(menu.choices) == len(set(menu.choices))
    asks_of = menu.listed.asks.reshape(len(menu.choices), -1)
    for forms, asks in zip(menu.choices, asks_of, strict=True):
        asked = {form for form, is_asked in zip(menu.new, asks, strict=True) if is_asked}
        assert asked == forms - outlook.held
    assert menus.menu(outlook) is menu


def decided(outlook: Outlook, dropped: dict[int, int]) -> frozenset[Form]:
    """What `CostAware` decides, choice by choice."""

    def costs(forms: frozenset[Form]) -> list[float]:
        found = outlook.costs(forms)
        for form in forms - held:
            times = 2.0 ** dropped.get(form.mask, 0)
            prices = outlook.prices(form)
            found = [cost + times * price for cost, price in zip(found, prices, strict=True)]
        return found

    def at_risk(forms: frozenset[Form]) -> float:
        dear = [form for form in forms - held if not outlook.is_cheap(form)]
        return sum(outlook.prices(form)[middle] for form in dear)

    held, choices = outlook.held, Menus(outlook.planner).menu(outlook).choices
    by_choice = {forms: costs(forms) for forms in choices}
    least = [outlook.spent + min(ends) for ends in zip(*by_choice.values(), strict=True)]
    middle = len(least) // 2
    loss = {
        forms: sum((outlook.spent + c) / best for c, best in zip(ends, least, strict=True))
        for forms, ends in by_choice.items()
    }
    most = by_choice[held][middle]
    sound = [f for f in choices if by_choice[f][middle] + CostAware.CAUTION * at_risk(f) <= most]
    best = min([held, *sound], key=lambda forms: (loss[forms], len(forms)))
    return best if loss[best] <= loss[held] - CostAware.MARGIN * len(least) else held


@pytest.mark.parametrize("seed", range(200))
def test_decisions(seed: int) -> None:
    rng = random.Random(seed)
    outlook = random_outlook(rng, certain=rng.choice((0, 3, 0b111111)))
    policy = CostAware()
    policy._dropped = {mask: rng.randrange(3) for mask in outlook.planner.sets()}
    expected = decided(replace(outlook), policy._dropped)
    assert policy.decide(outlook) == expected
    fresh = replace(outlook)
    assert outlook.rows_worth(1e5) == pytest.approx(fresh.rows_worth(1e5))


def test_a_shape_is_worked_out_once() -> None:
    """Eddies of one query share it; other trees, and more sources, have their own."""
    one, same = random_planner(random.Random(3)), random_planner(random.Random(3))
    assert one is not same
    assert one.tables is same.tables
    assert shape_of(((0, 1), (1, 2)), 3) is not shape_of(((0, 1), (0, 2)), 3)
