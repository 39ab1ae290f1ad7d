"""Texts that were planned before.

To divide a text into blocks and what runs above takes tens of milliseconds, and says nothing of rows:
it follows from the text, the columns of its tables and a few settings. So a query that is asked again,
be it of other files with the same columns, is not divided again. What Spark was asked about, the
columns of a subquery, may depend on anything in its session, and is asked anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from eddies.sql import SqlPlan

__all__ = ["PlannedTexts"]

_MOST_TEXTS = 128


class PlannedTexts:
    """Plans by what they follow from; the ones that were used last are kept. For any thread."""

    def __init__(self, most: int = _MOST_TEXTS) -> None:
        self._most = most
        self._plan_by_key: OrderedDict[Hashable, SqlPlan] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plan_by_key)

    def plan(self, key: Hashable, make: Callable[[], tuple[SqlPlan, bool]]) -> SqlPlan:
        """The plan for `key`. If there is none, `make` makes it and says whether it may be kept."""
        with self._lock:
            known = self._plan_by_key.get(key)
            if known is not None:
                self._plan_by_key.move_to_end(key)
                return known
        made, may_be_kept = make()
        if may_be_kept:
            with self._lock:
                self._plan_by_key[key] = made
                while len(self._plan_by_key) > self._most:
                    self._plan_by_key.popitem(last=False)
        return made
