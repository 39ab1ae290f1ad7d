"""STAIRs for tests: what they hold, in readable form, and the invariants checked by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from eddies.core.eddy import Eddy
from eddies.core.lineage import bits
from eddies.core.stairs.operations import Stairs, is_connected
from eddies.core.stairs.stair import Stair
from eddies.core.state.scratch import Scratch

__all__ = ["held", "random_operation", "violations_of_a", "violations_of_b"]

Joined = dict[int, int]  # a tuple: row ids by source


def tuples_in(stair: Stair) -> list[Joined]:
    """Everything stored, one dictionary a tuple."""
    found = []
    for tuples in stair:
        columns = {source: ids.tolist() for source, ids in tuples.ids.items()}
        for i in range(tuples.n_rows):
            found.append({source: column[i] for source, column in columns.items()})
    return found


def held(stairs: Stairs) -> dict[str, list[str]]:
    """What every STAIR holds: {"S.b": ["r0s1", ...]}, sorted; rows are named by role and id."""
    roles = stairs.graph.roles
    return {
        stair.name: sorted(
            "".join(f"{roles[s].name.lower()}{row}" for s, row in sorted(joined.items()))
            for joined in tuples_in(stair)
        )
        for stair in stairs.all_stairs()
    }


def violations_of_b(stairs: Stairs) -> list[tuple[str, Joined, Joined]]:
    """Pairs in one STAIR that agree on all sources both contain."""
    found = []
    for stair in stairs.all_stairs():
        for one, other in itertools.combinations(tuples_in(stair), 2):
            if all(one[s] == other[s] for s in one.keys() & other.keys()):
                found.append((stair.name, one, other))
    return found


def violations_of_a(stairs: Stairs) -> list[tuple[int, Joined]]:
    """Joined tuples of routed rows, by their sources, of which no border STAIR holds a part.

    Only for queries without selections, filters or ended sources.
    """
    stored = {id(stair): tuples_in(stair) for stair in stairs.all_stairs()}
    found = []
    n = len(stairs.graph.roles)
    for mask in range(1, 1 << n):
        if not is_connected(stairs.tree, mask) or mask == (1 << n) - 1:
            continue
        border = [
            stair
            for stair in stairs.all_stairs()
            if mask >> stair.source & 1 and not mask >> stair.edge.other(stair.source) & 1
        ]
        for joined in _joined(stairs, mask):
            parts = (part for stair in border for part in stored[id(stair)])
            if not any(part.items() <= joined.items() for part in parts):
                found.append((mask, joined))
    return found


def _joined(stairs: Stairs, mask: int) -> Iterator[Joined]:
    sources = bits(mask)
    for rows in itertools.product(*(range(stairs.history.routed[s]) for s in sources)):
        joined = dict(zip(sources, rows, strict=True))
        if all(
            _matches(stairs, edge.left, edge.right, edge.keys, joined)
            for edge in stairs.tree.edges
            if mask >> edge.left & 1 and mask >> edge.right & 1
        ):
            yield joined


def _matches(
    stairs: Stairs, left: int, right: int, keys: tuple[tuple[str, str], ...], joined: Joined
) -> bool:
    def value(source: int, name: str) -> object:
        store = stairs.stems[stairs.graph.roles[source].relation].store
        array: pa.Array = store.column(name).take(np.array([joined[source]], dtype=np.int32))
        return array[0].as_py()

    pairs = [(value(left, a), value(right, b)) for a, b in keys]
    return all(a is not None and a == b for a, b in pairs)


def random_operation(stairs: Stairs, rng: random.Random, scratch: Scratch) -> str:
    """Apply one demotion or promotion, chosen at random; says which."""
    stair = rng.choice(stairs.all_stairs())
    draw = rng.random()
    if draw < 0.06 and stair.is_open:
        stairs.demote_to_rows(stair)
        return f"rows {stair.name}"
    if stair.is_view:
        if draw < 0.5:
            stair.materialise()
            return f"materialise {stair.name}"
        return "nothing"
    signatures = [s for s, pool in stair.pools.items() if pool.n_live]
    if not signatures:
        return "nothing"
    signature = rng.choice(signatures)
    live = stair.pools[signature].live_rows()
    share = rng.choice((0.2, 0.5, 1.0))
    rows = live if share == 1.0 else live[[rng.random() < share for _ in live]]
    if rows.shape[0] == 0:
        return "nothing"
    if rng.random() < 0.5:
        parts = [
            mask
            for mask in range(1, signature.sources + 1)
            if mask & ~signature.sources == 0
            and mask >> stair.source & 1
            and is_connected(stairs.tree, mask)
        ]
        to = rng.choice(parts)
        stairs.demote(stair, signature, to, scratch, rows)
        return f"demote {stair.name} {signature} to {to:b}"
    targets = [
        target
        for target in stairs.all_stairs()
        if target is not stair
        and signature.sources >> target.source & 1
        and not signature.sources >> target.edge.other(target.source) & 1
    ]
    if not targets:
        return "nothing"
    target = rng.choice(targets)
    stairs.promote(stair, signature, target, scratch, rows)
    return f"promote {stair.name} {signature} to {target.name}"


def stairs_of(eddy: Eddy) -> Stairs:
    """The STAIRs of an eddy that keeps intermediate results."""
    found = getattr(eddy.mode, "stairs", None)
    assert isinstance(found, Stairs), "the state of this eddy is not in STAIRs"
    return found
