"""What all tests share: the marks of a folder, and one embedded Spark for those that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TESTS = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything that needs Spark is marked, so that it can be run by itself: a JVM uses all cores."""
    if item.path.is_relative_to(_TESTS / "spark") or "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
    if item.path.is_relative_to(_TESTS / "claims"):
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: two workers, several partitions, so that tasks really mix.

    Which Spark it is, `tests.support.clusters` says.
    """
    from tests.support.clusters import make_session

    session = make_session()
    yield session
    session.stop()
