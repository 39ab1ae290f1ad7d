"""From constraints to steps: what a route table is filled with when a signature first occurs."""

from __future__ import annotations

from collections.abc import Callable

from eddies.core.constraints import is_result
from eddies.core.graph import Graph
from eddies.core.module import Step
from eddies.core.policies.base import Fork
from eddies.core.policies.static import check_order
from eddies.core.route import Route, RouteTable
from eddies.core.state_modes import StateMode

__all__ = ["Wiring"]


class Wiring:
    """The modules of a query as a graph and a state mode make them."""

    def __init__(self, graph: Graph, mode: StateMode) -> None:
        self._graph = graph
        self._mode = mode

    def check_order(self, order: tuple[str, ...]) -> None:
        """Every module must be named, except one source: the one whose rows drive."""
        if not order:
            return
        names = self._mode.module_names()
        unnamed = [n for n in names if n not in order and n.removeprefix("stem:") not in order]
        if len(unnamed) == 1 and unnamed[0].startswith("stem:"):
            names.remove(unnamed[0])
        check_order(order, [*names, *(o.name for o in self._graph.optionals)])

    def expand(
        self, route: Route, table: RouteTable
    ) -> tuple[Fork | None, list[Callable[[], Step]]]:
        """The legal steps of a route: constraints decide which, this only says how they are made."""
        signature, mode = route.signature, self._mode
        if is_result(self._graph, signature):
            return None, []
        makers: list[Callable[[], Step]] = []
        candidates, leads_to = [], []
        for move in mode.moves(signature):
            make, candidate = mode.option(move, signature, table)
            makers.append(make)
            candidates.append(candidate)
            leads_to.append(move.after(signature))
        fork = Fork(table.n_forks, signature, tuple(candidates), tuple(leads_to))
        table.n_forks += 1
        return fork, makers
