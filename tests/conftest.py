"""What all tests share: the marks of a folder, and one embedded Spark for those that need it.

Where tests run in several processes (`pytest --numprocesses`), those with Spark run in one of them, one
after another: they share its session. `tests.support.processes` says who runs where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.processes import OneSpark

_TESTS = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything that needs Spark is marked, so that it can be run, or left out, by itself."""
    if item.path.is_relative_to(_TESTS / "spark") or "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
    if item.path.is_relative_to(_TESTS / "claims"):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)  # it is xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark | None:
    """Unless somebody asks for another way to divide tests among processes."""
    from tests.support.processes import OneSpark

    return OneSpark(config, log) if config.getoption("dist") == "load" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests without Spark step back for those with it, which take longest."""
    if "PYTEST_XDIST_WORKER" in os.environ and item.get_closest_marker("spark") is None:
        from tests.support.processes import step_back

        step_back()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: two workers, several partitions, so that tasks really mix.

    Which Spark it is, `tests.support.clusters` says.
    """
    from tests.support.clusters import make_session

    session = make_session()
    yield session
    session.stop()
