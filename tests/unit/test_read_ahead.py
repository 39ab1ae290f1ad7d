"""Reading ahead: the same items, the next one under way while one is in use."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from eddies.core.spill.ahead import ReadAhead


def test_the_next_item_is_made_while_one_is_in_use() -> None:
    began = [threading.Event() for _ in range(3)]

    def items() -> Generator[int]:
        for i in range(3):
            began[i].set()
            yield i

    ahead = ReadAhead(1)
    for item in ahead.items(items()):
        if item < 2:
            assert began[item + 1].wait(10), "nobody asked for it yet"
    ahead.close()


def test_items_come_in_order_and_several_iterators_at_once() -> None:
    ahead = ReadAhead(2)
    outer = (i for i in range(20))
    found = [(i, list(ahead.items(j for j in range(i)))) for i in ahead.items(outer)]
    assert found == [(i, list(range(i))) for i in range(20)]
    ahead.close()
    ahead.close()


def test_an_error_comes_where_the_item_would() -> None:
    def items() -> Generator[int]:
        yield 1
        yield 2
        raise ValueError("no third")

    ahead = ReadAhead(1)
    following = ahead.items(items())
    assert [next(following), next(following)] == [1, 2]
    with pytest.raises(ValueError, match="no third"):
        next(following)
    ahead.close()


def test_whoever_stops_in_the_middle_leaves_nothing_under_way() -> None:
    is_closed = threading.Event()

    def items() -> Generator[int]:
        try:
            yield from range(100)
        finally:
            is_closed.set()

    ahead = ReadAhead(1)
    following = ahead.items(items())
    assert next(following) == 0
    before = threading.active_count()
    following.close()  # type: ignore[attr-defined]
    assert is_closed.is_set()
    ahead.close()
    assert threading.active_count() < before
