"""Tests with Spark stay together where several processes run tests."""

from __future__ import annotations

import pytest

from tests.support.processes import piece_of


def test_one_process_has_the_session(request: pytest.FixtureRequest) -> None:
    """Whatever needs Spark is where `piece_of` sees it."""
    pieces = {piece_of(item.nodeid) for item in request.session.items if with_session(item)}
    assert len(pieces) <= 1, pieces


def with_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def test_pieces() -> None:
    one, two = "tests/spark/test_tpch.py::test_tpch[q01]", "tests/spark/test_slots.py::test_x"
    assert piece_of(one) == piece_of(two)
    other = "tests/spark/test_kinds_of_spark.py::test_spark_connect"
    plain = ("tests/unit/test_eddy.py::test_a", "tests/unit/test_eddy.py::test_b")
    assert len({piece_of(test) for test in (one, other, *plain)}) == 4
