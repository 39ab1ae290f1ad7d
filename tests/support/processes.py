"""Which tests run in one process, one after another, where several processes run tests.

Tests with Spark share a session, so they are one piece of work. It comes first, for it takes longest
and leaves processors idle: while a query is planned, a stream waits for its next epoch, or a killed
executor is replaced, other processes run tests without Spark. They step back where there are too few
processors for all. Tests that start other kinds of Spark need no session, and are a second piece. Every
other test is a piece by itself.
"""

from __future__ import annotations

import os
from functools import cache

from xdist.scheduler import LoadScopeScheduling

__all__ = ["OneSpark", "piece_of", "step_back"]

_SPARK = "tests/spark/"
_OTHER_KINDS = "tests/spark/test_kinds_of_spark.py"


def piece_of(test: str) -> str:
    """The name of the piece of work that a test is in; pieces of most tests are done first."""
    if test.startswith(_OTHER_KINDS):
        return _OTHER_KINDS
    return _SPARK if test.startswith(_SPARK) else test


@cache
def step_back() -> None:
    """From now on, let other processes go first, by a factor of three."""
    os.nice(5)


class OneSpark(LoadScopeScheduling):
    """The scheduler of xdist that keeps pieces together, with these pieces."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)
