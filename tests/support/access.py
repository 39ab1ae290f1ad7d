"""Eddies over access methods, run the hard way: any interleaving of scans, answers and failures."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from eddies.core.access import Access, IndexAccess, LookupRequest
from eddies.core.clock import VirtualClock
from eddies.core.eddy import Eddy
from eddies.core.options import Options
from eddies.core.query import Query
from eddies.hosts.lookups import Fate, VirtualLookups

__all__ = ["CHAIN", "FOUR_CYCLE", "SHAPES", "STAR", "TRIANGLE", "Asked", "drive_access", "index_on"]

CHAIN = ("r.a = s.a", "s.b = t.b", "t.c = u.c")
STAR = ("r.a = s.a", "r.b = t.b", "r.c = u.c")
TRIANGLE = ("r.a = s.a", "s.b = t.b", "t.c = r.c")
FOUR_CYCLE = ("r.a = s.a", "s.b = t.b", "t.c = u.c", "u.d = r.d")
SHAPES = {"chain": CHAIN, "star": STAR, "triangle": TRIANGLE, "four-cycle": FOUR_CYCLE}


class Asked:
    """Keys that were asked for, over all indexes of one set of bind columns."""

    def __init__(self) -> None:
        self.keys: list[tuple[object, ...]] = []


def index_on(
    name: str, table: pa.Table, bind: tuple[str, ...], asked: Asked | None = None, **settings: Any
) -> IndexAccess:
    """An index that answers from a table."""

    rows_by_key: dict[tuple[object, ...], list[int]] = {}
    for number, row in enumerate(table.select(list(bind)).to_pylist()):
        rows_by_key.setdefault(tuple(row.values()), []).append(number)
    whole = table.combine_chunks()

    def lookup(keys: pa.RecordBatch) -> pa.Table:
        wanted = [tuple(row.values()) for row in keys.to_pylist()]
        if asked is not None:
            asked.keys += wanted
        rows = [number for key in wanted for number in rows_by_key.get(key, ())]
        return whole.take(pa.array(rows, pa.int64()))

    return IndexAccess(name, bind, lookup, **settings)


def _cut(table: pa.Table, rng: random.Random) -> list[pa.RecordBatch]:
    whole = table.combine_chunks()
    batches, start = [], 0
    most = rng.choice((1, 3, 20))
    while start < whole.num_rows:
        n_rows = rng.randint(1, most)
        batches += whole.slice(start, n_rows).to_batches()
        start += n_rows
    return batches


def drive_access(
    query: Query,
    tables: Mapping[str, pa.Table],
    access: Mapping[str, Access],
    rng: random.Random,
    options: Options,
    *,
    fail_share: float = 0.0,
    lost_share: float = 0.0,
    dying: frozenset[tuple[str, str]] = frozenset(),
    **settings: Any,
) -> pa.Table:
    """The answer of an eddy whose scans and look-ups come in a random interleaving.

    A share of look-ups fails, another is never answered; scans in `dying` fail half-way.
    """
    clock = VirtualClock()

    def fate(request: LookupRequest) -> Fate:
        if request.attempt > request.index.retries:
            return Fate(rng.random() * 0.45)
        draw = rng.random()
        if draw < fail_share:
            return Fate(rng.random() * 0.45, "as asked")
        return Fate(None) if draw < fail_share + lost_share else Fate(rng.random() * 0.45)

    eddy = Eddy(
        query, options, clock=clock, access=access, lookups=VirtualLookups(clock, fate), **settings
    )
    waiting: dict[tuple[str, str], list[pa.RecordBatch]] = {}
    for name, table in tables.items():
        for scan in access.get(name, Access()).scans:
            batches = _cut(table, rng)
            rng.shuffle(batches)
            if (name, scan) in dying:
                batches = batches[: len(batches) // 2]
            waiting[name, scan] = batches
    poll_share = rng.choice((0.1, 0.5, 0.9))
    found: list[pa.RecordBatch] = []
    for _ in range(100_000):
        if waiting and rng.random() > poll_share:
            name, scan = rng.choice(list(waiting))
            if waiting[name, scan]:
                eddy.push_by(name, scan, waiting[name, scan].pop(0))
            elif (name, scan) in dying:
                eddy.lose_scan(name, scan, "as asked")
                del waiting[name, scan]
            else:
                eddy.end(name)
                waiting = {key: rest for key, rest in waiting.items() if key[0] != name}
            continue
        rows = eddy.poll()
        if rows is not None:
            found.append(rows)
        elif eddy.is_done:
            break
        else:
            eddy.await_lookups(None)
    assert eddy.is_done, "the query did not end"
    assert eddy.n_in_flight == 0
    return pa.Table.from_batches(found, schema=eddy.output.schema)
