"""When a scan need not be read to its end, because look-ups have brought all that matters.

Take a source s with a scan and an index, and a source r that has ended and binds the index alone. Every
result holds a row of r, and the row of s in it has the key of that row. So once every key among the
stored rows of r is covered, whatever else the scan would bring can be part of no result. Then three
rows of r and an index are enough for a table of a billion rows.

If few keys are missing, it pays to ask for them: that is so when they keep the indexes busy for less
time than the scan is expected to need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eddies.core.access.binding import Option, single_binders
from eddies.core.access.lookups import Lookups
from eddies.core.access.scan_pace import ScanPace
from eddies.core.batch import Ids
from eddies.core.graph import Graph
from eddies.core.state.rows import RowStore

__all__ = ["Sufficiency"]


class Sufficiency:
    """Finds relations whose scans may stop. `stored_rows(s)` are the rows of source s."""

    def __init__(
        self,
        graph: Graph,
        lookups: Lookups,
        pace: Sequence[ScanPace],
        stores: Sequence[RowStore],
        stored_rows: Callable[[int], Ids],
    ) -> None:
        self._graph = graph
        self._lookups = lookups
        self._pace = pace
        self._stores = stores
        self._stored_rows = stored_rows

    def check(self) -> list[int]:
        """Relations that have all rows that matter. Asks for what is missing where that pays."""
        lookups = self._lookups
        found = []
        for number, relation in enumerate(self._graph.relations):
            if lookups.is_complete[number] or not lookups.has_scan[number]:
                continue
            if all(self._is_answered(source) for source in relation.roles):
                found.append(number)
        return found

    def _is_answered(self, target: int) -> bool:
        for option in self._lookups.plan.options[target]:
            for binder in single_binders(option):
                relation = self._graph.roles[binder].relation
                if self._lookups.is_complete[relation] and self._covers(option, binder):
                    return True
        return False

    def _covers(self, option: Option, binder: int) -> bool:
        store = self._stores[self._graph.roles[binder].relation]
        rows = self._stored_rows(binder)
        if rows.shape[0] == 0:
            return True  # no row, no result
        n_missing, n_unknown = self._lookups.n_missing(option, binder, store, rows)
        if n_missing == 0:
            return True
        relation = self._graph.roles[option.target].relation
        wait_ns = self._pace[relation].wait_ns()
        busy_ns = self._lookups.busy_ns(option)
        if n_unknown and busy_ns and wait_ns is not None and n_unknown * busy_ns < 2 * wait_ns:
            self._lookups.ask_for_rows(option, binder, store, rows)
        return False
