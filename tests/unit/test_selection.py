"""Expensive selections: asked at most once about a stored row, whatever way tuples go."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from eddies.core.expr import Call
from eddies.core.options import Options
from eddies.core.query import Filter, Selection, UserFunction
from tests.support.bag import assert_same_bag
from tests.support.small import answer, col, make_query

ORDERS = pa.table({"k": [1, 1, 2, 2, 3], "o": [0, 1, 2, 3, 4]})
LINES = pa.table({"k": [1, 1, 1, 2, 3, None], "l": [0, 1, 2, 3, 4, 5]})
TABLES = {"o": ORDERS, "l": LINES}


class Asked:
    """A user function that remembers what it was asked about."""

    def __init__(self, answers: dict[int, bool | None]) -> None:
        self.answers = answers
        self.asked: Counter[int] = Counter()

    def __call__(self, value: int) -> bool | None:
        self.asked[value] += 1
        return self.answers.get(value, True)


@pytest.mark.parametrize("batch_rows", [1, 2, 1009])
@pytest.mark.parametrize("rows", [1, 3, None])
@pytest.mark.parametrize("seed", range(5))
def test_a_row_is_asked_about_at_most_once(batch_rows: int, rows: int | None, seed: int) -> None:
    function = Asked({1: False, 3: None})
    query = make_query(
        TABLES,
        ["o.k = l.k"],
        output=["o.o", "l.l"],
        selections=(Selection(Call("ask", (col("o.o"),)), expensive=True),),
        functions=(UserFunction("ask", function, pa.bool_()),),
    )
    options = Options(policy="random", seed=seed, batch_rows=batch_rows)
    found = answer(query, TABLES, options, rows=rows)
    assert_same_bag(found, pa.table({"o_o": [0, 0, 0, 2, 4], "l_l": [0, 1, 2, 3, 4]}))
    assert max(function.asked.values()) == 1


def test_a_row_that_is_not_stored_is_asked_about_once_too() -> None:
    function = Asked({})
    query = make_query(
        TABLES,
        ["o.k = l.k"],
        selections=(Selection(Call("ask", (col("l.l"),)), expensive=True),),
        functions=(UserFunction("ask", function, pa.bool_()),),
    )
    for order in (("select:ask(l.l)", "o", "l"), ("o", "l", "select:ask(l.l)")):
        function.asked.clear()
        answer(query, TABLES, Options(policy="static", order=order))
        assert max(function.asked.values()) == 1


@pytest.mark.parametrize("seed", range(5))
def test_roles_of_one_relation_do_not_share_answers_of_different_predicates(seed: int) -> None:
    """Both predicates ask about rows of one store, and disagree about them."""
    low, high = Asked({3: False, 4: False}), Asked({0: False, 1: False})
    query = make_query(
        {"t": ORDERS},
        ["p.k = q.k"],
        roles={"p": "t", "q": "t"},
        output=["p.o", "q.o"],
        selections=(
            Selection(Call("low", (col("p.o"),)), expensive=True),
            Selection(Call("high", (col("q.o"),)), expensive=True),
        ),
        functions=(UserFunction("low", low, pa.bool_()), UserFunction("high", high, pa.bool_())),
    )
    options = Options(policy="random", seed=seed, batch_rows=2)
    found = answer(query, {"t": ORDERS}, options, rows=2)
    assert_same_bag(found, pa.table({"p_o": [2, 2], "q_o": [2, 3]}))
    assert max(low.asked.values()) == max(high.asked.values()) == 1


def test_an_expensive_predicate_over_two_sources() -> None:
    query = make_query(
        TABLES,
        ["o.k = l.k"],
        output=["o.o", "l.l"],
        filters=(Filter(Call("same", (col("o.o"), col("l.l"))), expensive=True),),
        functions=(UserFunction("same", lambda a, b: a == b, pa.bool_()),),
    )
    assert_same_bag(answer(query, TABLES), pa.table({"o_o": [0, 1, 3, 4], "l_l": [0, 1, 3, 4]}))


def test_nobody_passes() -> None:
    query = make_query(
        TABLES,
        ["o.k = l.k"],
        selections=(Selection(Call("no", (col("o.o"),)), expensive=True),),
        functions=(UserFunction("no", lambda value: False, pa.bool_()),),
    )
    assert answer(query, TABLES).num_rows == 0
