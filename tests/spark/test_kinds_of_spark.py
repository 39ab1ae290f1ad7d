"""A standalone cluster and Spark Connect pass the same tests as the embedded Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clusters import SPARK_VARIABLE, cluster

TESTS = Path(__file__).parents[1]
QUICK = "as_frame-2 or as_parquet-None or outer_joins or user_functions or killed"


def run_spark_tests(kind: str, only: str) -> None:
    """The tests of `eddies.sql` in another process, on another Spark."""
    tests = str(TESTS / "spark" / "test_eddies_sql.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", tests, "-q", "-x", "-p", "no:cacheprovider", "-k", only],
        env=os.environ | {SPARK_VARIABLE: kind},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.skipif(SPARK_VARIABLE in os.environ, reason="this is that other Spark")
def test_a_standalone_cluster() -> None:
    with cluster() as address:
        run_spark_tests(address, QUICK)


@pytest.mark.skipif(SPARK_VARIABLE in os.environ, reason="this is that other Spark")
def test_spark_connect() -> None:
    run_spark_tests("connect", QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cluster", "connect"])
def test_everything_on_other_kinds_of_spark(kind: str) -> None:
    if kind == "connect":
        run_spark_tests("connect", "test_")
        return
    with cluster() as address:
        run_spark_tests(address, "test_")
