"""How many joins lie between a source and the others."""

from __future__ import annotations

from eddies.core.graph.facts import Graph

__all__ = ["distances"]


def distances(graph: Graph, start: int) -> dict[int, int]:
    """By source, the least number of equality joins from `start`; none for those it cannot reach."""
    members = [key_class.column_by_source for key_class in graph.classes]
    reached, level = {start: 0}, [start]
    while level:
        following = {s for near in level for m in members if near in m for s in m} - reached.keys()
        reached |= dict.fromkeys(following, reached[level[0]] + 1)
        level = sorted(following)
    return reached
