"""Where rows come from: access methods over the world, as the hosts see them."""

from __future__ import annotations

from eddies.sources.arrivals import Arrivals, Batches, InMemory, arrivals_of
from eddies.sources.simulated import Simulated
from eddies.sources.source import Source, Split, is_source

__all__ = [
    "Arrivals",
    "Batches",
    "InMemory",
    "Simulated",
    "Source",
    "Split",
    "arrivals_of",
    "is_source",
]
