"""State modes by the names of `Options.state`."""

from __future__ import annotations

from collections.abc import Sequence

from eddies.core.exactly_once import StampRule
from eddies.core.graph import Graph
from eddies.core.modules.stem import SteM
from eddies.core.options import Options
from eddies.core.state_modes.base import StateMode
from eddies.core.state_modes.joins import JoinsMode
from eddies.core.state_modes.spilling import SpillingStems
from eddies.core.state_modes.static import StaticMode
from eddies.core.state_modes.stems import StemsMode

__all__ = ["StateMode", "make_state_mode"]


def make_state_mode(
    options: Options, graph: Graph, stems: Sequence[SteM], stamps: StampRule
) -> StateMode:
    """The mode that `options` ask for."""
    if options.state == "joins":
        return JoinsMode(graph, stems, stamps)
    if options.state == "static":
        return StaticMode(graph, stems, stamps, options.order)
    if options.memory is not None:
        return SpillingStems(graph, stems, stamps, options)
    return StemsMode(graph, stems, stamps)
