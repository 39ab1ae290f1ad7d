"""Dead ends, removed before the last relation drives: semi-joins among what is stored.

In a chain of many-to-many joins whose far end matches nothing, every order that starts at the near
end multiplies rows for nothing. When only one relation is still to come, all others are complete, and
it can be told which of their rows lead on: seen from the last relation the query is a tree, and a row
that has no partner in one of its branches is in no result. Working from the leaves to the root leaves
rows that all lead to a leaf (Yannakakis' first pass); then no probe multiplies rows that die later,
except where filters or cycles, of which this knows nothing, reject them.

That costs a look-up a stored row and branch, so it is done where it is cheap beside the rows that are
still to come, which are `_CHEAP` times as many or more, or where rows may multiply: where the fan-outs
along a branch, known from the indexes that the probes need anyway, come to `_MULTIPLIES` or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from eddies.core.graph import Graph
from eddies.core.modules.stem import SteM
from eddies.core.state.hash_index import HashIndex
from eddies.core.state.keys import key_words
from eddies.core.state.scratch import Scratch

__all__ = ["may_multiply", "reduce_stems"]

_MULTIPLIES = 16.0
_CHEAP = 16  # rows to come for each look-up
_WORTH_REMOVING = 0.1  # share of a SteM's rows
_CHUNK_ROWS = 1 << 16


@dataclass(slots=True)
class _Node:
    """A source in the tree: `keys` are pairs (column of the parent, own column)."""

    source: int
    keys: tuple[tuple[str, str], ...] = ()
    children: list[_Node] = field(default_factory=list)
    fan_out: float = 1.0


def reduce_stems(graph: Graph, stems: Sequence[SteM], driver: int, n_to_come: int) -> None:
    """Remove dead ends from the SteMs if only source `driver` is still to come, likely `n_to_come` rows
    of it, and it is cheap or rows may multiply.

    Row ids change: only when nobody holds any. SteMs with few dead ends keep them.
    """
    root = _tree(graph, driver)
    n_look_ups = sum(_n_look_ups(graph, stems, child) for child in root.children)
    if n_look_ups == 0:
        return
    if n_look_ups * _CHEAP <= n_to_come or _multiplies(graph, stems, root):
        scratch = Scratch(_CHUNK_ROWS)
        for child in root.children:
            _reduce(graph, stems, child, scratch)


def may_multiply(graph: Graph, stems: Sequence[SteM], driver: int) -> bool:
    """Whether rows of `driver` may meet many dead ends for each of them."""
    return _multiplies(graph, stems, _tree(graph, driver))


def _multiplies(graph: Graph, stems: Sequence[SteM], root: _Node) -> bool:
    """Whether rows multiply on a branch below `root`."""
    if all(not child.children for child in root.children):
        return False  # a star: the driver's rows meet every dead end at once
    scratch = Scratch(_CHUNK_ROWS)
    for child in root.children:
        _measure(graph, stems, child, scratch)
    return max(_growth(child) for child in root.children) >= _MULTIPLIES


def _tree(graph: Graph, driver: int) -> _Node:
    """All sources that equalities connect with the driver, each below the nearest one."""
    root = _Node(driver)
    seen, level = 1 << driver | graph.asked, [root]
    while level:
        following: list[_Node] = []
        for parent in level:
            found: dict[int, list[tuple[str, str]]] = {}
            for key_class in graph.classes:
                column = key_class.column_by_source.get(parent.source)
                for source, own in key_class.column_by_source.items():
                    if column is not None and not seen >> source & 1:
                        found.setdefault(source, []).append((column, own))
            for source, keys in found.items():
                seen |= 1 << source
                node = _Node(source, tuple(sorted(keys, key=lambda pair: pair[1])))
                parent.children.append(node)
                following.append(node)
        level = following
    return root


def _index(graph: Graph, stems: Sequence[SteM], node: _Node, scratch: Scratch) -> HashIndex:
    """The index by which a node is found from its parent."""
    role = graph.roles[node.source]
    index = stems[role.relation].hash_index(tuple(own for _, own in node.keys), role.flag)
    index.catch_up(scratch)
    return index


def _measure(graph: Graph, stems: Sequence[SteM], node: _Node, scratch: Scratch) -> None:
    index = _index(graph, stems, node, scratch)
    node.fan_out = max(1.0, index.n_entered / max(1, index.n_keys))
    for child in node.children:
        _measure(graph, stems, child, scratch)


def _growth(node: _Node) -> float:
    """By how much rows multiply at most from here to a leaf."""
    return node.fan_out * max((_growth(child) for child in node.children), default=1.0)


def _n_look_ups(graph: Graph, stems: Sequence[SteM], node: _Node) -> int:
    """What it takes to find the dead ends from here on."""
    below = sum(_n_look_ups(graph, stems, child) for child in node.children)
    if not _can_lose_rows(graph, node):
        return below
    return below + len(node.children) * stems[graph.roles[node.source].relation].store.n_rows


def _can_lose_rows(graph: Graph, node: _Node) -> bool:
    """Whether a row without partners below this node has no other role in which it has some."""
    return (
        bool(node.children) and len(graph.relations[graph.roles[node.source].relation].roles) == 1
    )


def _reduce(graph: Graph, stems: Sequence[SteM], node: _Node, scratch: Scratch) -> None:
    for child in node.children:
        _reduce(graph, stems, child, scratch)
    if not _can_lose_rows(graph, node):
        return
    relation = graph.roles[node.source].relation
    store = stems[relation].store
    alive = np.ones(store.n_rows, dtype=np.bool_)
    for child in node.children:
        index = _index(graph, stems, child, scratch)
        columns = [(store.column(name), None) for name in _in_order(index, child)]
        for start in range(0, store.n_rows, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, store.n_rows)
            words, valid = key_words(columns, start, stop)
            has_partner = index.has(words, scratch)
            if valid is not None:
                has_partner &= valid.astype(np.bool_)
            alive[start:stop] &= has_partner
    n_dead = store.n_rows - int(np.count_nonzero(alive))
    if n_dead > _WORTH_REMOVING * store.n_rows:
        stems[relation].keep_only(np.flatnonzero(alive).astype(np.int32))


def _in_order(index: HashIndex, child: _Node) -> list[str]:
    """The parent's columns in the order of the index, which may have fewer than the node."""
    by_own = {own: column for column, own in child.keys}
    return [by_own[own] for own in index.columns]
