"""What all tests share: the marks of a folder, and one embedded Spark for those that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in `spark/` runs on one worker: a JVM per worker would fight for the cores."""
    for item in items:
        if item.path.is_relative_to(_TESTS / "spark") or "spark" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
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
