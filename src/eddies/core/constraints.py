"""Where a signature may go next. Correctness only; which way is best is a policy's business.

The rules of SteMs' Table 2 for scans, in the words of this engine:

* *Build first.* A base batch is stored before it probes. `may_skip_build` is the one exception
  (section 3.5 of SteMs): no row that could still arrive would have to meet it.
* *Progress* (BoundedRepetition). Every move adds a bit to the signature, so a batch makes at most as
  many moves as there are sources and optional predicates.
* *Ask the complete.* Whether a source has a matching row can be said only when all its rows are there:
  nothing is routed before (`Eddy`).
* A batch that spans all sources and has passed all predicates has no move left: it is a result. Where
  several queries share an eddy, these are the sources and predicates of its own query.

Cartesian products are legal only where no predicate connects the batch with a source it lacks. That
is not needed for correctness, but no order that multiplies without need is worth having.

Which rows a probe may match is not decided here but in `exactly_once`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from eddies.core.graph import Graph
from eddies.core.join_tree import JoinTree
from eddies.core.lineage import Signature, bits

__all__ = ["Move", "is_connected", "is_result", "legal_joins", "legal_moves", "may_skip_build"]


@dataclass(frozen=True, slots=True)
class Move:
    """Probe the SteM of source `target`, or (when `optional` is given) apply that predicate.

    With state in joins, `join` is the edge to go to and `target` the source it leads to first.
    """

    target: int = -1
    optional: int = -1
    cross: bool = False
    join: int = -1

    def after(self, signature: Signature) -> Signature:
        """The signature of what comes back."""
        sources, done, _ = signature
        if self.optional >= 0:
            return Signature(sources, done | 1 << self.optional)
        if self.target < 0:
            return signature  # nowhere: rows that may not go on are let go
        return Signature(sources | 1 << self.target, done)


def is_result(graph: Graph, signature: Signature) -> bool:
    """Whether a batch with this signature is part of the answer."""
    part = graph.parts[graph.part_of(signature.sources)]
    return signature.sources == part.sources and signature.done == part.done


def legal_moves(graph: Graph, signature: Signature) -> tuple[Move, ...]:
    """All legal next moves, in the order of the query text: connected sources, then predicates."""
    spanned = signature.sources
    missing = bits(graph.parts[graph.part_of(spanned)].sources & ~spanned)
    connected = [target for target in missing if is_connected(graph, spanned, target)]
    moves = [_probe(target) for target in connected]
    if not connected:
        moves = [_probe(target, cross=True) for target in missing]
    return (*moves, *_legal_predicates(graph, signature))


@cache
def _probe(target: int, cross: bool = False) -> Move:
    """Made once: a query has the same few moves at every signature."""
    return Move(target=target, cross=cross)


def legal_joins(graph: Graph, tree: JoinTree, signature: Signature) -> tuple[Move, ...]:
    """The same for state="joins": every edge with one end in the signature, then predicates."""
    moves = []
    for edge in tree.edges:
        ends = (signature.sources >> edge.left & 1, signature.sources >> edge.right & 1)
        if ends[0] != ends[1]:
            moves.append(Move(target=edge.right if ends[0] else edge.left, join=edge.number))
    return (*moves, *_legal_predicates(graph, signature))


def _legal_predicates(graph: Graph, signature: Signature) -> list[Move]:
    return [
        Move(optional=number)
        for number, optional in enumerate(graph.optionals)
        if not signature.done >> number & 1 and optional.mask & ~signature.sources == 0
    ]


def is_connected(graph: Graph, spanned: int, target: int) -> bool:
    """Whether some predicate can be checked on the way to `target`."""
    bit = 1 << target
    if any(c.mask & bit and c.mask & spanned for c in graph.classes):
        return True
    reach = spanned | bit
    return any(f.connects and f.mask & bit and f.mask & ~reach == 0 for f in graph.filters)


def may_skip_build(graph: Graph, relation: int, ended: Sequence[bool]) -> bool:
    """Whether a batch of `relation` need not be stored: everything it can meet is there already.

    That is so when every other relation has ended and the relation plays one role only.
    """
    n_open = ended.count(False)
    if n_open > 1 or (n_open and ended[relation]):
        return False
    return len(graph.relations[relation].roles) == 1 and not graph.is_asked(relation)
