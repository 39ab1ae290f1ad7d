"""state="static": symmetric hash joins in one order, as a plan would have it."""

from __future__ import annotations

from collections.abc import Sequence

from eddies.core.constraints import Move
from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.lineage import Signature
from eddies.core.modules.stem import SteM
from eddies.core.state_modes.joins import JoinsMode

__all__ = ["StaticMode"]


class StaticMode(JoinsMode):
    """A static plan made of the same STAIRs: every signature has one way to go.

    `order` names joins and predicates, earlier is preferred; what it does not name follows in the
    order of the query's text, predicates before joins. An order of the joins of a tree is a plan: a
    tuple goes to the first join in it that has one end in the tuple.
    """

    name = "static"

    def __init__(
        self, graph: Graph, stems: Sequence[SteM], stamps: StampRule, order: Sequence[str] = ()
    ) -> None:
        super().__init__(graph, stems, stamps)
        names = [optional.name for optional in graph.optionals]
        names += [join.name for join in self.joins]
        places = {entry: place for place, entry in enumerate(order)}
        self._places = {
            name: places.get(name, places.get(name.partition(":")[2], len(order) + number))
            for number, name in enumerate(names)
        }

    def moves(self, signature: Signature) -> tuple[Move, ...]:
        legal = super().moves(signature)
        return (min(legal, key=lambda move: self._places[self._name(move)]),)

    def moves_over_rows(self, signature: Signature) -> tuple[Move, ...]:
        return self.moves(signature)

    def _name(self, move: Move) -> str:
        if move.optional >= 0:
            return self._graph.optionals[move.optional].name
        return self.joins[move.join].name
